//! Opening a line: connect, one channel, bootstrap, hello.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;
use towline_helper::wire::endpoint::ProtocolError;
use towline_helper::wire::message::{Environment, Hello, Start};
use towline_helper::wire::{Endpoint, Event, PROTOCOL, Role};

use super::bootstrap::{self, BootstrapError, Helpers, Machine, Marker, Step};
use super::handle::Line;
use super::link::{LinkReader, LinkWriter, Part};
use crate::ssh;

/// Silence after which the command is also typed at the shell, for a start-up file that runs another shell.
const TYPE_AFTER: Duration = Duration::from_secs(10);
/// Bytes of the helper that are handed to the channel at a time.
const PIECE_BYTES: usize = 128 << 10;

/// What opening a line needs besides its target.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where commands take their environment from.
    pub environment: Environment,
    /// The helpers that may be sent.
    pub helpers: Helpers,
    /// Whether the helper may run from memory where every directory is noexec.
    pub exec_from_memory: bool,
    /// Bounds of the phases; `start` is also how long the bootstrap waits while nothing moves.
    pub deadlines: ssh::Deadlines,
}

/// What is known of a line since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the SSH connection knows; absent over a plain byte stream.
    pub ssh: Option<ssh::Facts>,
    /// The helper.
    pub helper: HelperFacts,
    /// Session channels opened, ever: one.
    pub session_channels: u32,
}

/// What is known of the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperFacts {
    /// What it said of itself.
    pub hello: Hello,
    /// Whether the host held it already.
    pub cached: bool,
}

/// Why a line could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Connecting, the host key or authentication failed.
    #[error(transparent)]
    Ssh(#[from] ssh::Error),
    /// The helper could not be brought to run.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The helper broke the protocol before the line was ready.
    #[error("the helper's greeting is invalid: {0}")]
    Protocol(#[from] ProtocolError),
    /// The helper that answered is not the one that was sent or looked for.
    #[error("a helper with SHA-256 {got} answered, {} was due", .expected.join(" or "))]
    OtherHelper {
        /// What it says of itself.
        got: String,
        /// What may answer.
        expected: Vec<String>,
    },
    /// No hello in time.
    #[error("the helper did not greet within {seconds} s")]
    NoHello {
        /// Seconds waited.
        seconds: u64,
    },
    /// The link ended before the hello.
    #[error("the connection ended before the helper's hello: {0}")]
    Ended(String),
    /// The thread of the connection could not be started.
    #[error("cannot start a thread for the connection: {0}")]
    Thread(std::io::Error),
}

/// Opens a line: one connection a hop, exactly one session channel.
///
/// The connection lives on a thread of its own with its own runtime, so that any runtime of the caller works.
///
/// # Errors
/// [`OpenError`] with the phase that failed. Nothing is tried twice.
///
/// # Cancel safety
/// A dropped call closes what was opened.
pub async fn open(
    target: ssh::Target,
    prompter: Arc<dyn ssh::Prompter>,
    options: Options,
) -> Result<Line, OpenError> {
    let (opened, answer) = tokio::sync::oneshot::channel();
    let work = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                // The caller may be gone.
                drop(opened.send(Err(OpenError::Thread(error))));
                return;
            }
        };
        runtime.block_on(async move {
            let mut opened = opened;
            let line = tokio::select! {
                line = open_here(&target, prompter, options) => line,
                () = opened.closed() => return,
            };
            let watched = line.as_ref().ok().map(Line::watch);
            if opened.send(line).is_err() {
                return;
            }
            if let Some(watched) = watched {
                watched.ended().await;
            }
        });
        // A prompt that still waits for a human must not hold the process.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("towline-line".to_owned()).spawn(work).map_err(OpenError::Thread)?;
    answer.await.unwrap_or_else(|_thread_gone| Err(OpenError::Ended("its thread stopped".to_owned())))
}

