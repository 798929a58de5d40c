//! The sending half: control first, then last frames, then bulk in turn, within credits and the window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::endpoint::{CHANNELS, ProtocolError};
use super::frame::{self, DATA_PAYLOAD_BYTES_MAX, FLAG_ACK, FLAG_END, HEADER_BYTES, Kind};
use super::send_channel::SendChannel;
use super::window::{Delivery, RESERVE_BYTES, Window};

/// Bytes that one channel may have queued before its producer has to wait.
pub const SEND_QUEUE_BYTES_MAX: usize = 128 << 10;
/// Bytes lent on every channel of a fresh stream, in both directions.
pub const CREDIT_BYTES_START: u64 = 256 << 10;
/// Bytes that waiting control frames may cost; a peer that asks and never reads gets no further.
const CONTROL_QUEUE_BYTES_MAX: usize = 8 << 20;
/// What a waiting control frame costs besides its bytes.
const CONTROL_FRAME_COST: usize = 64;
/// Bulk bytes between two requests for an acknowledgement, at least.
const ACK_EVERY_BYTES_MIN: u64 = 4 << 10;
/// Payload of a bulk frame, at least, where more waits.
const FRAME_BYTES_MIN: u64 = 4 << 10;
/// A bulk frame lasts at most this fraction of a second on the link: a small frame may have to wait behind it.
const FRAMES_A_SECOND_MIN: u64 = 256;
/// Up to so many bytes a channel that was empty goes ahead of bulk, once a round: a short answer, a prompt, the
/// last lines of a log.
const SMALL_BYTES: usize = 4 << 10;
/// Pings without an answer; more are not sent, for they would tell nothing.
const PINGS_MAX: usize = 64;

/// A channel of a stream.
type Place = (u32, u8);

/// What may be sent next.
struct Next {
    place: Place,
    /// Whether it goes ahead of bulk.
    ahead: bool,
    /// Bytes that may be sent; none when it has to wait for the window.
    most: Option<usize>,
}

/// What one stream has to send.
#[derive(Debug)]
struct Sender {
    channels: [SendChannel; CHANNELS],
    /// The encoded last frame of the stream, sent once every channel is empty.
    last: Option<Vec<u8>>,
    finished: bool,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// Bulk bytes received since the hello.
    pub(super) received: u64,
    /// The receiver's clock when the last of them arrived.
    pub(super) at: Duration,
}

impl Ack {
    fn to_bytes(self) -> [u8; 16] {
        let nanos = u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX);
        (u128::from(self.received) << 64 | u128::from(nanos)).to_be_bytes()
    }

    /// Reads a payload, which the decoder has found to have 16 bytes.
    pub(super) fn from_payload(payload: &[u8]) -> Self {
        let [received, at] =
            [payload.get(..8), payload.get(8..)].map(|half| number(half.unwrap_or_default()));
        Ack { received, at: Duration::from_nanos(at) }
    }
}

/// A frame that asked for an acknowledgement.
#[derive(Debug)]
struct Asked {
    /// Bytes sent, this frame's included.
    total: u64,
    /// Bytes acknowledged when it was sent.
    acked: u64,
    at: Duration,
}

/// All that one end has to send.
#[derive(Debug)]
pub(super) struct Sending {
    /// What the other end is due to hear of. One frame, however often it asks.
    ack_due: Option<Ack>,
    control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    streams: BTreeMap<u32, Sender>,
    /// Channels that were empty and have little: ahead of `turn`.
    small: VecDeque<Place>,
    turn: VecDeque<Place>,
    /// Streams whose channels are empty and whose last frame is due.
    finished: VecDeque<u32>,
    pub(super) window: Window,
    sent: u64,
    acked: u64,
    ack_asked: u64,
    asked: VecDeque<Asked>,
    pings: VecDeque<Duration>,
    last_bulk: Option<Duration>,
}

impl Sending {
    pub(super) fn new(window: Window) -> Self {
        Sending {
            ack_due: None,
            control: VecDeque::new(),
            control_bytes: 0,
            streams: BTreeMap::new(),
            small: VecDeque::new(),
            turn: VecDeque::new(),
            finished: VecDeque::new(),
            window,
            sent: 0,
            acked: 0,
            ack_asked: 0,
            asked: VecDeque::new(),
            pings: VecDeque::new(),
            last_bulk: None,
        }
    }

