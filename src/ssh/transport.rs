//! Opening a connection hop by hop, and consuming it into its one channel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use russh::client::{Handle, connect_stream};
use russh::{ChannelMsg, ChannelStream};
use ssh_config_parser::known_hosts::KnownHosts;
use tokio::io::BufReader;

use super::algorithms::default_host_keys;
use super::auth::authenticate;
use super::channel::{Channel, Links, end, halves};
use super::clock::within;
use super::dial::{dial, resolve};
use super::error::{AuthFailure, Error, Phase};
use super::handler::{Events, Noted, SessionError, describe, refusal_word};
use super::preamble::{ByteStream, Fault, READ_BUFFER_BYTES, Replay, Wire, exchange_versions, read_offer};
use super::prompt::{Human, Prompter};
use super::target::{Hop, Target};

/// Data that may arrive between the exec request and its confirmation; a server sends none.
const EARLY_MESSAGES_MAX: usize = 64;

/// Time for our last word after a login that failed; it needs no answer.
const GIVING_UP_TIME_MAX: Duration = Duration::from_millis(200);

/// How long the phases of an opening may take; time that a human is asked never counts.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Look-up, TCP, version line and key exchange of one hop together; a ConnectTimeout of the config wins.
    pub connect: Duration,
    /// The authentication of one hop, and again the opening of the channel.
    pub start: Duration,
}

/// How a connection came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The destination's host name as dialled.
    pub host: String,
    /// The user who logged in.
    pub user: String,
    /// The destination's port.
    pub port: u16,
    /// The address that this machine connected to (the first hop's).
    pub address: Option<SocketAddr>,
    /// This machine's end of that connection.
    pub local_address: Option<SocketAddr>,
    /// The destination's host key, `SHA256:…`.
    pub host_key_sha256: String,
    /// How many questions a human answered.
    pub prompts: u32,
    /// How many SSH connections were made: one a hop.
    pub connections: u32,
    /// The jump hosts on the way, in dial order, as `user@host:port`.
    pub jumps: Vec<String>,
}

/// An authenticated connection that has no channel yet.
pub struct Transport {
    link: Link,
    upstream: Vec<(Handle<Events>, Arc<Noted>)>,
    facts: Facts,
    human: Arc<Human>,
    quick: Arc<AtomicBool>,
    limit: Duration,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// One hop's connection.
struct Link {
    hop: Arc<Hop>,
    handle: Handle<Events>,
    noted: Arc<Noted>,
}

/// A connected stream, not yet SSH.
struct Line {
    stream: Box<dyn ByteStream>,
    address: Option<SocketAddr>,
    local_address: Option<SocketAddr>,
}

/// Opens the connection to a target: every hop's host key is checked before any credential is sent to it.
///
/// # Errors
/// One variant of [`Error`] per outcome; no attempt is repeated.
///
/// # Cancel safety
/// Cancel safe: dropping it closes whatever was opened.
pub async fn connect(
    target: &Target,
    prompter: Arc<dyn Prompter>,
    deadlines: &Deadlines,
) -> Result<Transport, Error> {
    let human = Arc::new(Human::new(prompter));
    let opened = connect_hops(target, &human, deadlines).await;
    // The second handle must not keep a connection that the first one ends.
    human.watch(None);
    opened
}

async fn connect_hops(
    target: &Target,
    human: &Arc<Human>,
    deadlines: &Deadlines,
) -> Result<Transport, Error> {
    let quick = Arc::new(AtomicBool::new(true));
    let mut upstream: Vec<(Handle<Events>, Arc<Noted>)> = Vec::new();
    let mut last: Option<Link> = None;
    let mut ends = (None, None);
    for hop in &target.hops {
        let hop = Arc::new(hop.clone());
        let clock =
            Clock { start: Instant::now(), limit: hop.connect_timeout.unwrap_or(deadlines.connect), human };
        let line = match last.take() {
            None => reach(&hop, &clock, &quick).await?,
            Some(link) => {
                let (stream, handle, noted) = link.into_tunnel(&hop, &clock).await?;
                upstream.push((handle, noted));
                Line { stream: Box::new(stream), address: None, local_address: None }
            }
        };
        if upstream.is_empty() {
            ends = (line.address, line.local_address);
        }
        let mut link = handshake(hop, line.stream, &clock, human).await?;
        log_in(&mut link, deadlines.start, human).await?;
        last = Some(link);
    }
    let Some(link) = last else {
        return Err(Error::Ended { reason: "a target without hops".to_owned() });
    };
    let facts = Facts {
        host: link.hop.host.clone(),
        user: link.hop.user.clone(),
        port: link.hop.port,
        address: ends.0,
        local_address: ends.1,
        host_key_sha256: link.noted.host_key_sha256(),
        prompts: human.prompts(),
        connections: u32::try_from(target.hops.len()).unwrap_or(u32::MAX),
        jumps: target.jumps(),
    };
    Ok(Transport { link, upstream, facts, human: Arc::clone(human), quick, limit: deadlines.start })
}

/// The time that one hop's phases up to the key exchange share.
struct Clock<'a> {
    start: Instant,
    limit: Duration,
    human: &'a Human,
}

