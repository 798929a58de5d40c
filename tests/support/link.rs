//! A bad link: relays bytes between a client and a server, and delays, stalls, narrows or cuts them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What a link joins.
#[derive(Clone, Debug)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// How a link treats each direction of each connection.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How long a byte is on its way; half a round trip.
    pub latency: Duration,
    /// The rate, or none for as fast as it goes.
    pub bytes_per_second: Option<u64>,
    /// Bytes on their way at most; a full link stops reading, so the sender feels it.
    pub window_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { latency: Duration::ZERO, bytes_per_second: None, window_bytes: 8 << 20 }
    }
}

/// A listening link. All of its connections end when it is dropped.
pub struct Link {
    shared: Arc<Shared>,
    listen: Endpoint,
    acceptor: Option<JoinHandle<()>>,
}

/// What the owner and the threads share; the condition tells of each change of `state`.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    shape: Shape,
}

#[derive(Default)]
struct State {
    stalled: [bool; 2],
    cut_at: [Option<u64>; 2],
    passed: [u64; 2],
    connections: usize,
    refusing: bool,
    closed: bool,
    open: Vec<[Socket; 2]>,
}

impl Link {
    /// Listens on a free TCP port in front of a TCP server.
    pub fn to_tcp(server: SocketAddr, shape: Shape) -> Self {
        Self::listen_tcp(Endpoint::Tcp(server), shape)
    }