    pub(super) fn has_stream(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Bytes that a producer may queue on a channel now.
    pub(super) fn room(&self, stream: u32, channel: u8) -> usize {
        self.streams
            .get(&stream)
            .filter(|sender| sender.last.is_none())
            .and_then(|sender| sender.channels.get(usize::from(channel)))
            .filter(|channel| channel.is_open())
            .map_or(0, |channel| SEND_QUEUE_BYTES_MAX.saturating_sub(channel.queued()))
    }

    /// Bytes that are queued on a channel and not yet in a frame.
    pub(super) fn queued(&self, stream: u32, channel: u8) -> usize {
        self.channel((stream, channel)).map_or(0, SendChannel::queued)
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
        self.ack_due.is_some()
            || !self.control.is_empty()
            || !self.finished.is_empty()
            || self.next_bulk().is_some_and(|next| next.most.is_some() || self.is_unanswered())
    }

    pub(super) fn open(&mut self, stream: u32) {
        let channels = std::array::from_fn(|_| SendChannel::new(CREDIT_BYTES_START));
        self.streams.insert(stream, Sender { channels, last: None, finished: false });
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    pub(super) fn push_control(
        &mut self,
        kind: Kind,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), ProtocolError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame::encode_parts(kind, flags, stream, payload, &mut bytes)?;
        let waiting = self.control_bytes + bytes.len() + CONTROL_FRAME_COST;
        if waiting > CONTROL_QUEUE_BYTES_MAX {
            return Err(ProtocolError::ControlQueue { bytes: waiting, most: CONTROL_QUEUE_BYTES_MAX });
        }
        self.control_bytes = waiting;
        self.control.push_back(bytes);
        Ok(())
    }

    /// Notes that the other end is due to hear how many bytes arrived.
    pub(super) fn push_ack(&mut self, ack: Ack) {
        self.ack_due = Some(ack);
    }

    /// Queues a ping, but for one that would be one too many without an answer.
    pub(super) fn push_ping(&mut self, now: Duration) -> Result<(), ProtocolError> {
        if self.pings.len() >= PINGS_MAX {
            return Ok(());
        }
        self.pings.push_back(now);
        self.push_control(Kind::Ping, 0, 0, &ping_token(now).to_be_bytes())
    }

    pub(super) fn push_data(&mut self, stream: u32, number: u8, bytes: Vec<u8>, end: bool) {
        let Some(sender) = self.streams.get_mut(&stream).filter(|sender| sender.last.is_none()) else {
            return;
        };
        let Some(channel) = sender.channels.get_mut(usize::from(number)) else { return };
        channel.push(bytes, end);
        self.take_turn((stream, number));
    }

    /// Queues the last frame of a stream; it follows the last byte of every channel.
    pub(super) fn push_last(&mut self, stream: u32, kind: Kind, payload: &[u8]) -> Result<(), ProtocolError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame::encode_parts(kind, 0, stream, payload, &mut bytes)?;
        if let Some(sender) = self.streams.get_mut(&stream)
            && sender.last.is_none()
        {
            sender.last = Some(bytes);
            self.check_finished(stream);
        }
        Ok(())
    }

    /// Drops what a stream has queued; its last frame stays.
    pub(super) fn discard(&mut self, stream: u32) {
        if let Some(sender) = self.streams.get_mut(&stream) {
            sender.channels.iter_mut().for_each(SendChannel::discard);
            self.check_finished(stream);
        }
    }

    pub(super) fn handle_credit(&mut self, stream: u32, number: u8, bytes: u32) -> Result<(), ProtocolError> {
        let Some(channel) = self.channel_mut((stream, number)) else { return Ok(()) };
        if !channel.lend(bytes) {
            return Err(ProtocolError::Credit { stream, channel: number });
        }
        self.take_turn((stream, number));
        Ok(())
    }

