//! What happens to a task when the link, the servers, the agent or planrun itself goes away.

use rustix::process::Signal;

use crate::{
    outcomes::METRIC,
    support::{
        Running, Sandbox, processes,
        sshd::{Fleet, Relay},
        wait_for, wait_until,
    },
};

/// Prints a number ten times a second until `$SEEN/go` is there, with children that would outlive it.
const WORK: &str = "echo x >>$SEEN/a; (setsid sleep 1000 >/dev/null 2>&1 &); sleep 1000 & n=0; \
                    while ! [ -e $SEEN/go ]; do n=$((n+1)); \
                    echo '{\"metric\": \"n\", \"value\": '$n'}'; echo $n >$SEEN/n; sleep 0.1; done; kill %1 || true";

/// A host behind a relay, with a task at work there.
fn at_work(script: &str) -> (Sandbox, Fleet, Relay, Running) {
    let (s, fleet) = Fleet::without_platforms(1, Sandbox::new().header("lease: 6s"));
    let relay = Relay::to(fleet.address(1));
    fleet.prefer(&format!("Host h1\n  HostName 127.0.0.1\n  Port {}", relay.port));
    let s = s.platform("h1", "{ main: { ssh: h1 } }").shell("a", script);
    let run = s.start_run(&[]);
    wait_until("the task to work", || s.seen("a").contains('x'));
    (s, fleet, relay, run)
}

/// The task ends well, was started once, and nothing that it printed is missing or there twice.
fn went_on(s: &Sandbox, fleet: &Fleet, run: Running) {
    std::fs::write(s.path("seen/go"), "").unwrap();
    run.wait().code(0);
    assert_eq!((s.outcome("h1/a").as_str(), s.seen("a").as_str()), ("ok/none", "x\n"));
    let last: u32 = s.seen("n").trim().parse().unwrap();
    let all: Vec<f64> = (1..=last).map(f64::from).collect();
    assert_eq!(s.samples("h1/a", "n"), all);
    assert!(s.notes().iter().any(|n| n.starts_with("no contact with the host for ")), "{:?}", s.notes());
    assert!(!s.samples("h1/a", "host_no_contact").is_empty());
    fleet.assert_nothing_left(s);
}

/// The processes on the host whose command line holds these words.
fn on_host(s: &Sandbox, words: &str) -> Vec<u32> {
    s.processes().into_iter().filter(|(_, line)| line.contains(words)).map(|(pid, _)| pid).collect()
}

#[test]
fn s05_a_link_that_goes_down_without_a_word_is_a_gap() {
    let (s, fleet, relay, run) = at_work(WORK);
    relay.stall(true);
    relay.wait_for_another();
    relay.stall(false);
    went_on(&s, &fleet, run);
}

#[test]
fn connections_cut_in_the_middle_of_a_line_lose_nothing() {
    let flood = "echo x >>$SEEN/a; n=0; while [ $n -lt 30000 ]; do n=$((n+1)); \
                 echo '{\"metric\": \"n\", \"value\": '$n'}'; done; echo $n >$SEEN/n; \
                 while ! [ -e $SEEN/go ]; do sleep 0.05; done";
    let (s, fleet, relay, run) = at_work(flood);
    for _ in 0..3 {
        relay.cut();
        relay.wait_for_another();
    }
    wait_until("all to be printed", || s.seen("n").contains("30000"));
    went_on(&s, &fleet, run);
}

#[test]
fn past_the_lease_the_host_ends_everything_by_itself() {
    let (s, fleet, relay, run) = at_work(WORK);
    relay.stall(true);
    run.wait().code(3);
    assert_eq!(s.outcome("h1/a"), "lost/contact_lost");
    assert!(s.reason("h1/a").contains("lease of 6 s"), "{}", s.reason("h1/a"));
    fleet.assert_nothing_left(&s);
}

#[test]
fn a_killed_planrun_leaves_nothing_anywhere() {
    let (s, fleet, _relay, run) = at_work(WORK);
    run.signal(Signal::KILL);
    assert_eq!(run.wait().signal, Some(9));
    fleet.assert_nothing_left(&s);
}

#[test]
fn a_stopped_planrun_leaves_nothing_anywhere() {
    let (s, fleet, _relay, run) = at_work(WORK);
    run.signal(Signal::INT);
    run.wait().code(130);
    assert_eq!(s.outcome("h1/a"), "interrupted/stopped");
    fleet.assert_nothing_left(&s);
}

