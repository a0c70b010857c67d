//! Plans on hosts behind real SSH servers.

use std::{fs, process::Command};

use planrun::transport::ssh::{Target, controller::Controller};

use crate::{
    outcomes::METRIC,
    support::{Sandbox, sshd::Fleet},
};

#[test]
fn a_plan_runs_on_two_hosts_and_leaves_nothing_there() {
    let s = Sandbox::new()
        .stage("inventory: {}")
        .shell("a", &format!("echo $PLANRUN_RUN >>$SEEN/run; touch file; {METRIC}"));
    let (s, fleet) = Fleet::of(2, s);
    s.run(&[]).code(0);
    for host in ["h1", "h2"] {
        assert_eq!(s.outcome(&format!("{host}/inventory")), "ok/none");
        assert_eq!(s.samples(&format!("{host}/a"), "m"), [2.0]);
    }
    assert_eq!(s.seen("run").lines().count(), 2);
    // One kernel, two candidates: they stay two, and the reader learns of it.
    assert!(s.notes().iter().any(|n| n.contains("this is the machine of `h")), "{:?}", s.notes());
    for name in ["host_clock_offset", "host_clock_offset_error"] {
        for at in ["start", "end"] {
            let of = |body: &serde_json::Value| {
                body["series"]["name"] == name && body["series"]["labels"]["at"] == at
            };
            let read = s.journal().into_iter().filter(|(kind, body)| kind == "samples" && of(body));
            let values: Vec<f64> = read.map(|(_, body)| body["values"][0].as_f64().unwrap()).collect();
            // Both clocks are one: the offset is the error, and within its bound.
            assert_eq!(values.len(), 2, "{name} at {at}");
            assert!(values.iter().all(|v| v.abs() < 0.5), "{name} at {at}: {values:?}");
        }
    }
    fleet.assert_nothing_left(&s);
}

#[test]
fn s01_what_a_login_shell_prints_is_never_data() {
    let rows = "echo '0, NVIDIA H100 80GB HBM3, 81559'; echo '1, NVIDIA H100 80GB HBM3, 81559'; \
                echo '2, NVIDIA H100 80GB HBM3, 81559'; echo '3, NVIDIA H100 80GB HBM3, 81559'";
    let reader =
        "reader: { pattern: [{ metric: memory, regex: '^[0-9]+, NVIDIA[^,]*, ([0-9]+)$', unit: MiB }] },";
    let s = Sandbox::new().shell_with("gpus", "", reader, rows);
    let (s, fleet) = Fleet::of(1, s);
    let noise = "echo 'hello from .bashrc'\necho 'GPU: NVIDIA H100 80GB HBM3 x 8   (screenfetch)'\n\
                 echo '0, welcome, back'\necho '0, NVIDIA H100 80GB HBM3, 9'\nprintf 'no line end'\n";
    fs::write(fleet.home(1).join(".bashrc"), noise).unwrap();
    s.run(&[]).code(0);
    assert_eq!(s.samples("h1/gpus", "memory"), [81559.0; 4]);
    assert!(s.notes().iter().any(|n| n.contains("0, welcome, back")), "{:?}", s.notes());
    fleet.assert_nothing_left(&s);
}

/// One host with these settings of the server; the outcome and its reason.
fn refused(settings: &str, prefer: impl Fn(&Fleet) -> String) -> (String, String) {
    let (s, mut fleet) = Fleet::of(1, Sandbox::new().shell("a", "echo x >>$SEEN/a"));
    fleet.start(1, settings);
    fleet.prefer(&prefer(&fleet));
    s.run(&[]).code(3);
    assert_eq!(s.seen("a"), "");
    fleet.assert_nothing_left(&s);
    (s.outcome("h1/a"), s.reason("h1/a"))
}

