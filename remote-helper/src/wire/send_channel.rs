//! One channel's bytes that wait to be sent, and the credit that they may use.

use std::collections::VecDeque;

/// Pieces up to this size are joined with the piece before, so that many tiny ones cost no more than their bytes.
const JOIN_BYTES_MAX: usize = 4 << 10;

/// What waits on one channel.
#[derive(Debug)]
pub(super) struct SendChannel {
    queue: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that are sent already. A piece is never moved, only copied into frames once.
    skip: usize,
    queued: usize,
    credit: u64,
    end: End,
    /// Whether the channel waits in one of the queues for its turn.
    pub(super) in_turn: bool,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum End {
    Open,
    Queued,
    Sent,
}

impl SendChannel {
    pub(super) fn new(credit: u64) -> Self {
        SendChannel { queue: VecDeque::new(), skip: 0, queued: 0, credit, end: End::Open, in_turn: false }
    }

    /// Whether more bytes may be pushed.
    pub(super) fn is_open(&self) -> bool {
        self.end == End::Open
    }

    /// Whether nothing is left to be sent, the end included.
    pub(super) fn is_empty(&self) -> bool {
        self.queued == 0 && self.end != End::Queued
    }

    /// Whether a frame could be made now.
    pub(super) fn is_ready(&self) -> bool {
        self.sendable() > 0 || (self.queued == 0 && self.end == End::Queued)
    }

    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes that are queued and covered by credit.
    pub(super) fn sendable(&self) -> usize {
        usize::try_from(self.credit).map_or(self.queued, |credit| credit.min(self.queued))
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>, end: bool) {
        if self.end != End::Open {
            return;
        }
        self.queued += bytes.len();
        match self.queue.back_mut() {
            Some(last) if bytes.len() <= JOIN_BYTES_MAX && last.len() <= JOIN_BYTES_MAX => last.extend(bytes),
            _ if bytes.is_empty() => {}
            _ => self.queue.push_back(bytes),
        }
        if end {
            self.end = End::Queued;
        }
    }

    /// Adds credit. Returns whether it can still be counted.
    pub(super) fn lend(&mut self, bytes: u32) -> bool {
        self.credit += u64::from(bytes);
        self.credit <= u64::from(u32::MAX)
    }

    /// Appends at most `most` bytes to `out`. Returns whether the channel ends with them.
    pub(super) fn cut(&mut self, most: usize, out: &mut Vec<u8>) -> bool {
        let total = most.min(self.sendable());
        let mut wanted = total;
        while wanted > 0 {
            let Some(front) = self.queue.front() else { break };
            let rest = front.get(self.skip..).unwrap_or_default();
            let count = rest.len().min(wanted);
            out.extend_from_slice(rest.get(..count).unwrap_or_default());
            wanted -= count;
            if count == rest.len() {
                self.queue.pop_front();
                self.skip = 0;
            } else {
                self.skip += count;
            }
        }
        self.queued -= total;
        self.credit = self.credit.saturating_sub(total as u64);
        let ended = self.queued == 0 && self.end == End::Queued;
        if ended {
            self.end = End::Sent;
        }
        ended
    }

    /// Drops what waits, and takes nothing more.
    pub(super) fn discard(&mut self) {
        self.queue.clear();
        (self.skip, self.queued, self.end) = (0, 0, End::Sent);
    }
}
