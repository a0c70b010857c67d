//! What ssh says when it cannot, as an outcome with advice. ssh gives one exit code and a text for all of it: the text
//! is all there is to go by. Also quoting, since the words that go out pass a login shell.

use std::error::Error as _;

use super::{Target, controller::Answers};
use crate::{
    outcome::{Cause, Outcome, OutcomeKind, printable},
    transport::NoPipe,
};

/// One word for any login shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The error of a connection, and whether the server only had too many at once.
pub(super) fn connect_error(e: &openssh::Error, target: &Target, answers: &Answers) -> (NoPipe, bool) {
    let said = e.source().map_or_else(|| e.to_string(), ToString::to_string);
    classify(&said, target, answers)
}

fn classify(said: &str, target: &Target, answers: &Answers) -> (NoPipe, bool) {
    let has = |words: &[&str]| words.iter().any(|w| said.contains(w));
    let line = |word: &str| said.lines().find(|l| l.contains(word)).map(printable).unwrap_or_default();
    let by_hand = {
        let port = target.port.map_or_else(String::new, |port| format!(" -p {port}"));
        let user = target.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        format!("ssh{port} {user}{}", target.host)
    };
    let at = format!("{} port {}", answers.hostname, answers.port);
    let (cause, again, crowded, reason) = if has(&["IDENTIFICATION HAS CHANGED"]) {
        let offending = line("Offending");
        let reason = format!(
            "its host key has changed ({offending}): another machine answers at {at}, or one in between. If it was \
             replaced on purpose, remove that line; nothing was run"
        );
        (Cause::HostKey, false, false, reason)
    } else if has(&["Host key verification failed", "host key is known for"]) {
        let reason = format!(
            "its host key is not known here: log in once by hand (`{by_hand}`) and compare the fingerprint, or set \
             `StrictHostKeyChecking accept-new` for it in ssh_config"
        );
        (Cause::HostKey, false, false, reason)
    } else if has(&["Permission denied (", "Too many authentication failures"]) {
        let methods = said.rsplit_once('(').and_then(|(_, m)| m.split_once(')')).map_or("", |(m, _)| m);
        let key = methods.split(',').any(|m| m == "publickey" || m.starts_with("gssapi"));
        let advice = if has(&["Too many authentication failures"]) {
            "too many keys were offered before the right one: name it by `identity`".to_owned()
        } else if key {
            format!(
                "the host does not accept the key for user {}: try `{by_hand}`, name the key by `identity`, or load it \
                 into the ssh agent",
                answers.user
            )
        } else {
            format!(
                "the host takes no keys, only {}: planrun types no passwords; put a key there with `ssh-copy-id`",
                if methods.is_empty() { "passwords" } else { methods }
            )
        };
        (Cause::LoginRefused, false, false, advice)
    } else if has(&["UNPROTECTED PRIVATE KEY", "Load key", "no such identity"]) {
        let what = line("Load key");
        (
            Cause::LoginRefused,
            false,
            false,
            format!("the key cannot be used: {what}; look at its path and mode"),
        )
    } else if has(&["Could not resolve", "Name or service not known"]) {
        let reason =
            format!("its name `{}` cannot be resolved: look at `ssh:` and at ssh_config", answers.hostname);
        (Cause::Unreachable, true, false, reason)
    } else if has(&["Connection refused"]) {
        (Cause::Unreachable, true, false, format!("nothing listens at {at}: is the port right, is sshd up?"))
    } else if has(&["banner exchange"]) {
        (Cause::Unreachable, true, false, format!("something listens at {at}, but it does not speak SSH"))
    } else if has(&[
        "kex_exchange_identification",
        "Connection reset",
        "Connection closed by",
        "ssh_exchange",
    ]) {
        let reason = format!("{at} closed the connection before the login: {}", printable(said));
        (Cause::Unreachable, true, true, reason)
    } else if has(&["timed out", "No route to host", "Network is unreachable"]) {
        (
            Cause::Unreachable,
            true,
            false,
            format!("no answer from {at}: is the machine up, does a firewall block it?"),
        )
    } else if has(&["Bad configuration option", "bad configuration", "Bad owner or permissions"]) {
        (Cause::SshSettings, false, false, format!("ssh refuses its settings: {}", printable(said)))
    } else if has(&["Unable to negotiate", "no matching"]) {
        (
            Cause::SshSettings,
            false,
            false,
            format!("ssh and the host have no method in common: {}", printable(said)),
        )
    } else {
        (Cause::Unreachable, true, false, printable(said))
    };
    let reason = format!("{}: {reason}", target.host);
    (NoPipe { outcome: Outcome::new(OutcomeKind::Lost, cause, reason), again }, crowded)
}

