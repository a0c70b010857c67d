//! `inventory`: what the machine is, and whether it is what was promised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Drive, Site, Tell},
    host::{Run, check_probe},
};
use crate::{
    measure::{Better, Labels, Metric, Unit},
    outcome::{Cause, CheckOutcome, CheckResult, Outcome, OutcomeKind},
    platform::Promises,
    probe::{
        checks,
        lines::{Fact, Facts},
    },
    wire::Stream,
};

/// Whether a fact belongs to the machine rather than to the moment: only those tell two environments apart. The
/// others are in the task's log, and the checks have seen them.
fn lasting(name: &str) -> bool {
    const PASSING: [&str; 6] =
        ["pressure.", "cpu.throttled", "cpu.steal", "cpu.periods", "host.uptime", "memory.oom_kills"];
    !PASSING.iter().any(|p| name.starts_with(p))
        && !name.ends_with("free_bytes")
        && !name.ends_with("available_bytes")
}

/// What was promised, in the units of the checks.
fn promised(site: &Site) -> checks::Promises {
    let of = &site.promises;
    checks::Promises {
        gpu: of.gpu.clone(),
        // An endpoint that declares accelerators has promised them, too.
        gpus: of.gpus.or((site.gpus > 0).then_some(site.gpus)),
        vcpus: of.vcpus,
        memory_bytes: of.memory.map(|m| m.bytes),
        disk_bytes: of.disk.map(|d| d.bytes),
        ..checks::Promises::default()
    }
}

/// Promises that nothing here can hold against the machine: they must not look like kept ones.
fn beyond_sight(of: &Promises) -> Vec<CheckResult> {
    let unseen = |id: &str, promised: Option<String>, reason: &str| {
        promised.map(|promised| CheckResult {
            id: id.to_owned(),
            outcome: CheckOutcome::NotObservable,
            value: None,
            promised: Some(promised),
            reason: reason.to_owned(),
            action: None,
        })
    };
    let accelerators = "this version reads neither memory nor links of accelerators";
    [
        unseen("memory_per_gpu", of.memory_per_gpu.map(|m| m.to_string()), accelerators),
        unseen("interconnect", of.interconnect.clone(), accelerators),
        unseen("network", of.network.clone(), "this version does not measure the way between instances"),
        unseen(
            "exclusive",
            of.exclusive.filter(|e| *e).map(|_| "exclusive".to_owned()),
            "other tenants cannot be seen from inside; steal and pressure are hints, not proof",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Options of `inventory`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Folders whose file systems are looked at, beside the working folder.
    #[serde(default)]
    pub paths: Vec<String>,
}

impl StageSpec for Inventory {
    const KIND: &'static str = "inventory";
    const DOC: &'static str = "what the machine is, and whether it is what was promised";
    const METRICS: &'static [Metric] = &[
        Metric::new("checks_passed", Unit::COUNT, Better::Higher, "checks that came out as they should"),
        Metric::new("checks_warned", Unit::COUNT, Better::Lower, "checks that somebody should look at"),
        Metric::new(
            "checks_failed",
            Unit::COUNT,
            Better::Lower,
            "checks that did not come out as they should",
        ),
        Metric::new(
            "checks_not_observable",
            Unit::COUNT,
            Better::Neither,
            "checks that cannot be told from here",
        ),
    ];

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let mut mounts = vec![cx.host.folder.clone()];
        mounts.extend(self.paths.iter().cloned());
        let spec = serde_json::json!({ "mounts": mounts });
        let mut facts = Facts::new();
        let run = Run::probe("main", "facts", &spec);
        let ended = cx
            .host
            .run(run, |line| {
                if line.stream == Stream::Out
                    && let Ok(line) = serde_json::from_str(line.text)
                {
                    facts.accept(&line);
                }
            })
            .await?;
        check_probe(&ended, "the facts probe")?;
        if facts.iter().next().is_none() {
            return Err(Outcome::new(OutcomeKind::Failed, Cause::Unreadable, "the facts probe told no fact"));
        }
        for (name, fact) in facts.iter().filter(|(name, _)| lasting(name)) {
            // The folder has another name in every run; two runs must compare all the same.
            let name = name.replace(&cx.host.folder, "task_folder");
            match fact {
                Fact::Value(value) => cx.say(Tell::Fact(name.clone(), value.clone())),
                Fact::Nothing => cx.say(Tell::Fact(name.clone(), serde_json::Value::Null)),
                Fact::Unreadable(reason) => cx.note(format!("{name} could not be read: {reason}")),
            }
        }
        let mut checks = checks::judge(&facts, &promised(cx.site));
        checks.extend(beyond_sight(&cx.site.promises));
        let count = |outcome| [checks.iter().filter(|c| c.outcome == outcome).count() as f64];
        let none = Labels::none();
        cx.figure(Self::METRICS, "checks_passed", &none, &count(CheckOutcome::Pass))?;
        cx.figure(Self::METRICS, "checks_warned", &none, &count(CheckOutcome::Warn))?;
        cx.figure(Self::METRICS, "checks_failed", &none, &count(CheckOutcome::Fail))?;
        cx.figure(Self::METRICS, "checks_not_observable", &none, &count(CheckOutcome::NotObservable))?;
        for check in checks {
            cx.say(Tell::Check(check));
        }
        Ok(())
    }
}
