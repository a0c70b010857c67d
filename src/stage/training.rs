//! What the steps of a training run amount to: steady state, throughput, jitter, restarts. Shared by the stages that
//! train; each declares which of the metrics it reports.

use crate::{
    measure::{
        Better, Finite, Labels, Metric, Unit,
        progress::{Mark, Progress, What, account},
        quantity::Level,
        steady::{self, BAND, Verdict},
        summary::Summary,
    },
    outcome::{Cause, Outcome, OutcomeKind, printable},
    readers::{Said, Step},
    stage::{
        drive::{Amount, Drive, Found, Tell},
        host::Ended,
        launch::{self, Ask},
    },
};

/// How much stands behind the figures: under 30 min, the scorecard stamps them `short`.
pub const STEADY_SECONDS: Metric =
    Metric::new("steady_seconds", Unit::SECONDS, Better::Neither, "length of the steady state");
/// Restarts, by the steps.
pub const RESTARTS: Metric =
    Metric::new("restarts", Unit::COUNT, Better::Lower, "times the job was started again");
/// What restarts cost in steps.
pub const REDONE_STEPS: Metric = Metric::new(
    "redone_steps",
    Unit::COUNT,
    Better::Lower,
    "steps that were made again after restarts, where the program prints every step",
);
/// What is left of the speed.
pub const GOODPUT: Metric = Metric::new(
    "goodput",
    Unit::STEPS_PER_SECOND,
    Better::Higher,
    "steps by which the job came further, per second from its first step on; those made again count once",
);
/// What restarts cost in time, at most.
pub const SILENT_SECONDS: Metric = Metric::new(
    "silent_seconds",
    Unit::SECONDS,
    Better::Lower,
    "from the last step before each restart to the first after it: the down time at most",
);

/// Unreadable lines that are shown.
const SHOWN_UNREADABLE: usize = 3;

/// A step with the host's time at which it was heard of.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// The step.
    pub step: Step,
    /// Seconds, only to be compared with others of the same task.
    pub at: f64,
}

/// What a training program said.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Its steps, in the order in which they were printed.
    pub steps: Vec<Heard>,
    /// Whether it says that it runs on CPU cores.
    pub on_cpu: bool,
    /// Floating-point operations of the model per token, where the program says so.
    pub flops_per_token: Option<f64>,
    /// Lines that looked like data and could not be read.
    pub unreadable: usize,
}

/// Runs the workload and records its steps. Numbers other than the declared ones are notes.
///
/// What it had said before it did not end well is in the record, too.
///
/// # Errors
/// The outcome when it cannot run here, does not end well, reports no step, or reports steps of another world.
pub async fn record(
    cx: &mut Drive<'_>,
    ask: Ask,
    metrics: &[Metric],
    recorded: &mut Recorded,
) -> Result<Ended, Outcome> {
    let total = f64::from(ask.amount.steps.max(1));
    let queue = cx.tell.clone();
    let mut each = |said: Said, at: f64| match said {
        Said::Step(step) => {
            if recorded.steps.len().is_multiple_of(16) {
                let rate = step.tokens.or(step.samples).map(|n| n / step.seconds.max(1e-9));
                let rate = rate.map_or_else(String::new, |r| format!("{r:.0}/s"));
                let _ = queue.send(Tell::Progress(recorded.steps.len() as f64, total, rate));
            }
            recorded.steps.push(Heard { step, at });
        }
        Said::Number { name, value, unit, labels, .. } => {
            recorded.on_cpu |= labels.0.get("device").is_some_and(|d| d == "cpu");
            if name == "flops_per_token" {
                recorded.flops_per_token = Some(value.get());
            }
            if let Some(metric) = metrics.iter().find(|m| m.name == name) {
                let (unit, better) = (metric.unit.clone(), metric.better);
                let found = Found { name, labels, unit, better, values: vec![value] };
                let _ = queue.send(Tell::Found(found));
            } else if labels.is_empty() {
                let unit = unit.map_or_else(String::new, |u| format!(" {u}"));
                let _ = queue.send(Tell::Note(false, format!("the program says {name} = {value}{unit}")));
            }
        }
        Said::Fact { name, value: Some(value), .. } => {
            let _ = queue.send(Tell::Fact(format!("program.{}", printable(&name)), value));
        }
        Said::Fact { .. } => {}
        Said::Note(text) => {
            let _ = queue.send(Tell::Note(false, printable(&text)));
        }
        Said::Unreadable(why) => {
            recorded.unreadable += 1;
            if recorded.unreadable <= SHOWN_UNREADABLE {
                let _ = queue.send(Tell::Note(true, format!("unreadable line: {}", printable(&why))));
            }
        }
    };
    let begun = std::time::Instant::now();
    let ended = launch::run(cx, ask, &mut each).await;
    // Of a program that broke down only the controller knows how long it lived at most.
    let life = ended.as_ref().map_or_else(|_| begun.elapsed().as_secs_f64(), |ended| ended.seconds);
    let said: f64 = recorded.steps.iter().map(|h| h.step.seconds).sum();
    if said > life * 1.05 + 1.0 {
        let reason = format!("the steps add up to {said:.1} s, and the program lived for {life:.1} s");
        return Err(Outcome::new(OutcomeKind::Implausible, Cause::Impossible, reason));
    }
    let worlds = recorded.steps.iter().filter_map(|h| h.step.world);
    if let Some(world) = worlds.into_iter().find(|world| *world != ask.gpus) {
        let reason = format!("the program says that {world} ranks ran, the plan asks for {}", ask.gpus);
        return Err(Outcome::new(OutcomeKind::Implausible, Cause::WorldSize, reason));
    }
    let ended = ended?;
    if recorded.steps.is_empty() {
        let reason = "the program ended well and reported no step: it prints {\"step\": 1, \"seconds\": 0.41, \"samples\": 256} for each";
        return Err(Outcome::new(OutcomeKind::Failed, Cause::NoStepRecorded, reason));
    }
    Ok(ended)
}

