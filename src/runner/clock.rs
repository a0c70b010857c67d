//! The offset between the host's wall clock and ours, over the open link.
//!
//! # Formula
//! With a ping sent at `t0` and its answer heard at `t1` by our clock, the host's reading `h` in between:
//! offset = h − (t0 + t1)/2, and the truth lies within ± (t1 − t0)/2 of it whatever the path. The sample with the
//! smallest round trip is taken, since it has the smallest such bound. (The method of NTP, RFC 5905 section 8.)

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::time::timeout;

use super::contact::Contact;

/// How many pings are sent.
const PINGS: u32 = 16;

/// How long one waits for an answer; a busy agent may leave one out.
const PATIENCE: Duration = Duration::from_millis(500);

/// So many answers may be left out.
const MOST_LOST: u32 = 1;

/// What was found, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    /// The host's clock minus ours.
    pub(super) offset: f64,
    /// How far off the truth may be: half the smallest round trip.
    pub(super) error: f64,
}

/// Asks for the offset.
pub(super) struct Offset {
    contact: Arc<Contact>,
    /// How many pings may be under way: one is best, more take less time.
    at_once: u32,
}

impl Offset {
    pub(super) fn new(contact: Arc<Contact>, at_once: u32) -> Self {
        Self { contact, at_once }
    }

    /// Sends pings and takes the best answer; `None` when none came.
    pub(super) async fn read(self) -> Option<Reading> {
        let mut pongs = self.contact.pongs();
        // Our wall clock is read once, and carried on by the monotonic one: a step in between does no harm.
        let (zero, wall) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64());
        let since = |t: Instant| t.duration_since(zero).as_secs_f64();
        let mut sent = Vec::new();
        let mut best: Option<Reading> = None;
        let (mut answers, mut lost) = (0, 0);
        while answers < PINGS {
            while sent.len() < PINGS as usize && sent.len() < (answers + self.at_once) as usize {
                self.contact.ping(sent.len() as u32);
                sent.push(Instant::now());
            }
            answers += 1;
            let Ok(Some((id, heard, host))) = timeout(PATIENCE, pongs.recv()).await else {
                lost += 1;
                if lost > MOST_LOST {
                    break;
                }
                continue;
            };
            let Some(begun) = sent.get(id as usize) else { continue };
            let reading = reading(since(*begun), since(heard), host - wall);
            if best.is_none_or(|b| reading.error < b.error) {
                best = Some(reading);
            }
        }
        best
    }
}

fn reading(sent: f64, heard: f64, host: f64) -> Reading {
    Reading { offset: host - f64::midpoint(sent, heard), error: (heard - sent) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_lies_within_the_error_however_uneven_the_path() {
        // The host is 5 s ahead; out takes 1 ms, back 9 ms.
        let r = reading(10.0, 10.010, 10.001 + 5.0);
        assert!((r.offset - 4.996).abs() < 1e-9 && (r.error - 0.005).abs() < 1e-9, "{r:?}");
        assert!((r.offset - 5.0).abs() <= r.error);
    }
}
