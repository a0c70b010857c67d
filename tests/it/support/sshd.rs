//! Real SSH servers on loopback, one address a host, and a relay that stalls and cuts.
//!
//! Every host has a HOME and a folder for temporary files of its own below the sandbox; what runs there carries the
//! sandbox's mark, so that leftovers show.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;

use super::{MARK, Sandbox, processes, wait_until};

/// SSH servers of one sandbox.
pub(crate) struct Fleet {
    dir: PathBuf,
    mark: String,
    port: u16,
    hosts: Vec<Server>,
}

struct Server {
    name: String,
    child: Option<Child>,
}

fn sh(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The SSH server's program.
fn sshd() -> &'static str {
    let found = ["/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"].into_iter().find(|p| Path::new(p).exists());
    found.expect("no sshd: install openssh-server (tests/run.sh does)")
}

impl Fleet {
    /// Starts hosts `h1`, `h2` … and makes them platforms of the sandbox, each with one endpoint.
    pub(crate) fn of(count: usize, s: Sandbox) -> (Sandbox, Self) {
        let (mut s, fleet) = Self::without_platforms(count, s);
        for host in &fleet.hosts {
            s = s.platform(&host.name, &format!("{{ main: {{ ssh: {} }} }}", host.name));
        }
        (s, fleet)
    }

    /// Starts hosts `h1`, `h2` …, which the sandbox's ssh settings know.
    pub(crate) fn without_platforms(count: usize, s: Sandbox) -> (Sandbox, Self) {
        let dir = s.path("sshd");
        fs::create_dir_all(&dir).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        for key in ["host_key", "other_host_key", "id", "stranger"] {
            sh(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key)));
        }
        let public = fs::read_to_string(dir.join("host_key.pub")).unwrap();
        let public: Vec<&str> = public.split(' ').take(2).collect();
        fs::write(dir.join("known_hosts"), format!("fleet {}\n", public.join(" "))).unwrap();
        let free = TcpListener::bind("127.77.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut fleet = Self { dir: dir.clone(), mark: s.mark.clone(), port, hosts: Vec::new() };
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let mut config = String::new();
        for i in 1..=count {
            let name = format!("h{i}");
            for folder in ["home", "tmp"] {
                fs::create_dir_all(dir.join(folder).join(&name)).unwrap();
            }
            config += &format!("Host {name}\n  HostName {}\n  Port {port}\n", address(i));
            fleet.hosts.push(Server { name, child: None });
        }
        config += &format!(
            "Host *\n  User {}\n  IdentityFile {d}/id\n  IdentitiesOnly yes\n  UserKnownHostsFile {d}/known_hosts\n  \
             GlobalKnownHostsFile none\n  HostKeyAlias fleet\n  StrictHostKeyChecking yes\n",
            user.trim(),
            d = dir.display()
        );
        fs::write(dir.join("ssh_config"), config).unwrap();
        for i in 1..=count {
            fleet.start(i, "");
        }
        let s = s.env("PLANRUN_SSH_CONFIG", &dir.join("ssh_config").display().to_string());
        (s, fleet)
    }

    /// Puts settings of ssh before all others.
    pub(crate) fn prefer(&self, config: &str) {
        let path = self.dir.join("ssh_config");
        let rest = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{config}\n{rest}")).unwrap();
    }

    /// A file of the fleet: keys, `known_hosts`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The HOME of a host.
    pub(crate) fn home(&self, i: usize) -> PathBuf {
        self.dir.join(format!("home/h{i}"))
    }

    /// The folder for temporary files of a host.
    pub(crate) fn tmp(&self, i: usize) -> PathBuf {
        self.dir.join(format!("tmp/h{i}"))
    }

    pub(crate) fn address(&self, i: usize) -> SocketAddr {
        format!("{}:{}", address(i), self.port).parse().unwrap()
    }

    /// Starts a host's server, with more settings that come first.
    pub(crate) fn start(&mut self, i: usize, settings: &str) {
        self.start_within(i, settings, &[]);
    }

    /// The same, by a command that ends in becoming what follows it.
    pub(crate) fn start_within(&mut self, i: usize, settings: &str, within: &[&str]) {
        self.stop(i);
        let (d, name) = (self.dir.display(), format!("h{i}"));
        let conf = self.dir.join(format!("{name}.conf"));
        let text = format!(
            "{settings}\nPort {}\nListenAddress {}\nHostKey {d}/host_key\nPidFile none\nAuthorizedKeysFile {d}/id.pub\n\
             StrictModes no\nUsePAM no\nUseDNS no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nPrintMotd no\nPrintLastLog no\nMaxStartups 1000:30:1000\n\
             MaxSessions 1000\nSetEnv HOME={d}/home/{name} TMPDIR={d}/tmp/{name} {MARK}={} SEEN={}\n",
            self.port,
            address(i),
            self.mark,
            self.dir.parent().unwrap().join("seen").display()
        );
        fs::write(&conf, text).unwrap();
        let mut argv: Vec<&str> = within.to_vec();
        argv.push(sshd());
        let mut command = Command::new(argv[0]);
        command
            .args(&argv[1..])
            .arg("-D")
            .arg("-f")
            .arg(&conf)
            .arg("-E")
            .arg(self.dir.join(format!("{name}.log")));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.hosts[i - 1].child = Some(child);
        let address = self.address(i);
        wait_until("sshd to listen", || TcpStream::connect(address).is_ok());
    }

    /// Ends a host's server and the connections that it serves; what they started lives on.
    pub(crate) fn stop(&mut self, i: usize) {
        if let Some(mut child) = self.hosts[i - 1].child.take() {
            let sessions = sessions_of(child.id());
            for pid in sessions.into_iter().chain([child.id()]) {
                processes::signal(pid, Signal::KILL);
            }
            let _ = child.wait();
        }
    }

    /// The processes that serve a host's connections.
    pub(crate) fn sessions(&self, i: usize) -> Vec<u32> {
        self.hosts[i - 1].child.as_ref().map_or_else(Vec::new, |child| sessions_of(child.id()))
    }

    /// Sees that no host keeps anything of ours.
    pub(crate) fn assert_nothing_left(&self, s: &Sandbox) {
        s.assert_nothing_left();
        for i in 1..=self.hosts.len() {
            assert_eq!(super::entries(&self.tmp(i)), Vec::<String>::new(), "left in TMPDIR of h{i}");
            let left: Vec<String> =
                super::entries(&self.home(i)).into_iter().filter(|name| name != ".bashrc").collect();
            assert_eq!(left, Vec::<String>::new(), "left in HOME of h{i}");
        }
    }
}

