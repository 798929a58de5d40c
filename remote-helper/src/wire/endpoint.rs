//! The state machine that both ends of a line run: bytes and time in, events and bytes out.
//!
//! In which order to call it: [`Endpoint::handle_bytes`] with what arrived, at most 64 KiB at a time, then
//! [`Endpoint::next_event`] until it is empty, then the commands ([`Endpoint::open`], [`Endpoint::send`], …), then
//! [`Endpoint::transmit`] while the link takes bytes, and [`Endpoint::handle_time`] not later than
//! [`Endpoint::next_time`]. Time is a [`Duration`] since any fixed moment, and never goes back.
//!
//! Memory, whatever the other end does: one incomplete frame (1 MiB), events for the bytes of one call, 8 MiB of
//! control frames, 128 KiB a channel in the sending queue, and in the driver's hands what was lent and is not yet
//! [`Endpoint::consumed`]. A driver that keeps arrived bytes joins small ones: a hostile end sends them one by one.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

pub use super::error::ProtocolError;
pub use super::event::Event;
use super::frame::{CHANNEL_MASK, Decoder, FLAG_ACK, FLAG_END, Frame, Kind};
use super::message::{
    self, Bye, Cancel, Code, Dispatched, Hello, Open, Outcome, Refusal, Request, STREAMS_MAX, Start,
};
use super::receiving::Receiving;
use super::sending::{Ack, Sending, number};
use super::window::{WINDOW_BYTES_MAX, WINDOW_BYTES_MAX_UP, Window};

/// Channels of a stream: 0 is content towards the helper, 1 and 2 are content and diagnostics from it.
pub const CHANNELS: usize = 3;
/// Standard input, or a file's content towards the helper.
pub const STDIN: u8 = 0;
/// Standard output, or a file's content from the helper.
pub const STDOUT: u8 = 1;
/// Standard error.
pub const STDERR: u8 = 2;

/// Bounds of what a client lends: a channel's window and, above the starting credit, all of them together. A window
/// is lent in eighths, so it is an eighth above the largest `W`.
const CLIENT_CREDIT: (u64, u64) = (36 << 20, 40 << 20);
/// The same for the helper, whose memory is somebody else's login node.
const HELPER_CREDIT: (u64, u64) = (9 << 18, 4 << 20);

/// Pause between the pings that keep the round trip known while bulk moves.
const PING_PAUSE: Duration = Duration::from_millis(250);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that opens streams.
    Client,
    /// The end that serves them.
    Helper,
}

/// One end of a line.
#[derive(Debug)]
pub struct Endpoint {
    role: Role,
    decoder: Decoder,
    events: VecDeque<Event>,
    sending: Sending,
    receiving: Receiving,
    discarding: BTreeSet<u32>,
    /// Whether credits are somebody else's behind us, who is told of what is lent and lends himself.
    relaying: bool,
    /// The first broken rule; nothing is taken after it.
    failed: Option<ProtocolError>,
    greeted: bool,
    newest_stream: u32,
    received_bulk: u64,
    last_received: Duration,
    last_bulk_received: Option<Duration>,
    last_ping: Option<Duration>,
}

impl Endpoint {
    /// Makes one end of a fresh line.
    pub fn new(role: Role) -> Self {
        let (most, (window, budget)) = match role {
            Role::Client => (WINDOW_BYTES_MAX_UP, CLIENT_CREDIT),
            Role::Helper => (WINDOW_BYTES_MAX, HELPER_CREDIT),
        };
        Endpoint {
            role,
            decoder: Decoder::default(),
            events: VecDeque::new(),
            sending: Sending::new(Window::new(most)),
            receiving: Receiving::new(window, budget),
            discarding: BTreeSet::new(),
            relaying: false,
            failed: None,
            greeted: false,
            newest_stream: 0,
            received_bulk: 0,
            last_received: Duration::ZERO,
            last_bulk_received: None,
            last_ping: None,
        }
    }

