//! Values under `secrets` are written nowhere, whichever way over SSH they come.

use std::{fs, path::Path};

use crate::{
    outcomes::METRIC,
    support::{Sandbox, sshd::Fleet},
};

/// Upper and lower case: ssh says host names in lower case alone.
const CANARY: &str = "Xy7qCanaryOfOurs";

/// Sees that no text holds the canary or its beginning, in whatever case.
#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    let (text, beginning) = (String::from_utf8_lossy(bytes), CANARY[..6].to_lowercase());
    let line = text.lines().find(|l| l.to_lowercase().contains(&beginning));
    assert_eq!(line, None, "in {what}");
}

fn assert_folder_clean(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        assert_clean("a file's name", entry.file_name().unwrap().as_encoded_bytes());
        if entry.is_dir() {
            assert_folder_clean(&entry);
        } else {
            assert_clean(&entry.display().to_string(), &fs::read(&entry).unwrap());
        }
    }
}

#[test]
fn a_secret_shows_nowhere_whichever_way_it_comes() {
    // In a line that is long enough to be cut, the cut comes in the middle of it.
    let cut = format!("{}{CANARY}", "x".repeat(388));
    let script = format!(
        "echo \"$TOKEN\" >>$SEEN/token; echo \"out $TOKEN\"; echo \"err $TOKEN\" >&2; printf %s \"$TOKEN\" | head -c 5; \
         sleep 0.2; printf %s \"$TOKEN\" | tail -c +6; echo; {METRIC}; \
         echo '{{\"note\": \"'\"$TOKEN\"'\"}}'; echo '{{\"fact\": \"'\"$TOKEN\"'\", \"value\": \"'\"$TOKEN\"'\"}}'"
    );
    let s = Sandbox::new().env("CANARY", CANARY).header("secrets: [CANARY]").shell_with(
        "a",
        "",
        "env: { TOKEN: \"${CANARY}\" },",
        &script,
    );
    let (mut s, mut fleet) = Fleet::without_platforms(1, s);
    let (banner, id) = (fleet.path("banner"), fleet.path(CANARY));
    fs::write(&banner, format!("hello {CANARY}\n")).unwrap();
    fs::write(&id, "no key\n").unwrap();
    let noise = format!("echo 'rc {CANARY}'\necho {cut}\necho 'rc {CANARY}' >&2\n");
    fs::write(fleet.home(1).join(".bashrc"), noise).unwrap();
    fleet.start(1, &format!("Banner {}", banner.display()));
    let address = fleet.address(1);
    fleet.prefer(&format!(
        "Host alias-{CANARY}\n  HostName {}\n  Port {}\nHost closed-{CANARY}\n  HostName 127.0.0.1\n  Port 1",
        address.ip(),
        address.port(),
    ));
    let keys = fleet.path("").display().to_string();
    let ways = [
        ("plain", "ssh: h1".to_owned(), "ok/none"),
        ("alias", "ssh: \"alias-${CANARY}\"".to_owned(), "ok/none"),
        ("missing", "ssh: h1, identity: \"/nowhere/${CANARY}/id\"".to_owned(), "ok/none"),
        ("closed", "ssh: \"closed-${CANARY}\"".to_owned(), "lost/unreachable"),
        ("name", "ssh: \"${CANARY}.invalid\"".to_owned(), "lost/unreachable"),
        ("user", "ssh: h1, user: \"${CANARY}\"".to_owned(), "lost/login_refused"),
        (
            "key",
            format!("ssh: h1, user: nobody-here, identity: \"{keys}/${{CANARY}}\""),
            "lost/login_refused",
        ),
    ];
    for (platform, endpoint, _) in &ways {
        s = s.platform(platform, &format!("{{ main: {{ {endpoint} }} }}"));
    }
    let ran = s.run(&["-vv"]).code(3);
    for (platform, _, outcome) in &ways {
        let task = format!("{platform}/a");
        assert_eq!((s.outcome(&task).as_str(), *platform), (*outcome, *platform), "{}", s.reason(&task));
    }
    assert_eq!(s.seen("token"), format!("{CANARY}\n").repeat(3), "the programs do get it");
    assert!(s.notes().iter().any(|n| n.contains("rc ****")), "{:?}", s.notes());
    assert_clean("stdout", ran.stdout.as_bytes());
    assert_clean("stderr", ran.stderr.as_bytes());
    assert_folder_clean(&s.out());
    let doctor = s.planrun(&["-vv", "doctor", &s.plan().display().to_string()]).code(3);
    assert_clean("doctor's stdout", doctor.stdout.as_bytes());
    assert_clean("doctor's stderr", doctor.stderr.as_bytes());
    fleet.assert_nothing_left(&s);
}
