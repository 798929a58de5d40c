//! The one session channel: parts in, bytes out, a keepalive on demand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use russh::client::{Handle, Msg};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect};
use tokio::sync::{Semaphore, mpsc, watch};

use super::error::Error;
use super::handler::{Events, Noted, describe};
use super::prompt::printable;
use super::transport::Facts;

/// Bytes taken from the connection that nobody has read yet. Beyond this the connection itself waits, with
/// its keepalives: a reader that far behind is stuck, and memory stays bounded whatever a server sends.
const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a polite end may take.
const DISCONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Extended data of this type is stderr (RFC 4254, 5.2); no other type is defined.
const STDERR: u32 = 1;

/// The one session channel of a connection, with its command running.
#[derive(Debug)]
pub struct Channel {
    /// What the command prints and how it ends.
    pub reader: ChannelReader,
    /// The command's stdin.
    pub writer: ChannelWriter,
    /// How the connection came about.
    pub facts: Facts,
    /// The connection below the channel.
    pub control: Control,
}

/// A piece of what comes out of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the command's stdout, at most 32 KiB.
    Stdout(Bytes),
    /// Bytes of the command's stderr, at most 32 KiB.
    Stderr(Bytes),
    /// The command ended; comes after its last byte.
    Exit {
        /// The exit code, when it exited.
        code: Option<u32>,
        /// The signal's name without `SIG`, when one ended it.
        signal: Option<String>,
    },
    /// Nothing more comes; the last part.
    Closed {
        /// Why, as a fragment.
        reason: String,
    },
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Stdout(bytes) | Part::Stderr(bytes) => bytes.len(),
            Part::Exit { .. } | Part::Closed { .. } => 0,
        }
    }
}

/// Reads the channel's parts in order.
#[derive(Debug)]
pub struct ChannelReader {
    parts: mpsc::UnboundedReceiver<Part>,
    room: Arc<Semaphore>,
    /// The connection lives as long as any part of the channel.
    _links: Arc<Links>,
}

impl ChannelReader {
    /// Waits for the next part; `None` after [`Part::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no part is lost.
    pub async fn next(&mut self) -> Option<Part> {
        let part = self.parts.recv().await?;
        self.room.add_permits(part.len());
        Some(part)
    }

    /// The next part if it has arrived.
    pub fn try_next(&mut self) -> Option<Part> {
        // An empty queue and a closed one both have nothing at hand; `next` tells them apart.
        let part = self.parts.try_recv().ok()?;
        self.room.add_permits(part.len());
        Some(part)
    }
}

/// Writes to the command's stdin. One task owns it: two writers would interleave.
#[derive(Debug)]
pub struct ChannelWriter {
    half: ChannelWriteHalf<Msg>,
    closed: watch::Receiver<Option<String>>,
    _links: Arc<Links>,
}

impl ChannelWriter {
    /// Sends bytes, waiting for the server's window.
    ///
    /// # Errors
    /// [`Error::Ended`] when the channel closes first; then an unknown part was sent.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped call leaves an unknown part unsent.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        // russh would wait for a window for ever after the channel has closed; losing the write is
        // right then.
        let mut closed = self.closed.clone();
        tokio::select! {
            sent = self.half.data_bytes(bytes) => sent.map_err(|error| self.ended(&error)),
            reason = until_closed(&mut closed) => Err(Error::Ended { reason }),
        }
    }

    /// Sends the end of stdin, behind all bytes written before.
    ///
    /// # Errors
    /// [`Error::Ended`] when the connection is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call has sent the end or not.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.half.eof().await.map_err(|error| self.ended(&error))
    }

    fn ended(&self, error: &russh::Error) -> Error {
        let reason = self.closed.borrow().clone().unwrap_or_else(|| match error {
            russh::Error::SendError => "the connection was closed".to_owned(),
            other => describe(other),
        });
        Error::Ended { reason }
    }
}

async fn until_closed(closed: &mut watch::Receiver<Option<String>>) -> String {
    match closed.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or_default(),
        // The draining task ended without a word, which only its abortion can cause.
        Err(_) => "the connection was dropped".to_owned(),
    }
}

