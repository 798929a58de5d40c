//! The owner task of a line: the only one that touches the link and the protocol's state.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use towline_helper::wire::endpoint::ProtocolError;
use towline_helper::wire::{Endpoint, Event};

use super::arrived::Arrived;
use super::error::{EndReason, Error};
use super::link::{LinkReader, LinkWriter, Part};
use super::liveness::{self, Liveness, Step};
use super::stream::{Ask, StreamEvent};
use crate::ssh;

/// Bytes that are handed to the link at a time; a control frame waits for no more than two of these.
const WRITE_BYTES: usize = 64 << 10;
/// Parts of the link that are taken before callers are woken and answers are written.
const BATCH_PARTS: usize = 16;
/// How long a far end that takes no more bytes may still send some.
const READ_REST_FOR: Duration = Duration::from_secs(2);

/// The owner of one line.
pub(super) struct Driver {
    pub(super) endpoint: Endpoint,
    pub(super) clock: Instant,
    pub(super) asks: mpsc::UnboundedReceiver<Ask>,
    pub(super) ended: watch::Sender<Option<EndReason>>,
    /// Asks the SSH server below; absent over a plain byte stream.
    pub(super) control: Option<ssh::Control>,
    streams: HashMap<u32, Open>,
    pings: Vec<oneshot::Sender<Duration>>,
    liveness: Liveness,
}

/// What the driver knows of an open stream.
struct Open {
    events: mpsc::UnboundedSender<StreamEvent>,
    reads_only: bool,
    arrived: Arrived,
    waiting: std::collections::VecDeque<Waiting>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Open {
    fn tell(&self, event: StreamEvent) {
        // A caller that dropped its stream has asked for its end already.
        drop(self.events.send(event));
    }

    fn hand_over(&mut self) {
        for (channel, bytes) in self.arrived.take() {
            self.tell(StreamEvent::Data { channel, bytes });
        }
    }
}

/// Bytes that wait for room; each writer has at most one.
struct Waiting {
    channel: u8,
    bytes: Vec<u8>,
    end: bool,
    accepted: oneshot::Sender<()>,
}

impl Driver {
    pub(super) fn new(
        endpoint: Endpoint,
        clock: Instant,
        asks: mpsc::UnboundedReceiver<Ask>,
        ended: watch::Sender<Option<EndReason>>,
        control: Option<ssh::Control>,
    ) -> Self {
        Driver {
            endpoint,
            clock,
            asks,
            ended,
            control,
            streams: HashMap::new(),
            pings: Vec::new(),
            liveness: Liveness::default(),
        }
    }

    /// Runs the line until it ends, then tells every open stream.
    pub(super) async fn run(mut self, mut reader: LinkReader, writer: LinkWriter) {
        let (outgoing, queue) = mpsc::channel(1);
        let writer = tokio::spawn(write_all(writer, queue));
        let reason = match self.serve(&mut reader, &outgoing).await {
            Ok(reason) => reason,
            Err(error) => {
                // The far end may still read why.
                if self.endpoint.bye(&error.to_string()).is_ok() {
                    self.flush_last(&outgoing);
                }
                EndReason::Protocol(error.to_string())
            }
        };
        drop(outgoing);
        self.end(&reason);
        if let Some(control) = &self.control {
            control.disconnect("the line was closed").await;
        }
        writer.abort();
    }

    async fn serve(
        &mut self,
        reader: &mut LinkReader,
        outgoing: &mpsc::Sender<Bytes>,
    ) -> Result<EndReason, ProtocolError> {
        let mut asking = Asking::default();
        loop {
            self.deliver()?;
            self.feed();
            let now = self.clock.elapsed();
            let answer_due = !self.streams.is_empty() || !self.pings.is_empty();
            let wake = match self.liveness.step(now, self.endpoint.last_received(), answer_due) {
                Step::Wait(until) => until,
                Step::Ping => {
                    self.endpoint.ping(now)?;
                    continue;
                }
                Step::Ask => {
                    asking.begin(self.control.clone());
                    continue;
                }
                Step::Stalled(silent) => return Ok(EndReason::Stalled { silent_s: silent.as_secs() }),
            };
            let held = self.hand_over(now);
            let wake = [wake, self.endpoint.next_time(), held].into_iter().flatten().min();
            let has_work = self.endpoint.has_work();
            // Every arm may be dropped half-way: a read and a receive lose nothing, a reservation is given back.
            tokio::select! {
                biased;
                slot = outgoing.reserve(), if has_work => match slot {
                    Ok(slot) => {
                        let mut bytes = Vec::with_capacity(WRITE_BYTES + (33 << 10));
                        self.endpoint.transmit(self.clock.elapsed(), &mut bytes, WRITE_BYTES);
                        slot.send(Bytes::from(bytes));
                    }
                    Err(_closed) => return self.read_rest(reader).await,
                },
                part = reader.next() => {
                    if let Some(reason) = self.handle_part(part)? {
                        return Ok(reason);
                    }
                    if let Some(reason) = self.take_more(reader).await? {
                        return Ok(reason);
                    }
                }
                ask = self.asks.recv() => match ask {
                    Some(Ask::Close) | None => return Ok(EndReason::Closed),
                    Some(ask) => self.handle_ask(ask)?,
                },
                alive = asking.answer() => {
                    if alive {
                        self.liveness.handle_answer(self.clock.elapsed());
                    }
                }
                () = sleep_until(self.clock, wake) => self.endpoint.handle_time(self.clock.elapsed())?,
            }
        }
    }

