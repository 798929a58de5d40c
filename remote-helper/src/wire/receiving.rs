//! The receiving half's credits: how many bytes each channel of each stream may still send to us.
//!
//! What was lent has arrived or may arrive at any time, so it is memory that is spoken for. A channel is always
//! owed up to its window, which begins at [`CREDIT_BYTES_START`]; it doubles while more than half of it is used in
//! a round trip, so that credit is never what a link waits for, as long as the budget of all streams together
//! allows, and falls when the consumer stalls. Credit that is lent cannot be taken back, so a channel is charged to the
//! budget with what it holds and may still get, also after its window fell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::endpoint::{CHANNELS, ProtocolError};
use super::sending::CREDIT_BYTES_START;

/// Credit that a consumer falls to after it did not read for [`STALLED_AFTER`].
const WINDOW_STALLED: u64 = 64 << 10;
/// How long a consumer may leave bytes unread before it counts as stalled.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// The time in which half a window has to be used for it to grow, where a round trip is shorter.
const GROWTH_PACE: Duration = Duration::from_millis(2);

/// Credits of all streams of one end.
#[derive(Debug)]
pub(super) struct Receiving {
    streams: BTreeMap<u32, [ReceiveChannel; CHANNELS]>,
    window_most: u64,
    /// Bytes above the starting credit that may be lent to all streams together.
    budget: u64,
}

#[derive(Debug)]
struct ReceiveChannel {
    window: u64,
    /// Lent and not yet arrived.
    lent: u64,
    /// Arrived and not yet consumed.
    held: u64,
    ended: bool,
    /// When half the window was last used up, and how much of it was consumed since.
    mark: Duration,
    consumed: u64,
    /// When the consumer last took something, or first could.
    waiting_since: Duration,
}

impl ReceiveChannel {
    fn new(now: Duration) -> Self {
        ReceiveChannel {
            window: CREDIT_BYTES_START,
            lent: CREDIT_BYTES_START,
            held: 0,
            ended: false,
            mark: now,
            consumed: 0,
            waiting_since: now,
        }
    }

    /// Bytes that this channel takes from the budget.
    fn charge(&self) -> u64 {
        self.window.max(self.lent + self.held).saturating_sub(CREDIT_BYTES_START)
    }

    /// Fits the window to the consumer, which has just taken `bytes` of what is held.
    fn adapt(&mut self, now: Duration, pace: Duration, bytes: u64, most: u64) {
        let stalled = now.saturating_sub(self.waiting_since) > STALLED_AFTER && self.held > WINDOW_STALLED;
        self.waiting_since = now;
        self.consumed += bytes;
        if stalled {
            self.window = WINDOW_STALLED;
        } else if self.consumed < self.window / 2 {
            return;
        } else if now.saturating_sub(self.mark) <= pace {
            self.window = (self.window * 2).min(most.max(self.window));
        }
        self.consumed = 0;
        self.mark = now;
    }
}

impl Receiving {
    pub(super) fn new(window_most: u64, budget: u64) -> Self {
        Receiving { streams: BTreeMap::new(), window_most, budget }
    }

    pub(super) fn has_stream(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn open(&mut self, stream: u32, now: Duration) {
        self.streams.insert(stream, std::array::from_fn(|_| ReceiveChannel::new(now)));
    }

    pub(super) fn forget(&mut self, stream: u32) {
        if let Some(channels) = self.streams.remove(&stream) {
            let charges = channels.iter().map(ReceiveChannel::charge);
            self.budget = charges.fold(self.budget, u64::saturating_add);
        }
    }

    /// Takes the arrival of bytes.
    pub(super) fn handle_data(
        &mut self,
        now: Duration,
        (stream, number): (u32, u8),
        bytes: usize,
        end: bool,
    ) -> Result<(), ProtocolError> {
        let channel =
            self.channel(stream, number).ok_or(ProtocolError::Channel { stream, channel: number })?;
        if channel.ended {
            return Err(ProtocolError::AfterEnd { stream, channel: number });
        }
        let bytes = bytes as u64;
        channel.lent =
            channel.lent.checked_sub(bytes).ok_or(ProtocolError::Credit { stream, channel: number })?;
        if channel.held == 0 {
            channel.waiting_since = now;
        }
        channel.held += bytes;
        channel.ended = end;
        Ok(())
    }

    /// Takes that the consumer is done with bytes. Returns how many to lend anew, if it is worth a frame.
    pub(super) fn handle_consumed(
        &mut self,
        now: Duration,
        (stream, number): (u32, u8),
        bytes: usize,
        round_trip: Duration,
    ) -> Option<u32> {
        let (window_most, budget) = (self.window_most, self.budget);
        let channel = self.channel(stream, number)?;
        let before = channel.charge();
        let most = window_most.min(CREDIT_BYTES_START + before + budget);
        let bytes = (bytes as u64).min(channel.held);
        channel.adapt(now, round_trip.max(GROWTH_PACE), bytes, most);
        channel.held -= bytes;
        let missing = channel.window.saturating_sub(channel.lent + channel.held);
        let lend = u32::try_from(missing).ok().filter(|_| !channel.ended && missing >= channel.window / 8);
        channel.lent += u64::from(lend.unwrap_or(0));
        let after = channel.charge();
        self.budget = (budget + before).saturating_sub(after);
        lend
    }

    /// Takes that bytes are lent in somebody else's name. Returns whether there is a channel that can use them.
    pub(super) fn handle_lent(&mut self, (stream, number): (u32, u8), bytes: u32) -> bool {
        let Some(channel) = self.channel(stream, number).filter(|channel| !channel.ended) else {
            return false;
        };
        let before = channel.charge();
        let bytes = u64::from(bytes);
        channel.held = channel.held.saturating_sub(bytes);
        channel.lent = channel.lent.saturating_add(bytes);
        let after = channel.charge();
        self.budget = self.budget.saturating_add(before).saturating_sub(after);
        true
    }

    fn channel(&mut self, stream: u32, channel: u8) -> Option<&mut ReceiveChannel> {
        self.streams.get_mut(&stream)?.get_mut(usize::from(channel))
    }
}