/// No command can be started on an open connection.
pub(super) fn exec_error(e: &openssh::Error, target: &Target) -> NoPipe {
    let why = e.source().map_or_else(|| e.to_string(), |s| format!("{e}: {s}"));
    if matches!(e, openssh::Error::Disconnected) { broke(target) } else { no_exec(target, &why) }
}

/// A connection that was there a moment ago.
pub(super) fn broke(target: &Target) -> NoPipe {
    let reason = format!("{}: the connection broke", target.host);
    NoPipe { outcome: Outcome::new(OutcomeKind::Lost, Cause::ContactLost, reason), again: true }
}

/// A host that lets one in and runs nothing.
pub(super) fn no_exec(target: &Target, said: &str) -> NoPipe {
    let said = printable(said);
    let said = if said.is_empty() { String::new() } else { format!(" (it said: {said})") };
    let reason = format!(
        "{}: the login works, but no command can be run there{said}: a gateway? planrun needs a host with `sh`",
        target.host
    );
    NoPipe { outcome: Outcome::new(OutcomeKind::Lost, Cause::NoCommands, reason), again: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(said: &str) -> (Cause, bool, String) {
        let target = Target { host: "gpu-1".to_owned(), user: Some("root".to_owned()), ..Target::default() };
        let answers =
            Answers { hostname: "192.0.2.44".to_owned(), port: "22".to_owned(), ..Answers::default() };
        let (no_pipe, _) = classify(said, &target, &answers);
        (no_pipe.outcome.cause, no_pipe.again, no_pipe.outcome.reason)
    }

    #[test]
    fn s03_a_changed_host_key_is_final_and_names_the_line() {
        let yaml = std::fs::read_to_string("fixtures/ssh/S03-host-key-changed.txt").unwrap();
        let (cause, again, reason) = class(&yaml);
        assert_eq!((cause, again), (Cause::HostKey, false));
        assert!(
            reason.contains("/home/user/.ssh/known_hosts:14") && reason.contains("192.0.2.44"),
            "{reason}"
        );
    }

    #[test]
    fn each_refusal_has_its_class_and_advice() {
        let cases = [
            ("root@h: Permission denied (publickey).", Cause::LoginRefused, false, "identity"),
            (
                "root@h: Permission denied (password,keyboard-interactive).",
                Cause::LoginRefused,
                false,
                "ssh-copy-id",
            ),
            (
                "No ED25519 host key is known for h\nHost key verification failed.",
                Cause::HostKey,
                false,
                "accept-new",
            ),
            ("connect to host h port 22: Connection refused", Cause::Unreachable, true, "nothing listens"),
            ("Could not resolve hostname h: Name or service not known", Cause::Unreachable, true, "resolved"),
            ("Connection timed out during banner exchange", Cause::Unreachable, true, "does not speak SSH"),
            ("connect to host h port 22: Connection timed out", Cause::Unreachable, true, "firewall"),
            ("/x: line 3: Bad configuration option: foo", Cause::SshSettings, false, "foo"),
        ];
        for (said, cause, again, advice) in cases {
            let got = class(said);
            assert_eq!((got.0, got.1), (cause, again), "{said}");
            assert!(got.2.contains(advice), "{said}: {}", got.2);
        }
    }

    #[test]
    fn words_pass_a_shell_whole() {
        for text in ["plain", "two words", "it's", "$HOME `id` \"x\" \\ ;|&", ""] {
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quoted(text)))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