    /// Takes what is at hand beside the part that was waited for, up to a batch, while bytes for callers come in.
    async fn take_more(&mut self, reader: &mut LinkReader) -> Result<Option<EndReason>, ProtocolError> {
        let mut asked = false;
        for _ in 0..BATCH_PARTS {
            match reader.try_next() {
                Some(part) => {
                    if let Some(reason) = self.handle_part(part)? {
                        return Ok(Some(reason));
                    }
                }
                // The task that deciphers runs on this thread: it gets one turn to bring more.
                None if !asked && self.streams.values().any(|open| !open.arrived.is_empty()) => {
                    asked = true;
                    tokio::task::yield_now().await;
                }
                None => break,
            }
        }
        Ok(None)
    }

    /// Hands what has arrived to its callers, and tells until when the rest waits for more.
    fn hand_over(&mut self, now: Duration) -> Option<Duration> {
        let mut until = None;
        for open in self.streams.values_mut().filter(|open| !open.arrived.is_empty()) {
            match open.arrived.may_wait_until(now) {
                Some(wait) => until = Some(until.map_or(wait, |until: Duration| until.min(wait))),
                None => open.hand_over(),
            }
        }
        until
    }

    /// Takes what the far end had sent before it took no more: last outcomes, and why it ended.
    async fn read_rest(&mut self, reader: &mut LinkReader) -> Result<EndReason, ProtocolError> {
        let until = tokio::time::Instant::now() + READ_REST_FOR;
        while let Ok(part) = tokio::time::timeout_at(until, reader.next()).await {
            if let Some(reason) = self.handle_part(part)? {
                return Ok(reason);
            }
        }
        Ok(EndReason::Connection("the far end takes no more bytes".to_owned()))
    }

