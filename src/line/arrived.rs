//! Bytes of a stream that have arrived and were not handed over yet.
//!
//! Waking a caller on another thread costs more than deciphering a packet. So what arrives together is handed over
//! together: pieces of one channel are joined up to [`PIECE_BYTES_MAX`], and go as soon as nothing more is at hand; in
//! the middle of bulk they wait for more, for a millisecond at most.

use std::time::Duration;

use bytes::Bytes;
use towline_helper::wire::endpoint::{STDERR, STDOUT};

/// Bytes that are joined to one piece at most.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Bytes that are worth waking a caller for in the middle of bulk.
const PIECE_BYTES_WORTH: usize = 128 << 10;
/// Bytes after which a stream counts as bulk.
const BULK_BYTES: u64 = 1 << 20;
/// How long bulk may wait for more.
pub(super) const HOLD_FOR: Duration = Duration::from_millis(1);

/// What is held of one stream's two outputs.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    total: u64,
    /// When the first byte of what is held came.
    since: Option<Duration>,
}

impl Arrived {
    /// Adds bytes. Returns the piece before them once the two together would be too long.
    pub(super) fn push(&mut self, now: Duration, channel: u8, bytes: Vec<u8>) -> Option<Bytes> {
        self.total += bytes.len() as u64;
        self.since.get_or_insert(now);
        let held = if channel == STDERR { &mut self.stderr } else { &mut self.stdout };
        if held.is_empty() {
            *held = bytes;
            return None;
        }
        if held.len() + bytes.len() > PIECE_BYTES_MAX {
            return Some(Bytes::from(std::mem::replace(held, bytes)));
        }
        if held.capacity() < PIECE_BYTES_MAX {
            held.reserve_exact(PIECE_BYTES_MAX - held.len());
        }
        held.extend_from_slice(&bytes);
        None
    }

    /// Until when what is held may wait for more; none when it is to go now, or when nothing is held.
    pub(super) fn may_wait_until(&self, now: Duration) -> Option<Duration> {
        let worth = self.stdout.len().max(self.stderr.len()) >= PIECE_BYTES_WORTH;
        let until = self.since? + HOLD_FOR;
        (self.total > BULK_BYTES && !worth && now < until).then_some(until)
    }

    /// Takes all that is held: channel and piece.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u8, Bytes)> + use<> {
        self.since = None;
        let held = [(STDOUT, std::mem::take(&mut self.stdout)), (STDERR, std::mem::take(&mut self.stderr))];
        held.into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .map(|(channel, bytes)| (channel, Bytes::from(bytes)))
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_goes_at_once_and_bulk_waits_for_more_but_not_for_long() {
        let ms = Duration::from_millis;
        let mut arrived = Arrived::default();
        arrived.push(ms(5), STDOUT, vec![0; 100]);
        assert_eq!(arrived.may_wait_until(ms(5)), None, "a small answer goes at once");
        arrived.push(ms(5), STDOUT, vec![0; 2 << 20]);
        drop(arrived.take());
        arrived.push(ms(7), STDOUT, vec![0; 32 << 10]);
        assert_eq!(arrived.may_wait_until(ms(7)), Some(ms(8)));
        assert_eq!(arrived.may_wait_until(ms(8)), None, "a millisecond is over");
        arrived.push(ms(7), STDOUT, vec![0; PIECE_BYTES_WORTH]);
        assert_eq!(arrived.may_wait_until(ms(7)), None, "there is enough");
    }

    #[test]
    fn pieces_are_joined_up_to_the_bound_and_no_byte_is_lost_or_moved() {
        let mut arrived = Arrived::default();
        let mut seen: [Vec<u8>; 2] = Default::default();
        let mut sent: [Vec<u8>; 2] = Default::default();
        for number in 0..100_u8 {
            let channel = if number % 3 == 0 { STDERR } else { STDOUT };
            let bytes = vec![number; 10_000 + usize::from(number) * 400];
            sent[usize::from(channel == STDERR)].extend_from_slice(&bytes);
            if let Some(piece) = arrived.push(Duration::ZERO, channel, bytes) {
                assert!(piece.len() <= PIECE_BYTES_MAX);
                seen[usize::from(channel == STDERR)].extend_from_slice(&piece);
            }
        }
        assert!(!arrived.is_empty());
        for (channel, piece) in arrived.take() {
            seen[usize::from(channel == STDERR)].extend_from_slice(&piece);
        }
        assert!(seen == sent && arrived.is_empty());
    }
}