async fn open_here(
    target: &ssh::Target,
    prompter: Arc<dyn ssh::Prompter>,
    options: Options,
) -> Result<Line, OpenError> {
    let Opened { reader, writer, endpoint, clock, control, facts } =
        open_channel(target, prompter, options).await?;
    Ok(Line::start((reader, writer), endpoint, clock, Some(control), facts))
}

/// A channel at whose far end a helper has greeted and was answered.
pub(crate) struct Opened {
    /// What comes from the helper.
    pub(crate) reader: LinkReader,
    /// What goes to it.
    pub(crate) writer: LinkWriter,
    /// The client's end of the protocol, its start not yet written.
    pub(crate) endpoint: Endpoint,
    /// The clock that the endpoint's times are of.
    pub(crate) clock: Instant,
    /// Asks the SSH server below.
    pub(crate) control: ssh::Control,
    /// What is known of the line.
    pub(crate) facts: Facts,
}

/// Opens the one channel of a role, for whoever runs its protocol.
///
/// # Errors
/// [`OpenError`] with the phase that failed. Nothing is tried twice.
pub(crate) async fn open_channel(
    target: &ssh::Target,
    prompter: Arc<dyn ssh::Prompter>,
    options: Options,
) -> Result<Opened, OpenError> {
    let transport = ssh::connect(target, prompter, &options.deadlines).await?;
    let marker = Marker::new(rand::random());
    let command = bootstrap::command(&marker, &options.helpers, options.exec_from_memory);
    let channel = transport.into_channel(&command).await?;
    let (facts, control) = (channel.facts, channel.control);
    tracing::debug!(host = facts.host, port = facts.port, prompts = facts.prompts, "logged in");
    let mut link = (LinkReader::Channel(channel.reader), LinkWriter::Channel(channel.writer));
    let mut machine = Machine::new(&marker, options.helpers.clone());
    let limit = options.deadlines.start;
    let arrived = bring_helper(&mut link, &mut machine, &options.helpers, (&command, &marker), limit).await?;
    let (clock, mut endpoint) = (Instant::now(), Endpoint::new(Role::Client));
    endpoint.handle_bytes(Duration::ZERO, &arrived)?;
    let hello = hello(&mut link.0, &mut endpoint, clock, limit).await?;
    let expected: Vec<String> = [&options.helpers.x86_64, &options.helpers.aarch64]
        .into_iter()
        .flatten()
        .map(|helper| helper.sha256_hex.clone().into_owned())
        .collect();
    if !expected.contains(&hello.sha256) {
        return Err(OpenError::OtherHelper { got: hello.sha256, expected });
    }
    begin(&mut endpoint, options.environment)?;
    tracing::debug!(pid = hello.pid, cached = !machine.sent(), "the helper runs");
    let facts = Facts {
        ssh: Some(facts),
        helper: HelperFacts { hello, cached: !machine.sent() },
        session_channels: 1,
    };
    let (reader, writer) = link;
    Ok(Opened { reader, writer, endpoint, clock, control, facts })
}

/// Waits for the hello over a link at whose far end a helper speaks already, and starts the line.
pub(super) async fn greet(
    mut link: (LinkReader, LinkWriter),
    mut endpoint: Endpoint,
    clock: Instant,
    environment: Environment,
    within: Duration,
) -> Result<Line, OpenError> {
    let hello = hello(&mut link.0, &mut endpoint, clock, within).await?;
    begin(&mut endpoint, environment)?;
    let facts = Facts { ssh: None, helper: HelperFacts { hello, cached: true }, session_channels: 0 };
    Ok(Line::start(link, endpoint, clock, None, facts))
}

fn begin(endpoint: &mut Endpoint, environment: Environment) -> Result<(), ProtocolError> {
    let start = Start { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), environment };
    endpoint.start(&start)?;
    // The first round trip is the base that the window compares with.
    endpoint.ping(Duration::ZERO)
}

