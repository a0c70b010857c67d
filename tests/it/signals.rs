//! Signals and sudden deaths: of planrun, of its agent, and frozen ones.

use rustix::process::Signal;

use crate::{
    outcomes::METRIC,
    support::{Running, Sandbox, entries, processes, wait_for, wait_until},
};

/// Three tasks; the second waits for `$SEEN/go` and has children of every kind.
fn three() -> Sandbox {
    let script = "echo x >>$SEEN/b; (setsid sleep 1000 >/dev/null 2>&1 &); sleep 1000 & \
                  (trap '' TERM; while :; do sleep 1; done) & \
                  while ! [ -e $SEEN/go ]; do sleep 0.02; done; kill %1; echo done";
    Sandbox::new()
        .header("lease: 5s")
        .shell("a", &format!("echo x >>$SEEN/a; {METRIC}"))
        .shell("b", script)
        .shell("c", "echo x >>$SEEN/c")
}

/// A run of which the second task is at work.
fn at_work(s: &Sandbox) -> Running {
    let run = s.start_run(&[]);
    wait_until("the second task to work", || s.seen("b").contains('x'));
    run
}

/// The process of the agent.
fn agent(s: &Sandbox) -> u32 {
    process(s, "/proc/self/exe agent work")
}

/// The process with this command line.
fn process(s: &Sandbox, wanted: &str) -> u32 {
    wait_for(wanted, || s.processes().into_iter().find(|(_, line)| line == wanted).map(|(pid, _)| pid))
}

/// Goes on with the run, and sees that what had ended is not done again.
fn goes_on(s: &Sandbox) {
    std::fs::write(s.path("seen/go"), "").unwrap();
    s.resume().code(0);
    for task in ["one/a", "one/b", "one/c"] {
        assert_eq!(s.outcome(task), "ok/none", "{task}");
    }
    assert_eq!((s.seen("a").as_str(), s.seen("b").as_str(), s.seen("c").as_str()), ("x\n", "x\nx\n", "x\n"));
    assert_eq!(s.samples("one/a", "m"), [2.0]);
    s.assert_nothing_left();
}

#[test]
fn each_signal_ends_what_runs_and_the_run_can_go_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let s = three();
        let run = at_work(&s);
        run.signal(signal);
        let ended = run.wait().code(code);
        assert!(ended.stderr.contains("planrun resume"), "{}", ended.stderr);
        assert_eq!(s.outcome("one/b"), "interrupted/stopped");
        let (last, body) = s.journal().pop().unwrap();
        assert_eq!((last.as_str(), &body["complete"]), ("run_ended", &false.into()));
        assert!(s.out().join("scorecard.json").exists(), "what was measured is shown");
        s.assert_nothing_left();
        goes_on(&s);
    }
}

#[test]
fn an_interrupted_last_task_does_not_make_the_run_complete() {
    let s = Sandbox::new().shell("b", "echo x >>$SEEN/b; sleep 1000");
    let run = at_work(&s);
    run.signal(Signal::TERM);
    run.wait().code(143);
    assert_eq!(s.journal().pop().unwrap().1["complete"], false);
}

#[test]
fn a_second_signal_stops_at_once() {
    let s = three();
    let run = at_work(&s);
    let agent = agent(&s);
    // A frozen agent cannot end the task in order: without a second signal planrun would wait for it.
    processes::signal(agent, Signal::STOP);
    run.signal(Signal::INT);
    wait_until("the first signal to be heard", || {
        std::fs::read_to_string(s.path("0.stderr")).unwrap().contains("once more to stop at once")
    });
    run.signal(Signal::INT);
    run.wait().code(130);
    processes::signal(agent, Signal::CONT);
    s.assert_nothing_left();
    goes_on(&s);
}

#[test]
fn when_planrun_is_killed_nothing_is_left() {
    let s = three();
    let run = at_work(&s);
    run.signal(Signal::KILL);
    assert_eq!(run.wait().signal, Some(9));
    s.assert_nothing_left();
    goes_on(&s);
}

#[test]
fn when_planrun_is_killed_during_the_clean_up_nothing_is_left() {
    let s = three();
    let run = at_work(&s);
    run.signal(Signal::INT);
    wait_until("the first signal to be heard", || {
        std::fs::read_to_string(s.path("0.stderr")).unwrap().contains("once more to stop at once")
    });
    run.signal(Signal::KILL);
    run.wait();
    let begun = std::time::Instant::now();
    s.assert_nothing_left();
    // The lease is no help here: the agent is to notice the closed pipe.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn when_the_agent_is_killed_its_task_is_lost_and_nothing_is_left() {
    let s = three();
    let run = at_work(&s);
    processes::signal(agent(&s), Signal::KILL);
    run.wait().code(3);
    assert_eq!(s.outcome("one/b"), "lost/contact_lost");
    assert_eq!(s.outcome("one/c"), "ok/none", "the next task gets a new agent");
    s.assert_nothing_left();
}

#[test]
fn when_the_agent_of_the_last_task_is_killed_nothing_is_left_either() {
    let s = Sandbox::new()
        .shell("b", "echo x >>$SEEN/b; (setsid sleep 1000 >/dev/null 2>&1 &); sleep 1000 & wait");
    let run = at_work(&s);
    processes::signal(agent(&s), Signal::KILL);
    run.wait().code(3);
    assert_eq!(s.outcome("one/b"), "lost/contact_lost");
    s.assert_nothing_left();
}

