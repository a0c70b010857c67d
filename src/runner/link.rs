//! An open link to an agent: messages down, messages up, over whatever pipes the transport gives.
//!
//! A pipe may break. Within the lease the link then asks for another one to the same agent, and goes on from what each
//! side has taken; the gap is kept for whoever asks. Here: contact, numbers, noise. Not here: what the messages mean.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    sync::mpsc,
    time::timeout,
};

use super::{clock::Offset, contact::Contact};
use crate::{
    outcome::{Cause, Outcome, OutcomeKind, printable},
    stage::host::Host,
    transport::{NoPipe, Pipe, Transport},
    wire::{Down, PROTOCOL, Up, line, parse, prefix},
};

/// Messages that may wait in either direction.
const WAITING: usize = 64;

/// How long a host may take to say hello.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an agent may take to clean up after `bye`.
const FAREWELL: Duration = Duration::from_secs(15);

/// How long the last words of an agent that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often one asks for a new pipe while contact is lost.
const ASK_AGAIN: Duration = Duration::from_secs(1);

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
    /// Whether an earlier agent of this run may have been there.
    pub(super) again: bool,
}

/// What is beside the messages.
pub(super) type Noise = Arc<Mutex<Vec<String>>>;

/// A link with its host.
pub(super) struct Link {
    pub(super) host: Host,
    /// What the agent said of itself.
    pub(super) hello: Hello,
    /// What a reader should know of the way.
    pub(super) notes: Vec<String>,
    contact: Arc<Contact>,
    noise: Noise,
    down: mpsc::Sender<Down>,
    keeper: tokio::task::JoinHandle<()>,
}

/// What an agent says of itself and its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) boot_id: String,
    pub(super) reaped: u32,
    folder: String,
}

impl Link {
    /// Opens a link: starts an agent and waits for its hello.
    pub(super) async fn open(transport: Arc<dyn Transport>, terms: Terms) -> Result<Self, Outcome> {
        let lost = |reason: String| Outcome::new(OutcomeKind::Lost, Cause::Unreachable, reason);
        let name = format!("{}-{}", terms.run, terms.place);
        let pipe = transport.connect(&name).await.map_err(|e| e.outcome)?;
        let mark = random_word();
        let noise = Noise::default();
        for line in &pipe.noise {
            keep(&noise, line.as_bytes());
        }
        let notes = pipe.notes.clone();
        let (down, downs) = mpsc::channel::<Down>(WAITING);
        let (ups, mut up) = mpsc::channel::<Up>(WAITING);
        let lease = terms.lease;
        let Terms { run, place, grace, cpus, workdir, again, .. } = terms;
        let hello = Down::Hello {
            protocol: PROTOCOL,
            mark: mark.clone(),
            run,
            place,
            lease: lease.as_secs_f64(),
            grace: grace.as_secs_f64(),
            cpus,
            workdir,
            again,
        };
        let contact = Arc::new(Contact::default());
        let keeper = Keeper { contact: contact.clone(), noise: noise.clone(), mark, ups, lease };
        let mut connection = keeper.start(pipe, &hello).map_err(lost)?;
        let said =
            || noise.lock().unwrap_or_else(PoisonError::into_inner).last().cloned().unwrap_or_default();
        match timeout(PATIENCE, up.recv()).await {
            Ok(Some(Up::Hello { protocol: PROTOCOL, cpus, reaped, boot_id, folder, .. })) => {
                let host = Host::new(down.clone(), up, cpus.max(1), folder.clone());
                let hello = Hello { boot_id, reaped, folder };
                let keeper = tokio::spawn(keeper.keep(connection, transport, hello.clone(), downs));
                Ok(Self { host, hello, notes, contact, noise, down, keeper })
            }
            Ok(Some(Up::Trouble { text, disk: true, .. })) => {
                Err(Outcome::new(OutcomeKind::Failed, Cause::Disk, printable(&text)))
            }
            Ok(Some(other)) => Err(lost(printable(&format!("the agent did not say hello but {other:?}")))),
            Ok(None) => {
                // Its last words come by another way and may be a moment late.
                let _ = timeout(LAST_WORDS, &mut connection.overheard).await;
                Err(lost(format!("the agent ended at once: {}", said())))
            }
            Err(_) => Err(lost(format!("no hello within {} s: {}", PATIENCE.as_secs(), said()))),
        }
    }

    /// What was heard beside the messages so far.
    pub(super) fn take_noise(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.noise))
    }

    /// How long contact was lost, each time since the last call, in seconds.
    pub(super) fn take_gaps(&self) -> Vec<f64> {
        std::mem::take(&mut lock(&self.contact.state).gaps)
    }

    /// Why contact is lost for good, if it is.
    pub(super) fn lost(&self) -> Option<Outcome> {
        lock(&self.contact.state).lost.clone()
    }

    /// What is asked of the host's clock and this one's.
    pub(super) fn offset(&self, at_once: u32) -> Offset {
        Offset::new(self.contact.clone(), at_once)
    }

    /// Says goodbye and waits until the agent has cleaned up. Returns its last words, if there are any.
    pub(super) async fn close(self) -> Vec<String> {
        let Self { host, down, keeper, noise, .. } = self;
        let _ = down.send(Down::Bye).await;
        drop((host, down));
        let _ = timeout(FAREWELL, keeper).await;
        std::mem::take(&mut *lock(&noise))
    }
}

