//! The agent's line to its runner: numbered messages, kept until the runner has confirmed them.
//!
//! Here: what was said and not yet confirmed, and the connection of the moment. A connection may break and another one
//! take its place; nothing is lost then, and nothing said twice. Not here: what the messages mean.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::wire::{Up, line, prefix};

/// Bytes of messages that may wait to be confirmed; what prints more then waits, too.
const MOST_UNCONFIRMED: usize = 16 << 20;

/// How often a busy line is tried again for a word about the contact.
const MENTION_TRIES: u32 = 100;

/// A way to the runner that can be cut from outside, so that nobody stays stuck in writing to it.
pub(super) trait Way: Write + Send {
    /// Another handle that cuts it; `None` when it cannot be.
    fn cutter(&self) -> Option<Box<dyn FnOnce() + Send>>;
}

/// The agent's end of the line.
#[derive(Clone)]
pub(super) struct Line(Arc<Shared>);

struct Shared {
    said: Mutex<Said>,
    confirmed: Condvar,
    cutter: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    prefix: String,
    /// Whether a connection that is gone may be followed by another one.
    lasting: bool,
}

struct Said {
    way: Option<Box<dyn Way>>,
    last: u64,
    unconfirmed: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Said {
    fn write(&mut self, bytes: &[u8]) {
        // One write a message, so that a line is never torn by another process on the same stream.
        if let Some(way) = &mut self.way
            && way.write_all(bytes).and_then(|()| way.flush()).is_err()
        {
            self.way = None;
        }
    }
}

impl Line {
    /// A line over this way. What is said is kept for another one if it is `lasting`.
    pub(super) fn new(way: Box<dyn Way>, mark: &str, lasting: bool) -> Self {
        let cutter = Mutex::new(way.cutter());
        let said = Said { way: Some(way), last: 0, unconfirmed: VecDeque::new(), bytes: 0 };
        let said = Mutex::new(said);
        Self(Arc::new(Shared { said, confirmed: Condvar::new(), cutter, prefix: prefix(mark), lasting }))
    }

    /// Whether this is the word that marks its lines.
    pub(super) fn is_marked(&self, mark: &str) -> bool {
        prefix(mark) == self.0.prefix
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self, number: u64, up: &Up) -> Option<Vec<u8>> {
        Some(format!("{}{}", self.0.prefix, line(number, up).ok()?).into_bytes())
    }

    /// Says a message; waits while too much is unconfirmed. `false` once nobody will ever hear it.
    pub(super) fn say(&self, up: &Up) -> bool {
        let mut said = self.said();
        while said.bytes > MOST_UNCONFIRMED {
            said = self.0.confirmed.wait(said).unwrap_or_else(PoisonError::into_inner);
        }
        if said.way.is_none() && !self.0.lasting {
            return false;
        }
        let Some(bytes) = self.bytes(said.last + 1, up) else { return true };
        said.last += 1;
        said.write(&bytes);
        if self.0.lasting {
            let number = said.last;
            said.bytes += bytes.len();
            said.unconfirmed.push_back((number, bytes));
        }
        true
    }

    /// Says something about the contact, unless the line stays busy: it will come again.
    pub(super) fn mention(&self, up: &Up) {
        let Some(bytes) = self.bytes(0, up) else { return };
        for _ in 0..MENTION_TRIES {
            // Not waited for without end: who holds the line may be stuck in writing to a runner that does not read.
            if let Ok(mut said) = self.0.said.try_lock() {
                said.write(&bytes);
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// The runner has taken the messages up to this number.
    pub(super) fn confirm(&self, seen: u64) {
        // Not waited for: who holds the line writes to a runner that is taking.
        if let Ok(mut said) = self.0.said.try_lock() {
            drop_seen(&mut said, seen);
            self.0.confirmed.notify_all();
        }
    }

    /// Goes on over another way, from behind the last message that the runner took.
    pub(super) fn go_on(&self, way: Box<dyn Way>, seen: u64, taken: u64) {
        // Whoever is stuck in the old way lets go of the line.
        let cutter = self.0.cutter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cut) = cutter {
            cut();
        }
        let mut said = self.said();
        *self.0.cutter.lock().unwrap_or_else(PoisonError::into_inner) = way.cutter();
        said.way = Some(way);
        if let Some(bytes) = self.bytes(0, &Up::Attached { seen: taken }) {
            said.write(&bytes);
        }
        drop_seen(&mut said, seen);
        let again: Vec<Vec<u8>> = said.unconfirmed.iter().map(|(_, bytes)| bytes.clone()).collect();
        for bytes in again {
            said.write(&bytes);
        }
        self.0.confirmed.notify_all();
    }
}

fn drop_seen(said: &mut Said, seen: u64) {
    while let Some((number, bytes)) = said.unconfirmed.front()
        && *number <= seen
    {
        said.bytes -= bytes.len();
        said.unconfirmed.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.1 {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Way for Paper {
        fn cutter(&self) -> Option<Box<dyn FnOnce() + Send>> {
            None
        }
    }

    fn numbers(paper: &Paper) -> Vec<u64> {
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        let number = |line: &str| line.split(' ').nth(1).unwrap().parse().unwrap();
        text.lines().map(number).collect()
    }

    #[test]
    fn what_was_not_confirmed_is_said_again_and_nothing_else() {
        let (first, second) = (Paper::default(), Paper::default());
        let line = Line::new(Box::new(first.clone()), "mark", true);
        for _ in 0..5 {
            assert!(line.say(&Up::Sent { left_out: Vec::new() }));
        }
        assert_eq!(numbers(&first), [1, 2, 3, 4, 5]);
        line.confirm(2);
        line.go_on(Box::new(second.clone()), 3, 9);
        assert_eq!(numbers(&second), [0, 4, 5], "attached, then what the runner has not taken");
        assert!(line.say(&Up::Sent { left_out: Vec::new() }));
        assert_eq!(numbers(&second), [0, 4, 5, 6]);
    }

    #[test]
    fn a_broken_way_ends_only_a_line_that_does_not_last() {
        let broken = Paper(Arc::default(), true);
        let up = Up::Sent { left_out: Vec::new() };
        let line = Line::new(Box::new(broken.clone()), "mark", false);
        assert!(line.say(&up) && !line.say(&up));
        let line = Line::new(Box::new(broken), "mark", true);
        assert!(line.say(&up) && line.say(&up));
        let paper = Paper::default();
        line.go_on(Box::new(paper.clone()), 0, 0);
        assert_eq!(numbers(&paper), [0, 1, 2]);
    }
}