/// What a training run came to in its steady state.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// Time of each steady step, in seconds.
    pub step_times: Vec<f64>,
    /// Steps per second.
    pub steps_per_second: f64,
    /// Samples per second, where the program counts them.
    pub samples_per_second: Option<f64>,
    /// Tokens per second, where the program counts them.
    pub tokens_per_second: Option<f64>,
    /// Coefficient of variation of the step time.
    pub jitter: Option<f64>,
    /// Slow steps far outside their neighbourhood.
    pub stalls: usize,
    /// Steps before the steady state.
    pub warmup_steps: usize,
    /// Length of the steady state in seconds.
    pub steady_seconds: f64,
    /// Share of step time spent waiting for data.
    pub data_share: Option<f64>,
    /// Share of step time spent in communication.
    pub comm_share: Option<f64>,
}

/// Finds the steady state of recorded steps and what they came to in it.
///
/// # Formula
/// A rate is the sum over steady steps of what they did, divided by the sum of their times; a share likewise.
///
/// # Errors
/// The outcome when a step's time cannot be, there are fewer steps or seconds than asked, or they never settled.
pub fn pace(recorded: &Recorded, asked: Amount, band: f64) -> Result<Pace, Outcome> {
    let steps = &recorded.steps;
    let seconds: Vec<f64> = steps.iter().map(|h| h.step.seconds).collect();
    let total: f64 = seconds.iter().sum();
    if (steps.len() as u64) < u64::from(asked.steps) || total < asked.seconds * 0.95 {
        let (want, least) = (asked.steps, asked.seconds);
        let reason =
            format!("{} steps in {total:.1} s; the plan asks for {want} steps and {least} s", steps.len());
        return Err(Outcome::new(OutcomeKind::Failed, Cause::TooShort, reason));
    }
    let rule = steady::Rule { band, ..steady::Rule::default() };
    let found = steady::detect(&seconds, &rule)
        .map_err(|e| Outcome::new(OutcomeKind::Implausible, Cause::Impossible, e.to_string()))?;
    let state = match &found.verdict {
        Verdict::Steady(state) => state,
        Verdict::NoSteadyState => {
            let band = band * 100.0;
            let reason = format!(
                "the last quarter of {} steps holds segments whose mean step time differs by more than {band} %: no throughput can be given",
                steps.len()
            );
            return Err(Outcome::new(OutcomeKind::Failed, Cause::NoSteadyState, reason));
        }
        Verdict::TooFew { need } => {
            let reason = format!(
                "{} steps are too few to find a steady state: {need} and those of warm-up",
                steps.len()
            );
            return Err(Outcome::new(OutcomeKind::Failed, Cause::TooShort, reason));
        }
    };
    let step_times = state.pick(&seconds);
    let time = state.seconds.get();
    // A figure that some steps lack is not known for the whole.
    let over_steady = |of: fn(&Step) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> = steps.iter().map(|h| of(&h.step)).collect();
        Some(state.pick(&values?).iter().sum::<f64>() / time)
    };
    let summary = Summary::of(&step_times);
    Ok(Pace {
        steps_per_second: step_times.len() as f64 / time,
        samples_per_second: over_steady(|s| s.samples),
        tokens_per_second: over_steady(|s| s.tokens),
        jitter: summary.and_then(|s| s.cv).map(Into::into),
        stalls: found.stalls.iter().filter(|i| state.ranges.iter().any(|r| r.contains(i))).count(),
        warmup_steps: state.ranges.first().map_or(0, |r| r.start),
        steady_seconds: time,
        data_share: over_steady(|s| s.data_seconds),
        comm_share: over_steady(|s| s.comm_seconds),
        step_times,
    })
}