/// The connection below the channel: asks whether it lives, ends it. Clones act on the same connection.
#[derive(Clone, Debug)]
pub struct Control {
    links: Arc<Links>,
}

/// The handles that keep the connection and those of its jump hosts alive.
pub(super) struct Links {
    pub handle: Handle<Events>,
    pub noted: Arc<Noted>,
    pub upstream: Vec<(Handle<Events>, Arc<Noted>)>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("ended", &self.noted.ended()).finish_non_exhaustive()
    }
}

impl Control {
    /// Sends an SSH keepalive and waits for its answer; tells how long that took.
    ///
    /// It waits as long as the connection lives: the caller sets the limit.
    ///
    /// # Errors
    /// [`Error::Ended`] when the connection ends first.
    ///
    /// # Cancel safety
    /// Cancel safe: a late answer is dropped.
    pub async fn probe(&self) -> Result<Duration, Error> {
        let sent = Instant::now();
        match self.links.handle.send_global_request("keepalive@openssh.com", &[], true).await {
            // sshd does not know the request and says so: that is an answer.
            Ok(_) | Err(russh::Error::RequestDenied) => Ok(sent.elapsed()),
            Err(error) => {
                let reason = self.links.noted.ended().unwrap_or_else(|| describe(&error));
                Err(Error::Ended { reason })
            }
        }
    }

    /// Waits for the end of the connection and tells its reason.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn until_ended(&self) -> String {
        self.links.noted.until_ended().await
    }

    /// Ends the connection, and then those of its jump hosts, politely but within 5 s.
    ///
    /// # Cancel safety
    /// Cancel safe; what was not ended yet ends when the last clone is dropped.
    pub async fn disconnect(&self, reason: &str) {
        let links = &self.links;
        let polite = async {
            end(&links.handle, &links.noted, reason).await;
            for (handle, noted) in links.upstream.iter().rev() {
                end(handle, noted, reason).await;
            }
        };
        if tokio::time::timeout(DISCONNECT_TIME_MAX, polite).await.is_err() {
            tracing::debug!("the server did not close the connection in time");
        }
    }
}

pub(super) async fn end(handle: &Handle<Events>, noted: &Noted, reason: &str) {
    noted.ending(reason);
    // An error means that the session is over already.
    if handle.disconnect(Disconnect::ByApplication, reason, "").await.is_ok() {
        noted.until_ended().await;
    }
}

/// Starts the draining task and hands out both halves.
///
/// `early` are parts that arrived before the command's start was confirmed.
pub(super) fn halves(
    channel: russh::Channel<Msg>,
    links: Arc<Links>,
    early: Vec<ChannelMsg>,
) -> (ChannelReader, ChannelWriter, Control) {
    let (read, write) = channel.split();
    // Unbounded in count, bounded in bytes by `room`; parts without bytes are at most two.
    let (queue, parts) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(UNREAD_BYTES_MAX));
    let (closing, closed) = watch::channel(None);
    let drain = Drain { queue, room: Arc::clone(&room), exit: None, eof: false };
    // Ends with the channel, whose sender lives in the session; nothing else has to end it.
    tokio::spawn(drain.run(read, early, Arc::clone(&links.noted), closing));
    let reader = ChannelReader { parts, room, _links: Arc::clone(&links) };
    let writer = ChannelWriter { half: write, closed, _links: Arc::clone(&links) };
    (reader, writer, Control { links })
}

/// Takes messages off the session at once: a full queue would stop the whole connection.
struct Drain {
    queue: mpsc::UnboundedSender<Part>,
    room: Arc<Semaphore>,
    /// The exit, kept back until the last byte has come.
    exit: Option<Part>,
    eof: bool,
}

impl Drain {
    async fn run(
        mut self,
        mut half: ChannelReadHalf,
        early: Vec<ChannelMsg>,
        noted: Arc<Noted>,
        closing: watch::Sender<Option<String>>,
    ) {
        let mut closed = false;
        for message in early {
            closed |= self.take(message).await;
        }
        while !closed {
            match half.wait().await {
                Some(message) => closed = self.take(message).await,
                None => break,
            }
        }
        let reason =
            if closed { "the server closed the channel".to_owned() } else { noted.until_ended().await };
        closing.send_replace(Some(reason.clone()));
        if let Some(exit) = self.exit.take() {
            self.give(exit).await;
        }
        self.give(Part::Closed { reason }).await;
    }

