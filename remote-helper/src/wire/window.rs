//! The delay-adaptive limit on bulk bytes in flight.
//!
//! What delays a small command is not our own queue but the bytes in flight behind it (TCP, sshd). So per
//! direction all bulk together may have `W` bytes unacknowledged, and `W` follows the delay that pings see: it
//! grows while the delay stays near the least one ever seen, and falls to what the link carries within the
//! target delay when it doesn't. A pure function of samples: time comes in as an argument.

use std::time::Duration;

/// `W` of a fresh line, in bytes.
pub const WINDOW_BYTES_START: u64 = 256 << 10;
/// Smallest `W`, in bytes.
pub const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Largest `W`, in bytes.
pub const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Largest `W` of the direction that a stock SSH server receives: 64 KiB below its channel window of 2 MiB, so
/// that a control frame never waits for a window adjustment.
pub const WINDOW_BYTES_MAX_UP: u64 = (2 << 20) - (64 << 10);
/// Below this rate, in bytes a second, bulk frames are half as long.
pub const SLOW_BYTES_PER_S: u64 = 10_000_000;

const PERIOD_LEAST: Duration = Duration::from_millis(50);
const TARGET_MOST: Duration = Duration::from_millis(20);
const TARGET_LEAST: Duration = Duration::from_millis(1);

/// The controller of one direction.
#[derive(Clone, Debug)]
pub struct Window {
    bytes: u64,
    most: u64,
    base: Option<Duration>,
    latest: Option<Duration>,
    rate: u64,
    began: Duration,
    period: Period,
}

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    least: Option<Duration>,
    acked: u64,
    limited: bool,
}

impl Window {
    /// Makes a controller whose `W` never exceeds `most` bytes.
    pub fn new(most: u64) -> Self {
        Window {
            bytes: WINDOW_BYTES_START.min(most),
            most,
            base: None,
            latest: None,
            rate: 0,
            began: Duration::ZERO,
            period: Period::default(),
        }
    }

    /// Bytes that may be unacknowledged now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The least round trip ever seen.
    pub fn base(&self) -> Option<Duration> {
        self.base
    }

    /// The latest round trip.
    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Acknowledged bytes a second during the last period that had any.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// How long samples are gathered before `W` changes.
    pub fn period(&self) -> Duration {
        self.base.map_or(PERIOD_LEAST, |base| (base * 2).max(PERIOD_LEAST))
    }

    /// Takes a round trip that a ping measured.
    pub fn handle_round_trip(&mut self, sample: Duration) {
        self.base = Some(self.base.map_or(sample, |base| base.min(sample)));
        self.latest = Some(sample);
        self.period.least = Some(self.period.least.map_or(sample, |least| least.min(sample)));
    }

    /// Takes newly acknowledged bytes.
    pub fn handle_acked(&mut self, bytes: u64) {
        self.period.acked = self.period.acked.saturating_add(bytes);
    }

    /// Notes that bulk waited for `W`; only then may it grow.
    pub fn handle_limited(&mut self) {
        self.period.limited = true;
    }

    /// Begins anew after an idle time, so that it does not count as a slow one.
    pub fn handle_resumed(&mut self, now: Duration) {
        self.began = now;
        self.period = Period::default();
    }

    /// Decides when a period is over. Returns whether it was.
    pub fn handle_time(&mut self, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.began);
        if elapsed < self.period() {
            return false;
        }
        let Period { least, acked, limited } = std::mem::take(&mut self.period);
        self.began = now;
        if acked > 0 {
            let micros = elapsed.as_micros().max(1);
            self.rate = u64::try_from(u128::from(acked) * 1_000_000 / micros).unwrap_or(u64::MAX);
        }
        // Without an answer to any ping the delay is at least the whole period.
        let least = match least {
            Some(least) => least,
            None if acked > 0 && self.base.is_some() => elapsed,
            None => return true,
        };
        let base = self.base.unwrap_or(least);
        let target = TARGET_MOST.min(TARGET_LEAST.max(base));
        if least > base + target {
            if acked > 0 {
                let carried = u128::from(self.rate) * (base + target).as_micros() / 1_000_000;
                self.bytes = u64::try_from(carried).unwrap_or(u64::MAX).min(self.bytes);
            }
        } else if limited {
            self.bytes = self.bytes.saturating_add(self.bytes / 2);
        }
        self.bytes = self.bytes.clamp(WINDOW_BYTES_MIN, self.most);
        true
    }
}
