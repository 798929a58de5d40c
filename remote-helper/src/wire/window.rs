//! The delay-adaptive limit on bulk bytes in flight.
//!
//! What delays a small command is not our own queue but the bytes in flight behind it (TCP, sshd). So per
//! direction all bulk together may have `W` bytes unacknowledged, and `W` follows the delay on the way forward,
//! which acknowledgements show: each carries the receiver's clock, and how much its difference to ours exceeds the
//! least one seen is the queue in front of the receiver. (A round trip would add the queue of the other direction,
//! and two ends that are both busy would yield to each other without end.)
//!
//! A fresh line *starts* by growing with every acknowledgement, until the delay says that the link is full. Then it
//! is *drained* for a round trip, to see the delay, and what it wavers by, without our own queue; and `W` is *held*
//! at what the link carries within that delay and half the target. It is drained again when the least delay was not
//! seen for long, or when shrinking does not help: it changes with the route, with somebody else's queue, and with
//! clocks that drift. After a long idle time all begins anew. A pure function of
//! samples: time comes in as an argument, and it needs no timer.

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
/// A sample counts as so many times the target, at most.
const QUEUEING_CLIP: u32 = 4;
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
    /// The least difference between the receiver's clock on arrival and ours on sending, in nanoseconds.
    least: Option<i128>,
    /// What the delay wavers by, on average, when our own queue is empty.
    noise: Duration,
    /// The round trip without our own queue, as last seen.
    clear: Duration,
    phase: Phase,
    /// Samples of what was sent before tell of another `W`.
    settled: Duration,
    /// When the least difference was last seen.
    confirmed: Duration,
    /// Decisions in a row above the target.
    over: u32,
    /// Since when all samples of the start are above half the target.
    over_since: Option<Duration>,
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
    /// The least difference of clocks.
    least: Option<i128>,
    /// When the first sample came, and whether one came of a frame that was sent later: then a whole round trip was
    /// seen, with all its clumps and gaps.
    first: Option<Duration>,
    whole: bool,
    /// Sums over so many samples.
    samples: u32,
    queueing: Duration,
    /// The round trips without our own queue.
    clear: Duration,
    delivered: u64,
    delivery: Duration,
    /// Bytes a second of the fastest acknowledgement.
    fastest: u64,
    limited: bool,
    backlog: bool,
    /// In the start: whether all of a round trip queued.
    full: bool,
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
    /// Bytes that were in flight before.
    pub in_flight: u64,
    /// Bytes that were acknowledged since the answered frame was sent.
    pub since_sent: u64,
    /// When the answered frame was sent.
    pub sent_at: Duration,
    /// The receiver's clock when it arrived; the clock may begin at any moment.
    pub arrived_at: Duration,
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
            least: None,
            noise: Duration::ZERO,
            clear: Duration::ZERO,
            phase: Phase::Start,
            settled: Duration::ZERO,
            confirmed: Duration::ZERO,
            over: 0,
            over_since: None,
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

    /// Takes a round trip that a ping has measured.
    pub fn handle_round_trip(&mut self, sample: Duration) {
        self.latest = Some(sample);
        self.base = Some(self.base.map_or(sample, |base| base.min(sample)));
    }

    /// Takes an acknowledgement that answers a frame.
    pub fn handle_delivery(&mut self, now: Duration, delivery: Delivery) {
        let round_trip = now.saturating_sub(delivery.sent_at);
        self.handle_round_trip(round_trip);
        let Period { delivered, delivery: time, fastest, backlog, .. } = &mut self.period;
        *delivered = delivered.saturating_add(delivery.since_sent);
        *time += round_trip;
        *fastest = rate(delivery.since_sent, round_trip).max(*fastest);
        *backlog |= delivery.backlog;
        self.handle_difference(now, delivery, round_trip);
        if self.phase == Phase::Start && self.over_since.is_none() && delivery.in_flight >= self.bytes / 2 {
            self.bytes = (self.bytes + delivery.acked).min(self.most);
        }
    }

    fn handle_difference(&mut self, now: Duration, delivery: Delivery, round_trip: Duration) {
        let difference = signed(delivery.arrived_at) - signed(delivery.sent_at);
        let least = self.least.map_or(difference, |least| least.min(difference));
        self.least = Some(least);
        let queueing = unsigned(difference - least);
        if queueing <= self.target() / 8 {
            self.confirmed = now;
        }
        if delivery.sent_at < self.settled {
            return;
        }
        self.period.least = Some(self.period.least.map_or(difference, |least| least.min(difference)));
        let first = *self.period.first.get_or_insert(now);
        self.period.whole |= delivery.sent_at >= first;
        self.period.samples += 1;
        // A mean, for two busy directions gather their bytes in clumps, between which the queue is empty; and clipped,
        // for a pause of the other end is no queue.
        self.period.queueing += queueing.min(self.target() * QUEUEING_CLIP);
        self.period.clear += round_trip.saturating_sub(queueing);
        if queueing <= self.noise * 2 + self.target() / 2 {
            self.over_since = None;
        } else if self.phase == Phase::Start {
            // While it grows, W leaves in trains whose tail queues; only when the head does too, the link is full.
            let since = *self.over_since.get_or_insert(now);
            self.period.full |= delivery.sent_at >= since;
        }
    }

    /// Notes that bulk waited for `W`; only then may it grow.
    pub fn handle_limited(&mut self) {
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
        let Some(least) = self.period.least else { return };
        let samples = self.period.samples.max(1);
        let queueing = (self.period.queueing / samples).saturating_sub(self.noise);
        self.clear = self.period.clear / samples + self.noise;
        if self.phase == Phase::Start && self.period.full {
            self.rate = self.period.fastest;
            self.drain(now);
            return;
        }
        if !self.period.whole || now.saturating_sub(self.period.began) < PERIOD_LEAST {
            return;
        }
        match self.phase {
            Phase::Start => {
                self.measure();
                // Two busy directions gather their bytes in clumps with an empty queue between.
                if queueing > self.target() {
                    self.drain(now);
                }
                self.period = Period::new(now);
            }
            Phase::Drain => {
                let moved = unsigned(least - self.least.unwrap_or(least));
                let queueing = self.period.queueing / samples;
                self.least = Some(least);
                self.noise = queueing.saturating_sub(moved).min(self.target() * 2);
                self.clear = self.period.clear / samples + moved + self.noise;
                self.confirmed = now;
                let was_over = self.over >= OVER_DECISIONS;
                self.phase = Phase::Hold;
                self.over = 0;
                self.set(now, carried(self.rate, self.clear + self.target() / 2));
                // A rate that was measured while W was too small for such a link tells nothing: find W anew.
                if was_over && moved > self.target() / 2 {
                    self.base = Some(self.clear);
                    self.phase = Phase::Start;
                }
            }
            Phase::Hold => {
                self.measure();
                self.decide(now, queueing, unsigned(least - self.least.unwrap_or(least)));
            }
        }
    }

    /// Fits `W` to the mean queue and the least one of a whole round trip.
    fn decide(&mut self, now: Duration, queueing: Duration, shortest: Duration) {
        let Period { limited, backlog, .. } = self.period;
        let target = self.target();
        self.over = if backlog && queueing > target { self.over + 1 } else { 0 };
        // Where the queue is empty now and then, the link idles between clumps: a longer mean queue closes the gaps.
        let gaps = shortest <= target / 8;
        let (aim, grow) = if gaps { (target * 7 / 8, target * 3 / 4) } else { (target / 2, target / 4) };
        let wanted = carried(self.rate, self.clear + aim);
        if !backlog && !limited {
            // The producer is the limit: nothing is learnt about the link.
            self.period = Period::new(now);
        } else if self.over >= OVER_DECISIONS || now.saturating_sub(self.confirmed) > BASE_TRUSTED {
            self.drain(now);
        } else if queueing > target {
            self.set(now, wanted.min(self.bytes));
        } else if limited && queueing <= grow {
            self.set(now, wanted.max(self.bytes + self.bytes / 4));
        } else if limited {
            self.set(now, wanted.midpoint(self.bytes));
        } else {
            self.period = Period::new(now);
        }
    }

    fn drain(&mut self, now: Duration) {
        self.phase = Phase::Drain;
        self.over_since = None;
        self.set(now, carried(self.rate, self.clear / 2));
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

fn signed(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

fn unsigned(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
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
