//! Scripted clients and a scripted helper: what flows in each stream, how fast, and who loses patience.

use std::time::Duration;

use towline_helper::wire::Endpoint;
use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};
use towline_helper::wire::message::Request;

use super::chance::Chance;

const PRIME: usize = 65_521;
const LONGEST: usize = 1 << 18;

/// Bytes that tell their own place: any two places of one flow, and any two flows, differ soon.
pub fn content(salt: u64, offset: u64, length: usize) -> &'static [u8] {
    static TABLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut chance = Chance::new(7);
        let period: Vec<u8> = (0..PRIME).map(|_| chance.next() as u8).collect();
        period.iter().copied().cycle().take(PRIME + LONGEST).collect()
    });
    let start = ((u128::from(salt) * 7919 + u128::from(offset)) % PRIME as u128) as usize;
    &table[start..start + length]
}

/// How somebody moves bytes: so many at once, with pauses between.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub bytes: u64,
    pub pause: Duration,
    /// After how many bytes nothing moves any more.
    pub stops_at: u64,
}

impl Pace {
    pub const FAST: Pace = Pace { bytes: 32 << 10, pause: Duration::ZERO, stops_at: u64::MAX };
}

/// One channel of a stream.
#[derive(Clone, Debug)]
pub struct Flow {
    pub total: u64,
    pub ends: bool,
    pub writes: Pace,
    pub reads: Pace,
    pub pushed: u64,
    pub end_pushed: bool,
    pub received: u64,
    pub end_received: bool,
    pub consumed: u64,
    next_write: Duration,
    next_read: Duration,
}

impl Flow {
    pub fn new(total: u64) -> Self {
        Flow {
            total,
            ends: true,
            writes: Pace::FAST,
            reads: Pace::FAST,
            pushed: 0,
            end_pushed: false,
            received: 0,
            end_received: false,
            consumed: 0,
            next_write: Duration::ZERO,
            next_read: Duration::ZERO,
        }
    }

    pub fn held(&self) -> u64 {
        self.received - self.consumed
    }

    fn is_written(&self) -> bool {
        self.end_pushed || (!self.ends && self.pushed >= self.total)
    }
}

/// One stream, from both sides.
#[derive(Clone, Debug)]
pub struct Job {
    pub flows: [Flow; 3],
    pub open_at: Duration,
    pub cancel_at: Option<Duration>,
    pub discard: bool,
    pub stream: Option<u32>,
    pub opened_at: Duration,
    pub cancelled: bool,
    /// The helper knows the stream and has not ended it.
    pub running: bool,
    pub helper_cancelled: bool,
    pub dispatched: bool,
    pub outcome_at: Option<Duration>,
}

impl Job {
    pub fn new(open_at: Duration, totals: [u64; 3]) -> Self {
        Job {
            flows: totals.map(Flow::new),
            open_at,
            cancel_at: None,
            discard: false,
            stream: None,
            opened_at: Duration::ZERO,
            cancelled: false,
            running: false,
            helper_cancelled: false,
            dispatched: false,
            outcome_at: None,
        }
    }

    pub fn salt(stream: u32, channel: u8) -> u64 {
        u64::from(stream) * 4 + u64::from(channel)
    }

    /// What the scripted helper understands: the number of the job.
    pub fn request(number: usize) -> Request {
        Request::Read { path: "".into(), offset: number as u64, length: None }
    }

    /// Writes what may be written on one channel. Returns whether anything moved.
    pub fn write(&mut self, now: Duration, endpoint: &mut Endpoint, channel: u8) -> bool {
        let Some(stream) = self.stream else { return false };
        let flow = &mut self.flows[usize::from(channel)];
        let mut moved = false;
        while !flow.is_written() && flow.next_write <= now && flow.pushed < flow.writes.stops_at {
            let room = endpoint.room(stream, channel) as u64;
            let count = room.min(flow.writes.bytes).min(flow.total - flow.pushed).min(LONGEST as u64);
            let last = flow.pushed + count == flow.total;
            if count == 0 && !last || room == 0 {
                break;
            }
            let bytes = content(Self::salt(stream, channel), flow.pushed, count as usize).to_vec();
            endpoint.send(stream, channel, bytes, last && flow.ends);
            flow.pushed += count;
            flow.end_pushed = last && flow.ends;
            flow.next_write = now + flow.writes.pause;
            moved = true;
            if count == 0 {
                break;
            }
        }
        moved
    }

    /// Consumes what may be consumed on one channel. Returns whether anything moved.
    pub fn read(&mut self, now: Duration, endpoint: &mut Endpoint, channel: u8) -> bool {
        let Some(stream) = self.stream else { return false };
        let flow = &mut self.flows[usize::from(channel)];
        let mut moved = false;
        while flow.held() > 0 && flow.next_read <= now && flow.consumed < flow.reads.stops_at {
            let count = flow.held().min(flow.reads.bytes);
            flow.consumed += count;
            endpoint.consumed(now, stream, channel, count as usize).unwrap();
            flow.next_read = now + flow.reads.pause;
            moved = true;
        }
        moved
    }

    /// Takes bytes that arrived, and checks that they are the right ones.
    pub fn receive(&mut self, stream: u32, channel: u8, bytes: &[u8], end: bool) {
        let flow = &mut self.flows[usize::from(channel)];
        assert!(!flow.end_received, "stream {stream} channel {channel}: bytes after the end");
        let expected = content(Self::salt(stream, channel), flow.received, bytes.len());
        assert!(bytes == expected, "stream {stream} channel {channel}: wrong bytes at {}", flow.received);
        flow.received += bytes.len() as u64;
        flow.end_received = end;
        if end {
            assert_eq!(flow.received, flow.total, "stream {stream} channel {channel}: the end came early");
        }
    }

    /// Whether the helper has done all that the job asks.
    pub fn is_done(&self) -> bool {
        let stdin = &self.flows[usize::from(STDIN)];
        self.helper_cancelled
            || (self.flows[usize::from(STDOUT)].is_written()
                && self.flows[usize::from(STDERR)].is_written()
                && stdin.end_received
                && stdin.held() == 0)
    }

    /// When this job may do something by itself, if that is after `now`.
    pub fn next_time(&self, now: Duration) -> Option<Duration> {
        let own = [Some(self.open_at), self.cancel_at];
        let flows = self.flows.iter().flat_map(|flow| [Some(flow.next_write), Some(flow.next_read)]);
        own.into_iter().chain(flows).flatten().filter(|time| *time > now).min()
    }
}
