//! One direction of a link: latency, rate, a bounded buffer in the middle, a window at the far end.

use std::collections::VecDeque;
use std::time::Duration;

use super::chance::Chance;

#[derive(Clone, Copy, Debug)]
pub struct LinkSpec {
    /// From leaving the buffer to arriving.
    pub latency: Duration,
    /// Added to the latency at random; order is kept.
    pub jitter: Duration,
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that wait before the wire: TCP, sshd, a router.
    pub buffer: usize,
    /// Bytes that may be under way before the far end grants more: the channel window of an SSH server.
    pub window: Option<usize>,
}

impl LinkSpec {
    pub fn new(round_trip: Duration, rate: u64, buffer: usize) -> Self {
        LinkSpec { latency: round_trip / 2, jitter: Duration::ZERO, rate, buffer, window: None }
    }

    /// What one packet of this link holds: real ones at slow rates, larger ones where nobody could tell.
    fn packet_bytes(&self) -> usize {
        usize::try_from(self.rate / 100_000).unwrap().clamp(1448, 16 << 10)
    }
}

#[derive(Debug)]
pub struct Link {
    pub spec: LinkSpec,
    chance: Chance,
    packets: VecDeque<(Duration, Vec<u8>)>,
    buffered: Counted,
    under_way: Counted,
    wire_free: Duration,
    last_arrival: Duration,
    accepted: u64,
    /// The link is lost when it is to take the byte with this number.
    pub lost_at: Option<u64>,
    pub lost: bool,
}

/// Bytes that are counted until a time.
#[derive(Debug, Default)]
struct Counted {
    bytes: usize,
    until: VecDeque<(Duration, usize)>,
}

impl Counted {
    fn add(&mut self, until: Duration, bytes: usize) {
        self.bytes += bytes;
        self.until.push_back((until, bytes));
    }

    fn at(&mut self, now: Duration) -> usize {
        while let Some((_, bytes)) = self.until.pop_front_if(|(until, _)| *until <= now) {
            self.bytes -= bytes;
        }
        self.bytes
    }

    fn next(&self) -> Option<Duration> {
        self.until.front().map(|(until, _)| *until)
    }
}

impl Link {
    pub fn new(spec: LinkSpec, seed: u64) -> Self {
        Link {
            spec,
            chance: Chance::new(seed),
            packets: VecDeque::new(),
            buffered: Counted::default(),
            under_way: Counted::default(),
            wire_free: Duration::ZERO,
            last_arrival: Duration::ZERO,
            accepted: 0,
            lost_at: None,
            lost: false,
        }
    }

    /// Bytes that the link takes now; nothing rather than less than a packet.
    pub fn room(&mut self, now: Duration) -> usize {
        let buffer = self.spec.buffer.saturating_sub(self.buffered.at(now));
        let under_way = self.under_way.at(now);
        let room = self.spec.window.map_or(buffer, |window| buffer.min(window.saturating_sub(under_way)));
        let least =
            self.spec.packet_bytes().min(self.spec.buffer).min(self.spec.window.unwrap_or(usize::MAX));
        if room < least { 0 } else { room }
    }

    /// When there may be more room.
    pub fn next_room(&self) -> Option<Duration> {
        [self.buffered.next(), self.under_way.next()].into_iter().flatten().min()
    }

    pub fn push(&mut self, now: Duration, mut bytes: &[u8]) {
        if let Some(lost_at) = self.lost_at
            && self.accepted + bytes.len() as u64 > lost_at
        {
            bytes = &bytes[..(lost_at - self.accepted) as usize];
            self.lost = true;
        }
        self.accepted += bytes.len() as u64;
        for packet in bytes.chunks(self.spec.packet_bytes()) {
            let time = Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / self.spec.rate);
            self.wire_free = self.wire_free.max(now) + time;
            let arrival = self.wire_free + self.spec.latency + self.chance.time(self.spec.jitter);
            self.last_arrival = self.last_arrival.max(arrival);
            self.buffered.add(self.wire_free, packet.len());
            if self.spec.window.is_some() {
                self.under_way.add(self.last_arrival + self.spec.latency, packet.len());
            }
            self.packets.push_back((self.last_arrival, packet.to_vec()));
        }
    }

    pub fn next_arrival(&self) -> Option<Duration> {
        self.packets.front().map(|(arrival, _)| *arrival)
    }

    /// A packet that has arrived.
    pub fn take(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.packets.pop_front_if(|(arrival, _)| *arrival <= now).map(|(_, bytes)| bytes)
    }
}
