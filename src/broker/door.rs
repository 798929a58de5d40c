//! The door: accepts local clients, checks who they are, and what they want.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Protocol versions of the local socket that this program speaks, first to last.
pub(super) const VERSIONS: [u32; 2] = [1, 1];
/// A client's first line has to come within this time, however it trickles.
const FIRST_LINE_WITHIN: Duration = Duration::from_secs(5);
/// Longest first line.
pub(super) const FIRST_LINE_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept: there are too many open files, which passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Want {
    /// To use the line: frames follow.
    Line,
    /// To know whether and how the broker lives.
    Ping,
    /// That the line be closed.
    Stop,
}

/// A client as it calls itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Caller {
    /// Its process, which the system knows better.
    pub(super) pid: u32,
    /// Its program.
    pub(super) program: String,
    /// Its identity in the record.
    pub(super) id: String,
}

/// A client's first line. Members that a later program adds are no error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FirstLine {
    /// Versions that the client speaks.
    pub(super) protocol: [u32; 2],
    pub(super) want: Want,
    pub(super) client: Caller,
    /// Why, for `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Somebody who has said what they want.
pub(super) struct Visitor {
    pub(super) first: FirstLine,
    /// What followed the first line already.
    pub(super) rest: Vec<u8>,
    pub(super) stream: UnixStream,
}

/// What the owner of the line is asked by the door.
pub(super) enum Ring {
    /// Somebody wants to use the line.
    Enter(Visitor),
    /// How does it stand?
    Ping(oneshot::Sender<Value>),
    /// Close the line.
    Stop { reason: String, answer: oneshot::Sender<Value> },
}

/// Accepts until the owner has gone.
pub(super) async fn accept(listener: UnixListener, rings: mpsc::Sender<Ring>) {
    let uid = nix::unistd::geteuid().as_raw();
    loop {
        let stream = tokio::select! {
            () = rings.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("a client could not be let in: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == uid => {
                let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
                drop(tokio::spawn(welcome(stream, pid, rings.clone())));
            }
            Ok(peer) => tracing::warn!(uid = peer.uid(), "a client of another user was turned away"),
            Err(error) => tracing::warn!("a client without a name was turned away: {error}"),
        }
    }
}

async fn welcome(mut stream: UnixStream, pid: Option<u32>, rings: mpsc::Sender<Ring>) {
    let (first, rest) = match timeout(FIRST_LINE_WITHIN, first_line(&mut stream)).await {
        Ok(Ok(line)) => line,
        Ok(Err(reason)) => {
            answer(&mut stream, &refusal("invalid_request", &reason)).await;
            return;
        }
        // Dropped without a word: it may be anything.
        Err(_elapsed) => return,
    };
    let first = FirstLine {
        // What the system says of a process is true; what the process says need not be.
        client: Caller { pid: pid.unwrap_or(first.client.pid), ..first.client },
        ..first
    };
    if first.protocol[0] > VERSIONS[1] || first.protocol[1] < VERSIONS[0] {
        let mut said = refusal("protocol", "this broker and this client have no version in common");
        if let Value::Object(said) = &mut said {
            said.insert("protocol".to_owned(), json!(VERSIONS));
        }
        answer(&mut stream, &said).await;
        return;
    }
    let (tell, told) = oneshot::channel();
    let ring = match first.want {
        Want::Line => {
            // The owner answers it, since it knows whether there is a place left.
            drop(rings.send(Ring::Enter(Visitor { first, rest, stream })).await);
            return;
        }
        Want::Ping => Ring::Ping(tell),
        Want::Stop => {
            let reason = first.reason.unwrap_or_else(|| "asked to stop".to_owned());
            Ring::Stop { reason, answer: tell }
        }
    };
    if rings.send(ring).await.is_ok()
        && let Ok(said) = told.await
    {
        answer(&mut stream, &said).await;
    }
}

async fn first_line(stream: &mut UnixStream) -> Result<(FirstLine, Vec<u8>), String> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let rest = bytes.split_off(end + 1);
            let first = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            return Ok((first, rest));
        }
        if bytes.len() > FIRST_LINE_BYTES_MAX {
            return Err(format!("the first line is longer than {FIRST_LINE_BYTES_MAX} bytes, the limit"));
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) => return Err("the first line is incomplete".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// An answer that says no.
pub(super) fn refusal(reason: &str, message: &str) -> Value {
    json!({ "ok": false, "reason": reason, "message": message })
}

/// Writes the one answer to a first line. A client that has gone needs none.
pub(super) async fn answer(stream: &mut UnixStream, said: &Value) {
    let line = format!("{said}\n");
    drop(timeout(FIRST_LINE_WITHIN, stream.write_all(line.as_bytes())).await);
}
