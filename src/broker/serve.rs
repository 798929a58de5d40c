//! The owner task of a broker: the only one that touches the line and the relay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use towline_helper::wire::endpoint::ProtocolError;

use super::door::{self, Ring, VERSIONS, Visitor};
use super::gate::{Gate, Verdict};
use super::relay::{ClientError, ClientId, Relay};
use crate::audit::{Clock as _, SystemClock, Who, rfc3339};
use crate::line::{self, Asking, EndReason, LinkReader, Liveness, Part, Step};
use crate::ssh;

/// Bytes that are handed to a link or a client at a time.
const WRITE_BYTES: usize = 64 << 10;
/// Local clients at once.
const CLIENTS_MAX: usize = 256;
/// Pieces of clients' bytes that wait for the owner, all clients together.
const NEWS_MAX: usize = 16;
/// How long clients may take to read how the line ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Something of a client that uses the line.
enum News {
    Bytes(ClientId, Vec<u8>),
    Gone(ClientId),
}

/// How a line ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Somebody closed it.
    Stopped(String),
    /// It ended by itself.
    Failed(EndReason),
}

impl End {
    fn reason(&self) -> String {
        match self {
            End::Stopped(reason) => reason.clone(),
            End::Failed(reason) => reason.to_string(),
        }
    }
}

/// What has happened on the line since it was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) completed: u64,
    pub(super) last_at: Option<String>,
}

/// A client that uses the line.
struct Local {
    who: Who,
    outgoing: mpsc::Sender<Vec<u8>>,
    /// Whether a piece is being written.
    busy: bool,
    reader: tokio::task::JoinHandle<()>,
}

/// The owner of one line and all its clients.
pub(super) struct Serving {
    relay: Relay,
    signals: Signals,
    clock: Instant,
    control: ssh::Control,
    gate: Gate,
    verdicts: mpsc::UnboundedReceiver<Verdict>,
    rings: mpsc::Receiver<Ring>,
    clients: HashMap<ClientId, Local>,
    newest: ClientId,
    /// Whether a stream is at the gate.
    gating: bool,
    liveness: Liveness,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    wrote: (mpsc::UnboundedSender<ClientId>, mpsc::UnboundedReceiver<ClientId>),
    counts: Counts,
}

impl Serving {
    pub(super) fn new(
        (relay, signals): (Relay, Signals),
        (clock, control): (Instant, ssh::Control),
        (gate, verdicts): (Gate, mpsc::UnboundedReceiver<Verdict>),
        rings: mpsc::Receiver<Ring>,
    ) -> Serving {
        Serving {
            relay,
            signals,
            clock,
            control,
            gate,
            verdicts,
            rings,
            clients: HashMap::new(),
            newest: 0,
            gating: false,
            liveness: Liveness::default(),
            news: mpsc::channel(NEWS_MAX),
            wrote: mpsc::unbounded_channel(),
            counts: Counts::default(),
        }
    }

    /// Serves until the line ends or somebody closes it, then tells every client.
    pub(super) async fn run(mut self, mut reader: LinkReader, writer: line::LinkWriter) -> (End, Counts) {
        let (outgoing, queue) = mpsc::channel(1);
        let writer = tokio::spawn(line::write_all(writer, queue));
        let end = match self.serve(&mut reader, &outgoing).await {
            Ok(end) => end,
            Err(error) => End::Failed(EndReason::Protocol(error.to_string())),
        };
        // The helper's input ends, so it ends what is not detached, while the clients learn why.
        drop(outgoing);
        self.relay.end(&end.reason());
        drop(tokio::time::timeout(FAREWELL, self.take_leave()).await);
        let ended = async { while !matches!(reader.next().await, Part::End(_)) {} };
        drop(tokio::time::timeout(FAREWELL, ended).await);
        drop(tokio::time::timeout(FAREWELL, self.control.disconnect("the line was closed")).await);
        writer.abort();
        self.counts.completed = self.relay.completed();
        (end, self.counts)
    }