    pub(super) fn handle_ack(&mut self, now: Duration, ack: Ack) -> Result<(), ProtocolError> {
        let total = ack.received;
        if total > self.sent || total < self.acked {
            return Err(ProtocolError::Ack { acked: total, sent: self.sent });
        }
        // The moment to see it, whenever the driver asks for bytes: before W opens.
        if self.next_bulk().is_some_and(|next| next.most.is_none()) {
            self.window.handle_limited();
        }
        let (acked, in_flight) = (total - self.acked, self.in_flight());
        self.acked = total;
        let mut answered = None;
        while self.asked.front().is_some_and(|asked| asked.total <= total) {
            answered = self.asked.pop_front();
        }
        if let Some(asked) = answered {
            let delivery = Delivery {
                acked,
                in_flight,
                since_sent: total.saturating_sub(asked.acked),
                sent_at: asked.at,
                arrived_at: ack.at,
                backlog: self.has_bulk(),
            };
            self.window.handle_delivery(now, delivery);
        }
        self.window.handle_time(now, self.in_flight());
        Ok(())
    }

    /// Takes the answer to the oldest ping. Returns the round trip, or nothing when it answers no ping.
    pub(super) fn handle_pong(&mut self, now: Duration, token: u64) -> Option<Duration> {
        let at = self.pings.pop_front().filter(|at| ping_token(*at) == token)?;
        let round_trip = now.saturating_sub(at);
        self.window.handle_round_trip(round_trip);
        Some(round_trip)
    }

