//! Maps the streams of many local clients to the streams of the one line. Pure: bytes and time in, bytes out.
//!
//! Towards each client the relay is the helper's end, towards the helper the client's. Credits are end to end: what a
//! client lends is lent on to the helper, and the other way round, so that the relay holds no more than the clients asked
//! for. A new stream waits for the gate's word, and for a place among the line's 64; clients with fewer open streams
//! come first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use towline_helper::wire::endpoint::{ProtocolError, STDERR, STDOUT};
use towline_helper::wire::message::{Code, Hello, Refusal, Request, STREAMS_MAX};
use towline_helper::wire::{Endpoint, Event, Role};

/// Control bytes that may wait for the line before new streams and clients' bytes have to wait: a queue that runs full
/// would end the line.
const CONTROL_MOST: usize = 1 << 20;
/// Most that one client may have lent and not read yet; ours lend 40 MiB above the start at most.
const LENT_MOST: u64 = 64 << 20;

/// A local client, as the daemon numbers them.
pub type ClientId = u64;

/// A stream that waits for the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Who asks.
    pub client: ClientId,
    /// The client's number of the stream.
    pub stream: u32,
    /// What it is to do.
    pub request: Request,
}

/// All streams of one line.
#[derive(Debug)]
pub struct Relay {
    line: Endpoint,
    hello: Hello,
    clients: BTreeMap<ClientId, Client>,
    /// The client's end of each stream of the line; none once its client has gone.
    owners: HashMap<u32, Option<(ClientId, u32)>>,
    /// Streams of the line that have ended.
    completed: u64,
}

#[derive(Debug)]
struct Client {
    endpoint: Endpoint,
    /// The streams that were let through.
    streams: HashMap<u32, Admitted>,
    waiting: VecDeque<Waiting>,
}

/// A client's stream on the line.
#[derive(Debug)]
struct Admitted {
    /// The line's number of it.
    on_line: u32,
    /// What the client has lent above the start and was not given yet.
    lent: u64,
}

/// A stream that was not let through yet, with what its client sent meanwhile: no more than the first credit.
#[derive(Debug)]
struct Waiting {
    stream: u32,
    request: Request,
    data: Vec<(u8, Vec<u8>, bool)>,
    credit: Vec<(u8, u32)>,
}

impl Relay {
    /// Begins with the line's end of a channel whose hello has been answered; the hello is passed on to clients.
    pub fn new(mut line: Endpoint, hello: Hello) -> Self {
        line.relay();
        Relay { line, hello, clients: BTreeMap::new(), owners: HashMap::new(), completed: 0 }
    }

    /// How many streams of the line have ended.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// The line's end, for questions.
    pub fn line(&self) -> &Endpoint {
        &self.line
    }