impl Clock<'_> {
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// Runs a phase within what is left; a time-out names the phase.
    async fn run<T>(
        &self,
        hop: &Hop,
        phase: Phase,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match within(self.left(), &self.human.time, work).await {
            Some(result) => result,
            None => Err(timed_out(hop, phase, self.limit)),
        }
    }
}

fn failed(hop: &Hop, phase: Phase, problem: String, hint: Option<&str>) -> Error {
    Error::ConnectFailed {
        phase,
        host: hop.host.clone(),
        port: hop.port,
        problem,
        hint: hint.map(str::to_owned),
    }
}

fn timed_out(hop: &Hop, phase: Phase, limit: Duration) -> Error {
    let problem = match phase {
        Phase::Version => "the server accepted the connection and said nothing",
        Phase::KeyExchange => "the server stopped answering",
        _ => "no answer",
    };
    failed(hop, phase, format!("{problem} within {} s", limit.as_secs_f64()), None)
}

/// Dials the first hop.
async fn reach(hop: &Hop, clock: &Clock<'_>, quick: &Arc<AtomicBool>) -> Result<Line, Error> {
    if let Some(path) = &hop.socket {
        let connecting = async {
            tokio::net::UnixStream::connect(path)
                .await
                .map_err(|error| failed(hop, Phase::Tcp, format!("{}: {error}", path.display()), None))
        };
        let stream = clock.run(hop, Phase::Tcp, connecting).await?;
        return Ok(Line { stream: Box::new(stream), address: None, local_address: None });
    }
    let looking = async {
        resolve(&hop.host, hop.port, hop.dialing.family)
            .await
            .map_err(|error| failed(hop, Phase::Resolve, error.to_string(), None))
    };
    let addresses = clock.run(hop, Phase::Resolve, looking).await?;
    if addresses.is_empty() {
        return Err(failed(hop, Phase::Resolve, "no address of the wanted family".to_owned(), None));
    }
    let stream = dial(&addresses, &hop.dialing, clock.left())
        .await
        .map_err(|unreached| failed(hop, Phase::Tcp, unreached.describe(), None))?;
    clock.human.watch(Some(&stream));
    let (address, local_address) = (stream.peer_addr().ok(), stream.local_addr().ok());
    #[cfg(target_os = "linux")]
    let stream = super::dial::QuickAck::new(stream, Arc::clone(quick));
    #[cfg(not(target_os = "linux"))]
    let _ = quick;
    Ok(Line { stream: Box::new(stream), address, local_address })
}