/// Accounts for a job from its steps, each life of the program by itself; `None` without a step.
///
/// A step that is not beyond the one before begins another attempt. Where a program prints every step, its lines also
/// tell from which step an attempt began and which was its last; where it prints every tenth, nobody knows how many
/// were made again.
///
/// # Errors
/// When times or steps contradict each other.
pub fn progress(lives: &[Vec<Heard>], until: Option<f64>) -> Result<Option<Progress>, Outcome> {
    let mut marks: Vec<Mark> = Vec::new();
    let attempts = lives.iter().flat_map(|life| life.chunk_by(|a, b| a.step.step < b.step.step));
    for (attempt, steps) in (0..).zip(attempts) {
        let mark = |t_s, step, what| Mark { attempt, t_s, step, what };
        let every = steps.windows(2).all(|w| w[0].step.step + 1 == w[1].step.step);
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { continue };
        if let Some(from) = first.step.step.checked_sub(1).filter(|_| every) {
            let begun = marks.last().map_or(f64::NEG_INFINITY, |m| m.t_s).max(first.at - first.step.seconds);
            marks.push(mark(begun, from, What::Started));
        }
        marks.extend(steps.iter().map(|h| mark(h.at, h.step.step, What::Done)));
        marks.extend(every.then(|| mark(last.at, last.step.step, What::Died)));
    }
    if let (Some(last), Some(until)) = (marks.last_mut(), until) {
        last.t_s = last.t_s.max(until);
    }
    account(&marks).map_err(|e| Outcome::new(OutcomeKind::Implausible, Cause::Impossible, e.to_string()))
}

/// Tells restarts and what they cost, each figure under the metric of its name if the stage declares it; returns how
/// many restarts there were.
///
/// # Errors
/// As [`progress`], and when a figure is no number.
pub fn tell_progress(
    cx: &mut Drive<'_>,
    metrics: &[Metric],
    labels: &Labels,
    lives: &[Vec<Heard>],
    until: Option<f64>,
) -> Result<u32, Outcome> {
    let Some(found) = progress(lives, until)? else { return Ok(0) };
    cx.figure(metrics, "restarts", labels, &[f64::from(found.restarts)])?;
    if let Some(redone) = found.redone {
        cx.figure(metrics, "redone_steps", labels, &[redone as f64])?;
    }
    // Lines that come in less time than their steps took were held back on their way: when they came tells nothing.
    let inside: f64 = lives.iter().flatten().map(|h| h.step.seconds).sum();
    if inside <= found.wall_s.get() * 1.05 {
        let goodput: Vec<f64> = found.goodput.map(Finite::get).into_iter().collect();
        cx.figure(metrics, "goodput", labels, &goodput)?;
        cx.figure(metrics, "silent_seconds", labels, &[found.silent_s.get()])?;
    }
    Ok(found.restarts)
}

/// The band around the last segment's mean within which steps count as steady.
///
/// Another one than the default is the plan's own idea of steady, which a reader must see.
///
/// # Errors
/// When it is no share.
pub fn band(cx: &mut Drive<'_>, asked: Option<&Level>) -> Result<f64, Outcome> {
    let Some(asked) = asked else { return Ok(BAND) };
    let band =
        asked.value_in(&Unit::RATIO).map_err(|e| Outcome::new(OutcomeKind::Failed, Cause::Internal, e))?;
    if band.total_cmp(&BAND).is_ne() {
        cx.warn(format!("the plan calls a state steady within {asked}, not within {} %", BAND * 100.0));
    }
    Ok(band)
}

/// Labels that every figure of a run carries: `device=cpu` where cores stand in for accelerators.
pub fn device_labels(recorded: &Recorded) -> Labels {
    if recorded.on_cpu { Labels::none().with("device", "cpu") } else { Labels::none() }
}