    async fn serve(
        &mut self,
        reader: &mut LinkReader,
        outgoing: &mpsc::Sender<Bytes>,
    ) -> Result<End, ProtocolError> {
        let mut asking = Asking::default();
        loop {
            self.ask_gate();
            self.write_clients();
            let now = self.clock.elapsed();
            let answer_due = self.relay.streams() > 0;
            let wake = match self.liveness.step(now, self.relay.line().last_received(), answer_due) {
                Step::Wait(until) => until,
                Step::Ping => {
                    self.relay.ping(now)?;
                    continue;
                }
                Step::Ask => {
                    asking.begin(Some(self.control.clone()));
                    continue;
                }
                Step::Stalled(silent) => {
                    return Ok(End::Failed(EndReason::Stalled { silent_s: silent.as_secs() }));
                }
            };
            let wake = [wake, self.relay.next_time()].into_iter().flatten().min();
            let (has_work, takes) = (self.relay.line_has_work(), self.relay.takes_client_bytes());
            // Every arm may be dropped half-way: nothing is lost by it. The order is random, so none starves.
            tokio::select! {
                slot = outgoing.reserve(), if has_work => match slot {
                    Ok(slot) => {
                        let mut bytes = Vec::with_capacity(WRITE_BYTES + (33 << 10));
                        self.relay.transmit_line(self.clock.elapsed(), &mut bytes, WRITE_BYTES);
                        self.counts.bytes_out += bytes.len() as u64;
                        slot.send(Bytes::from(bytes));
                    }
                    Err(_closed) => {
                        let reason = "the far end takes no more bytes".to_owned();
                        return Ok(End::Failed(EndReason::Connection(reason)));
                    }
                },
                part = reader.next() => {
                    if let Some(reason) = self.handle_part(part)? {
                        return Ok(End::Failed(reason));
                    }
                }
                Some(ring) = self.rings.recv() => {
                    if let Some(end) = self.handle_ring(ring) {
                        return Ok(end);
                    }
                }
                Some(verdict) = self.verdicts.recv() => self.handle_verdict(verdict)?,
                Some(client) = self.wrote.1.recv() => self.handle_wrote(client),
                Some(news) = self.news.1.recv(), if takes => self.handle_news(news)?,
                alive = asking.answer() => {
                    if alive {
                        self.liveness.handle_answer(self.clock.elapsed());
                    }
                }
                name = self.signals.next() => return Ok(End::Stopped(format!("the broker got {name}"))),
                () = sleep_until(self.clock, wake) => {
                    for client in self.relay.handle_time(self.clock.elapsed())? {
                        self.remove(client)?;
                    }
                }
            }
        }
    }

    fn handle_part(&mut self, part: Part) -> Result<Option<EndReason>, ProtocolError> {
        match part {
            Part::Output(bytes) => {
                self.counts.bytes_in += bytes.len() as u64;
                let before = self.relay.completed();
                let bye = self.relay.handle_line_bytes(self.clock.elapsed(), &bytes)?;
                if self.relay.completed() != before {
                    self.counts.last_at = Some(rfc3339(SystemClock.unix_ms()));
                }
                Ok(bye.map(EndReason::Bye))
            }
            Part::Diagnostics(bytes) => {
                tracing::warn!(text = %bytes.escape_ascii(), "the helper wrote to its standard error");
                Ok(None)
            }
            Part::End(reason) => Ok(Some(EndReason::Connection(reason))),
        }
    }

    fn handle_ring(&mut self, ring: Ring) -> Option<End> {
        match ring {
            Ring::Enter(visitor) => self.enter(visitor),
            // Whoever has left meanwhile needs no answer.
            Ring::Ping(answer) => drop(answer.send(self.pong())),
            Ring::Stop { reason, answer } => {
                let said = json!({ "ok": true, "protocol": VERSIONS[1], "stopping": std::process::id() });
                // A caller that has gone before its answer has called its stop off.
                if answer.send(said).is_ok() {
                    return Some(End::Stopped(reason));
                }
            }
        }
        None
    }

    fn pong(&self) -> Value {
        json!({
            "ok": true,
            "protocol": VERSIONS[1],
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "commands_completed": self.relay.completed(),
            "streams": self.relay.streams(),
            "clients": self.relay.clients(),
            "bytes_in": self.counts.bytes_in,
            "bytes_out": self.counts.bytes_out,
        })
    }