/// Version lines, key exchange, host key.
async fn handshake(
    hop: Arc<Hop>,
    stream: Box<dyn ByteStream>,
    clock: &Clock<'_>,
    human: &Arc<Human>,
) -> Result<Link, Error> {
    let mut wire: Wire = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
    let versions = async { exchange_versions(&mut wire).await.map_err(|fault| explain(&hop, fault)) };
    let version = clock.run(&hop, Phase::Version, versions).await?;
    let offering = async { read_offer(&mut wire).await.map_err(|fault| explain(&hop, fault)) };
    let (offer, bytes) = clock.run(&hop, Phase::KeyExchange, offering).await?;

    let rules = hop.host_key.clone();
    let loading = move || KnownHosts::load(&rules.user_files, &rules.global_files);
    let known = tokio::task::spawn_blocking(loading).await.unwrap_or_default();
    for note in known.notes() {
        tracing::info!("{}:{}: {}", note.file.display(), note.line, note.message);
    }
    let order = match hop.wanted.host_keys() {
        Some(configured) => configured.to_vec(),
        None => known.prefer_algorithms(&hop.host_key.name, &default_host_keys()),
    };
    let mut config = hop
        .wanted
        .settle(&offer, &order)
        .map_err(|mismatch| failed(&hop, Phase::KeyExchange, mismatch.problem, Some(&mismatch.hint)))?;
    config.keepalive_interval = Some(hop.keepalive);
    config.keepalive_max = usize::try_from(hop.keepalive_max).unwrap_or(usize::MAX);
    let noted = Noted::new();
    let events = Events::new(Arc::clone(&hop), known, Arc::clone(human), Arc::clone(&noted));
    let replay = Replay::new(wire, &version, &bytes);
    let exchanging = async {
        connect_stream(Arc::new(config), replay, events).await.map_err(|error| match error {
            SessionError::Refused(error) => error,
            SessionError::Russh(error) => key_exchange_failed(&hop, &error),
        })
    };
    let handle = clock.run(&hop, Phase::KeyExchange, exchanging).await?;
    Ok(Link { hop, handle, noted })
}

fn key_exchange_failed(hop: &Hop, error: &russh::Error) -> Error {
    let problem = match error {
        russh::Error::WrongServerSig => "the server could not prove that it holds its host key".to_owned(),
        other => describe(other),
    };
    failed(hop, Phase::KeyExchange, problem, None)
}

const REFUSING_HINT: &str = "the site may be refusing this address for a while, as after failed logins; \
                             wait some minutes, since each new attempt can prolong it";

fn explain(hop: &Hop, fault: Fault) -> Error {
    let version = |problem: String, hint| failed(hop, Phase::Version, problem, hint);
    match fault {
        Fault::ClosedBeforeVersion { said, reset } => {
            let how = if reset { "reset" } else { "closed" };
            let text = if said.is_empty() { String::new() } else { format!(": {said}") };
            version(
                format!("the server {how} the connection before its version line{text}"),
                Some(REFUSING_HINT),
            )
        }
        Fault::NotSsh { said } => {
            version(format!("this is not an SSH server; it says: {said}"), Some("check host and port"))
        }
        Fault::OldProtocol { version: text } => {
            version(format!("the server speaks only an old protocol: {text}"), None)
        }
        Fault::ClosedInKeyExchange => failed(
            hop,
            Phase::KeyExchange,
            "the server closed the connection in the key exchange".to_owned(),
            None,
        ),
        Fault::Refused { text } => {
            failed(hop, Phase::KeyExchange, format!("the server refused: {text}"), None)
        }
        Fault::Malformed(what) => failed(hop, Phase::KeyExchange, format!("the server sent {what}"), None),
        Fault::Io(error) => version(format!("the network failed: {error}"), None),
    }
}

