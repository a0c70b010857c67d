//! What a run made of its time when it was killed and restarted: progress, goodput, redone steps, down time.
//!
//! Not here: finding the steady state of step times (`steady`), soak windows (`window`), reading log lines.
//!
//! Invariant: an interval lies inside one attempt, so neither a restart nor a repeated step number is ever taken
//! for speed; what the marks do not tell is `None`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::summary::{Finite, sum};

/// What a mark tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Training starts (or starts again) from this step, which is done already.
    Started,
    /// This step was done: a log line.
    Done,
    /// The attempt died; this step was the last one done.
    Died,
}

/// One thing known about a run at one time.
///
/// # Units
/// `t_s` is in seconds on one monotonic clock; its zero does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// Which attempt, counted up by one at each restart.
    pub attempt: u32,
    /// When.
    pub t_s: f64,
    /// Which step, counted from the start of the job and not of the attempt.
    pub step: u64,
    /// What happened.
    pub what: What,
}

/// Marks that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMarks {
    /// A time that is not finite or earlier than the one before.
    #[error("mark {0} is earlier than the one before it, or has no time")]
    Time(usize),
    /// A step below the one before, or an attempt below the one before.
    #[error("mark {0} goes back to an earlier step of its attempt, or to an earlier attempt")]
    Order(usize),
    /// Training started in the middle of an attempt, or went on after its death.
    #[error("mark {0} starts an attempt that runs already, or belongs to one that has died")]
    Life(usize),
}

/// What became of the time from the first mark to the last.
///
/// The parts are disjoint: `progress / speed + redone_s + down_s + other_s = wall_s`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Whether the first mark is a start. If not, all counts begin with the first line, and what came before it is
    /// in none of them.
    pub from_start: bool,
    /// The steps by which the job has come further; repeated ones count once.
    pub progress: u64,
    /// From the first mark to the last.
    ///
    /// # Units
    /// Seconds.
    pub wall_s: Finite,
    /// `progress / wall_s`; absent if no time passed.
    ///
    /// # Units
    /// Steps per second.
    pub goodput: Option<Finite>,
    /// Steps per second between lines of one attempt: all those steps over all that time. Starts and deaths are no
    /// lines. Absent without two lines in one attempt.
    ///
    /// # Units
    /// Steps per second.
    pub speed: Option<Finite>,
    /// How often the run was started again.
    pub restarts: u32,
    /// Steps done before a death that had to be done again; absent where a death or a restart has no mark.
    pub redone: Option<u64>,
    /// The time that takes: `redone / speed`.
    ///
    /// # Units
    /// Seconds.
    pub redone_s: Option<Finite>,
    /// From each death to the next start; absent where a death or a restart has no mark.
    ///
    /// # Units
    /// Seconds.
    pub down_s: Option<Finite>,
    /// From the last line of an attempt to the first of the next, all restarts together: known from lines alone,
    /// and an upper bound of the down time.
    ///
    /// # Units
    /// Seconds.
    pub silent_s: Finite,
    /// What is left of the wall time: start-up, stalls, and, with either sign, speed that was not even.
    ///
    /// # Units
    /// Seconds.
    pub other_s: Option<Finite>,
}

/// Accounts for a run from its marks in the order of time; `Ok(None)` without a mark.
///
/// # Errors
/// `BadMarks` if times go back, steps go back inside an attempt, or an attempt lives twice.
pub fn account(marks: &[Mark]) -> Result<Option<Progress>, BadMarks> {
    check(marks)?;
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return Ok(None) };
    let mut between_lines = (0, Vec::new());
    let mut gaps = Some((0, Vec::new()));
    let mut silent = Vec::new();
    for attempt in marks.chunk_by(|a, b| a.attempt == b.attempt) {
        let mut lines = attempt.iter().filter(|m| m.what == What::Done);
        if let (Some(from), Some(to)) = (lines.clone().next(), lines.next_back()) {
            between_lines.0 += to.step - from.step;
            between_lines.1.push(to.t_s - from.t_s);
        }
    }
    for (before, after) in marks.iter().zip(&marks[1..]).filter(|(a, b)| a.attempt != b.attempt) {
        let told = before.what == What::Died
            && after.what == What::Started
            && after.attempt == before.attempt + 1
            && after.step <= before.step;
        gaps = gaps.filter(|_| told).map(|(redone, mut down)| {
            down.push(after.t_s - before.t_s);
            (redone + before.step - after.step, down)
        });
    }
    let mut line: Option<&Mark> = None;
    for mark in marks.iter().filter(|m| m.what == What::Done) {
        silent.extend(line.filter(|l| l.attempt != mark.attempt).map(|l| mark.t_s - l.t_s));
        line = Some(mark);
    }
    let number = |x: f64| Finite::new(x).ok();
    let total = |times: &[f64]| sum(times.iter().copied());
    let wall = last.t_s - first.t_s;
    let progress = last.step.saturating_sub(first.step);
    let speed = Some(between_lines.0 as f64 / total(&between_lines.1)).filter(|v| v.is_finite() && *v > 0.0);
    let redone = gaps.as_ref().map(|(redone, _)| *redone);
    let redone_s = redone.and_then(|n| if n == 0 { Some(0.0) } else { speed.map(|v| n as f64 / v) });
    let down = gaps.map(|(_, down)| total(&down));
    let other = || Some(wall - progress as f64 / speed? - redone_s? - down?);
    Ok(Some(Progress {
        from_start: first.what == What::Started,
        progress,
        wall_s: Finite::new(wall).map_err(|_| BadMarks::Time(marks.len() - 1))?,
        goodput: number(progress as f64 / wall),
        speed: speed.and_then(number),
        restarts: last.attempt - first.attempt,
        redone,
        redone_s: redone_s.and_then(number),
        down_s: down.and_then(number),
        silent_s: Finite::new(total(&silent)).map_err(|_| BadMarks::Time(marks.len() - 1))?,
        other_s: other().and_then(number),
    }))
}