    /// Appends frames to `out` until it holds `most` bytes or nothing may be sent. Returns the streams whose last
    /// frame was written.
    pub(super) fn transmit(&mut self, now: Duration, out: &mut Vec<u8>, most: usize) -> Vec<u32> {
        let mut closed = Vec::new();
        while out.len() < most {
            if let Some(ack) = self.ack_due.take() {
                out.extend_from_slice(&frame::encode_header(Kind::Ack, 0, 0, 16));
                out.extend_from_slice(&ack.to_bytes());
            } else if let Some(bytes) = self.control.pop_front() {
                self.control_bytes = self.control_bytes.saturating_sub(bytes.len() + CONTROL_FRAME_COST);
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

    /// What may be sent next, if any channel has something.
    fn next_bulk(&self) -> Option<Next> {
        let ready = |queue: &VecDeque<Place>| queue.iter().copied().find(|place| self.is_ready(*place));
        let (place, ahead) = match ready(&self.small) {
            Some(place) => (place, true),
            None => (ready(&self.turn)?, false),
        };
        let (longest, window) = if ahead {
            (SMALL_BYTES, self.window.bytes() + RESERVE_BYTES)
        } else {
            (self.frame_bytes(), self.window.bytes())
        };
        let free = usize::try_from(window.saturating_sub(self.in_flight())).unwrap_or(usize::MAX);
        let wanted = self.channel(place)?.sendable().min(longest);
        // A sliver of the window is not worth a frame: wait for the next acknowledgement.
        let most = (free >= wanted.min(longest / 2)).then_some(wanted.min(free));
        Some(Next { place, ahead, most })
    }

    fn transmit_bulk(&mut self, now: Duration, out: &mut Vec<u8>) -> bool {
        self.drop_unready();
        let Some(Next { place, ahead, most }) = self.next_bulk() else { return false };
        let Some(most) = most else {
            // Should no acknowledgement be on its way, W shrank meanwhile: a ping fetches one.
            if self.is_unanswered() {
                self.write_ping(now, out);
            }
            return false;
        };
        if self.in_flight() == 0 {
            let idle = self.last_bulk.map_or(Duration::MAX, |last| now.saturating_sub(last));
            // Ahead of the bulk the ping sees the delay of the link alone.
            if self.window.handle_resumed(now, idle) && self.pings.is_empty() {
                self.write_ping(now, out);
            }
        }
        let queue = if ahead { &mut self.small } else { &mut self.turn };
        queue.pop_front();
        self.write_bulk(now, place, most, out);
        // One that went ahead takes its next turn among the others, or it could go ahead for ever.
        let again = ahead || self.is_ready(place);
        if let Some(channel) = self.channel_mut(place) {
            channel.in_turn = again;
        }
        if again {
            self.turn.push_back(place);
        }
        true
    }

    fn write_bulk(&mut self, now: Duration, place: Place, most: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let ended = self.channel_mut(place).is_some_and(|channel| channel.cut(most, out));
        let length = out.len() - start - HEADER_BYTES;
        self.last_bulk = Some(now);
        self.sent += length as u64;
        let (stream, number) = place;
        let mut flags = number | if ended { FLAG_END } else { 0 };
        if self.sent > self.ack_asked && self.is_ack_due() {
            flags |= FLAG_ACK;
            self.ack_asked = self.sent;
            self.asked.push_back(Asked { total: self.sent, acked: self.acked, at: now });
        }
        // A data frame's length fits 32 bits by far.
        let header =
            frame::encode_header(Kind::Data, flags, stream, u32::try_from(length).unwrap_or(u32::MAX));
        if let Some(place) = out.get_mut(start..start + HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        self.check_finished(stream);
    }

    /// Takes channels out of the queues' fronts that have nothing to send now.
    fn drop_unready(&mut self) {
        while let Some(place) = self.small.front().copied().filter(|place| !self.is_ready(*place)) {
            self.small.pop_front();
            self.leave_turn(place);
        }
        while let Some(place) = self.turn.front().copied().filter(|place| !self.is_ready(*place)) {
            self.turn.pop_front();
            self.leave_turn(place);
        }
    }

    fn take_turn(&mut self, place: Place) {
        let Some(channel) = self.channel_mut(place) else { return };
        if channel.in_turn || !channel.is_ready() {
            return;
        }
        channel.in_turn = true;
        let small = channel.queued() <= SMALL_BYTES;
        let queue = if small { &mut self.small } else { &mut self.turn };
        queue.push_back(place);
    }

    fn leave_turn(&mut self, place: Place) {
        if let Some(channel) = self.channel_mut(place) {
            channel.in_turn = false;
        }
    }

    /// Whether the frame just made should ask: an eighth of `W` is out, `W` is full, or nothing follows.
    fn is_ack_due(&self) -> bool {
        let window = self.window.bytes();
        self.sent - self.ack_asked >= ACK_EVERY_BYTES_MIN.max(window / 8)
            || self.in_flight() + self.frame_bytes() as u64 / 2 > window
            || !self.has_bulk()
    }

    /// Whether nothing is on its way that will be acknowledged.
    fn is_unanswered(&self) -> bool {
        self.asked.is_empty() && self.pings.is_empty()
    }

    /// Whether any channel has bytes and credit.
    fn has_bulk(&self) -> bool {
        self.turn.iter().chain(&self.small).any(|place| self.is_ready(*place))
    }

    /// Payload of a bulk frame, at most: what the link carries in four milliseconds, as far as that is known, and a
    /// quarter of `W`, or frames would go one by one.
    fn frame_bytes(&self) -> usize {
        let rate = self.window.rate();
        let lasting = if rate == 0 { u64::MAX } else { rate / FRAMES_A_SECOND_MIN };
        let bytes = lasting.min(self.window.bytes() / 4).max(FRAME_BYTES_MIN);
        usize::try_from(bytes).unwrap_or(usize::MAX).min(DATA_PAYLOAD_BYTES_MAX)
    }

    fn write_ping(&mut self, now: Duration, out: &mut Vec<u8>) {
        self.pings.push_back(now);
        out.extend_from_slice(&frame::encode_header(Kind::Ping, 0, 0, 8));
        out.extend_from_slice(&ping_token(now).to_be_bytes());
    }

    fn check_finished(&mut self, stream: u32) {
        let Some(sender) = self.streams.get_mut(&stream) else { return };
        if sender.last.is_some() && !sender.finished && sender.channels.iter().all(SendChannel::is_empty) {
            sender.finished = true;
            self.finished.push_back(stream);
        }
    }

    fn is_ready(&self, place: Place) -> bool {
        self.channel(place).is_some_and(SendChannel::is_ready)
    }

    fn channel(&self, (stream, number): Place) -> Option<&SendChannel> {
        self.streams.get(&stream)?.channels.get(usize::from(number))
    }

    fn channel_mut(&mut self, (stream, number): Place) -> Option<&mut SendChannel> {
        self.streams.get_mut(&stream)?.channels.get_mut(usize::from(number))
    }
}

fn ping_token(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// The number in a payload of four or eight bytes; others do not pass the decoder.
pub(super) fn number(payload: &[u8]) -> u64 {
    payload.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
