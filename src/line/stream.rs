//! One open stream as its caller holds it: what arrived, and the way to ask for more or for its end.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use towline_helper::wire::message::{Dispatched, Outcome, Request};

use super::error::Error;

/// What callers ask of the owner task.
#[derive(Debug)]
pub(super) enum Ask {
    /// Open a stream; its events go to the sender. The permit frees its place when the stream has ended.
    Open {
        request: Box<Request>,
        events: mpsc::UnboundedSender<StreamEvent>,
        permit: tokio::sync::OwnedSemaphorePermit,
        opened: oneshot::Sender<Result<u32, Error>>,
    },
    /// Send bytes on a channel; `accepted` follows once there was room for them.
    Send { stream: u32, channel: u8, bytes: Vec<u8>, end: bool, accepted: oneshot::Sender<()> },
    /// These bytes of a channel are used.
    Consumed { stream: u32, channel: u8, bytes: usize },
    /// End what the stream does.
    Cancel { stream: u32, discard: bool },
    /// Send a ping and tell its round trip.
    Ping { answered: oneshot::Sender<std::time::Duration> },
    /// Close the line.
    Close,
}

/// What arrives on a stream.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// The request crossed its execution boundary.
    Dispatched(Dispatched),
    /// Bytes of a channel.
    Data { channel: u8, bytes: Bytes },
    /// The last event.
    End(Result<Box<Outcome>, Error>),
}

/// An open stream. Dropping it before its end cancels it at the far side.
#[derive(Debug)]
pub(super) struct Stream {
    id: u32,
    asks: mpsc::UnboundedSender<Ask>,
    // Unbounded, but what it holds is bounded by the credit lent to the stream.
    events: mpsc::UnboundedReceiver<StreamEvent>,
    ended: bool,
}

impl Stream {
    pub(super) fn new(
        id: u32,
        asks: mpsc::UnboundedSender<Ask>,
        events: mpsc::UnboundedReceiver<StreamEvent>,
    ) -> Self {
        Stream { id, asks, events, ended: false }
    }

    /// Waits for the next event; after [`StreamEvent::End`] there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().await;
        self.note(event)
    }

    /// A way to feed the stream from another task.
    pub(super) fn sender(&self) -> StreamSender {
        StreamSender { id: self.id, asks: self.asks.clone() }
    }

    /// Asks for the stream's end; it still ends with [`StreamEvent::End`].
    pub(super) fn cancel(&self) {
        self.ask(Ask::Cancel { stream: self.id, discard: false });
    }

    fn note(&mut self, event: Option<StreamEvent>) -> Option<StreamEvent> {
        match &event {
            Some(StreamEvent::Data { channel, bytes, .. }) if !bytes.is_empty() => {
                self.ask(Ask::Consumed { stream: self.id, channel: *channel, bytes: bytes.len() });
            }
            Some(StreamEvent::End(_)) | None => self.ended = true,
            Some(_) => {}
        }
        event
    }

    fn ask(&self, ask: Ask) {
        // The owner task is gone only when the line has ended; the stream's last event tells that.
        drop(self.asks.send(ask));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended {
            self.ask(Ask::Cancel { stream: self.id, discard: true });
        }
    }
}

/// Feeds one stream.
#[derive(Clone, Debug)]
pub(super) struct StreamSender {
    id: u32,
    asks: mpsc::UnboundedSender<Ask>,
}

impl StreamSender {
    /// Sends bytes and waits until the line has room for them. `false` when the line or the stream has ended.
    ///
    /// Cancel safety: the bytes of a dropped call are sent all the same.
    pub(super) async fn send(&self, channel: u8, bytes: Vec<u8>, end: bool) -> bool {
        let (accepted, wait) = oneshot::channel();
        self.asks.send(Ask::Send { stream: self.id, channel, bytes, end, accepted }).is_ok()
            && wait.await.is_ok()
    }

    /// Ends a channel behind what was sent on it, without waiting for room.
    pub(super) fn end(&self, channel: u8) {
        let (accepted, _nobody_waits) = oneshot::channel();
        // A line that has ended has ended its streams too.
        drop(self.asks.send(Ask::Send { stream: self.id, channel, bytes: Vec::new(), end: true, accepted }));
    }
}
