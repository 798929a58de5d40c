//! The delay-adaptive limit on bulk bytes in flight.
//!
//! What delays a small command is not our own queue but the bytes in flight behind it (TCP, sshd). So per
//! direction all bulk together may have `W` bytes unacknowledged, and `W` follows the delay that
//! acknowledgements show. Four phases: a fresh line *starts* by growing with every acknowledgement, until the
//! delay says that the link is full; then `W` is *held* at what the link carries within the least delay and
//! half the target; now and then it is *drained* for a round trip, because the least delay of a link changes
//! (another route, somebody else's queue) and can only be seen when our own queue is empty; and after a long
//! idle time all begins anew. A pure function of samples: time comes in as an argument, and it needs no timer.

use std::time::Duration;

/// `W` of a fresh line, in bytes.
pub const WINDOW_BYTES_START: u64 = 256 << 10;
/// Smallest `W`, in bytes.
pub const WINDOW_BYTES_MIN: u64 = 16 << 10;
/// Largest `W`, in bytes: half of the SSH channel window that the client announces, for it is refilled at half.
pub const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Bytes that small pieces may exceed `W` by in all, so that a command's short answer never waits for an
/// acknowledgement of somebody's bulk.
pub const RESERVE_BYTES: u64 = 32 << 10;
/// Largest `W` of the direction that a stock SSH server receives: with the reserve, 64 KiB below its channel
/// window of 2 MiB, so that a control frame never waits for a window adjustment.
pub const WINDOW_BYTES_MAX_UP: u64 = (2 << 20) - (64 << 10) - RESERVE_BYTES;

/// Shortest time between two decisions.
const PERIOD_LEAST: Duration = Duration::from_millis(20);
const TARGET_MOST: Duration = Duration::from_millis(20);
const TARGET_LEAST: Duration = Duration::from_millis(1);
/// Samples in a row above half the target that end the start; fewer are noise.
const START_SAMPLES: u32 = 4;
/// Decisions in a row above the target after which the delay is not of our making.
const OVER_DECISIONS: u32 = 3;
/// How long the least delay is trusted without being seen again.
const BASE_TRUSTED: Duration = Duration::from_secs(20);
/// Idle time after which nothing that was learnt is trusted.
const IDLE_FORGETS: Duration = Duration::from_secs(10);

/// The controller of one direction.
#[derive(Clone, Debug)]
pub struct Window {
    bytes: u64,
    most: u64,
    base: Option<Duration>,
    latest: Option<Duration>,
    rate: u64,
    phase: Phase,
    /// Samples of what was sent before tell of another `W`.
    settled: Duration,
    /// When the least delay was last seen.
    confirmed: Duration,
    over: u32,
    limited: bool,
    period: Period,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Hold,
    Drain,
}

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    began: Duration,
    least: Option<Duration>,
    delivered: u64,
    delivery: Duration,
    /// Bytes a second of the fastest acknowledgement.
    fastest: u64,
    limited: bool,
    backlog: bool,
}

impl Period {
    fn new(began: Duration) -> Self {
        Period { began, ..Period::default() }
    }
}

