//! An open link to an agent: messages down, messages up, over whatever pipe the transport gave.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    sync::mpsc,
    time::timeout,
};

use crate::{
    outcome::{Cause, Outcome, OutcomeKind},
    stage::host::{Host, printable},
    transport::{BoxFuture, Pipe, Transport},
    wire::{Down, PROTOCOL, Up, prefix},
};

/// Messages that may wait in either direction.
const WAITING: usize = 64;

/// How long a host may take to say hello.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an agent may take to clean up after `bye`.
const FAREWELL: Duration = Duration::from_secs(15);

/// How long the last words of an agent that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The longest line from an agent: a chunk in which every byte needs six.
const LONGEST: u64 = 8 << 20;

/// Lines of noise that are kept.
const KEPT_NOISE: usize = 20;

/// How the agent is to behave.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) run: String,
    pub(super) place: String,
    pub(super) lease: Duration,
    pub(super) grace: Duration,
    pub(super) cpus: Option<u32>,
    pub(super) workdir: Option<String>,
}

/// A link with its host.
pub(super) struct Link {
    pub(super) host: Host,
    /// What the agent said of itself.
    pub(super) reaped: u32,
    noise: Arc<Mutex<Vec<String>>>,
    overheard: tokio::task::JoinHandle<()>,
    down: mpsc::Sender<Down>,
    gone: BoxFuture<()>,
}

impl Link {
    /// Opens a link: starts an agent and waits for its hello.
    pub(super) async fn open(transport: &dyn Transport, terms: Terms) -> Result<Self, Outcome> {
        let lost = |reason: String| Outcome::new(OutcomeKind::Lost, Cause::Unreachable, reason);
        let pipe = transport.connect().await.map_err(|e| lost(format!("cannot {e}: {}", e.source)))?;
        let mark = random_word();
        let Pipe { down: mut to, up: from, aside, gone } = pipe;
        let noise = Arc::new(Mutex::new(Vec::new()));
        let (down, mut downs) = mpsc::channel::<Down>(WAITING);
        let (ups, mut up) = mpsc::channel::<Up>(WAITING);
        let renew = (terms.lease / 3).max(Duration::from_millis(100));
        let Terms { run, place, lease, grace, cpus, workdir } = terms;
        let (lease, grace) = (lease.as_secs_f64(), grace.as_secs_f64());
        let hello =
            Down::Hello { protocol: PROTOCOL, mark: mark.clone(), run, place, lease, grace, cpus, workdir };
        // Queued before anybody sends: the first line must be the hello, no renewal may overtake it.
        let _ = down.send(hello).await;
        tokio::spawn(async move {
            let mut due = tokio::time::interval_at(tokio::time::Instant::now() + renew, renew);
            loop {
                let message = tokio::select! {
                    message = downs.recv() => match message { Some(message) => message, None => break },
                    _ = due.tick() => Down::Renew,
                };
                let Ok(mut line) = serde_json::to_string(&message) else { continue };
                line.push('\n');
                if to.write_all(line.as_bytes()).await.is_err() || to.flush().await.is_err() {
                    break;
                }
            }
        });
        tokio::spawn(listen(from, prefix(&mark), ups, noise.clone()));
        let overheard = tokio::spawn(overhear(aside, noise.clone()));
        let said =
            || noise.lock().unwrap_or_else(PoisonError::into_inner).last().cloned().unwrap_or_default();
        match timeout(PATIENCE, up.recv()).await {
            Ok(Some(Up::Hello { protocol: PROTOCOL, cpus, reaped, .. })) => {
                let host = Host::new(down.clone(), up, cpus.max(1));
                Ok(Self { host, reaped, noise, overheard, down, gone })
            }
            Ok(Some(Up::Trouble { text, disk: true, .. })) => {
                Err(Outcome::new(OutcomeKind::Failed, Cause::Disk, text))
            }
            Ok(Some(other)) => Err(lost(format!("the agent did not say hello but {other:?}"))),
            Ok(None) => {
                // Its last words come by another way and may be a moment late.
                let _ = timeout(LAST_WORDS, overheard).await;
                Err(lost(format!("the agent ended at once: {}", said())))
            }
            Err(_) => Err(lost(format!("no hello within {} s: {}", PATIENCE.as_secs(), said()))),
        }
    }