/// Refuses marks that contradict each other.
fn check(marks: &[Mark]) -> Result<(), BadMarks> {
    if marks.first().is_some_and(|m| !m.t_s.is_finite()) {
        return Err(BadMarks::Time(0));
    }
    for (i, (a, b)) in (1..).zip(marks.iter().zip(marks.iter().skip(1))) {
        let same = a.attempt == b.attempt;
        if !b.t_s.is_finite() || b.t_s < a.t_s {
            return Err(BadMarks::Time(i));
        }
        if b.attempt < a.attempt || same && b.step < a.step {
            return Err(BadMarks::Order(i));
        }
        if same && (a.what == What::Died || b.what == What::Started) {
            return Err(BadMarks::Life(i));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;

    fn mark(attempt: u32, t_s: f64, step: u64, what: What) -> Mark {
        Mark { attempt, t_s, step, what }
    }

    /// The lines of the case; its comments tell of the death and the restart.
    fn lines() -> Vec<Mark> {
        let text = include_str!("../../fixtures/statistics/T07-restart-repeats.csv");
        let rows = text.lines().skip(1).filter(|line| !line.starts_with('#')).map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            mark(cells[0].parse().unwrap(), cells[1].parse().unwrap(), cells[2].parse().unwrap(), What::Done)
        });
        rows.collect()
    }

    fn told() -> Vec<Mark> {
        let mut marks = lines();
        marks.insert(0, mark(0, 0.0, 0, What::Started));
        marks.insert(6, mark(0, 106.0, 53, What::Died));
        marks.insert(7, mark(1, 196.0, 40, What::Started));
        marks
    }

    #[test]
    fn case_t07_restart_repeats_steps() {
        let found = account(&told()).unwrap().unwrap();
        assert_eq!((found.from_start, found.progress, found.wall_s.get()), (true, 80, 276.0));
        assert!((found.goodput.unwrap().get() - 0.2899).abs() < 5e-5);
        assert_eq!(found.speed.unwrap().get(), 0.5);
        assert_eq!((found.redone, found.redone_s.unwrap().get()), (Some(13), 26.0));
        assert_eq!((found.down_s.unwrap().get(), found.restarts), (90.0, 1));
        assert_eq!((found.silent_s.get(), found.other_s.unwrap().get()), (116.0, 0.0));
    }

    #[test]
    fn lines_alone_leave_open_what_they_do_not_tell() {
        let found = account(&lines()).unwrap().unwrap();
        assert_eq!((found.from_start, found.progress, found.wall_s.get()), (false, 70, 256.0));
        assert_eq!((found.speed.unwrap().get(), found.restarts, found.silent_s.get()), (0.5, 1, 116.0));
        assert_eq!((found.redone, found.redone_s, found.down_s, found.other_s), (None, None, None, None));
        let later: Vec<Mark> = lines().iter().map(|m| Mark { attempt: m.attempt + 3, ..*m }).collect();
        assert_eq!(account(&later).unwrap().unwrap().restarts, 1, "attempts need not count from 0");
        // One missing mark is enough not to know.
        for gone in [6, 7] {
            let mut marks = told();
            marks.remove(gone);
            let found = account(&marks).unwrap().unwrap();
            assert_eq!((found.redone, found.down_s, found.progress), (None, None, 80));
        }
        let mut skipped = told();
        skipped.iter_mut().filter(|m| m.attempt == 1).for_each(|m| m.attempt = 2);
        let found = account(&skipped).unwrap().unwrap();
        assert_eq!((found.restarts, found.redone), (2, None), "attempt 1 left no mark");
    }

    #[test]
    fn without_a_restart_nothing_is_lost() {
        let found = account(&lines()[..5]).unwrap().unwrap();
        assert_eq!(
            (found.redone, found.redone_s.unwrap().get(), found.down_s.unwrap().get()),
            (Some(0), 0.0, 0.0)
        );
        assert_eq!((found.goodput.unwrap().get(), found.other_s.unwrap().get()), (0.5, 0.0));
        let one = account(&lines()[..1]).unwrap().unwrap();
        assert_eq!((one.goodput, one.speed, one.other_s, one.progress), (None, None, None, 0));
        assert_eq!(account(&[]), Ok(None));
    }

    #[test]
    fn start_up_is_other_time_and_not_speed() {
        let marks = [
            mark(0, 100.0, 1000, What::Started),
            mark(0, 150.0, 1010, What::Done),
            mark(0, 170.0, 1020, What::Done),
        ];
        let found = account(&marks).unwrap().unwrap();
        assert_eq!(
            (found.progress, found.speed.unwrap().get(), found.other_s.unwrap().get()),
            (20, 0.5, 30.0)
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let with = |i: usize, change: &dyn Fn(&mut Mark)| {
            let mut marks = told();
            change(&mut marks[i]);
            account(&marks).unwrap_err()
        };
        assert_eq!(with(3, &|m| m.t_s = 1.0), BadMarks::Time(3));
        assert_eq!(with(0, &|m| m.t_s = f64::NAN), BadMarks::Time(0));
        assert_eq!(with(3, &|m| m.step = 1), BadMarks::Order(3));
        assert_eq!(with(3, &|m| m.what = What::Started), BadMarks::Life(3));
        assert_eq!(with(3, &|m| m.what = What::Died), BadMarks::Life(4));
        assert_eq!(with(9, &|m| m.attempt = 0), BadMarks::Order(9));
    }
}