#[test]
fn a_killed_master_and_a_killed_server_are_gaps() {
    let (s, fleet, _relay, run) = at_work(WORK);
    let master = wait_for("the master", || on_host(&s, "ssh -E ").first().copied());
    processes::signal(master, Signal::KILL);
    wait_until("another master", || on_host(&s, "ssh -E ").iter().any(|pid| *pid != master));
    wait_until("contact", || !fleet.sessions(1).is_empty() && !on_host(&s, "agent attach").is_empty());
    for session in fleet.sessions(1) {
        processes::signal(session, Signal::KILL);
    }
    went_on(&s, &fleet, run);
}

#[test]
fn a_frozen_host_that_thaws_in_time_goes_on() {
    let (s, fleet, relay, run) = at_work(WORK);
    let frozen: Vec<u32> = on_host(&s, "agent ").into_iter().chain(fleet.sessions(1)).collect();
    assert!(frozen.len() >= 3, "{frozen:?}");
    for pid in &frozen {
        processes::signal(*pid, Signal::STOP);
    }
    relay.wait_for_another();
    for pid in &frozen {
        processes::signal(*pid, Signal::CONT);
    }
    went_on(&s, &fleet, run);
}

#[test]
fn a_killed_agent_is_lost_and_leaves_nothing() {
    let (s, fleet, _relay, run) = at_work(WORK);
    let agent = wait_for("the agent", || on_host(&s, "agent held").first().copied());
    processes::signal(agent, Signal::KILL);
    run.wait().code(3);
    assert_eq!(s.outcome("h1/a"), "lost/contact_lost");
    fleet.assert_nothing_left(&s);
}

#[test]
fn a_host_with_another_boot_id_was_restarted() {
    assert!(rustix::process::geteuid().is_root(), "needs root for a boot id of its own");
    let s = Sandbox::new().header("lease: 6s").shell_with("a", "retries: { errors: 1 },", "", WORK);
    let (s, mut fleet) = Fleet::of(1, s);
    let boot_id = fleet.path("boot_id");
    std::fs::write(&boot_id, "11111111-1111-4111-8111-111111111111\n").unwrap();
    let script = format!("mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"", boot_id.display());
    fleet.start_within(1, "", &["unshare", "--mount", "sh", "-c", &script, "sh"]);
    let run = s.start_run(&[]);
    wait_until("the task to work", || s.seen("a").contains('x'));
    std::fs::write(&boot_id, "22222222-2222-4222-8222-222222222222\n").unwrap();
    for pid in on_host(&s, "").into_iter().filter(|pid| {
        let line = processes::command_line(*pid);
        line.contains("agent") || line.contains("sleep") || line.contains("/bin/sh")
    }) {
        processes::signal(pid, Signal::KILL);
    }
    std::fs::write(s.path("seen/go"), "").unwrap();
    run.wait().code(0);
    let first = s.journal().into_iter().find(|(kind, _)| kind == "task_ended").unwrap().1;
    assert_eq!((first["outcome"]["cause"].as_str(), &first["retried"]), (Some("rebooted"), &true.into()));
    assert_eq!((s.outcome("h1/a").as_str(), s.seen("a").as_str()), ("ok/none", "x\nx\n"));
}

#[test]
fn a_full_disk_is_refused_in_words() {
    assert!(rustix::process::geteuid().is_root(), "needs root for a small disk of its own");
    let (s, mut fleet) = Fleet::of(1, Sandbox::new().shell("a", METRIC));
    let small = |folder: &str| format!("mount -t tmpfs -o size=64k none {folder}");
    let folders = [fleet.tmp(1).display().to_string(), fleet.home(1).display().to_string()];
    let mut script: Vec<String> =
        folders.iter().map(String::as_str).chain(["/var/tmp", "/dev/shm"]).map(small).collect();
    script.push("exec \"$@\"".to_owned());
    fleet.start_within(1, "", &["unshare", "--mount", "sh", "-c", &script.join(" && "), "sh"]);
    s.run(&[]).code(3);
    assert_eq!(s.outcome("h1/a"), "failed/disk");
    let reason = s.reason("h1/a");
    assert!(
        reason.contains("no folder on the host takes and runs the agent") && reason.contains("workdir"),
        "{reason}"
    );
    fleet.assert_nothing_left(&s);
}