#[test]
fn a_login_that_is_refused_says_what_to_do() {
    let (outcome, reason) = refused("AuthorizedKeysFile none", |_| String::new());
    assert_eq!(outcome, "lost/login_refused");
    assert!(reason.contains("does not accept the key") && reason.contains("identity"), "{reason}");
    let settings = "PubkeyAuthentication no\nPasswordAuthentication yes";
    let (outcome, reason) = refused(settings, |_| String::new());
    assert_eq!(outcome, "lost/login_refused");
    assert!(reason.contains("takes no keys") && reason.contains("ssh-copy-id"), "{reason}");
}

#[test]
fn a_host_key_that_changed_or_is_unknown_is_final() {
    let (s, mut fleet) = Fleet::of(1, Sandbox::new().shell_with("a", "retries: { errors: 3 },", "", "true"));
    fs::rename(fleet.path("other_host_key"), fleet.path("host_key")).unwrap();
    fleet.start(1, "");
    s.run(&[]).code(3);
    assert_eq!(s.outcome("h1/a"), "lost/host_key");
    let reason = s.reason("h1/a");
    assert!(reason.contains("has changed") && reason.contains("known_hosts:1"), "{reason}");
    let tries = s.journal().iter().filter(|(kind, _)| kind == "task_started").count();
    assert_eq!(tries, 1, "another try cannot help");
    let s2 = Sandbox::new().shell("a", "true");
    let (s2, fleet2) = Fleet::of(1, s2);
    fs::write(fleet2.path("known_hosts"), "").unwrap();
    s2.run(&[]).code(3);
    assert_eq!(s2.outcome("h1/a"), "lost/host_key");
    assert!(s2.reason("h1/a").contains("accept-new"), "{}", s2.reason("h1/a"));
    assert_eq!(fs::read_to_string(fleet2.path("known_hosts")).unwrap(), "", "nothing was added");
}

#[test]
fn a_gateway_that_runs_nothing_is_told_from_a_host() {
    let settings = "ForceCommand echo This account is not available; exit 1";
    let (outcome, reason) = refused(settings, |_| String::new());
    assert_eq!(outcome, "lost/no_commands");
    assert!(reason.contains("gateway") && reason.contains("This account is not available"), "{reason}");
}

#[test]
fn names_ports_and_silent_listeners_are_told_apart() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |l: &std::net::TcpListener| l.local_addr().unwrap().port();
    let (silent_port, closed_port) = (port(&silent), port(&closed));
    drop(closed);
    let s = Sandbox::new()
        .env("PLANRUN_SSH_CONFIG", "ssh.conf")
        .platform("name", "{ main: { ssh: no-such-host.invalid } }")
        .platform("closed", &format!("{{ main: {{ ssh: 'root@127.0.0.1:{closed_port}' }} }}"))
        .platform("silent", &format!("{{ main: {{ ssh: 127.0.0.1, port: {silent_port}, user: root }} }}"))
        .shell("a", "true");
    fs::write(s.path("ssh.conf"), "ConnectTimeout 2\n").unwrap();
    s.run(&[]).code(3);
    for (platform, words) in
        [("name", "cannot be resolved"), ("closed", "nothing listens"), ("silent", "does not speak SSH")]
    {
        let task = format!("{platform}/a");
        assert_eq!(s.outcome(&task), "lost/unreachable", "{platform}");
        assert!(s.reason(&task).contains(words), "{}", s.reason(&task));
    }
    s.assert_nothing_left();
}

#[test]
fn three_hosts_green_red_and_half_dead_have_their_exit_codes() {
    let s = Sandbox::new().shell_with("a", "expect: { m: '<= 2 s' },", "", "cat $HOME/metric");
    let (s, mut fleet) = Fleet::of(3, s);
    let metric = |value: u32| format!("{{\"metric\": \"m\", \"value\": {value}, \"unit\": \"s\"}}\n");
    for (i, value) in [(1, 1), (2, 2), (3, 2)] {
        fs::write(fleet.home(i).join("metric"), metric(value)).unwrap();
    }
    s.run(&[]).code(0);
    fs::remove_dir_all(s.out()).unwrap();
    fs::write(fleet.home(2).join("metric"), metric(3)).unwrap();
    s.run(&[]).code(1);
    fs::remove_dir_all(s.out()).unwrap();
    fleet.stop(3);
    s.run(&[]).code(3);
    assert_eq!(
        (s.outcome("h1/a"), s.outcome("h2/a"), s.outcome("h3/a")),
        ("ok/none".into(), "ok/none".into(), "lost/unreachable".into())
    );
    s.assert_nothing_left();
}