#[test]
fn a_lost_task_is_tried_again_where_the_plan_says_so() {
    let script = "echo x >>$SEEN/b; [ $(wc -l <$SEEN/b) -ge 2 ] || sleep 1000";
    let s = Sandbox::new().shell_with("b", "retries: { errors: 1 },", "", script);
    let run = at_work(&s);
    processes::signal(agent(&s), Signal::KILL);
    run.wait().code(0);
    assert_eq!(s.end_of("one/b")["attempt"], 2);
    s.assert_nothing_left();
}

#[test]
fn a_frozen_planrun_loses_its_lease() {
    let s = three();
    let run = at_work(&s);
    let planrun = run.pid();
    run.signal(Signal::STOP);
    wait_until("only planrun to be there", || s.processes().iter().all(|(pid, _)| *pid == planrun));
    run.signal(Signal::CONT);
    run.wait().code(3);
    assert_eq!(s.outcome("one/b"), "lost/contact_lost");
    assert_eq!(s.outcome("one/c"), "ok/none");
    assert!(s.notes().iter().any(|n| n.contains("the lease")), "{:?}", s.notes());
    s.assert_nothing_left();
}

#[test]
fn an_agent_that_is_told_to_go_cleans_up_first() {
    for signal in [Signal::TERM, Signal::INT] {
        let s = three();
        let run = at_work(&s);
        processes::signal(agent(&s), Signal::HUP);
        processes::signal(agent(&s), signal);
        run.wait().code(3);
        assert_eq!(s.outcome("one/b"), "lost/contact_lost");
        assert_eq!(s.outcome("one/c"), "ok/none");
        assert!(s.notes().iter().any(|n| n.contains("signal")), "{:?}", s.notes());
        s.assert_nothing_left();
    }
}

#[test]
fn a_frozen_agent_goes_on_where_it_was() {
    let s = three();
    let run = at_work(&s);
    let agent = agent(&s);
    processes::signal(agent, Signal::STOP);
    wait_until("the agent to be frozen", || {
        std::fs::read_to_string(format!("/proc/{agent}/stat")).unwrap().contains(") T ")
    });
    // Longer than the lease, by the agent's own clock.
    std::thread::sleep(std::time::Duration::from_secs(6));
    processes::signal(agent, Signal::CONT);
    std::fs::write(s.path("seen/go"), "").unwrap();
    run.wait().code(0);
    assert_eq!(s.outcome("one/b"), "ok/none");
    s.assert_nothing_left();
}

#[test]
fn when_planrun_and_its_agent_are_killed_the_watch_leaves_nothing() {
    let s = three();
    let run = at_work(&s);
    let agent = agent(&s);
    run.signal(Signal::STOP);
    processes::signal(agent, Signal::KILL);
    run.signal(Signal::KILL);
    run.wait();
    s.assert_nothing_left();
    goes_on(&s);
}

#[test]
fn when_the_watch_is_killed_its_agent_ends_everything_in_order() {
    let s = three();
    let run = at_work(&s);
    processes::signal(process(&s, "/proc/self/exe agent"), Signal::KILL);
    run.wait().code(3);
    assert_eq!(s.outcome("one/b"), "lost/contact_lost");
    s.assert_nothing_left();
}

#[test]
fn when_planrun_watch_and_agent_are_killed_a_resume_ends_what_they_left() {
    let s = three();
    let run = at_work(&s);
    let (watch, agent) = (process(&s, "/proc/self/exe agent"), agent(&s));
    run.signal(Signal::STOP);
    // Frozen, it cannot clean up when its watch dies.
    processes::signal(agent, Signal::STOP);
    processes::signal(watch, Signal::KILL);
    processes::signal(agent, Signal::KILL);
    run.signal(Signal::KILL);
    run.wait();
    // What the agent started does not know of any of them.
    wait_until("the agent to be gone", || !processes::alive(agent));
    assert!(!s.processes().is_empty(), "something is left");
    assert_eq!(entries(&s.path("tmp")).len(), 1, "so is the folder");
    goes_on(&s);
    assert!(s.notes().iter().any(|n| n.contains("earlier agent")), "{:?}", s.notes());
}

#[test]
fn a_clean_up_longer_than_the_lease_is_no_silence() {
    // Removing the container takes longer than the lease; the agent is busy with it, the runner is there.
    let docker = r#"case "$1" in run) for a; do last=$a; done; exec sh -c "$last";; rm) exec sleep 7;; esac"#;
    let s =
        Sandbox::new().header("lease: 5s").shell_with("a", "", "image: 'img:1',", METRIC).shell("b", METRIC);
    let bin = s.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("docker"), format!("#!/bin/sh\n{docker}\n")).unwrap();
    std::fs::set_permissions(bin.join("docker"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let s = s.env("PATH", &path);
    s.run(&[]).code(0);
    assert_eq!((s.outcome("one/a").as_str(), s.outcome("one/b").as_str()), ("ok/none", "ok/none"));
    s.assert_nothing_left();
}