    /// What was heard beside the messages so far.
    pub(super) fn take_noise(&self) -> Vec<String> {
        std::mem::take(&mut *self.noise.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says goodbye and waits until the agent has cleaned up. Returns its last words, if there are any.
    pub(super) async fn close(self) -> Vec<String> {
        let Self { host, down, gone, overheard, noise, .. } = self;
        let _ = down.send(Down::Bye).await;
        drop((host, down));
        if timeout(FAREWELL, gone).await.is_ok() {
            let _ = timeout(LAST_WORDS, overheard).await;
        }
        std::mem::take(&mut *noise.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads messages; what is none is noise.
async fn listen(
    from: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    prefix: String,
    ups: mpsc::Sender<Up>,
    noise: Arc<Mutex<Vec<String>>>,
) {
    let mut from = BufReader::with_capacity(128 << 10, from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut from).take(LONGEST).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // Noise without a line end may stand right before a message.
        let start = line.windows(prefix.len()).position(|w| w == prefix.as_bytes());
        let (before, message) = match start {
            Some(start) => (&line[..start], Some(&line[start + prefix.len()..])),
            None => (&line[..], None),
        };
        keep(&noise, before);
        let Some(message) = message else { continue };
        match serde_json::from_slice(message) {
            Ok(up) => {
                if ups.send(up).await.is_err() {
                    return;
                }
            }
            Err(e) => keep(&noise, format!("a message that cannot be read: {e}").as_bytes()),
        }
    }
}

async fn overhear(from: Box<dyn tokio::io::AsyncRead + Send + Unpin>, noise: Arc<Mutex<Vec<String>>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut from).take(4096).read_until(b'\n', &mut line).await {
        keep(&noise, &line);
        line.clear();
    }
}

fn keep(noise: &Mutex<Vec<String>>, bytes: &[u8]) {
    let text = printable(&String::from_utf8_lossy(bytes));
    let mut kept = noise.lock().unwrap_or_else(PoisonError::into_inner);
    if !text.is_empty() && kept.len() < KEPT_NOISE {
        kept.push(text);
    }
}

/// A word that nothing else prints: from the kernel's generator, else from the clock and the process.
pub(super) fn random_word() -> String {
    let mut bytes = [0_u8; 16];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes));
    if read.is_err() {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        bytes = (now ^ (u128::from(std::process::id()) << 64)).to_le_bytes();
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Blob;

    /// What the runner hears of these bytes: messages, and noise.
    async fn heard(bytes: Vec<u8>) -> (Vec<Up>, Vec<String>) {
        let (ups, mut up) = mpsc::channel(64);
        let noise = Arc::new(Mutex::new(Vec::new()));
        listen(Box::new(std::io::Cursor::new(bytes)), prefix("mark"), ups, noise.clone()).await;
        let mut messages = Vec::new();
        while let Some(message) = up.recv().await {
            messages.push(message);
        }
        (messages, noise.lock().unwrap().clone())
    }

    fn output(text: &str) -> Up {
        Up::Output { id: 0, stream: crate::wire::Stream::Out, at: 0.5, data: Blob(text.as_bytes().to_vec()) }
    }

    fn framed(up: &Up) -> String {
        format!("{}{}\n", prefix("mark"), serde_json::to_string(up).unwrap())
    }

    #[tokio::test]
    async fn s01_what_a_login_shell_prints_is_noise_however_it_looks() {
        let data = output("0, NVIDIA H100 80GB HBM3, 81559\n");
        let text = format!(
            "hello from .bashrc\nGPU: NVIDIA H100 80GB HBM3 x 8\n0, welcome, back\n{}\
             {{\"output\":{{\"id\":0}}}}\n\u{1e}other {{}}\nno line end{}logout banner\n",
            framed(&data),
            framed(&output("1"))
        );
        let (messages, noise) = heard(text.into_bytes()).await;
        assert_eq!(messages, [data, output("1")]);
        assert!(noise.contains(&"0, welcome, back".to_owned()) && noise.contains(&"no line end".to_owned()));
        assert_eq!(noise.len(), 7, "{noise:?}");
    }

    #[tokio::test]
    async fn noise_without_end_and_garbled_messages_are_bounded() {
        let mut bytes = vec![b'x'; 20 << 20];
        bytes.extend(format!("\n{}nonsense\n", prefix("mark")).bytes());
        bytes.extend("noise\n".repeat(1000).bytes());
        bytes.extend(framed(&output("data")).bytes());
        let (messages, noise) = heard(bytes).await;
        assert_eq!(messages, [output("data")]);
        assert!(noise.len() <= KEPT_NOISE && noise.iter().all(|n| n.len() <= 400), "{}", noise.len());
    }
}
