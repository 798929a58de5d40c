//! The other end of a line for tests: the built helper over pipes, with the same state machine on the client's side.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use towline_helper::wire::endpoint::ProtocolError;
use towline_helper::wire::message::{
    Environment, Exec, ExecOutcome, Hello, Outcome, Program, Refusal, Request, Start,
};
use towline_helper::wire::{ByteText, Endpoint, Event, PROTOCOL, Role};

/// What every test's helper is told to print first.
pub const MARKER: &str = "0123456789abcdef0123456789abcdef";
/// Longest that any test waits for anything; reached only when a promise is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One stream as the client sees it.
#[derive(Default)]
pub struct Stream {
    pub pid: Option<u32>,
    pub note: Option<String>,
    pub is_dispatched: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes that came, also where they are not kept.
    pub received: u64,
    /// Whether arriving bytes are counted only.
    pub is_counted_only: bool,
    /// Whether the client does not read.
    pub is_frozen: bool,
    unread: usize,
    pub end: Option<Result<Outcome, Refusal>>,
}

impl Stream {
    /// The outcome of an `exec`.
    pub fn exec(&self) -> &ExecOutcome {
        match &self.end {
            Some(Ok(Outcome::Exec(outcome))) => outcome,
            other => panic!("not the outcome of a command: {other:?}"),
        }
    }