async fn hello(
    reader: &mut LinkReader,
    endpoint: &mut Endpoint,
    clock: Instant,
    within: Duration,
) -> Result<Hello, OpenError> {
    let wait = async {
        loop {
            match endpoint.next_event() {
                Some(Event::Hello(hello)) => return Ok(*hello),
                Some(Event::Bye(bye)) => return Err(OpenError::Ended(bye.reason)),
                Some(_) | None => {}
            }
            match reader.next().await {
                Part::Output(bytes) => endpoint.handle_bytes(clock.elapsed(), &bytes)?,
                Part::Diagnostics(bytes) => tracing::info!(text = %bytes.escape_ascii(), "from the login"),
                Part::End(reason) => return Err(OpenError::Ended(reason)),
            }
        }
    };
    match timeout(within, wait).await {
        Ok(hello) => hello,
        Err(_elapsed) => Err(OpenError::NoHello { seconds: within.as_secs() }),
    }
}

/// Runs the bootstrap's dialogue; bytes that move extend the limit. Returns what has arrived of the hello.
async fn bring_helper(
    (reader, writer): &mut (LinkReader, LinkWriter),
    machine: &mut Machine,
    helpers: &Helpers,
    (command, marker): (&str, &Marker),
    limit: Duration,
) -> Result<Vec<u8>, OpenError> {
    let mut typed = false;
    let mut silent_until = Instant::now() + limit;
    let mut heard = false;
    loop {
        let left = silent_until.saturating_duration_since(Instant::now());
        let wait = if typed || heard { left } else { left.min(TYPE_AFTER) };
        let part = match timeout(wait, reader.next()).await {
            Ok(part) => part,
            Err(_elapsed) if wait < left => {
                typed = true;
                write(writer, Bytes::from(format!("{command}\n"))).await?;
                continue;
            }
            Err(_elapsed) => {
                let seconds = limit.as_secs();
                return Err(BootstrapError::TimedOut { seconds, shown: machine.shown() }.into());
            }
        };
        let mut step = match part {
            Part::Output(bytes) => machine.handle(&bytes)?,
            Part::Diagnostics(bytes) => {
                tracing::info!(text = %bytes.escape_ascii(), "from the login");
                Step::Wait
            }
            Part::End(reason) => {
                return Err(BootstrapError::Ended { reason, shown: machine.shown() }.into());
            }
        };
        while let Step::Send(platform) = step {
            heard = true;
            write(writer, Bytes::from(marker.go())).await?;
            send_helper(writer, helpers, platform, limit).await?;
            step = machine.handle(&[])?;
        }
        if let Step::Ready(arrived) = step {
            if let Some((bytes, text)) = machine.noise_skipped() {
                tracing::info!(bytes, text, "from the login, skipped");
            }
            return Ok(arrived);
        }
        // Upload and hello share the start timeout, which is extended while bytes move.
        silent_until = silent_until.max(Instant::now() + limit / 3);
    }
}

async fn send_helper(
    writer: &mut LinkWriter,
    helpers: &Helpers,
    platform: super::Platform,
    limit: Duration,
) -> Result<(), OpenError> {
    let helper = match platform {
        super::Platform::LinuxX86_64 => &helpers.x86_64,
        super::Platform::LinuxAarch64 => &helpers.aarch64,
    };
    // The machine asks only for a helper that there is.
    let Some(helper) = helper else { return Ok(()) };
    let content = Bytes::copy_from_slice(&helper.bytes);
    for start in (0..content.len()).step_by(PIECE_BYTES) {
        let piece = content.slice(start..content.len().min(start + PIECE_BYTES));
        timeout(limit, write(writer, piece)).await.map_err(|_elapsed| BootstrapError::TimedOut {
            seconds: limit.as_secs(),
            shown: "the channel took no more of the helper's bytes".to_owned(),
        })??;
    }
    Ok(())
}

async fn write(writer: &mut LinkWriter, bytes: Bytes) -> Result<(), OpenError> {
    writer.write(bytes).await.map_err(OpenError::Ended)
}