#[test]
fn settings_that_would_spoil_the_channel_are_overruled_and_weak_ones_named() {
    let (s, fleet) =
        Fleet::of(1, Sandbox::new().shell("a", "[ -z \"$SSH_AUTH_SOCK\" ] && [ ! -t 1 ] && echo ok"));
    fleet.prefer(
        "Host h1\n  RequestTTY force\n  RemoteCommand echo hello\n  ForwardAgent yes\n  StrictHostKeyChecking no\n  \
         UserKnownHostsFile /dev/null\n  ControlMaster auto\n  ControlPath none\n  LogLevel DEBUG3",
    );
    s.run(&[]).code(0);
    assert!(s.notes().iter().any(|n| n.contains("host identity not checked")), "{:?}", s.notes());
    fleet.assert_nothing_left(&s);
}

#[test]
fn an_agent_that_is_kept_is_sent_once() {
    let (s, fleet) = Fleet::of(1, Sandbox::new().header("keep_agent: true").shell("a", "true"));
    s.run(&[]).code(0);
    let cache = fleet.home(1).join(".cache/planrun");
    let kept = || {
        use std::os::unix::fs::MetadataExt as _;
        let mut files: Vec<_> = fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let file = files.remove(0);
        let inode = file.metadata().unwrap().ino();
        (file, inode)
    };
    let first = kept();
    fs::remove_dir_all(s.out()).unwrap();
    s.run(&[]).code(0);
    assert_eq!(kept(), first, "not sent again");
    fs::remove_dir_all(s.out()).unwrap();
    // One that is damaged is not used.
    fs::write(&first.0, "#!/bin/sh\nexit 1\n").unwrap();
    s.run(&[]).code(0);
    assert_ne!(kept().1, first.1);
    s.assert_nothing_left();
}

#[test]
fn another_folder_is_tried_where_one_does_not_take_the_agent() {
    // A file in place of the folder for temporary files: nothing can be made in it.
    let (s, fleet) = Fleet::of(1, Sandbox::new().shell("a", &format!("pwd >$SEEN/pwd; {METRIC}")));
    fs::remove_dir(fleet.tmp(1)).unwrap();
    fs::write(fleet.tmp(1), "").unwrap();
    let config = fs::read_to_string(fleet.path("h1.conf")).unwrap();
    assert!(config.contains("TMPDIR"));
    s.run(&[]).code(0);
    let pwd = s.seen("pwd");
    assert!(pwd.starts_with("/var/tmp/planrun-"), "{pwd}");
    assert!(!std::path::Path::new(pwd.trim()).exists());
}

#[test]
fn jump_hosts_are_passed() {
    let (s, fleet) = Fleet::without_platforms(2, Sandbox::new().shell("a", METRIC));
    fleet.prefer("Host h2\n  ProxyJump h1");
    let s = s.platform("far", "{ main: { ssh: h2 } }");
    s.run(&[]).code(0);
    assert_eq!(s.samples("far/a", "m"), [2.0]);
    let log = fs::read_to_string(fleet.path("h1.log")).unwrap_or_default();
    assert!(!log.contains("refused"), "{log}");
    fleet.assert_nothing_left(&s);
}

