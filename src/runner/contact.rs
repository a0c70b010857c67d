//! What a link knows of its contact: what each side has taken, when the host was last heard, what is lost.
//!
//! Shared by the tasks of one link. Invariant: a message down stays here until the agent has confirmed it.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};

use super::link::lock;
use crate::{
    outcome::Outcome,
    wire::{Down, Up, line},
};

/// Bytes of messages down that may wait to be confirmed.
const MOST_UNCONFIRMED: usize = 8 << 20;

/// Bytes of messages up that are taken before the agent hears of it.
const UNCONFIRMED: usize = 1 << 20;

/// An answer to a ping: which, when it came, and the host's wall clock.
pub(super) type Pong = (u32, Instant, f64);

/// The contact of one link.
pub(super) struct Contact {
    pub(super) state: Mutex<State>,
    /// The last message up that was taken.
    taken: AtomicU64,
    /// Bytes up since the last confirmation.
    unconfirmed_up: AtomicUsize,
    /// Messages that were read and wait for somebody to take them.
    busy: AtomicUsize,
    confirm: Notify,
    room: Notify,
    attached: Notify,
    pings: Mutex<VecDeque<u32>>,
    pinged: Notify,
    pongs: Mutex<Option<mpsc::UnboundedSender<Pong>>>,
}

/// What changes together.
pub(super) struct State {
    heard: Instant,
    last: u64,
    unconfirmed: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// Seconds of each gap that nobody has asked for yet.
    pub(super) gaps: Vec<f64>,
    /// Whether contact is lost at the moment.
    pub(super) away: bool,
    /// Why contact is lost for good.
    pub(super) lost: Option<Outcome>,
}

impl Default for Contact {
    fn default() -> Self {
        let (unconfirmed, gaps) = (VecDeque::new(), Vec::new());
        let heard = Instant::now();
        let state = State { heard, last: 0, unconfirmed, bytes: 0, gaps, away: false, lost: None };
        Self {
            state: Mutex::new(state),
            taken: AtomicU64::new(0),
            unconfirmed_up: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            confirm: Notify::new(),
            room: Notify::new(),
            attached: Notify::new(),
            pings: Mutex::default(),
            pinged: Notify::new(),
            pongs: Mutex::new(None),
        }
    }
}

/// Somebody waits to hand on what was read.
pub(super) struct Busy<'a>(&'a Contact);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        lock(&self.0.state).heard = Instant::now();
    }
}

impl Contact {
    /// When the host was last heard.
    pub(super) fn heard(&self) -> Instant {
        if self.busy.load(Ordering::Relaxed) > 0 { Instant::now() } else { lock(&self.state).heard }
    }

    /// How long the host has not been heard.
    pub(super) fn silent(&self) -> Duration {
        self.heard().elapsed()
    }

    /// The last message up that was taken.
    pub(super) fn seen(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether a message up is the next one; one that came before is not taken again.
    pub(super) fn take(&self, number: u64) -> bool {
        lock(&self.state).heard = Instant::now();
        let next = self.taken.load(Ordering::Relaxed) + 1 == number;
        if next {
            self.taken.store(number, Ordering::Relaxed);
        }
        next
    }

    /// A message was handed on.
    pub(super) fn took(&self, bytes: usize) {
        if self.unconfirmed_up.fetch_add(bytes, Ordering::Relaxed) + bytes > UNCONFIRMED {
            self.confirm.notify_one();
        }
    }

    pub(super) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    /// Waits until enough was taken that the agent should hear of it.
    pub(super) async fn wants_to_confirm(&self) {
        self.confirm.notified().await;
    }

    /// The line that confirms.
    pub(super) fn confirmation(&self) -> Option<String> {
        self.unconfirmed_up.store(0, Ordering::Relaxed);
        line(0, &Down::Renew { seen: self.seen() }).ok()
    }

    /// Waits until the agent has confirmed something: there may be room again.
    pub(super) async fn may_have_room(&self) {
        self.room.notified().await;
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.state).bytes < MOST_UNCONFIRMED
    }

    /// Numbers a message and keeps it until it is confirmed. Returns its line.
    pub(super) fn send(&self, message: &Down) -> Option<String> {
        let mut state = lock(&self.state);
        let number = state.last + 1;
        let text = line(number, message).ok()?;
        state.last = number;
        state.bytes += text.len();
        state.unconfirmed.push_back((number, text.clone().into_bytes()));
        Some(text)
    }

    /// The lines that the agent has not taken.
    pub(super) fn unconfirmed(&self) -> Vec<Vec<u8>> {
        lock(&self.state).unconfirmed.iter().map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Waits for the answer to `attach`.
    pub(super) async fn attached(&self) {
        self.attached.notified().await;
    }

    /// A line about the contact.
    pub(super) fn about(&self, up: &Up) {
        let now = Instant::now();
        lock(&self.state).heard = now;
        match up {
            Up::Seen { seen } => self.confirmed(*seen),
            Up::Attached { seen } => {
                self.confirmed(*seen);
                self.attached.notify_one();
            }
            Up::Pong { id, wall } => {
                if let Some(pongs) = &*lock(&self.pongs) {
                    let _ = pongs.send((*id, now, *wall));
                }
            }
            _ => {}
        }
    }

    fn confirmed(&self, seen: u64) {
        let mut state = lock(&self.state);
        while let Some((number, bytes)) = state.unconfirmed.front()
            && *number <= seen
        {
            state.bytes -= bytes.len();
            state.unconfirmed.pop_front();
        }
        drop(state);
        self.room.notify_one();
    }

    /// Waits for a ping that is to be sent.
    pub(super) async fn next_ping(&self) -> u32 {
        loop {
            let next = lock(&self.pings).pop_front();
            match next {
                Some(id) => return id,
                None => self.pinged.notified().await,
            }
        }
    }

    /// Asks that a ping be sent.
    pub(super) fn ping(&self, id: u32) {
        lock(&self.pings).push_back(id);
        self.pinged.notify_one();
    }

    /// Answers to pings, from now on to this caller.
    pub(super) fn pongs(&self) -> mpsc::UnboundedReceiver<Pong> {
        let (send, pongs) = mpsc::unbounded_channel();
        *lock(&self.pongs) = Some(send);
        pongs
    }
}