/// Tells the figures of a pace, each under the metric of its name if the stage declares it.
///
/// # Errors
/// When one of them is no number.
pub fn tell(cx: &mut Drive<'_>, metrics: &[Metric], labels: &Labels, pace: &Pace) -> Result<(), Outcome> {
    let one = |v: Option<f64>| v.into_iter().collect::<Vec<_>>();
    let figures: [(&str, Vec<f64>); 10] = [
        ("step_time", pace.step_times.clone()),
        ("steps_per_second", vec![pace.steps_per_second]),
        ("samples_per_second", one(pace.samples_per_second)),
        ("tokens_per_second", one(pace.tokens_per_second)),
        ("jitter", one(pace.jitter)),
        ("stalls", vec![pace.stalls as f64]),
        ("warmup_steps", vec![pace.warmup_steps as f64]),
        ("steady_seconds", vec![pace.steady_seconds]),
        ("data_share", one(pace.data_share)),
        ("comm_share", one(pace.comm_share)),
    ];
    for (name, values) in figures {
        cx.figure(metrics, name, labels, &values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, seconds: f64) -> Heard {
        let step = Step {
            step,
            seconds,
            samples: None,
            tokens: Some(100.0),
            world: None,
            data_seconds: None,
            comm_seconds: Some(seconds / 4.0),
        };
        Heard { step, at: 0.0 }
    }

    const ASKED: Amount = Amount { steps: 40, seconds: 0.0 };

    /// 20 slow steps, then 100 of 10 ms with 100 tokens each: 10,000 tokens/s, whatever the warm-up took.
    #[test]
    fn warm_up_does_not_count() {
        let mut recorded = Recorded::default();
        recorded.steps.extend((1..=20).map(|i| step(i, 0.05)));
        recorded.steps.extend((21..=120).map(|i| step(i, 0.01)));
        let pace = pace(&recorded, ASKED, 0.02).unwrap();
        assert_eq!(pace.warmup_steps, 20);
        assert!((pace.tokens_per_second.unwrap() - 10_000.0).abs() < 1e-6, "{pace:?}");
        assert!((pace.comm_share.unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(pace.samples_per_second, None, "what the program does not count is not known");
        assert!((pace.steady_seconds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn steps_that_never_settle_give_no_number() {
        let mut recorded = Recorded::default();
        recorded.steps.extend((1..=100).map(|i| step(i, 0.01)));
        recorded.steps.extend((101..=120).map(|i| step(i, 0.02)));
        recorded.steps.extend((121..=130).map(|i| step(i, 0.01)));
        let outcome = pace(&recorded, ASKED, 0.02).unwrap_err();
        assert_eq!(outcome.cause, Cause::NoSteadyState);
    }

    #[test]
    fn fewer_steps_than_asked_are_too_short() {
        let mut recorded = Recorded::default();
        recorded.steps.extend((1..=39).map(|i| step(i, 0.01)));
        assert_eq!(pace(&recorded, ASKED, 0.02).unwrap_err().cause, Cause::TooShort);
        let long = Amount { steps: 10, seconds: 5.0 };
        assert_eq!(pace(&recorded, long, 0.02).unwrap_err().cause, Cause::TooShort);
    }

    #[test]
    fn a_step_without_time_cannot_be() {
        let mut recorded = Recorded::default();
        recorded.steps.extend((1..=60).map(|i| step(i, 0.0)));
        assert_eq!(pace(&recorded, ASKED, 0.02).unwrap_err().kind, OutcomeKind::Implausible);
    }

    /// Case T07, its program printing every step: 53 steps in 106 s, dead until 196 s, from 40 to 80 by 276 s.
    #[test]
    fn restarts_are_told_from_progress() {
        let at = |i: u64, at: f64| Heard { at, ..step(i, 2.0) };
        let before: Vec<Heard> = (1..=53).map(|i| at(i, i as f64 * 2.0)).collect();
        let after: Vec<Heard> = (41..=80).map(|i| at(i, 196.0 + (i - 40) as f64 * 2.0)).collect();
        let told = |lives: &[Vec<Heard>]| {
            let p = progress(lives, None).unwrap().unwrap();
            let goodput = (p.goodput.unwrap().get() * 1e4).round() / 1e4;
            (p.restarts, p.redone, p.progress, p.wall_s.get(), p.silent_s.get(), goodput)
        };
        let right = (1, Some(13), 80, 276.0, 92.0, 0.2899);
        assert_eq!(told(&[before.clone(), after.clone()]), right);
        let one_life = [before.clone(), after.clone()].concat();
        assert_eq!(told(std::slice::from_ref(&one_life)), right, "the program itself starts again");
        // A start from the last step is a restart, too, and nothing was made again.
        let on: Vec<Heard> = (54..=60).map(|i| at(i, 200.0 + i as f64)).collect();
        assert_eq!(progress(&[before.clone(), on], None).unwrap().unwrap().redone, Some(0));
        // By every tenth line nobody can tell.
        let tenth: Vec<Heard> = one_life.into_iter().filter(|h| h.step.step.is_multiple_of(10)).collect();
        let found = progress(&[tenth], None).unwrap().unwrap();
        assert_eq!((found.restarts, found.redone, found.silent_s.get()), (1, None, 116.0));
        let hangs = progress(&[before], Some(206.0)).unwrap().unwrap();
        assert_eq!((hangs.restarts, hangs.redone, hangs.wall_s.get()), (0, Some(0), 206.0));
        assert_eq!(progress(&[], Some(1.0)), Ok(None));
    }
}