/// Keeps the contact: numbers what goes down, confirms what comes up, and asks for a new pipe when one breaks.
struct Keeper {
    contact: Arc<Contact>,
    noise: Noise,
    mark: String,
    ups: mpsc::Sender<Up>,
    lease: Duration,
}

/// A pipe in use.
struct Connection {
    to: mpsc::Sender<Vec<u8>>,
    reader: tokio::task::JoinHandle<()>,
    writer: tokio::task::JoinHandle<()>,
    overheard: tokio::task::JoinHandle<()>,
    gone: crate::transport::BoxFuture<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
        self.overheard.abort();
    }
}

impl Keeper {
    /// Uses a pipe: this is its first line.
    fn start(&self, pipe: Pipe, first: &Down) -> Result<Connection, String> {
        let Pipe { down: mut to, up: from, aside, gone, .. } = pipe;
        let (send, mut lines) = mpsc::channel::<Vec<u8>>(WAITING);
        let first = line(0, first).map_err(|e| e.to_string())?;
        let writer = tokio::spawn(async move {
            let mut next = Some(first.into_bytes());
            while let Some(bytes) = next {
                if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                    break;
                }
                next = lines.recv().await;
            }
        });
        let (contact, noise, ups) = (self.contact.clone(), self.noise.clone(), self.ups.clone());
        let reader = tokio::spawn(listen(from, prefix(&self.mark), ups, contact, noise));
        let overheard = tokio::spawn(overhear(aside, self.noise.clone()));
        Ok(Connection { to: send, reader, writer, overheard, gone })
    }

    /// Until goodbye, or until contact is lost for good.
    async fn keep(
        self,
        mut connection: Connection,
        transport: Arc<dyn Transport>,
        hello: Hello,
        mut downs: mpsc::Receiver<Down>,
    ) {
        let pulse = (self.lease / 6).max(Duration::from_millis(100));
        let mut bye = false;
        loop {
            let lasting = transport.lasting();
            let broken = self.serve(&mut connection, &mut downs, (pulse, lasting), &mut bye).await;
            if !broken {
                let _ = timeout(LAST_WORDS, &mut connection.overheard).await;
                return;
            }
            let since = self.contact.heard();
            lock(&self.contact.state).away = true;
            drop(connection);
            match self.return_to(transport.as_ref(), &hello, since).await {
                Ok(again) => {
                    connection = again;
                    let mut state = lock(&self.contact.state);
                    state.away = false;
                    state.gaps.push(since.elapsed().as_secs_f64());
                }
                Err(outcome) => {
                    lock(&self.contact.state).lost = Some(outcome);
                    return;
                }
            }
        }
    }

    /// Passes messages on over one connection. Returns whether it broke: `false` after goodbye.
    async fn serve(
        &self,
        connection: &mut Connection,
        downs: &mut mpsc::Receiver<Down>,
        (pulse, lasting): (Duration, bool),
        bye: &mut bool,
    ) -> bool {
        let mut due = tokio::time::interval_at(tokio::time::Instant::now() + pulse, pulse);
        loop {
            let bytes = tokio::select! {
                message = downs.recv(), if !*bye && self.contact.has_room() => {
                    // Nobody is left to say more: goodbye, whether it was said or not.
                    let message = message.unwrap_or(Down::Bye);
                    *bye = matches!(message, Down::Bye);
                    self.contact.send(&message)
                }
                id = self.contact.next_ping() => line(0, &Down::Ping { id }).ok(),
                () = self.contact.may_have_room() => continue,
                () = self.contact.wants_to_confirm() => self.contact.confirmation(),
                _ = due.tick() => {
                    // An agent answers each pulse; one that says nothing for two is not reached.
                    if lasting && self.contact.silent() > pulse * 2 {
                        return true;
                    }
                    self.contact.confirmation()
                }
                () = &mut connection.gone, if *bye => return false,
                _ = &mut connection.reader => return !*bye,
            };
            let Some(bytes) = bytes else { continue };
            if !matches!(timeout(pulse * 2, connection.to.send(bytes.into_bytes())).await, Ok(Ok(()))) {
                return !*bye;
            }
        }
    }

    /// Asks for new pipes to the same agent until one goes on, or until the agent must have ended by itself.
    async fn return_to(
        &self,
        transport: &dyn Transport,
        hello: &Hello,
        since: Instant,
    ) -> Result<Connection, Outcome> {
        let gone = |cause, reason: String| Outcome::new(OutcomeKind::Lost, cause, reason);
        // The agent counts from when it last heard us, which was not after we last heard it.
        let until = since + self.lease;
        let mut why = "the connection broke".to_owned();
        loop {
            let Some(pipe) = transport.attach(&hello.folder, &hello.boot_id) else {
                return Err(gone(Cause::ContactLost, "the agent on the host is gone".to_owned()));
            };
            let left = until.saturating_duration_since(Instant::now());
            let patience = (self.lease / 2).max(Duration::from_secs(1));
            match timeout(left.min(patience), pipe).await {
                Ok(Ok(pipe)) => {
                    let seen = self.contact.seen();
                    let attach = Down::Attach { mark: self.mark.clone(), seen };
                    let connection = self.start(pipe, &attach).map_err(|e| gone(Cause::Internal, e))?;
                    let left = until.saturating_duration_since(Instant::now());
                    if timeout(left.min(patience), self.contact.attached()).await.is_ok() {
                        for bytes in self.contact.unconfirmed() {
                            let _ = connection.to.send(bytes).await;
                        }
                        return Ok(connection);
                    }
                    "the agent does not answer".clone_into(&mut why);
                }
                Ok(Err(NoPipe { outcome, again: false })) => return Err(outcome),
                Ok(Err(NoPipe { outcome, .. })) => why = outcome.reason,
                Err(_) => "no answer".clone_into(&mut why),
            }
            if Instant::now() >= until {
                let lease = self.lease.as_secs_f64();
                let reason = format!(
                    "no contact for {:.0} s: {why}; past the lease of {lease} s the host ends all of it by itself",
                    since.elapsed().as_secs_f64()
                );
                return Err(gone(Cause::ContactLost, reason));
            }
            tokio::time::sleep(ASK_AGAIN.min(self.lease / 10)).await;
        }
    }
}