    /// The refusal that it ended with.
    pub fn refusal(&self) -> &Refusal {
        match &self.end {
            Some(Err(refusal)) => refusal,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    /// The outcome that it ended with.
    pub fn outcome(&self) -> &Outcome {
        match &self.end {
            Some(Ok(outcome)) => outcome,
            other => panic!("not an outcome: {other:?}"),
        }
    }
}

/// A helper and the client's end of its line.
pub struct Helper {
    pub child: Child,
    stdin: Option<ChildStdin>,
    incoming: Receiver<Vec<u8>>,
    pub endpoint: Endpoint,
    began: Instant,
    pub hello: Option<Hello>,
    pub bye: Option<String>,
    pub is_over: bool,
    pub streams: BTreeMap<u32, Stream>,
}

impl Helper {
    /// Starts a helper with the session's environment.
    pub fn start() -> Helper {
        Helper::start_with(Environment::None, |_| {})
    }

    /// Starts a helper whose process `prepare` may change.
    pub fn start_with(environment: Environment, prepare: impl FnOnce(&mut Command)) -> Helper {
        let mut helper = Helper::spawn(prepare);
        let start = Start { protocol: PROTOCOL, version: "0".to_owned(), environment };
        helper.endpoint.start(&start).unwrap();
        helper
    }

    /// Starts a helper and reads its hello.
    pub fn spawn(prepare: impl FnOnce(&mut Command)) -> Helper {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline-helper"));
        command.arg(MARKER).stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().unwrap();
        // Bounded, so that a client that does not read leaves the bytes with the helper.
        let (sender, incoming) = sync_channel(4);
        std::thread::spawn(move || {
            let mut marker = vec![0; MARKER.len() + 1];
            stdout.read_exact(&mut marker).unwrap();
            assert_eq!(marker, format!("{MARKER}\n").as_bytes());
            loop {
                let mut buffer = vec![0; 64 << 10];
                match stdout.read(&mut buffer) {
                    Ok(count) if count > 0 => {
                        buffer.truncate(count);
                        if sender.send(buffer).is_err() {
                            return;
                        }
                    }
                    _ => return,
                }
            }
        });
        let mut helper = Helper {
            child,
            stdin,
            incoming,
            endpoint: Endpoint::new(Role::Client),
            began: Instant::now(),
            hello: None,
            bye: None,
            is_over: false,
            streams: BTreeMap::new(),
        };
        helper.wait(|helper| helper.hello.is_some());
        helper
    }

    /// Opens a stream.
    pub fn open(&mut self, request: Request) -> u32 {
        let stream = self.endpoint.open(self.now(), request).unwrap();
        self.streams.insert(stream, Stream::default());
        stream
    }

    /// Opens a stream and waits for its end.
    pub fn ask(&mut self, request: Request) -> Stream {
        let stream = self.open(request);
        self.finish(stream)
    }

    /// Runs shell text to its end.
    pub fn sh(&mut self, text: &str) -> Stream {
        self.ask(Request::Exec(shell(text)))
    }

    /// Waits for a stream's end and takes it.
    pub fn finish(&mut self, stream: u32) -> Stream {
        self.wait(|helper| helper.streams[&stream].end.is_some());
        self.streams.remove(&stream).unwrap()
    }

    /// Sends input.
    pub fn send(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.endpoint.send(stream, 0, bytes.to_vec(), end);
    }

    /// Lets a frozen stream's bytes count as read.
    pub fn thaw(&mut self, stream: u32) {
        let now = self.now();
        let state = self.streams.get_mut(&stream).unwrap();
        state.is_frozen = false;
        let unread = std::mem::take(&mut state.unread);
        self.endpoint.consumed(now, stream, 1, unread).unwrap();
    }

    /// Lets the line work until `is_done`.
    pub fn wait(&mut self, mut is_done: impl FnMut(&Helper) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(!self.is_over, "the line ended too early: {:?}", self.bye);
            assert!(Instant::now() < limit, "waited in vain");
            self.work(Duration::from_millis(20)).unwrap();
        }
    }

    /// Lets the line work for a moment, or until something arrives.
    pub fn work(&mut self, pause: Duration) -> Result<(), ProtocolError> {
        self.flush();
        match self.incoming.recv_timeout(pause) {
            Ok(bytes) => self.endpoint.handle_bytes(self.now(), &bytes)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_over = true,
        }
        while let Some(event) = self.endpoint.next_event() {
            self.handle(event);
        }
        self.endpoint.handle_time(self.now())?;
        self.flush();
        Ok(())
    }

    /// Writes raw bytes into the line.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Closes the line and waits for the helper's end.
    pub fn close(mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        self.stdin = None;
        let status = self.child.wait().unwrap();
        (status, began.elapsed())
    }

    /// Waits until the helper has closed the line by itself.
    pub fn over(mut self) -> (ExitStatus, Option<String>) {
        let limit = Instant::now() + PATIENCE;
        while !self.is_over {
            assert!(Instant::now() < limit, "the helper did not end");
            self.work(Duration::from_millis(20)).unwrap();
        }
        (self.child.wait().unwrap(), self.bye.take())
    }

    /// A figure of `/proc/PID/status` in KiB.
    pub fn status_kib(&self, key: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        let now = self.now();
        self.endpoint.transmit(now, &mut out, 256 << 10);
        if let Some(stdin) = self.stdin.as_mut().filter(|_| !out.is_empty()) {
            // A helper that has ended reads no more; its end is what the test looks at.
            stdin.write_all(&out).unwrap_or_default();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hello(hello) => self.hello = Some(*hello),
            Event::Dispatched { stream, dispatched } => {
                let state = self.streams.get_mut(&stream).unwrap();
                (state.pid, state.note, state.is_dispatched) = (dispatched.pid, dispatched.note, true);
            }
            Event::Data { stream, channel, bytes, .. } => {
                let now = self.now();
                let state = self.streams.get_mut(&stream).unwrap();
                state.received += bytes.len() as u64;
                if !state.is_counted_only {
                    let kept = if channel == 1 { &mut state.stdout } else { &mut state.stderr };
                    kept.extend_from_slice(&bytes);
                }
                if state.is_frozen {
                    state.unread += bytes.len();
                } else {
                    self.endpoint.consumed(now, stream, channel, bytes.len()).unwrap();
                }
            }
            Event::Outcome { stream, outcome } => {
                self.streams.get_mut(&stream).unwrap().end = Some(Ok(*outcome));
            }
            Event::Refusal { stream, refusal } => {
                self.streams.get_mut(&stream).unwrap().end = Some(Err(*refusal));
            }
            Event::Bye(bye) => self.bye = Some(bye.reason),
            Event::Pong { .. } => {}
            other => panic!("a helper never causes {other:?}"),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The end of its input makes it end what the test has started; only a broken helper has to be killed.
        self.stdin = None;
        let limit = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > limit {
                self.child.kill().unwrap_or_default();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Shell text with nothing special asked.
pub fn shell(text: &str) -> Exec {
    exec(Program::Shell(ByteText::from(text)))
}

/// An argv with nothing special asked.
pub fn argv(words: &[&str]) -> Exec {
    exec(Program::Argv(words.iter().map(|word| ByteText::from(*word)).collect()))
}

fn exec(command: Program) -> Exec {
    Exec {
        command,
        cwd: None,
        env: Vec::new(),
        deadline_ms: None,
        stdin: false,
        detach: false,
        end_background: false,
        keep: None,
    }
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// Waits until a process is gone.
pub fn wait_gone(pid: i32) {
    wait_for(|| !is_alive(pid));
}

/// Waits for something that no descriptor tells.
pub fn wait_for(mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain");
        // Nothing tells, so this looks again after a moment.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A number that a command printed.
pub fn number(bytes: &[u8]) -> i32 {
    std::str::from_utf8(bytes).unwrap().trim().parse().unwrap()
}

/// `fcntl` command of Linux that chooses the signal for a lease's holder; the `libc` crate does not name it.
const F_SETSIG: i32 = 10;

/// A write lease on a file: whoever opens the file waits until it's given back, as on a file system that hangs.
pub struct Lease {
    file: std::fs::File,
}

impl Lease {
    /// Takes the lease.
    pub fn take(path: &std::path::Path) -> Lease {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let lease = Lease { file };
        // The kernel tells the holder by a signal that must not end the test: this one is ignored by default.
        assert_eq!(lease.control(F_SETSIG, nix::libc::SIGURG), 0);
        assert_eq!(lease.control(nix::libc::F_SETLEASE, nix::libc::F_WRLCK), 0);
        lease
    }

    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        // A lease that is being broken shows the kind that it's to become.
        self.control(nix::libc::F_GETLEASE, 0) != nix::libc::F_WRLCK
    }

    fn control(&self, command: i32, argument: i32) -> i32 {
        use std::os::fd::AsRawFd as _;
        #[expect(unsafe_code, reason = "no safe crate takes leases")]
        // SAFETY: an open descriptor and a number go in.
        unsafe {
            nix::libc::fcntl(self.file.as_raw_fd(), command, argument)
        }
    }
}
