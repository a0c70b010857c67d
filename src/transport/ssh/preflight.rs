//! What can be told of a host before an agent is there: its name, its port, the login, the login shell.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::Ssh;
use crate::outcome::{CheckOutcome, CheckResult, Outcome};

/// How long a name or a port may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often nothing is run, to see what running anything costs.
const NOTHINGS: usize = 3;

/// From when on a command that does nothing is too slow to be ignored.
const SLOW: Duration = Duration::from_millis(500);

impl Ssh {
    /// Looks at the way step by step, and stops at the first step that fails.
    pub async fn preflight(&self) -> Vec<CheckResult> {
        let mut checks = Vec::new();
        let _ = self.steps(&mut checks).await;
        checks
    }

    async fn steps(&self, checks: &mut Vec<CheckResult>) -> Result<(), ()> {
        let answers = match self.controller.ask(&self.target).await {
            Ok(answers) => answers,
            Err(e) => return failed(checks, "ssh", &e.outcome),
        };
        let at = format!("{}@{}:{}", answers.user, answers.hostname, answers.port);
        checks.push(passed("ssh", &at, "as ssh resolves it"));
        if answers.jump.is_empty() || answers.jump == "none" {
            let port = answers.port.parse().unwrap_or(22);
            let begun = Instant::now();
            let looked = timeout(PATIENCE, tokio::net::lookup_host((answers.hostname.as_str(), port))).await;
            let addresses: Vec<_> = match looked {
                Ok(Ok(found)) => found.collect(),
                Ok(Err(e)) => {
                    return no(checks, "name", &format!("it cannot be resolved: {e}"), "look at `ssh:`");
                }
                Err(_) => return no(checks, "name", "no answer within 5 s", "look at the resolver"),
            };
            let first = addresses.first().map_or_else(String::new, |a| a.ip().to_string());
            checks.push(passed("name", &first, &millis(begun)));
            let begun = Instant::now();
            match timeout(PATIENCE, tokio::net::TcpStream::connect(&addresses[..])).await {
                Ok(Ok(_)) => checks.push(passed("port", &answers.port, &millis(begun))),
                Ok(Err(e)) => {
                    return no(checks, "port", &e.to_string(), "is the machine up, is the port right?");
                }
                Err(_) => return no(checks, "port", "no answer within 5 s", "does a firewall block it?"),
            }
        } else {
            let reason = format!("reached through {}", crate::outcome::printable(&answers.jump));
            for id in ["name", "port"] {
                checks.push(check(id, CheckOutcome::NotObservable, None, &reason, None));
            }
        }
        let begun = Instant::now();
        let (session, notes) = match self.log_in().await {
            Ok(logged_in) => logged_in,
            Err(e) => return failed(checks, "login", &e.outcome),
        };
        checks.push(passed("login", &answers.user, &millis(begun)));
        match notes.first() {
            None => checks.push(passed("host key", "known", "")),
            Some(note) => checks.push(check("host key", CheckOutcome::Warn, None, note, None)),
        }
        let mut took = Vec::new();
        for _ in 0..NOTHINGS {
            let begun = Instant::now();
            let ended = session.clone().arc_raw_command("true").output().await;
            if !ended.is_ok_and(|o| o.status.success()) {
                return no(checks, "command", "`true` does not run there", "planrun needs a host with `sh`");
            }
            took.push(begun.elapsed());
        }
        took.sort();
        let median = took[NOTHINGS / 2];
        let value = format!("{:.0} ms", median.as_secs_f64() * 1e3);
        checks.push(if median > SLOW {
            let advice = "look at what the login shell's start-up files do";
            check(
                "no-op",
                CheckOutcome::Warn,
                Some(value),
                "each command that ssh starts pays this",
                Some(advice),
            )
        } else {
            passed("no-op", &value, "a command that does nothing, by the login shell")
        });
        Ok(())
    }
}

fn check(
    id: &str,
    outcome: CheckOutcome,
    value: Option<String>,
    reason: &str,
    action: Option<&str>,
) -> CheckResult {
    let (id, reason, action) = (id.to_owned(), reason.to_owned(), action.map(str::to_owned));
    CheckResult { id, outcome, value, promised: None, reason, action }
}

fn passed(id: &str, value: &str, reason: &str) -> CheckResult {
    check(id, CheckOutcome::Pass, Some(value.to_owned()), reason, None)
}

fn no(checks: &mut Vec<CheckResult>, id: &str, reason: &str, action: &str) -> Result<(), ()> {
    checks.push(check(id, CheckOutcome::Fail, None, reason, Some(action)));
    Err(())
}

fn failed(checks: &mut Vec<CheckResult>, id: &str, outcome: &Outcome) -> Result<(), ()> {
    checks.push(check(id, CheckOutcome::Fail, None, &outcome.reason, None));
    Err(())
}

fn millis(since: Instant) -> String {
    format!("{:.0} ms", since.elapsed().as_secs_f64() * 1e3)
}
