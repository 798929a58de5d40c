//! The handle that callers hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use towline_helper::wire::message::{
    Environment, Exec, Outcome, Probe, Program, Request, STREAMS_MAX, TailFrom,
};
use towline_helper::wire::{ByteText, Endpoint, Role};

use super::command::Command;
use super::driver::Driver;
use super::error::{EndReason, Error};
use super::files::Files;
use super::link::{LinkReader, LinkWriter};
use super::open::{Facts, OpenError};
use super::stream::{Ask, Stream, StreamEvent};
use super::tail::Tail;

/// A live line. Cheap to clone; every clone uses the same one channel.
///
/// The line ends when [`Line::close`] is called, when the last clone and the last open command or file are dropped, or
/// when the connection ends.
#[derive(Clone, Debug)]
pub struct Line {
    asks: mpsc::UnboundedSender<Ask>,
    places: Arc<Semaphore>,
    ended: watch::Receiver<Option<EndReason>>,
    facts: Arc<Facts>,
}

impl Line {
    /// Speaks the protocol over any byte stream at whose far end a helper has printed its marker.
    ///
    /// The owner task is spawned on the current tokio runtime.
    ///
    /// # Errors
    /// [`OpenError`] when no valid hello comes within `hello_within`.
    pub async fn over<I>(io: I, environment: Environment, hello_within: Duration) -> Result<Line, OpenError>
    where
        I: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(io);
        let link = (LinkReader::over(reader), LinkWriter::over(writer));
        super::open::greet(link, Endpoint::new(Role::Client), Instant::now(), environment, hello_within).await
    }

    /// Starts the owner task for a link whose hello has been answered.
    pub(super) fn start(
        (reader, writer): (LinkReader, LinkWriter),
        endpoint: Endpoint,
        clock: Instant,
        control: Option<crate::ssh::Control>,
        facts: Facts,
    ) -> Line {
        let (asks, queue) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let driver = Driver::new(endpoint, clock, queue, end, control);
        // The task ends with the line, which every handle watches.
        drop(tokio::spawn(driver.run(reader, writer)));
        Line { asks, places: Arc::new(Semaphore::new(STREAMS_MAX)), ended, facts: Arc::new(facts) }
    }

    /// What is known of the line since it was opened.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Begins to describe a command.
    pub fn command(&self, program: Program) -> Command {
        self.exec(Exec {
            command: program,
            cwd: None,
            env: Vec::new(),
            deadline_ms: None,
            stdin: false,
            detach: false,
            end_background: false,
            keep: None,
        })
    }

    /// Takes a command that is described already.
    pub fn exec(&self, exec: Exec) -> Command {
        Command::new(self.clone(), exec)
    }

    /// Gives access to the far side's files.
    pub fn files(&self) -> Files {
        Files::new(self.clone())
    }

    /// Reads the end of a file, and with `follow` what is appended later.
    ///
    /// # Errors
    /// [`Error`] when the line ends; what the file does comes from [`Tail::next`].
    ///
    /// # Cancel safety
    /// Nothing remains at the far side when the future or the tail is dropped.
    pub async fn tail(&self, path: impl Into<ByteText>, from: TailFrom, follow: bool) -> Result<Tail, Error> {
        let stream = self.open(Request::Tail { path: path.into(), from, follow }).await?;
        Ok(Tail::new(stream))
    }

    /// Asks what the host is.
    ///
    /// # Errors
    /// [`Error`] when the line ends or the helper refuses; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn probe(&self) -> Result<Probe, Error> {
        match self.ask("probe", Request::Probe {}).await? {
            Outcome::Probe(probe) => Ok(*probe),
            _ => Err(Error::Unexpected { asked: "probe" }),
        }
    }

    /// Measures the round trip of an empty frame.
    ///
    /// # Errors
    /// [`Error::NotConnected`] when the line has ended.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let (answered, answer) = oneshot::channel();
        self.asks.send(Ask::Ping { answered }).map_err(|_gone| self.gone())?;
        answer.await.map_err(|_gone| self.gone())
    }

    /// Closes the line: what is not detached ends at the far side.
    pub fn close(&self) {
        // A line that has ended needs no closing.
        drop(self.asks.send(Ask::Close));
    }

    /// Waits until the line has ended and tells why.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn closed(&self) -> EndReason {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(EndReason::Closed),
            Err(_owner_gone) => self.reason(),
        }
    }

    /// A way to wait for the line's end that does not keep it alive.
    pub(super) fn watch(&self) -> Watch {
        Watch { ended: self.ended.clone() }
    }

    /// Opens a stream, waiting for a place among the 64.
    pub(super) async fn open(&self, request: Request) -> Result<Stream, Error> {
        let permit = Arc::clone(&self.places).acquire_owned().await.map_err(|_closed| self.gone())?;
        let (events, arrivals) = mpsc::unbounded_channel();
        let (opened, id) = oneshot::channel();
        let ask = Ask::Open { request: Box::new(request), events, permit, opened };
        self.asks.send(ask).map_err(|_gone| self.gone())?;
        let id = id.await.map_err(|_gone| self.gone())??;
        Ok(Stream::new(id, self.asks.clone(), arrivals))
    }

    /// Runs a request that has no content and waits for its outcome.
    pub(super) async fn ask(&self, asked: &'static str, request: Request) -> Result<Outcome, Error> {
        let mut stream = self.open(request).await?;
        while let Some(event) = stream.next().await {
            if let StreamEvent::End(end) = event {
                return end.map(|outcome| *outcome);
            }
        }
        Err(Error::Unexpected { asked })
    }

    fn gone(&self) -> Error {
        Error::NotConnected(self.reason())
    }

    fn reason(&self) -> EndReason {
        self.ended.borrow().clone().unwrap_or(EndReason::Closed)
    }
}

/// Waits for a line's end without keeping it alive.
pub(super) struct Watch {
    ended: watch::Receiver<Option<EndReason>>,
}

impl Watch {
    /// Waits until the owner task is gone, having told every stream.
    pub(super) async fn ended(mut self) {
        // The sender goes with the owner task, after the end was told.
        while self.ended.changed().await.is_ok() {}
    }
}

/// Whether a request only looks, so that a lost line leaves nothing unknown.
pub(super) fn reads_only(request: &Request) -> bool {
    match request {
        Request::Stat { .. }
        | Request::List { .. }
        | Request::Read { .. }
        | Request::Hash { .. }
        | Request::DiskUsage { .. }
        | Request::Tail { .. }
        | Request::Probe {} => true,
        Request::Exec(_)
        | Request::Write(_)
        | Request::Mkdir { .. }
        | Request::Rename { .. }
        | Request::Remove { .. }
        | Request::Pty {}
        | Request::Dial {} => false,
    }
}