    /// True when the channel is closed.
    async fn take(&mut self, message: ChannelMsg) -> bool {
        match message {
            ChannelMsg::Data { data } => self.give(Part::Stdout(data)).await,
            ChannelMsg::ExtendedData { data, ext: STDERR } => self.give(Part::Stderr(data)).await,
            ChannelMsg::Eof => {
                self.eof = true;
                if let Some(exit) = self.exit.take() {
                    self.give(exit).await;
                }
            }
            ChannelMsg::ExitStatus { exit_status } => {
                self.ended(Part::Exit { code: Some(exit_status), signal: None }).await;
            }
            ChannelMsg::ExitSignal { signal_name, .. } => {
                let signal = match signal_name {
                    russh::Sig::Custom(name) => printable(&name),
                    known => format!("{known:?}"),
                };
                self.ended(Part::Exit { code: None, signal: Some(signal) }).await;
            }
            ChannelMsg::Close => return true,
            _ => {}
        }
        false
    }

    async fn ended(&mut self, exit: Part) {
        if self.eof {
            self.give(exit).await;
        } else {
            self.exit = Some(exit);
        }
    }

    /// Queues a part, waiting for room; without a reader it is dropped, so that the connection goes on.
    async fn give(&self, part: Part) {
        let bytes = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let waiting = self.room.acquire_many(bytes);
        // A dropped permit request takes no room.
        let room = tokio::select! {
            room = waiting => room,
            () = self.queue.closed() => return,
        };
        match room {
            Ok(room) => room.forget(),
            Err(_) => return,
        }
        if self.queue.send(part).is_err() {
            tracing::trace!("nobody reads the channel any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader sees of messages that arrive in this order.
    async fn seen(messages: Vec<ChannelMsg>) -> Vec<Part> {
        let (queue, mut parts) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(UNREAD_BYTES_MAX));
        let mut drain = Drain { queue, room, exit: None, eof: false };
        for message in messages {
            drain.take(message).await;
        }
        drop(drain);
        let mut seen = Vec::new();
        while let Some(part) = parts.recv().await {
            seen.push(part);
        }
        seen
    }

    fn data(text: &'static str) -> ChannelMsg {
        ChannelMsg::Data { data: Bytes::from_static(text.as_bytes()) }
    }

    #[tokio::test]
    async fn case_053_the_exit_waits_for_the_last_byte_whatever_the_order() {
        let exit = || ChannelMsg::ExitStatus { exit_status: 0 };
        let expected = [
            Part::Stdout(Bytes::from_static(b"a")),
            Part::Stdout(Bytes::from_static(b"b")),
            Part::Exit { code: Some(0), signal: None },
        ];
        assert_eq!(seen(vec![data("a"), data("b"), ChannelMsg::Eof, exit()]).await, expected);
        assert_eq!(seen(vec![data("a"), exit(), data("b"), ChannelMsg::Eof]).await, expected);
        assert_eq!(seen(vec![exit(), data("a"), data("b"), ChannelMsg::Eof]).await, expected);
    }

    #[tokio::test]
    async fn unread_bytes_are_bounded_and_room_comes_back_with_reading() {
        let (queue, parts) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(4));
        let drain = Drain { queue, room: Arc::clone(&room), exit: None, eof: false };
        let part = |text: &'static str| Part::Stdout(Bytes::from_static(text.as_bytes()));
        drain.give(part("abcd")).await;
        let waiting = drain.give(part("e"));
        tokio::pin!(waiting);
        assert!(poll_once(waiting.as_mut()).await.is_none(), "a fifth byte fits in four");
        room.add_permits(4);
        waiting.await;
        // Without a reader nothing waits.
        drop(parts);
        drain.give(part("nobody reads this")).await;
    }

    /// Polls once.
    async fn poll_once<T>(work: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        tokio::select! {
            biased;
            out = work => Some(out),
            () = std::future::ready(()) => None,
        }
    }
}