/// Reads messages; what is none is noise.
async fn listen(
    from: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    prefix: String,
    ups: mpsc::Sender<Up>,
    contact: Arc<Contact>,
    noise: Noise,
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
        if !message.ends_with(b"\n") && (line.len() as u64) < LONGEST {
            return; // cut in the middle of a message, which will come again
        }
        match parse(message) {
            Ok((0, up)) => contact.about(&up),
            Ok((number, up)) => {
                if !contact.take(number) {
                    continue;
                }
                // Whoever is slow to listen must not be taken for one who hears nothing.
                let waiting = contact.busy();
                if ups.send(up).await.is_err() {
                    return;
                }
                drop(waiting);
                contact.took(message.len());
            }
            Err(e) => keep(&noise, format!("a message that cannot be read: {e}").as_bytes()),
        }
    }
}

async fn overhear(from: Box<dyn tokio::io::AsyncRead + Send + Unpin>, noise: Noise) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut from).take(4096).read_until(b'\n', &mut line).await {
        keep(&noise, &line);
        line.clear();
    }
}

fn keep(noise: &Mutex<Vec<String>>, bytes: &[u8]) {
    let text = printable(&String::from_utf8_lossy(bytes));
    let mut kept = lock(noise);
    if !text.is_empty() && kept.len() < KEPT_NOISE {
        kept.push(text);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let noise = Noise::default();
        listen(Box::new(std::io::Cursor::new(bytes)), prefix("mark"), ups, Arc::default(), noise.clone())
            .await;
        let mut messages = Vec::new();
        while let Some(message) = up.recv().await {
            messages.push(message);
        }
        (messages, lock(&noise).clone())
    }

    fn output(text: &str) -> Up {
        Up::Output { id: 0, stream: crate::wire::Stream::Out, at: 0.5, data: Blob(text.as_bytes().to_vec()) }
    }

    fn framed(number: u64, up: &Up) -> String {
        format!("{}{}", prefix("mark"), line(number, up).unwrap())
    }

    #[tokio::test]
    async fn s01_what_a_login_shell_prints_is_noise_however_it_looks() {
        let data = output("0, NVIDIA H100 80GB HBM3, 81559\n");
        let text = format!(
            "hello from .bashrc\nGPU: NVIDIA H100 80GB HBM3 x 8\n0, welcome, back\n{}\
             1 {{\"output\":{{\"id\":0}}}}\n\u{1e}other 1 {{}}\nno line end{}logout banner\n",
            framed(1, &data),
            framed(2, &output("1"))
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
        bytes.extend(framed(1, &output("data")).bytes());
        let (messages, noise) = heard(bytes).await;
        assert_eq!(messages, [output("data")]);
        assert!(noise.len() <= KEPT_NOISE && noise.iter().all(|n| n.len() <= 400), "{}", noise.len());
    }

    #[tokio::test]
    async fn a_message_that_comes_twice_counts_once_and_a_torn_one_not_at_all() {
        let mut text = framed(1, &output("a")) + &framed(1, &output("a")) + &framed(2, &output("b"));
        text += framed(3, &output("torn")).trim_end();
        let (messages, noise) = heard(text.into_bytes()).await;
        assert_eq!(messages, [output("a"), output("b")]);
        assert_eq!(noise, [""; 0]);
    }
}