    /// How many streams are open on the line.
    pub fn streams(&self) -> usize {
        self.line.streams()
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Sends a ping to the helper.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full; the line is over then.
    pub fn ping(&mut self, now: Duration) -> Result<(), ProtocolError> {
        self.line.ping(now)
    }

    /// Takes a new client and greets it.
    ///
    /// # Errors
    /// [`ProtocolError`] when the greeting cannot be a frame.
    pub fn add(&mut self, client: ClientId) -> Result<(), ProtocolError> {
        let mut endpoint = Endpoint::new(Role::Helper);
        endpoint.relay();
        endpoint.hello(&self.hello)?;
        let added = Client { endpoint, streams: HashMap::new(), waiting: VecDeque::new() };
        self.clients.insert(client, added);
        Ok(())
    }

    /// Takes that a client has gone: what it started is ended, unless detached, and what waited never runs.
    ///
    /// # Errors
    /// [`ProtocolError`] when the control queue is full; the line is over then.
    pub fn remove(&mut self, client: ClientId) -> Result<(), ProtocolError> {
        let Some(gone) = self.clients.remove(&client) else { return Ok(()) };
        for Admitted { on_line, .. } in gone.streams.into_values() {
            self.owners.insert(on_line, None);
            self.line.cancel(on_line, true)?;
        }
        Ok(())
    }

    /// Whether clients' bytes may be taken now; else the line has to take some first.
    pub fn takes_client_bytes(&self) -> bool {
        self.line.control_queued() < CONTROL_MOST
    }

    /// Takes bytes of a client.
    ///
    /// # Errors
    /// [`ClientError`]: whether the client broke a rule and is to be removed, or the line cannot go on.
    pub fn handle_client_bytes(
        &mut self,
        now: Duration,
        client: ClientId,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let Some(from) = self.clients.get_mut(&client) else { return Ok(()) };
        from.endpoint.handle_bytes(now, bytes).map_err(ClientError::Client)?;
        while let Some(event) = self.clients.get_mut(&client).and_then(|from| from.endpoint.next_event()) {
            self.handle_client_event(client, event)?;
        }
        Ok(())
    }

    /// Takes bytes of the line. Returns the helper's reason when it closes the line.
    ///
    /// # Errors
    /// [`ProtocolError`] when the helper broke a rule; the line is over then.
    pub fn handle_line_bytes(
        &mut self,
        now: Duration,
        bytes: &[u8],
    ) -> Result<Option<String>, ProtocolError> {
        self.line.handle_bytes(now, bytes)?;
        while let Some(event) = self.line.next_event() {
            if let Event::Bye(bye) = event {
                return Ok(Some(bye.reason));
            }
            self.handle_line_event(event)?;
        }
        Ok(None)
    }

    /// The next stream that waits for the gate, while the line has a place for it.
    pub fn next_pending(&self) -> Option<Pending> {
        if self.line.streams() >= STREAMS_MAX || !self.takes_client_bytes() {
            return None;
        }
        let (client, first) = self
            .clients
            .iter()
            .filter_map(|(id, client)| client.waiting.front().map(|first| (client.streams.len(), *id, first)))
            .min_by_key(|(open, id, _)| (*open, *id))
            .map(|(_, id, first)| (id, first))?;
        Some(Pending { client, stream: first.stream, request: first.request.clone() })
    }

    /// Lets a waiting stream through, unless its client has left or cancelled it meanwhile.
    ///
    /// # Errors
    /// [`ProtocolError`] when it cannot be a frame; the line is over then.
    pub fn admit(&mut self, now: Duration, client: ClientId, stream: u32) -> Result<(), ProtocolError> {
        let Some(from) = self.clients.get_mut(&client) else { return Ok(()) };
        let Some(Waiting { request, data, credit, .. }) = from.take_waiting(stream) else { return Ok(()) };
        let on_line = self.line.open(now, request)?;
        let lent = credit.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        from.streams.insert(stream, Admitted { on_line, lent });
        self.owners.insert(on_line, Some((client, stream)));
        for (channel, bytes) in credit {
            self.line.lend(on_line, channel, bytes)?;
        }
        for (channel, bytes, end) in data {
            self.line.send(on_line, channel, bytes, end);
        }
        Ok(())
    }

    /// Turns a waiting stream away.
    pub fn deny(&mut self, client: ClientId, stream: u32, refusal: &Refusal) {
        let Some(from) = self.clients.get_mut(&client) else { return };
        if from.take_waiting(stream).is_some() {
            // A refusal of ours always fits into a frame.
            from.endpoint.refuse(stream, refusal).unwrap_or_default();
        }
    }

    /// Tells every client that the line ends: what waited was not done, and why nothing follows.
    pub fn end(&mut self, reason: &str) {
        let refusal = refusal(Code::NotConnected, format!("the line ended before this was sent: {reason}"));
        for client in self.clients.values_mut() {
            for waiting in client.waiting.drain(..) {
                client.endpoint.refuse(waiting.stream, &refusal).unwrap_or_default();
            }
            // A client whose queue is full learns of the end by the end of its socket.
            client.endpoint.bye(reason).unwrap_or_default();
        }
    }

    /// When [`Relay::handle_time`] is next due.
    pub fn next_time(&self) -> Option<Duration> {
        let clients = self.clients.values().filter_map(|client| client.endpoint.next_time());
        clients.chain(self.line.next_time()).min()
    }

    /// Lets the clocks of all ends tick. Returns the clients that break a rule by it.
    ///
    /// # Errors
    /// [`ProtocolError`] when the line's control queue is full; the line is over then.
    pub fn handle_time(&mut self, now: Duration) -> Result<Vec<ClientId>, ProtocolError> {
        self.line.handle_time(now)?;
        let late =
            |(id, client): (&ClientId, &mut Client)| client.endpoint.handle_time(now).err().map(|_| *id);
        Ok(self.clients.iter_mut().filter_map(late).collect())
    }

    /// Whether there is something to write to the line.
    pub fn line_has_work(&self) -> bool {
        self.line.has_work()
    }

    /// The clients that there is something to write to.
    pub fn clients_with_work(&self) -> impl Iterator<Item = ClientId> {
        self.clients.iter().filter(|(_, client)| client.endpoint.has_work()).map(|(id, _)| *id)
    }

    /// Appends frames for the line to `out`, until it holds about `most` bytes.
    pub fn transmit_line(&mut self, now: Duration, out: &mut Vec<u8>, most: usize) {
        self.line.transmit(now, out, most);
    }

    /// Appends frames for a client to `out`, until it holds about `most` bytes.
    pub fn transmit_client(&mut self, now: Duration, client: ClientId, out: &mut Vec<u8>, most: usize) {
        if let Some(to) = self.clients.get_mut(&client) {
            to.endpoint.transmit(now, out, most);
        }
    }

    fn handle_client_event(&mut self, client: ClientId, event: Event) -> Result<(), ClientError> {
        let Some(from) = self.clients.get_mut(&client) else { return Ok(()) };
        let line = &mut self.line;
        let on_line = |from: &Client, stream: u32| from.streams.get(&stream).map(|admitted| admitted.on_line);
        let result = match event {
            Event::Open { stream, request } => {
                let waiting = Waiting { stream, request: *request, data: Vec::new(), credit: Vec::new() };
                from.waiting.push_back(waiting);
                Ok(())
            }
            Event::Data { stream, channel, bytes, end } => {
                match on_line(from, stream) {
                    Some(on_line) => line.send(on_line, channel, bytes, end),
                    None => {
                        if let Some(waiting) = from.waiting(stream) {
                            waiting.data.push((channel, bytes, end));
                        }
                    }
                }
                Ok(())
            }
            Event::Credit { stream, channel, bytes } => {
                if let Some(admitted) = from.streams.get_mut(&stream) {
                    admitted.lent += u64::from(bytes);
                    if from.lent() > LENT_MOST {
                        return Err(ClientError::Lends { most: LENT_MOST });
                    }
                }
                match on_line(from, stream) {
                    Some(on_line) => line.lend(on_line, channel, bytes),
                    None => match from.waiting(stream) {
                        // Before it has got a byte, no client of ours lends anything.
                        Some(waiting) if waiting.credit.len() < 16 => {
                            waiting.credit.push((channel, bytes));
                            Ok(())
                        }
                        Some(_) => return Err(ClientError::Lends { most: LENT_MOST }),
                        None => Ok(()),
                    },
                }
            }
            Event::Cancel { stream, discard } => match on_line(from, stream) {
                Some(on_line) => line.cancel(on_line, discard),
                None => {
                    // One that is over already has its last frame on the way.
                    if from.take_waiting(stream).is_some() {
                        let message = "cancelled before it was sent; nothing was done".to_owned();
                        let refusal = refusal(Code::Cancelled, message);
                        return from.endpoint.refuse(stream, &refusal).map_err(ClientError::Client);
                    }
                    Ok(())
                }
            },
            // Pings are answered by the endpoint; the rest concerns only it, or comes with later stream kinds.
            _ => Ok(()),
        };
        result.map_err(ClientError::Line)
    }

    fn handle_line_event(&mut self, event: Event) -> Result<(), ProtocolError> {
        match event {
            Event::Dispatched { stream, dispatched } => {
                if let Some((to, stream)) = self.owner(stream) {
                    // What a client's full queue loses, it is removed for.
                    to.endpoint.dispatched(stream, &dispatched).unwrap_or_default();
                }
            }
            Event::Data { stream, channel, bytes, end } => {
                if let Some((to, stream)) = self.owner(stream) {
                    if let Some(admitted) = to.streams.get_mut(&stream) {
                        admitted.lent = admitted.lent.saturating_sub(bytes.len() as u64);
                    }
                    to.endpoint.send(stream, channel, bytes, end);
                }
            }
            Event::Credit { stream, channel, bytes } => {
                if let Some((to, stream)) = self.owner(stream) {
                    to.endpoint.lend(stream, channel, bytes).unwrap_or_default();
                }
            }
            Event::Outcome { stream, outcome } => {
                if let Some((to, own)) = self.owner(stream) {
                    to.streams.remove(&own);
                    to.endpoint.outcome(own, &outcome)?;
                }
                self.owners.remove(&stream);
                self.completed += 1;
            }
            Event::Refusal { stream, refusal } => {
                if let Some((to, own)) = self.owner(stream) {
                    to.streams.remove(&own);
                    to.endpoint.refuse(own, &refusal)?;
                }
                self.owners.remove(&stream);
                self.completed += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn owner(&mut self, stream: u32) -> Option<(&mut Client, u32)> {
        let (client, stream) = (*self.owners.get(&stream)?)?;
        self.clients.get_mut(&client).map(|to| (to, stream))
    }
}

impl Client {
    fn waiting(&mut self, stream: u32) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| waiting.stream == stream)
    }

    fn take_waiting(&mut self, stream: u32) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.stream == stream)?;
        self.waiting.remove(at)
    }

    /// What it may still get and what it has not read yet.
    fn lent(&self) -> u64 {
        let of = |(stream, admitted): (&u32, &Admitted)| {
            let queued = |channel| self.endpoint.queued(*stream, channel) as u64;
            admitted.lent.saturating_add(queued(STDOUT)).saturating_add(queued(STDERR))
        };
        self.streams.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Who broke a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The client, which is to be removed.
    #[error("the client broke the protocol: {0}")]
    Client(ProtocolError),
    /// The client lends more than any client can use.
    #[error("the client has lent more than {most} bytes that it does not read")]
    Lends {
        /// The bound.
        most: u64,
    },
    /// The line can't go on.
    #[error("the line can't go on: {0}")]
    Line(ProtocolError),
}

/// A refusal of the broker's own.
pub(super) fn refusal(code: Code, message: String) -> Refusal {
    Refusal { code, message, path: None, errno: None, which: None }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