async fn log_in(link: &mut Link, limit: Duration, human: &Human) -> Result<(), Error> {
    let hop = Arc::clone(&link.hop);
    let noted = Arc::clone(&link.noted);
    let result = {
        let login = authenticate(&mut link.handle, &hop, human, &noted);
        within(limit, &human.time, login).await
    };
    let result = result.unwrap_or_else(|| {
        Err(Error::AuthFailed(Box::new(AuthFailure {
            user: hop.user.clone(),
            host: hop.host.clone(),
            reason: format!("authentication took more than {} s", limit.as_secs_f64()),
            methods_left: Vec::new(),
            accepted: Vec::new(),
            notes: Vec::new(),
            prompts: human.prompts(),
            unanswered: false,
        })))
    });
    if result.is_err() && noted.ended().is_none() {
        // A server that hears nothing more would count the login as still under way.
        let saying = end(&link.handle, &noted, "login given up");
        if tokio::time::timeout(GIVING_UP_TIME_MAX, saying).await.is_err() {
            tracing::debug!("the server did not hear that the login was given up");
        }
    }
    result
}

impl Link {
    /// Consumes a jump host's connection into its one `direct-tcpip` channel.
    async fn into_tunnel(
        self,
        next: &Hop,
        clock: &Clock<'_>,
    ) -> Result<(ChannelStream<russh::client::Msg>, Handle<Events>, Arc<Noted>), Error> {
        let opening = async {
            let host = next.host.as_str();
            let opened = self.handle.channel_open_direct_tcpip(host, u32::from(next.port), "127.0.0.1", 0);
            match opened.await {
                Ok(channel) => Ok(channel),
                Err(error) => {
                    let refusal = self.refusal(&error).await;
                    let problem = format!("jump host {} would not connect: {refusal}", self.hop.shown());
                    Err(failed(next, Phase::Tcp, problem, None))
                }
            }
        };
        let channel = clock.run(next, Phase::Tcp, opening).await?;
        Ok((channel.into_stream(), self.handle, self.noted))
    }

    /// The server's own words for a refused channel, or what else went wrong.
    async fn refusal(&self, error: &russh::Error) -> String {
        match error {
            russh::Error::ChannelOpenFailure(reason) => {
                let text = self.noted.channel_refusal().await;
                text.unwrap_or_else(|| refusal_word(reason).to_owned())
            }
            other => self.noted.ended().unwrap_or_else(|| describe(other)),
        }
    }
}

impl Transport {
    /// Tells how the connection came about.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Consumes the connection into its one session channel with its one `exec` request.
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] with [`Phase::Channel`] when the server refuses the channel or the command,
    /// ends, or does not answer in time.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it closes the connection.
    pub async fn into_channel(self, command: &str) -> Result<Channel, Error> {
        let Transport { link, upstream, facts, human, quick, limit } = self;
        let opening = async {
            let broken = |problem: String| failed(&link.hop, Phase::Channel, problem, None);
            let mut channel = match link.handle.channel_open_session().await {
                Ok(channel) => channel,
                Err(error) => {
                    let refusal = link.refusal(&error).await;
                    return Err(broken(format!("the server refused a session: {refusal}")));
                }
            };
            if let Err(error) = channel.exec(true, command).await {
                return Err(broken(link.refusal(&error).await));
            }
            let mut early = Vec::new();
            loop {
                match channel.wait().await {
                    Some(ChannelMsg::Success) => return Ok((channel, early)),
                    Some(ChannelMsg::Failure) => {
                        return Err(broken("the server refused to run the command".to_owned()));
                    }
                    Some(message) if early.len() < EARLY_MESSAGES_MAX => early.push(message),
                    Some(_) => {
                        return Err(broken("the server did not confirm the command".to_owned()));
                    }
                    None => return Err(broken(link.noted.until_ended().await)),
                }
            }
        };
        let opened = match within(limit, &human.time, opening).await {
            Some(opened) => opened,
            None => Err(timed_out(&link.hop, Phase::Channel, limit)),
        };
        let (channel, early) = opened?;
        // From here on delayed acknowledgements save packets.
        quick.store(false, Ordering::Relaxed);
        let links = Arc::new(Links { handle: link.handle, noted: link.noted, upstream });
        let (reader, writer, control) = halves(channel, links, early);
        Ok(Channel { reader, writer, facts, control })
    }
}