/// What an acknowledgement tells about the bulk that it answers.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes that were not acknowledged before.
    pub acked: u64,
    /// Bytes that were acknowledged since the answered frame was sent.
    pub since_sent: u64,
    /// Time since the answered frame was sent.
    pub round_trip: Duration,
    /// Whether more is ready to be sent, so that the rate is the link's and not the producer's.
    pub backlog: bool,
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
            phase: Phase::Start,
            settled: Duration::ZERO,
            confirmed: Duration::ZERO,
            over: 0,
            limited: false,
            period: Period::default(),
        }
    }

    /// Bytes that may be unacknowledged now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The least round trip that is trusted.
    pub fn base(&self) -> Option<Duration> {
        self.base
    }

    /// The latest round trip.
    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Bytes a second that the link carried when it was last seen busy; 0 when it never was.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// How long samples are gathered, at least, before `W` changes.
    pub fn period(&self) -> Duration {
        self.base.unwrap_or_default().max(PERIOD_LEAST)
    }

    /// The delay above the least one that `W` aims to stay below.
    pub fn target(&self) -> Duration {
        TARGET_MOST.min(TARGET_LEAST.max(self.base.unwrap_or_default()))
    }

    /// Takes a round trip.
    pub fn handle_round_trip(&mut self, now: Duration, sample: Duration) {
        self.latest = Some(sample);
        let base = self.base.map_or(sample, |base| base.min(sample));
        self.base = Some(base);
        if sample <= base + self.target() / 8 {
            self.confirmed = now;
        }
        if now.saturating_sub(sample) < self.settled {
            return;
        }
        self.period.least = Some(self.period.least.map_or(sample, |least| least.min(sample)));
        if self.phase == Phase::Start {
            let over = sample > base + self.target() / 2;
            self.over = if over { self.over + 1 } else { 0 };
        }
    }

    /// Takes an acknowledgement that answers a frame.
    pub fn handle_delivery(&mut self, now: Duration, delivery: Delivery) {
        self.handle_round_trip(now, delivery.round_trip);
        self.period.delivered = self.period.delivered.saturating_add(delivery.since_sent);
        self.period.delivery += delivery.round_trip;
        self.period.fastest = self.period.fastest.max(rate(delivery.since_sent, delivery.round_trip));
        self.period.backlog |= delivery.backlog;
        if self.phase == Phase::Start && self.limited {
            self.bytes = (self.bytes + delivery.acked).min(self.most);
        }
        self.limited = false;
    }

    /// Notes that bulk waited for `W`; only then may it grow.
    pub fn handle_limited(&mut self) {
        self.limited = true;
        self.period.limited = true;
    }

    /// Notes that bulk begins after nothing was in flight for `idle`. Returns whether the delay has to be
    /// measured anew, best before the bulk.
    pub fn handle_resumed(&mut self, now: Duration, idle: Duration) -> bool {
        if idle > IDLE_FORGETS {
            *self = Window { latest: self.latest, ..Window::new(self.most) };
            self.confirmed = now;
        }
        self.settled = now;
        self.period = Period::new(now);
        self.base.is_none()
    }

    /// Decides when a period is over.
    pub fn handle_time(&mut self, now: Duration, in_flight: u64) {
        if in_flight > self.bytes + RESERVE_BYTES {
            // What is above W is still on its way; until it is not, samples tell of the former W.
            self.settled = now;
            self.period = Period::new(now);
            return;
        }
        if self.phase == Phase::Start && self.over >= START_SAMPLES {
            self.rate = self.period.fastest;
            self.hold(now);
            return;
        }
        let Some(least) = self.period.least else { return };
        if now.saturating_sub(self.period.began) < self.period() {
            return;
        }
        match self.phase {
            Phase::Start => {
                self.measure();
                self.period = Period::new(now);
            }
            Phase::Drain => {
                let moved = self.base.is_none_or(|base| least > base + self.target() / 2);
                self.base = Some(least);
                self.confirmed = now;
                self.hold(now);
                // The rate was measured while W was too small for such a link: find the right W anew.
                if moved {
                    self.phase = Phase::Start;
                }
            }
            Phase::Hold => {
                self.measure();
                self.decide(now, least);
            }
        }
    }

    fn decide(&mut self, now: Duration, least: Duration) {
        let Period { limited, backlog, .. } = self.period;
        let base = self.base.unwrap_or(least);
        let (target, queueing) = (self.target(), least.saturating_sub(base));
        self.over = if backlog && queueing > target { self.over + 1 } else { 0 };
        let wanted = self.wanted();
        if !backlog && !limited {
            // The producer is the limit: nothing is learnt about the link.
            self.period = Period::new(now);
        } else if self.over >= OVER_DECISIONS || now.saturating_sub(self.confirmed) > BASE_TRUSTED {
            self.phase = Phase::Drain;
            self.set(now, carried(self.rate, base / 2));
        } else if queueing > target {
            self.set(now, wanted.min(self.bytes));
        } else if limited && queueing <= target / 4 {
            self.set(now, wanted.max(self.bytes + self.bytes / 4));
        } else if limited {
            self.set(now, wanted.midpoint(self.bytes));
        } else {
            self.period = Period::new(now);
        }
    }

    /// What the link carries within the least delay and half the target.
    fn wanted(&self) -> u64 {
        carried(self.rate, self.base.unwrap_or_default() + self.target() / 2)
    }

    fn hold(&mut self, now: Duration) {
        self.phase = Phase::Hold;
        self.over = 0;
        self.set(now, self.wanted());
    }

    fn set(&mut self, now: Duration, bytes: u64) {
        self.bytes = bytes.clamp(WINDOW_BYTES_MIN, self.most);
        self.settled = now;
        self.period = Period::new(now);
    }

    /// Takes the period's rate over; one that the producer limited is only a lower bound.
    fn measure(&mut self) {
        if self.period.delivery.is_zero() {
            return;
        }
        let rate = rate(self.period.delivered, self.period.delivery);
        self.rate = if self.period.backlog { rate } else { self.rate.max(rate) };
    }
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Bytes that a rate carries in some time.
fn carried(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
