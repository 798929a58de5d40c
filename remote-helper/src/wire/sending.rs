//! The sending half: two queues, control first, then bulk in turn, within credits and the window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::endpoint::{CHANNELS, ProtocolError};
use super::frame::{self, DATA_PAYLOAD_BYTES_MAX, FLAG_ACK, FLAG_END, Kind};
use super::window::{SLOW_BYTES_PER_S, Window};

/// Bytes that one channel may have queued before its producer has to wait.
pub const SEND_QUEUE_BYTES_MAX: usize = 128 << 10;
/// Bytes lent on every channel of a fresh stream, in both directions.
pub const CREDIT_BYTES_START: u64 = 256 << 10;
/// Bytes of control frames that may wait; a peer that asks and never reads gets no further.
const CONTROL_QUEUE_BYTES_MAX: usize = 8 << 20;
/// Bulk bytes between two requests for an acknowledgement, at least.
const ACK_EVERY_BYTES_MIN: u64 = 16 << 10;

/// What one stream has to send.
#[derive(Debug, Default)]
struct Sender {
    channels: [SendChannel; CHANNELS],
    /// The encoded last frame of the stream, sent once every channel is empty.
    last: Option<Vec<u8>>,
}

#[derive(Debug)]
struct SendChannel {
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    credit: u64,
    end: End,
    in_turn: bool,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum End {
    Open,
    Queued,
    Sent,
}

impl Default for SendChannel {
    fn default() -> Self {
        SendChannel {
            queue: VecDeque::new(),
            queued: 0,
            credit: CREDIT_BYTES_START,
            end: End::Open,
            in_turn: false,
        }
    }
}

impl SendChannel {
    fn is_ready(&self) -> bool {
        (self.queued > 0 && self.credit > 0) || (self.queued == 0 && self.end == End::Queued)
    }

    /// Takes at most `most` bytes from the front.
    fn cut(&mut self, most: usize) -> Vec<u8> {
        let Some(mut front) = self.queue.pop_front() else { return Vec::new() };
        if front.len() > most {
            let rest = front.split_off(most);
            self.queue.push_front(rest);
        } else {
            // Short pieces travel together: a frame costs a header and a turn.
            while let Some(next) = self.queue.front_mut() {
                let space = most.saturating_sub(front.len());
                if space == 0 {
                    break;
                }
                let count = space.min(next.len());
                front.extend(next.drain(..count));
                if next.is_empty() {
                    self.queue.pop_front();
                }
            }
        }
        self.queued = self.queued.saturating_sub(front.len());
        front
    }
}

/// All that one end has to send.
#[derive(Debug)]
pub(super) struct Sending {
    control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    streams: BTreeMap<u32, Sender>,
    turn: VecDeque<(u32, u8)>,
    /// Streams whose channels are empty and whose last frame is due.
    finished: VecDeque<u32>,
    pub(super) window: Window,
    sent: u64,
    acked: u64,
    ack_asked: u64,
    last_bulk: Option<Duration>,
}

impl Sending {
    pub(super) fn new(window: Window) -> Self {
        Sending {
            control: VecDeque::new(),
            control_bytes: 0,
            streams: BTreeMap::new(),
            turn: VecDeque::new(),
            finished: VecDeque::new(),
            window,
            sent: 0,
            acked: 0,
            ack_asked: 0,
            last_bulk: None,
        }
    }

    pub(super) fn open(&mut self, stream: u32) {
        self.streams.insert(stream, Sender::default());
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    pub(super) fn has_stream(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn push_control(
        &mut self,
        kind: Kind,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), ProtocolError> {
        let mut bytes = Vec::with_capacity(frame::HEADER_BYTES + payload.len());
        frame::encode_parts(kind, flags, stream, payload, &mut bytes)?;
        self.control_bytes += bytes.len();
        if self.control_bytes > CONTROL_QUEUE_BYTES_MAX {
            return Err(ProtocolError::ControlQueue {
                bytes: self.control_bytes,
                most: CONTROL_QUEUE_BYTES_MAX,
            });
        }
        self.control.push_back(bytes);
        Ok(())
    }

    /// Bytes that a producer may queue on a channel now.
    pub(super) fn room(&self, stream: u32, channel: u8) -> usize {
        self.channel(stream, channel)
            .filter(|channel| channel.end == End::Open)
            .map_or(0, |channel| SEND_QUEUE_BYTES_MAX.saturating_sub(channel.queued))
    }

    /// Bytes that are queued on a channel and not yet in a frame.
    pub(super) fn queued(&self, stream: u32, channel: u8) -> usize {
        self.channel(stream, channel).map_or(0, |channel| channel.queued)
    }

    pub(super) fn push_data(&mut self, stream: u32, channel: u8, bytes: Vec<u8>, end: bool) {
        let Some(sender) = self.channel_mut(stream, channel) else { return };
        if sender.end != End::Open {
            return;
        }
        if !bytes.is_empty() {
            sender.queued += bytes.len();
            sender.queue.push_back(bytes);
        }
        if end {
            sender.end = End::Queued;
        }
        self.take_turn(stream, channel);
    }

    /// Queues the last frame of a stream; it follows the last byte of every channel.
    pub(super) fn push_last(&mut self, stream: u32, kind: Kind, payload: &[u8]) -> Result<(), ProtocolError> {
        let mut bytes = Vec::with_capacity(frame::HEADER_BYTES + payload.len());
        frame::encode_parts(kind, 0, stream, payload, &mut bytes)?;
        if let Some(sender) = self.streams.get_mut(&stream) {
            sender.last = Some(bytes);
            self.check_finished(stream);
        }
        Ok(())
    }

    /// Drops what a stream has queued; its last frame stays.
    pub(super) fn discard(&mut self, stream: u32) {
        if let Some(sender) = self.streams.get_mut(&stream) {
            for channel in &mut sender.channels {
                channel.queue.clear();
                channel.queued = 0;
                channel.end = End::Sent;
            }
            self.check_finished(stream);
        }
    }

    pub(super) fn handle_credit(
        &mut self,
        stream: u32,
        channel: u8,
        bytes: u32,
    ) -> Result<(), ProtocolError> {
        let Some(sender) = self.channel_mut(stream, channel) else { return Ok(()) };
        sender.credit += u64::from(bytes);
        if sender.credit > u64::from(u32::MAX) {
            return Err(ProtocolError::Credit { stream, channel });
        }
        self.take_turn(stream, channel);
        Ok(())
    }

    pub(super) fn handle_ack(&mut self, total: u64) -> Result<(), ProtocolError> {
        if total > self.sent || total < self.acked {
            return Err(ProtocolError::Ack { acked: total, sent: self.sent });
        }
        self.window.handle_acked(total - self.acked);
        self.acked = total;
        Ok(())
    }

    /// Bulk bytes that the other end has not acknowledged.
    pub(super) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.acked)
    }

