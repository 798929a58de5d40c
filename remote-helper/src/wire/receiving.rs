//! The receiving half's credits: how many bytes each channel of each stream may still send to us.

use std::collections::BTreeMap;
use std::time::Duration;

use super::endpoint::{CHANNELS, ProtocolError};
use super::sending::CREDIT_BYTES_START;

/// Credit that a consumer falls to after it did not read for [`STALLED_AFTER`].
const WINDOW_STALLED: u64 = 64 << 10;
/// How long a consumer may leave bytes unread before it counts as slow.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// The pace that a consumer has to exceed for its window to grow, where round trips are shorter.
const GROWTH_PACE: Duration = Duration::from_millis(4);

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
    mark: Duration,
    consumed: u64,
    last_consumed: Duration,
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
            last_consumed: now,
        }
    }
}

impl Receiving {
    pub(super) fn new(window_most: u64, budget: u64) -> Self {
        Receiving { streams: BTreeMap::new(), window_most, budget }
    }

    pub(super) fn open(&mut self, stream: u32, now: Duration) {
        self.streams.insert(stream, std::array::from_fn(|_| ReceiveChannel::new(now)));
    }

    pub(super) fn forget(&mut self, stream: u32) {
        if let Some(channels) = self.streams.remove(&stream) {
            let extra = |channel: &ReceiveChannel| channel.window.saturating_sub(CREDIT_BYTES_START);
            self.budget += channels.iter().map(extra).sum::<u64>();
        }
    }

    pub(super) fn has_stream(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Takes the arrival of bytes.
    pub(super) fn handle_data(
        &mut self,
        stream: u32,
        number: u8,
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
        channel.held += bytes;
        channel.ended = end;
        Ok(())
    }

    /// Takes that the consumer is done with bytes. Returns how many to lend anew, if it is worth a frame.
    pub(super) fn handle_consumed(
        &mut self,
        stream: u32,
        number: u8,
        bytes: usize,
        now: Duration,
        round_trip: Duration,
    ) -> Option<u32> {
        let (window_most, budget) = (self.window_most, self.budget);
        let channel = self.channel(stream, number)?;
        let bytes = (bytes as u64).min(channel.held);
        channel.held -= bytes;
        channel.consumed += bytes;
        let before = channel.window;
        if now.saturating_sub(channel.last_consumed) > STALLED_AFTER && channel.held + bytes > WINDOW_STALLED
        {
            channel.window = WINDOW_STALLED;
            channel.consumed = 0;
            channel.mark = now;
        } else if channel.consumed >= channel.window {
            let pace = (round_trip * 2).max(GROWTH_PACE);
            let grown = (channel.window * 2).min(window_most);
            if now.saturating_sub(channel.mark) <= pace && grown - channel.window <= budget {
                channel.window = grown;
            }
            channel.consumed = 0;
            channel.mark = now;
        }
        channel.last_consumed = now;
        let (after, ended) = (channel.window, channel.ended);
        let missing = after.saturating_sub(channel.lent + channel.held);
        let lend = (!ended && missing >= after / 4)
            .then_some(missing)
            .and_then(|missing| u32::try_from(missing).ok());
        channel.lent += u64::from(lend.unwrap_or(0));
        let extra = |window: u64| window.saturating_sub(CREDIT_BYTES_START);
        self.budget = (self.budget + extra(before)).saturating_sub(extra(after));
        lend
    }

    fn channel(&mut self, stream: u32, channel: u8) -> Option<&mut ReceiveChannel> {
        self.streams.get_mut(&stream)?.get_mut(usize::from(channel))
    }
}