    fn handle_part(&mut self, part: Part) -> Result<Option<EndReason>, ProtocolError> {
        match part {
            Part::Output(bytes) => self.endpoint.handle_bytes(self.clock.elapsed(), &bytes)?,
            Part::Diagnostics(bytes) => {
                tracing::warn!(text = %bytes.escape_ascii(), "the helper wrote to its standard error");
            }
            Part::End(reason) => return Ok(Some(EndReason::Connection(reason))),
        }
        while let Some(event) = self.endpoint.next_event() {
            if let Some(reason) = self.handle_event(event) {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    fn handle_event(&mut self, event: Event) -> Option<EndReason> {
        match event {
            Event::Dispatched { stream, dispatched } => {
                self.tell(stream, StreamEvent::Dispatched(dispatched))
            }
            Event::Data { stream, channel, bytes, .. } => {
                let now = self.clock.elapsed();
                if let Some(open) = self.streams.get_mut(&stream)
                    && let Some(bytes) = open.arrived.push(now, channel, bytes)
                {
                    open.tell(StreamEvent::Data { channel, bytes });
                }
            }
            Event::Outcome { stream, outcome } => self.finish(stream, Ok(outcome)),
            Event::Refusal { stream, refusal } => self.finish(stream, Err(Error::Refused(refusal))),
            Event::Pong { round_trip } => {
                for answered in self.pings.drain(..) {
                    // The one who asked may have stopped waiting.
                    answered.send(round_trip).ok();
                }
            }
            Event::Bye(bye) => return Some(EndReason::Bye(bye.reason)),
            // The endpoint never gives these to a client.
            Event::Hello(_)
            | Event::Start(_)
            | Event::Open { .. }
            | Event::Cancel { .. }
            | Event::Resize { .. } => {}
        }
        None
    }

    fn handle_ask(&mut self, ask: Ask) -> Result<(), ProtocolError> {
        let now = self.clock.elapsed();
        match ask {
            Ask::Open { request, events, permit, opened } => {
                if opened.is_closed() {
                    return Ok(());
                }
                let reads_only = super::handle::reads_only(&request);
                match self.endpoint.open(now, *request) {
                    Ok(stream) => {
                        let open = Open {
                            events,
                            reads_only,
                            arrived: Arrived::default(),
                            waiting: std::collections::VecDeque::new(),
                            _permit: permit,
                        };
                        self.streams.insert(stream, open);
                        if opened.send(Ok(stream)).is_err() {
                            self.endpoint.cancel(stream, true)?;
                        }
                    }
                    Err(error) => {
                        drop(opened.send(Err(Error::Invalid { message: error.to_string() })));
                    }
                }
            }
            Ask::Send { stream, channel, bytes, end, accepted } => {
                if let Some(open) = self.streams.get_mut(&stream) {
                    open.waiting.push_back(Waiting { channel, bytes, end, accepted });
                }
            }
            Ask::Consumed { stream, channel, bytes } => {
                self.endpoint.consumed(now, stream, channel, bytes)?
            }
            Ask::Cancel { stream, discard } => self.endpoint.cancel(stream, discard)?,
            Ask::Ping { answered } => {
                self.pings.push(answered);
                self.endpoint.ping(now)?;
            }
            Ask::Close => {}
        }
        Ok(())
    }

    /// Takes all asks that are there already, so that many small ones share one write.
    fn deliver(&mut self) -> Result<(), ProtocolError> {
        while let Ok(ask) = self.asks.try_recv() {
            if matches!(ask, Ask::Close) {
                self.asks.close();
                break;
            }
            self.handle_ask(ask)?;
        }
        Ok(())
    }

    /// Moves waiting bytes into the endpoint as far as there is room.
    fn feed(&mut self) {
        for (stream, open) in &mut self.streams {
            while let Some(front) = open.waiting.front_mut() {
                let room = self.endpoint.room(*stream, front.channel);
                if room == 0 && !front.bytes.is_empty() {
                    break;
                }
                if front.bytes.len() > room {
                    let rest = front.bytes.split_off(room);
                    let head = std::mem::replace(&mut front.bytes, rest);
                    self.endpoint.send(*stream, front.channel, head, false);
                    break;
                }
                if let Some(Waiting { channel, bytes, end, accepted }) = open.waiting.pop_front() {
                    self.endpoint.send(*stream, channel, bytes, end);
                    // The writer may have stopped waiting; its bytes go all the same.
                    accepted.send(()).ok();
                }
            }
        }
    }

    fn tell(&mut self, stream: u32, event: StreamEvent) {
        if let Some(open) = self.streams.get_mut(&stream) {
            open.hand_over();
            open.tell(event);
        }
    }

    fn finish(&mut self, stream: u32, end: Result<Box<towline_helper::wire::message::Outcome>, Error>) {
        self.tell(stream, StreamEvent::End(end));
        self.streams.remove(&stream);
    }

    fn flush_last(&mut self, outgoing: &mpsc::Sender<Bytes>) {
        let mut bytes = Vec::new();
        self.endpoint.transmit(self.clock.elapsed(), &mut bytes, WRITE_BYTES);
        // Best effort: the line is over either way.
        drop(outgoing.try_send(Bytes::from(bytes)));
    }

    fn end(&mut self, reason: &EndReason) {
        self.ended.send_replace(Some(reason.clone()));
        self.asks.close();
        for (_, mut open) in self.streams.drain() {
            open.hand_over();
            let error = match open.reads_only {
                true => Error::Lost(reason.clone()),
                false => Error::OutcomeUnknown(reason.clone()),
            };
            open.tell(StreamEvent::End(Err(error)));
        }
        while let Ok(ask) = self.asks.try_recv() {
            if let Ask::Open { opened, .. } = ask {
                drop(opened.send(Err(Error::NotConnected(reason.clone()))));
            }
        }
    }
}

/// Writes what the driver hands over; the queue's one place is the pushback.
async fn write_all(mut writer: LinkWriter, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = queue.recv().await {
        if let Err(error) = writer.write(bytes).await {
            tracing::debug!(error, "the link takes no more bytes");
            return;
        }
    }
    if let Err(error) = writer.finish().await {
        tracing::debug!(error, "the link was gone before its end could be told");
    }
}

/// A question to the SSH server that is under way.
#[derive(Default)]
struct Asking(Option<tokio::task::JoinHandle<bool>>);

impl Asking {
    fn begin(&mut self, control: Option<ssh::Control>) {
        if self.0.is_none() {
            self.0 = Some(tokio::spawn(async move {
                match control {
                    // Without a server below, nothing but the helper can be at fault.
                    None => true,
                    Some(control) => {
                        matches!(tokio::time::timeout(liveness::ASK_FOR, control.probe()).await, Ok(Ok(_)))
                    }
                }
            }));
        }
    }

    /// Waits for the answer; forever when nothing was asked.
    async fn answer(&mut self) -> bool {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(task) => {
                let alive = task.await.unwrap_or(false);
                self.0 = None;
                alive
            }
        }
    }
}

async fn sleep_until(clock: Instant, wake: Option<Duration>) {
    match wake {
        Some(wake) => tokio::time::sleep_until((clock + wake).into()).await,
        None => std::future::pending().await,
    }
}