    pub(super) fn last_bulk(&self) -> Option<Duration> {
        self.last_bulk
    }

    /// Whether [`Sending::transmit`] would write anything now.
    pub(super) fn has_work(&self) -> bool {
        !self.control.is_empty()
            || !self.finished.is_empty()
            || (!self.turn.is_empty() && self.in_flight() < self.window.bytes())
    }

    /// Appends frames to `out` until it holds `most` bytes or nothing may be sent. Returns the streams whose last
    /// frame was written.
    pub(super) fn transmit(&mut self, now: Duration, out: &mut Vec<u8>, most: usize) -> Vec<u32> {
        let mut closed = Vec::new();
        while out.len() < most {
            if let Some(bytes) = self.control.pop_front() {
                self.control_bytes = self.control_bytes.saturating_sub(bytes.len());
                out.extend_from_slice(&bytes);
            } else if let Some(stream) = self.finished.pop_front() {
                if let Some(last) = self.streams.remove(&stream).and_then(|sender| sender.last) {
                    out.extend_from_slice(&last);
                    closed.push(stream);
                }
            } else if !self.transmit_bulk(now, out) {
                break;
            }
        }
        closed
    }

    fn transmit_bulk(&mut self, now: Duration, out: &mut Vec<u8>) -> bool {
        let Some((stream, number)) = self.turn.pop_front() else { return false };
        let window = self.window.bytes();
        let free = window.saturating_sub(self.in_flight());
        let slow = self.window.rate() > 0 && self.window.rate() < SLOW_BYTES_PER_S;
        let longest = if slow { DATA_PAYLOAD_BYTES_MAX / 2 } else { DATA_PAYLOAD_BYTES_MAX };
        let Some(channel) = self.channel_mut(stream, number) else { return true };
        channel.in_turn = false;
        if !channel.is_ready() {
            return true;
        }
        // A sliver of the window is not worth a frame: wait for the next acknowledgement.
        let wanted = channel.queued.min(longest) as u64;
        if free < wanted.min(longest as u64 / 2) {
            channel.in_turn = true;
            self.turn.push_front((stream, number));
            self.window.handle_limited();
            return false;
        }
        let most = (longest as u64).min(channel.credit).min(free.max(1));
        let payload = channel.cut(usize::try_from(most).unwrap_or(longest));
        channel.credit = channel.credit.saturating_sub(payload.len() as u64);
        let mut flags = number;
        if channel.queued == 0 && channel.end == End::Queued {
            channel.end = End::Sent;
            flags |= FLAG_END;
        }
        self.sent += payload.len() as u64;
        if self.sent - self.ack_asked >= ACK_EVERY_BYTES_MIN.max(window / 4) || self.in_flight() >= window {
            self.ack_asked = self.sent;
            flags |= FLAG_ACK;
        }
        if self.last_bulk.is_none_or(|last| now.saturating_sub(last) > self.window.period()) {
            self.window.handle_resumed(now);
        }
        self.last_bulk = Some(now);
        // The payload came from `cut`, which never exceeds a data frame.
        let encoded = frame::encode_parts(Kind::Data, flags, stream, &payload, out);
        debug_assert!(encoded.is_ok(), "a data frame was too long");
        self.take_turn(stream, number);
        self.check_finished(stream);
        true
    }

    fn take_turn(&mut self, stream: u32, number: u8) {
        if let Some(channel) = self.channel_mut(stream, number)
            && !channel.in_turn
            && channel.is_ready()
        {
            channel.in_turn = true;
            self.turn.push_back((stream, number));
        }
    }

    fn check_finished(&mut self, stream: u32) {
        let Some(sender) = self.streams.get(&stream) else { return };
        let empty = sender.channels.iter().all(|channel| channel.queued == 0 && channel.end != End::Queued);
        if sender.last.is_some() && empty && !self.finished.contains(&stream) {
            self.finished.push_back(stream);
        }
    }

    fn channel(&self, stream: u32, channel: u8) -> Option<&SendChannel> {
        self.streams.get(&stream)?.channels.get(usize::from(channel))
    }

    fn channel_mut(&mut self, stream: u32, channel: u8) -> Option<&mut SendChannel> {
        self.streams.get_mut(&stream)?.channels.get_mut(usize::from(channel))
    }
}