    /// Listens on a free TCP port in front of any server.
    pub fn listen_tcp(server: Endpoint, shape: Shape) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let listen = Endpoint::Tcp(listener.local_addr().unwrap());
        Self::start(Listener::Tcp(listener), listen, server, shape)
    }

    /// Listens on a Unix socket, which must not exist, in front of any server.
    pub fn listen_unix(path: &Path, server: Endpoint, shape: Shape) -> Self {
        let listener = UnixListener::bind(path).expect("the socket's path is free");
        Self::start(Listener::Unix(listener), Endpoint::Unix(path.to_owned()), server, shape)
    }

    /// Where a client finds it, for a link that listens on TCP.
    pub fn address(&self) -> SocketAddr {
        match &self.listen {
            Endpoint::Tcp(address) => *address,
            Endpoint::Unix(path) => panic!("listens at {}", path.display()),
        }
    }

    /// Lets nothing through that way until [`Link::resume`]: the black hole that a suspended NAT is.
    pub fn stall(&self, direction: Direction) {
        self.change(|state| state.stalled[direction as usize] = true);
    }

    /// Lets bytes through again, those that have waited first.
    pub fn resume(&self) {
        self.change(|state| state.stalled = [false; 2]);
    }

    /// Ends all open connections now.
    pub fn cut(&self) {
        self.change(State::cut);
    }

    /// Ends all open connections as soon as `bytes` more have passed that way, not one more.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.change(|state| {
            state.cut_at[direction as usize] = Some(state.passed[direction as usize] + bytes);
            if bytes == 0 {
                state.cut();
                state.cut_at = [None; 2];
            }
        });
    }

    /// Closes new connections at once, or serves them again.
    pub fn refuse(&self, refuse: Refuse) {
        self.change(|state| state.refusing = refuse == Refuse::New);
    }

    /// Bytes let through that way so far, all connections together.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.lock().passed[direction as usize]
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    fn start(listener: Listener, listen: Endpoint, server: Endpoint, shape: Shape) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), shape });
        let of_acceptor = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || of_acceptor.accept(&listener, &server));
        Self { shared, listen, acceptor: Some(acceptor) }
    }

    fn change(&self, edit: impl FnOnce(&mut State)) {
        edit(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    /// They are served.
    None,
    /// They are closed at once.
    New,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.change(|state| {
            state.closed = true;
            state.cut();
        });
        // Wakes the acceptor, which then sees that it is over. Where this fails it has ended already.
        drop(Socket::connect(&self.listen));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

impl State {
    fn cut(&mut self) {
        for socket in self.open.drain(..).flatten() {
            socket.close();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn accept(self: &Arc<Self>, listener: &Listener, server: &Endpoint) {
        loop {
            let Ok(client) = listener.accept() else {
                return;
            };
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.connections += 1;
            if state.refusing {
                continue;
            }
            // A server that is gone shows to the client as a connection that closes.
            let Ok(server) = Socket::connect(server) else {
                continue;
            };
            state.open.push([client.twin(), server.twin()]);
            drop(state);
            self.relay(Direction::Up, client.twin(), server.twin());
            self.relay(Direction::Down, server, client);
        }
    }

    fn relay(self: &Arc<Self>, direction: Direction, from: Socket, to: Socket) {
        let pipe = Arc::new(Pipe::default());
        let (shared, full) = (Arc::clone(self), Arc::clone(&pipe));
        std::thread::spawn(move || full.fill(from, &shared.shape));
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            shared.drain(direction, &pipe, to);
            pipe.abandon();
        });
    }

    /// Writes what is due, as far as stalls and cuts allow.
    fn drain(&self, direction: Direction, pipe: &Pipe, mut to: Socket) {
        while let Some((due, bytes)) = pipe.take() {
            let now = Instant::now();
            if due > now {
                std::thread::sleep(due - now);
            }
            let allowed = self.allow(direction, bytes.len());
            if bytes.is_empty() {
                // The sender has closed its half; the other half goes on.
                to.finish();
                return;
            }
            let written = to.write_all(&bytes[..allowed]);
            let mut state = self.lock();
            state.passed[direction as usize] += allowed as u64;
            if state.cut_at[direction as usize].is_some_and(|at| state.passed[direction as usize] >= at) {
                state.cut_at = [None; 2];
                state.cut();
            }
            if written.is_err() || allowed < bytes.len() {
                to.close();
                return;
            }
        }
    }

    /// Waits while the direction is stalled, then says how much may pass before a cut.
    fn allow(&self, direction: Direction, length: usize) -> usize {
        let stalled = |state: &mut State| state.stalled[direction as usize] && !state.closed;
        let state = self.changed.wait_while(self.lock(), stalled).unwrap();
        let left =
            state.cut_at[direction as usize].map(|at| at.saturating_sub(state.passed[direction as usize]));
        left.map_or(length, |left| length.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }
}

/// The bytes of one direction that are on their way, each piece with the time when it arrives.
#[derive(Default)]
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Default)]
struct PipeState {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    abandoned: bool,
}

impl Pipe {
    fn fill(&self, mut from: Socket, shape: &Shape) {
        // Small pieces make a slow link smooth, large ones a fast link fast.
        let piece_bytes = if shape.bytes_per_second.is_some() { 4 << 10 } else { 256 << 10 };
        let mut buffer = vec![0; piece_bytes];
        let mut free_at = Instant::now();
        loop {
            // A failed read is an end too: the peer has reset, or we have cut.
            let length = from.read(&mut buffer).unwrap_or(0);
            let now = Instant::now();
            free_at = free_at.max(now);
            if let Some(rate) = shape.bytes_per_second {
                free_at += Duration::from_secs_f64(length as f64 / rate as f64);
            }
            let mut state = self.state.lock().unwrap();
            state.pieces.push_back((free_at + shape.latency, buffer[..length].to_vec()));
            state.bytes += length;
            self.changed.notify_all();
            let full = |state: &mut PipeState| state.bytes >= shape.window_bytes && !state.abandoned;
            let state = self.changed.wait_while(state, full).unwrap();
            if length == 0 || state.abandoned {
                return;
            }
        }
    }

    /// The next piece; an empty one is the end.
    fn take(&self) -> Option<(Instant, Vec<u8>)> {
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| state.pieces.is_empty()).unwrap();
        let piece = state.pieces.pop_front()?;
        state.bytes -= piece.1.len();
        self.changed.notify_all();
        Some(piece)
    }

    fn abandon(&self) {
        self.state.lock().unwrap().abandoned = true;
        self.changed.notify_all();
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(listener) => Socket::tcp(listener.accept()?.0)?,
            Self::Unix(listener) => Socket::Unix(listener.accept()?.0),
        })
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => Self::tcp(TcpStream::connect(address)?),
            Endpoint::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
        }
    }

    /// The link's own delays are to be the only ones.
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    fn twin(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().expect("a file descriptor")),
            Self::Unix(stream) => Self::Unix(stream.try_clone().expect("a file descriptor")),
        }
    }

    fn close(&self) {
        self.shut(Shutdown::Both);
    }

    fn finish(&self) {
        self.shut(Shutdown::Write);
    }

    /// A socket that the peer has closed already cannot be shut down; that is as good.
    fn shut(&self, how: Shutdown) {
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        });
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