#[test]
fn s11_a_hosts_settings_are_those_that_ssh_resolves() {
    let s = Sandbox::new();
    let case = |name: &str| fs::read_to_string(format!("fixtures/ssh/{name}")).unwrap();
    let (settings, extra) = (s.path("ssh_config"), s.path("extra.conf"));
    fs::write(&extra, case("S11-extra.conf")).unwrap();
    // ssh looks for relative ones in ~/.ssh.
    let absolute = extra.display().to_string();
    fs::write(&settings, case("S11-ssh_config-include.conf").replace("S11-extra.conf", &absolute)).unwrap();
    let controller = Controller::new(Some(&settings), false).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |host: &str| {
        let target = Target { host: host.to_owned(), ..Target::default() };
        runtime.block_on(controller.ask(&target)).unwrap()
    };
    let (first, second, other) = (ask("gpu-1"), ask("gpu-2"), ask("other"));
    let said = (first.hostname.as_str(), first.user.as_str(), first.port.as_str());
    assert_eq!(said, ("203.0.113.21", "ubuntu", "2201"));
    assert_eq!((second.user.as_str(), second.port.as_str()), ("ubuntu", "22"));
    assert_ne!(other.user, "nobody", "the include counts only where `gpu-*` matched");
    for answers in [first, second, other] {
        assert_eq!((answers.host_key_check.as_str(), answers.known_hosts.as_str()), ("false", "/dev/null"));
    }
    let all = Command::new("ssh").arg("-G").arg("-F").arg(controller.config()).arg("gpu-1").output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    let values = |key: &str| all.lines().filter_map(|l| l.strip_prefix(key)).collect::<Vec<_>>();
    assert_eq!(values("identityfile "), ["~/.ssh/id_gpu", "~/.ssh/id_default"]);
    assert_eq!((values("forwardagent "), values("requesttty ")), (vec!["no"], vec!["false"]));
    let folder = controller.dir().to_owned();
    drop(controller);
    assert!(!folder.exists());
}

#[test]
fn s12_lines_come_as_they_were_printed_and_nothing_beside_them() {
    let case = fs::read_to_string("fixtures/ssh/S12-crlf-pty.txt").unwrap();
    // What a forced terminal made of it: every line with a carriage return, all streams in one.
    let lines: Vec<&str> = case.lines().collect();
    let [banner, rows @ .., warning, _closed] = lines.as_slice() else { panic!("{lines:?}") };
    let rows = rows.join("\n") + "\n";
    let reader = "reader: { pattern: [{ metric: index, regex: '^([0-9]+), NVIDIA L4, (Default|Exclusive_Process)$', unit: '1' }] },";
    let s = Sandbox::new().shell_with("modes", "", reader, "cat $HOME/rows; echo aside >&2");
    let (s, mut fleet) = Fleet::of(1, s);
    let (home, file) = (fleet.home(1), fleet.path("banner"));
    fs::write(&file, format!("{banner}\n")).unwrap();
    fs::write(home.join("rows"), &rows).unwrap();
    // The server sets SSH_TTY where it gives a terminal.
    let noise = format!("echo '{warning}' >&2\necho \"${{SSH_TTY:-none}}\" >>$SEEN/terminals\n");
    fs::write(home.join(".bashrc"), noise).unwrap();
    fleet.start(1, &format!("Banner {}", file.display()));
    fleet.prefer("Host h1\n  RequestTTY force");
    s.run(&[]).code(0);
    assert_eq!(s.samples("h1/modes", "index"), [0.0, 1.0]);
    assert_eq!(s.log("h1/modes/attempt-1.main.out"), rows.as_bytes());
    assert_eq!(s.log("h1/modes/attempt-1.main.err"), b"aside\n");
    let terminals = s.seen("terminals");
    assert!(terminals.contains("none") && terminals.lines().all(|t| t == "none"), "{terminals}");
    fs::remove_file(home.join("rows")).unwrap();
    fleet.assert_nothing_left(&s);
}

#[test]
fn settings_that_cannot_be_read_are_refused_before_anything_is_contacted() {
    let s = Sandbox::new().platform("h1", "{ main: { ssh: h1 } }").shell("a", "true");
    for file in ["nowhere", "plan"] {
        let ended = s.run(&["--ssh-config", &s.path(file).display().to_string()]).code(2);
        assert!(ended.stderr.contains("failed to prepare ssh with "), "{}", ended.stderr);
    }
    assert!(!s.out().exists());
    s.assert_nothing_left();
}