    /// Switches to passing credits on: what the other end lends is also told by [`Event::Credit`], and only
    /// [`Endpoint::lend`] lends to it. [`Endpoint::room`] bounds nothing then; credit does.
    pub fn relay(&mut self) {
        self.relaying = true;
    }

    /// Bytes that may be queued on a channel before its producer has to wait.
    pub fn room(&self, stream: u32, channel: u8) -> usize {
        self.sending.room(stream, channel)
    }

    /// Bytes that are queued on a channel and not yet on their way.
    pub fn queued(&self, stream: u32, channel: u8) -> usize {
        self.sending.queued(stream, channel)
    }

    /// Bytes that wait in the control queue, which ends the line when it is full.
    pub fn control_queued(&self) -> usize {
        self.sending.control_queued()
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.receiving.len()
    }

    /// When the last byte arrived.
    pub fn last_received(&self) -> Duration {
        self.last_received
    }

    /// The window of the sending direction, for status and tests.
    pub fn window(&self) -> &Window {
        &self.sending.window
    }

    /// Bulk bytes of ours that are not acknowledged.
    pub fn in_flight(&self) -> u64 {
        self.sending.in_flight()
    }

    /// Whether [`Endpoint::transmit`] would write anything now.
    pub fn has_work(&self) -> bool {
        self.sending.has_work()
    }

    /// Takes bytes that arrived.
    ///
    /// # Errors
    /// [`ProtocolError`] on the first broken rule, and the same again on every later call; the line is over then.
    pub fn handle_bytes(&mut self, now: Duration, bytes: &[u8]) -> Result<(), ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.last_received = now;
        self.handle_frames(now, bytes).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Sends the helper's hello.
    ///
    /// # Errors
    /// [`ProtocolError`] when the message cannot be a frame.
    pub fn hello(&mut self, hello: &Hello) -> Result<(), ProtocolError> {
        self.sending.push_control(Kind::Hello, 0, 0, &message::encode("hello", hello)?)
    }

    /// Sends the client's answer to the hello.
    ///
    /// # Errors
    /// [`ProtocolError`] when the message cannot be a frame.
    pub fn start(&mut self, start: &Start) -> Result<(), ProtocolError> {
        self.sending.push_control(Kind::Start, 0, 0, &message::encode("start", start)?)
    }

    /// Opens a stream; at most [`STREAMS_MAX`] may be open, which the caller sees to.
    ///
    /// # Errors
    /// [`ProtocolError`] when the request is too long for a frame, or after as many streams as there are numbers.
    pub fn open(&mut self, now: Duration, request: Request) -> Result<u32, ProtocolError> {
        let payload = message::encode("open", &Open { request })?;
        let stream = self.newest_stream.checked_add(1).ok_or(ProtocolError::StreamsUsedUp)?;
        if self.last_ping.is_none() {
            self.ping(now)?;
        }
        self.sending.push_control(Kind::Open, 0, stream, &payload)?;
        self.newest_stream = stream;
        self.sending.open(stream);
        self.receiving.open(stream, now);
        Ok(stream)
    }