    fn enter(&mut self, visitor: Visitor) {
        let Visitor { first, rest, mut stream } = visitor;
        if self.clients.len() >= CLIENTS_MAX {
            let said =
                door::refusal("busy", &format!("{CLIENTS_MAX} clients use the line, which is the limit"));
            drop(tokio::spawn(async move { door::answer(&mut stream, &said).await }));
            return;
        }
        self.newest += 1;
        let client = self.newest;
        if let Err(error) = self.relay.add(client) {
            tracing::error!("a client could not be greeted: {error}");
            return;
        }
        let said = json!({
            "ok": true,
            "protocol": VERSIONS[1],
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        let (incoming, outgoing) = stream.into_split();
        let (to_writer, queue) = mpsc::channel(1);
        let first_bytes = format!("{said}\n").into_bytes();
        drop(tokio::spawn(write_client(outgoing, queue, first_bytes, (client, self.wrote.0.clone()))));
        let reader = tokio::spawn(read_client(incoming, rest, (client, self.news.0.clone())));
        let who = Who { pid: first.client.pid, program: first.client.program, client: first.client.id };
        tracing::debug!(client, pid = who.pid, program = who.program, "a client has come");
        // The answer is being written first.
        self.clients.insert(client, Local { who, outgoing: to_writer, busy: true, reader });
    }

    fn handle_news(&mut self, news: News) -> Result<(), ProtocolError> {
        match news {
            News::Bytes(client, bytes) => {
                match self.relay.handle_client_bytes(self.clock.elapsed(), client, &bytes) {
                    Ok(()) => Ok(()),
                    Err(ClientError::Line(error)) => Err(error),
                    Err(error @ (ClientError::Client(_) | ClientError::Lends { .. })) => {
                        tracing::warn!(client, "{error}");
                        self.remove(client)
                    }
                }
            }
            News::Gone(client) => self.remove(client),
        }
    }

    fn remove(&mut self, client: ClientId) -> Result<(), ProtocolError> {
        if let Some(local) = self.clients.remove(&client) {
            local.reader.abort();
            tracing::debug!(client, "a client has gone");
        }
        self.relay.remove(client)
    }

    fn handle_wrote(&mut self, client: ClientId) {
        if let Some(local) = self.clients.get_mut(&client) {
            local.busy = false;
        }
    }

    fn handle_verdict(&mut self, verdict: Verdict) -> Result<(), ProtocolError> {
        match verdict {
            Verdict::Admit { client, stream, permission } => {
                // One that is too old is judged anew by the gate, or denied.
                if permission.take() {
                    self.gating = false;
                    let admitted = self.relay.admit(self.clock.elapsed(), client, stream);
                    permission.done();
                    admitted?;
                }
            }
            Verdict::Deny { client, stream, refusal } => {
                self.gating = false;
                self.relay.deny(client, stream, &refusal);
            }
        }
        Ok(())
    }

    /// Sends the next waiting stream to the gate, one at a time, so that each place is given to whom it is due.
    fn ask_gate(&mut self) {
        if self.gating {
            return;
        }
        if let Some(pending) = self.relay.next_pending()
            && let Some(local) = self.clients.get(&pending.client)
        {
            self.gating = true;
            self.gate.ask(pending, local.who.clone());
        }
    }

    fn write_clients(&mut self) {
        let now = self.clock.elapsed();
        let due: Vec<ClientId> = self.relay.clients_with_work().collect();
        for client in due {
            if let Some(local) = self.clients.get_mut(&client).filter(|local| !local.busy) {
                let mut bytes = Vec::new();
                self.relay.transmit_client(now, client, &mut bytes, WRITE_BYTES);
                // A writer that has failed ends its reader too, which removes the client.
                local.busy = !bytes.is_empty() && local.outgoing.try_send(bytes).is_ok();
            }
        }
    }

    /// Writes what the clients still have to learn.
    async fn take_leave(&mut self) {
        loop {
            self.write_clients();
            if !self.clients.values().any(|local| local.busy) {
                return;
            }
            match self.wrote.1.recv().await {
                Some(client) => self.handle_wrote(client),
                None => return,
            }
        }
    }
}

async fn write_client(
    mut to: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Vec<u8>>,
    first: Vec<u8>,
    (client, wrote): (ClientId, mpsc::UnboundedSender<ClientId>),
) {
    use tokio::io::AsyncWriteExt as _;
    let mut next = Some(first);
    while let Some(bytes) = next {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        drop(bytes);
        // The owner may be gone.
        wrote.send(client).ok();
        next = queue.recv().await;
    }
}

async fn read_client(from: OwnedReadHalf, rest: Vec<u8>, (client, news): (ClientId, mpsc::Sender<News>)) {
    if !rest.is_empty() && news.send(News::Bytes(client, rest)).await.is_err() {
        return;
    }
    loop {
        // Idle clients hold no buffer.
        if from.readable().await.is_err() {
            break;
        }
        let mut bytes = Vec::with_capacity(WRITE_BYTES);
        match from.try_read_buf(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {
                bytes.shrink_to_fit();
                if news.send(News::Bytes(client, bytes)).await.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    drop(news.send(News::Gone(client)).await);
}

/// The signals that ask for an orderly end.
pub(super) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    /// Installs the handlers; to be called before anybody can know our pid.
    pub(super) fn new() -> Signals {
        // A system that gives no handler still ends the process by the signal.
        Signals {
            terminate: signal(SignalKind::terminate()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
        }
    }

    /// Waits for the next one and tells its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = next(&mut self.terminate) => "SIGTERM",
            () = next(&mut self.interrupt) => "SIGINT",
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(clock: Instant, wake: Option<Duration>) {
    match wake {
        Some(wake) => tokio::time::sleep_until((clock + wake).into()).await,
        None => std::future::pending().await,
    }
}

/// Binds the socket of a line; a socket of the caller's that is there is replaced, and nothing else is.
pub(super) fn bind(place: &super::place::Place) -> Result<tokio::net::UnixListener, super::Error> {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
    let path = place.socket();
    let io = |doing| move |source| super::Error::Io { doing, path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io("look at")(error)),
        Ok(there) => {
            let ours = there.file_type().is_socket() && there.uid() == nix::unistd::geteuid().as_raw();
            if !ours {
                return Err(super::Error::SocketTaken { path: path.to_owned() });
            }
            std::fs::remove_file(path).map_err(io("remove"))?;
        }
    }
    let listener = tokio::net::UnixListener::bind(path).map_err(io("bind"))?;
    // Nobody else may enter the directory, so nobody else has seen it before.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(io("close"))?;
    Ok(listener)
}
