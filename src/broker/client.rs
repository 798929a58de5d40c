//! What a client does with a broker: looks whether one serves, uses its line, stops it.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::door::{Caller, FIRST_LINE_BYTES_MAX, FirstLine, VERSIONS, Want};
use super::error::Error;
use super::place::{LOCK, Look, Place, is_locked};
use super::receipt::{Destination, PROTOCOL, Receipt};
use crate::audit::Who;
use crate::disk::Fault;
use crate::line::message::Environment;
use crate::line::{Line, OpenError};
use crate::policy::ClientId;

/// How long a broker may take to answer a ping.
pub const PING_WITHIN: Duration = Duration::from_millis(250);
/// How long a connection and the answer to its first line may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the greeting of the helper, which the broker repeats, may take.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long a line may take to close.
const STOP_WITHIN: Duration = Duration::from_millis(4500);
/// Pause between two looks at a broker that closes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a broker says of itself. Members that a later program adds are no error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pong {
    /// Its process.
    pub pid: u32,
    /// Streams that are open.
    pub streams: u64,
    /// Clients that use the line.
    pub clients: u64,
    /// Streams that have ended.
    pub commands_completed: u64,
    /// Bytes that came from the host.
    pub bytes_in: u64,
    /// Bytes that went there.
    pub bytes_out: u64,
}

/// Uses the line of a role, if a broker serves one and it leads where the configuration says.
///
/// # Errors
/// [`Error::NotConnected`], [`Error::DestinationChanged`]; nothing was sent then.
pub async fn line(place: &Place, alias: &str, destination: &Destination) -> Result<Line, Error> {
    let look = place.look();
    trusted(place, &look, alias, destination)?;
    let mut stream = connect(place).await?;
    let said = ask(&mut stream, Want::Line, None).await.map_err(|reason| not_connected(place, reason))?;
    if let Some(reason) = denied(&said) {
        return Err(not_connected(place, reason));
    }
    let line = Line::over(stream, Environment::LoginIfPossible, HELLO_WITHIN).await;
    line.map_err(|error: OpenError| not_connected(place, error.to_string()))
}

/// Checks that the line may be used for a destination, before anything is sent.
///
/// # Errors
/// [`Error::NotConnected`], [`Error::DestinationChanged`].
pub fn trusted<'a>(
    place: &Place,
    look: &'a Look,
    alias: &str,
    destination: &Destination,
) -> Result<&'a Receipt, Error> {
    let receipt = look.ready().ok_or_else(|| {
        let (state, reason) = look.state();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        not_connected(place, format!("it is {state}{reason}"))
    })?;
    if receipt.protocol != PROTOCOL {
        let reason = format!("its broker speaks protocol {}, this program {PROTOCOL}", receipt.protocol);
        return Err(not_connected(place, reason));
    }
    if receipt.alias != alias || receipt.destination != *destination {
        return Err(Error::DestinationChanged {
            site: place.site.clone(),
            role: place.role,
            was: format!("{} ({})", receipt.destination, receipt.alias),
            now: format!("{destination} ({alias})"),
        });
    }
    match place.has_socket() {
        Ok(true) => Ok(receipt),
        Ok(false) => Err(not_connected(place, "its socket is gone".to_owned())),
        Err(reason) => Err(not_connected(place, reason)),
    }
}

/// Asks a broker how it is; none when none answers in time.
pub async fn ping(place: &Place) -> Option<Pong> {
    let asking = async {
        let mut stream = connect(place).await.ok()?;
        let said = ask(&mut stream, Want::Ping, None).await.ok()?;
        serde_json::from_value(said).ok()
    };
    timeout(PING_WITHIN, asking).await.ok().flatten()
}

/// Has a line closed and waits until its broker has ended. False when there was none.
///
/// # Errors
/// [`Error::AlreadyConnected`] when a broker lives that neither answers nor ends; [`Error::Disk`] when the line's
/// directory cannot be trusted.
pub async fn stop(place: &Place, reason: &str) -> Result<bool, Error> {
    let folder = match place.open() {
        Ok(folder) => folder,
        Err(Fault::Missing { .. }) => return Ok(false),
        Err(fault) => return Err(fault.into()),
    };
    if !is_locked(&folder)? {
        return Ok(false);
    }
    let asked = match (place.has_socket(), connect(place).await) {
        (Ok(true), Ok(mut stream)) => ask(&mut stream, Want::Stop, Some(reason)).await.is_ok(),
        _ => false,
    };
    // A broker that has no socket yet, or whose files are of no use, is still known by the lock that it holds.
    if !asked {
        let pid = folder.read(LOCK, 64).ok().and_then(|(bytes, _)| String::from_utf8(bytes).ok());
        let pid = pid.and_then(|text| text.trim().parse::<i32>().ok()).filter(|pid| *pid > 1);
        if let (Some(pid), true) = (pid, is_locked(&folder)?) {
            let pid = nix::unistd::Pid::from_raw(pid);
            // It may end by itself in this very moment.
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).ok();
        }
    }
    let begun = Instant::now();
    while is_locked(&folder)? {
        if begun.elapsed() > STOP_WITHIN {
            return Err(Error::AlreadyConnected { site: place.site.clone(), role: place.role });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(true)
}

async fn connect(place: &Place) -> Result<UnixStream, Error> {
    let connecting = UnixStream::connect(place.socket());
    let stream = match timeout(ANSWER_WITHIN, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(not_connected(place, format!("its socket takes nobody: {error}"))),
        Err(_elapsed) => return Err(not_connected(place, "its socket takes nobody".to_owned())),
    };
    let uid = nix::unistd::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == uid => Ok(stream),
        Ok(peer) => Err(not_connected(place, format!("the user {} listens on its socket", peer.uid()))),
        Err(error) => Err(not_connected(place, format!("nobody knows who listens on its socket: {error}"))),
    }
}

/// Says what we want, and reads the one line that answers, not a byte more.
async fn ask(stream: &mut UnixStream, want: Want, reason: Option<&str>) -> Result<Value, String> {
    let who = Who::here(ClientId::of_this_process().as_str());
    let client = Caller { pid: who.pid, program: who.program, id: who.client };
    let first = FirstLine { protocol: VERSIONS, want, client, reason: reason.map(str::to_owned) };
    let mut line = serde_json::to_vec(&first).map_err(|error| error.to_string())?;
    line.push(b'\n');
    let asking = async {
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        // Frames may follow at once, and they are not ours to read.
        while !answer.ends_with(b"\n") && answer.len() < FIRST_LINE_BYTES_MAX {
            answer.push(stream.read_u8().await?);
        }
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match timeout(ANSWER_WITHIN, asking).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(format!("its broker hung up: {error}")),
        Err(_elapsed) => return Err("its broker does not answer".to_owned()),
    };
    serde_json::from_slice(&answer).map_err(|error| format!("its broker answered nonsense: {error}"))
}

/// What an answer says that is no yes.
fn denied(said: &Value) -> Option<String> {
    if said.get("ok") == Some(&Value::Bool(true)) {
        return None;
    }
    let message = said.get("message").and_then(Value::as_str);
    Some(message.unwrap_or("its broker said no without a reason").to_owned())
}

fn not_connected(place: &Place, reason: String) -> Error {
    Error::NotConnected { site: place.site.clone(), role: place.role, reason }
}