    /// Asks for a stream's end. With `discard`, bytes that still arrive on it are dropped.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn cancel(&mut self, stream: u32, discard: bool) -> Result<(), ProtocolError> {
        if !self.receiving.has_stream(stream) {
            return Ok(());
        }
        if discard {
            self.discarding.insert(stream);
            self.sending.discard(stream);
        }
        let payload = message::encode("cancel", &Cancel { discard })?;
        self.sending.push_control(Kind::Cancel, 0, stream, &payload)
    }

    /// Tells that a request crossed its execution boundary.
    ///
    /// # Errors
    /// [`ProtocolError`] when the message cannot be a frame.
    pub fn dispatched(&mut self, stream: u32, dispatched: &Dispatched) -> Result<(), ProtocolError> {
        if !self.sending.has_stream(stream) {
            return Ok(());
        }
        self.sending.push_control(Kind::Dispatched, 0, stream, &message::encode("dispatched", dispatched)?)
    }

    /// Queues bytes on a channel; `end` ends it. The caller keeps within [`Endpoint::room`].
    pub fn send(&mut self, stream: u32, channel: u8, bytes: Vec<u8>, end: bool) {
        if !self.discarding.contains(&stream) {
            self.sending.push_data(stream, channel, bytes, end);
        }
    }

    /// Ends a stream that did what it should; sent after its last byte.
    ///
    /// # Errors
    /// [`ProtocolError`] when the message cannot be a frame.
    pub fn outcome(&mut self, stream: u32, outcome: &Outcome) -> Result<(), ProtocolError> {
        self.sending.push_last(stream, Kind::Outcome, &message::encode("outcome", outcome)?)
    }

    /// Ends a stream that could not do what it should; sent after its last byte.
    ///
    /// # Errors
    /// [`ProtocolError`] when the message cannot be a frame.
    pub fn refuse(&mut self, stream: u32, refusal: &Refusal) -> Result<(), ProtocolError> {
        self.sending.push_last(stream, Kind::Refusal, &message::encode("refusal", refusal)?)
    }

    /// Tells that bytes of a channel are used, so that the other end may send as many again. After the stream's end
    /// it has no effect: whoever still holds bytes then bounds them by himself.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn consumed(
        &mut self,
        now: Duration,
        stream: u32,
        channel: u8,
        bytes: usize,
    ) -> Result<(), ProtocolError> {
        let round_trip = self.sending.window.latest().unwrap_or_default();
        match self.receiving.handle_consumed(now, (stream, channel), bytes, round_trip) {
            Some(lend) => self.sending.push_control(Kind::Credit, channel, stream, &lend.to_be_bytes()),
            None => Ok(()),
        }
    }

    /// Lends bytes on a channel in the name of whoever will take them, and takes as many of those that arrived as taken.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn lend(&mut self, stream: u32, channel: u8, bytes: u32) -> Result<(), ProtocolError> {
        if bytes == 0 || !self.receiving.handle_lent((stream, channel), bytes) {
            return Ok(());
        }
        self.sending.push_control(Kind::Credit, channel, stream, &bytes.to_be_bytes())
    }

    /// Sends a ping; its answer is [`Event::Pong`]. While 64 pings have no answer it sends no more.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn ping(&mut self, now: Duration) -> Result<(), ProtocolError> {
        self.last_ping = Some(now);
        self.sending.push_ping(now)
    }

    /// Closes the line with a reason.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn bye(&mut self, reason: &str) -> Result<(), ProtocolError> {
        let payload = message::encode("bye", &Bye { reason: reason.to_owned() })?;
        self.sending.push_control(Kind::Bye, 0, 0, &payload)
    }

    /// When [`Endpoint::handle_time`] is next due; never while no bulk moves.
    pub fn next_time(&self) -> Option<Duration> {
        let moved = self.sending.last_bulk().max(self.last_bulk_received)?;
        match self.last_ping {
            None => Some(moved),
            Some(last) => (last < moved).then_some(last + PING_PAUSE),
        }
    }

    /// Sends the pings that keep the round trip known while bulk moves.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full.
    pub fn handle_time(&mut self, now: Duration) -> Result<(), ProtocolError> {
        match self.next_time() {
            Some(due) if due <= now => self.ping(now),
            _ => Ok(()),
        }
    }

    /// Appends frames to `out` until it holds at least `most` bytes or nothing may be sent now.
    pub fn transmit(&mut self, now: Duration, out: &mut Vec<u8>, most: usize) {
        for stream in self.sending.transmit(now, out, most) {
            self.receiving.forget(stream);
            self.discarding.remove(&stream);
        }
    }

    fn handle_frames(&mut self, now: Duration, mut bytes: &[u8]) -> Result<(), ProtocolError> {
        while let Some(frame) = self.decoder.next_frame(&mut bytes)? {
            self.handle_frame(now, frame)?;
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Duration, frame: Frame) -> Result<(), ProtocolError> {
        let (kind, payload) = (frame.kind, frame.payload.as_slice());
        let greeting = matches!((self.role, kind), (Role::Client, Kind::Hello) | (Role::Helper, Kind::Start));
        if greeting == self.greeted && kind != Kind::Bye {
            return Err(ProtocolError::Unexpected { kind });
        }
        match (self.role, kind) {
            (Role::Client, Kind::Hello) => {
                let hello: Hello = message::parse("hello", payload)?;
                self.greet(hello.protocol)?;
                self.events.push_back(Event::Hello(Box::new(hello)));
            }
            (Role::Helper, Kind::Start) => {
                let start: Start = message::parse("start", payload)?;
                self.greet(start.protocol)?;
                self.events.push_back(Event::Start(start));
            }
            // The acknowledgement comes along so that a window that shrank below what is in flight never waits
            // for a flag on a frame that it does not let out.
            (_, Kind::Ping) => {
                self.push_ack();
                self.sending.push_control(Kind::Pong, 0, 0, payload)?;
            }
            (_, Kind::Pong) => self.handle_pong(now, payload)?,
            (_, Kind::Ack) => self.sending.handle_ack(now, Ack::from_payload(payload))?,
            (_, Kind::Bye) => self.events.push_back(Event::Bye(message::parse("bye", payload)?)),
            (Role::Helper, Kind::Open) => self.handle_open(now, frame.stream, payload)?,
            (_, Kind::Data) => self.handle_data(now, frame)?,
            (_, Kind::Credit) => self.handle_credit(&frame)?,
            _ => self.handle_message(frame)?,
        }
        Ok(())
    }

    fn handle_message(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        let (kind, stream, payload) = (frame.kind, frame.stream, frame.payload.as_slice());
        let event = match (self.role, kind) {
            (Role::Client, Kind::Dispatched) => {
                Event::Dispatched { stream, dispatched: message::parse("dispatched", payload)? }
            }
            (Role::Client, Kind::Outcome) => {
                Event::Outcome { stream, outcome: Box::new(message::parse("outcome", payload)?) }
            }
            (Role::Client, Kind::Refusal) => {
                Event::Refusal { stream, refusal: Box::new(message::parse("refusal", payload)?) }
            }
            (Role::Helper, Kind::Cancel) => {
                let Cancel { discard } = message::parse("cancel", payload)?;
                Event::Cancel { stream, discard }
            }
            (Role::Helper, Kind::Resize) => {
                Event::Resize { stream, size: message::parse("resize", payload)? }
            }
            _ => return Err(ProtocolError::Unexpected { kind }),
        };
        if !self.is_open(kind, stream)? {
            return Ok(());
        }
        match event {
            Event::Outcome { .. } | Event::Refusal { .. } => {
                self.sending.forget(stream);
                self.receiving.forget(stream);
                self.discarding.remove(&stream);
            }
            Event::Cancel { discard: true, .. } => {
                self.discarding.insert(stream);
                self.sending.discard(stream);
            }
            _ => {}
        }
        self.events.push_back(event);
        Ok(())
    }

    fn handle_open(&mut self, now: Duration, stream: u32, payload: &[u8]) -> Result<(), ProtocolError> {
        // Ids only rise, so an id can neither be used twice nor be taken for an older stream's.
        if stream <= self.newest_stream {
            return Err(ProtocolError::Stream { kind: Kind::Open, stream });
        }
        let Open { request } = message::parse("open", payload)?;
        self.newest_stream = stream;
        if self.receiving.len() >= STREAMS_MAX {
            // Not a stream, so that a client that opens and never reads fills no more than the control queue.
            let refusal = Refusal {
                code: Code::Busy,
                message: format!("{STREAMS_MAX} streams are open, which is the limit"),
                path: None,
                errno: None,
                which: None,
            };
            return self.sending.push_control(
                Kind::Refusal,
                0,
                stream,
                &message::encode("refusal", &refusal)?,
            );
        }
        self.sending.open(stream);
        self.receiving.open(stream, now);
        self.events.push_back(Event::Open { stream, request: Box::new(request) });
        Ok(())
    }

    fn handle_credit(&mut self, frame: &Frame) -> Result<(), ProtocolError> {
        let (stream, channel) = (frame.stream, frame.flags & CHANNEL_MASK);
        let bytes = u32::try_from(number(&frame.payload)).unwrap_or(u32::MAX);
        if !self.is_open(Kind::Credit, stream)? {
            return Ok(());
        }
        if !self.sends_on(channel) {
            return Err(ProtocolError::Channel { stream, channel });
        }
        self.sending.handle_credit(stream, channel, bytes)?;
        if self.relaying && !self.discarding.contains(&stream) {
            self.events.push_back(Event::Credit { stream, channel, bytes });
        }
        Ok(())
    }

    fn handle_data(&mut self, now: Duration, frame: Frame) -> Result<(), ProtocolError> {
        let Frame { kind, flags, stream, payload } = frame;
        let (channel, end) = (flags & CHANNEL_MASK, flags & FLAG_END != 0);
        // An empty frame that ends nothing costs no credit, so there could be any number of them.
        if payload.is_empty() && !end {
            return Err(ProtocolError::Empty { stream });
        }
        self.received_bulk += payload.len() as u64;
        self.last_bulk_received = Some(now);
        if flags & FLAG_ACK != 0 {
            self.push_ack();
        }
        if !self.is_open(kind, stream)? {
            return Ok(());
        }
        if usize::from(channel) >= CHANNELS || self.sends_on(channel) {
            return Err(ProtocolError::Channel { stream, channel });
        }
        self.receiving.handle_data(now, (stream, channel), payload.len(), end)?;
        if self.discarding.contains(&stream) {
            return self.consumed(now, stream, channel, payload.len());
        }
        self.events.push_back(Event::Data { stream, channel, bytes: payload, end });
        Ok(())
    }

    fn handle_pong(&mut self, now: Duration, payload: &[u8]) -> Result<(), ProtocolError> {
        let round_trip = self.sending.handle_pong(now, number(payload));
        let round_trip = round_trip.ok_or(ProtocolError::Unexpected { kind: Kind::Pong })?;
        self.events.push_back(Event::Pong { round_trip });
        Ok(())
    }

    fn push_ack(&mut self) {
        let at = self.last_bulk_received.unwrap_or_default();
        self.sending.push_ack(Ack { received: self.received_bulk, at });
    }

    fn greet(&mut self, protocol: u32) -> Result<(), ProtocolError> {
        if protocol != super::PROTOCOL {
            return Err(ProtocolError::Version { got: protocol, ours: super::PROTOCOL });
        }
        self.greeted = true;
        Ok(())
    }

    /// Whether this end is the one that sends on a channel.
    fn sends_on(&self, channel: u8) -> bool {
        match self.role {
            Role::Client => channel == STDIN,
            Role::Helper => channel == STDOUT || channel == STDERR,
        }
    }

    /// Whether a stream is open. What a client sent before it knew that its stream had ended is ignored; a helper
    /// has nothing to say after a stream's last frame.
    fn is_open(&self, kind: Kind, stream: u32) -> Result<bool, ProtocolError> {
        let open = self.receiving.has_stream(stream);
        if stream > self.newest_stream || (self.role == Role::Client && !open) {
            return Err(ProtocolError::Stream { kind, stream });
        }
        Ok(open)
    }
}