fn address(i: usize) -> String {
    format!("127.77.{}.{}", i / 200, i % 200 + 1)
}

/// Everything below a server.
fn sessions_of(listener: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for pid in
        fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok())
    {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent =
            status.lines().find_map(|l| l.strip_prefix("PPid:")).and_then(|p| p.trim().parse::<u32>().ok());
        if parent == Some(listener) && processes::command_line(pid).starts_with("sshd") {
            found.push(pid);
        }
    }
    found
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for i in 1..=self.hosts.len() {
            self.stop(i);
        }
    }
}

/// A relay in front of a host: its link can go down without a word, or be cut.
pub(crate) struct Relay {
    pub(crate) port: u16,
    stalled: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    count: Arc<AtomicU32>,
}

impl Relay {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stalled, streams) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let count = Arc::new(AtomicU32::new(0));
        let (now, all, accepted) = (stalled.clone(), streams.clone(), count.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().filter_map(Result::ok) {
                accepted.fetch_add(1, Ordering::Relaxed);
                let Ok(far) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to, now) = (from.try_clone().unwrap(), to.try_clone().unwrap(), now.clone());
                    all.lock().unwrap().push(from.try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to, &now));
                }
            }
        });
        Self { port, stalled, streams, count }
    }

    /// Waits until another connection comes in: whoever opened the first has given it up.
    pub(crate) fn wait_for_another(&self) {
        let before = self.count.load(Ordering::Relaxed);
        wait_until("another connection", || self.count.load(Ordering::Relaxed) > before);
    }

    /// From now on, or no longer, bytes stay where they are: no end, no error.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, stalled: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        while stalled.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
