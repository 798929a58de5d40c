//! The line itself: the state machine of the protocol over stdin and stdout.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::SndBuf};
use nix::unistd::{read, write};
use towline_helper::wire::endpoint::ProtocolError;
use towline_helper::wire::frame::{self, Kind};
use towline_helper::wire::message::{self, Bye, Dispatched, Hello, Outcome, Refusal};
use towline_helper::wire::{Endpoint, Event, Role};

use super::launch::set_nonblocking;
use super::preamble::Preamble;

/// Bytes read from any descriptor at a time; also what a pipe holds.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Encoded bytes that may wait for stdout before bulk is encoded: a control frame waits behind no more.
const OUT_BYTES_MAX: usize = 64 << 10;

/// Why the line is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The other end closed it.
    Closed,
    /// It broke a rule, or asks for more than it takes.
    Broken(ProtocolError),
    /// A signal asks the helper to end.
    Signal(i32),
}

/// One end of the line and its buffers.
#[derive(Debug)]
pub(crate) struct Link {
    stdin: OwnedFd,
    stdout: OwnedFd,
    preamble: Preamble,
    endpoint: Endpoint,
    out: Vec<u8>,
    is_blocked: bool,
    scratch: Vec<u8>,
    began: Instant,
    over: Option<Over>,
}

/// What a read of a descriptor gave.
#[derive(Debug)]
pub(crate) enum Got<'a> {
    /// Bytes, at least one.
    Bytes(&'a [u8]),
    /// Nothing now.
    Nothing,
    /// Its end.
    End,
}

impl Link {
    /// Takes stdin and stdout for the line.
    ///
    /// # Errors
    /// When they can't be made non-blocking.
    pub(crate) fn new() -> std::io::Result<Link> {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
        set_nonblocking(stdin.as_fd())?;
        set_nonblocking(stdout.as_fd())?;
        // Only a socket has such a buffer; what lies in it delays every control frame behind it.
        setsockopt(&stdout, SndBuf, &OUT_BYTES_MAX).unwrap_or_default();
        Ok(Link {
            stdin,
            stdout,
            preamble: Preamble::default(),
            endpoint: Endpoint::new(Role::Helper),
            out: Vec::new(),
            is_blocked: false,
            scratch: vec![0; READ_BYTES],
            began: Instant::now(),
            over: None,
        })
    }

    /// Time since the line began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Why the line is over, if it is.
    pub(crate) fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Where bytes of the other end arrive.
    pub(crate) fn stdin(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }

    /// Stdout, while it took less than there was.
    pub(crate) fn blocked_stdout(&self) -> Option<BorrowedFd<'_>> {
        self.is_blocked.then(|| self.stdout.as_fd())
    }

    /// When [`Link::handle_time`] is due.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        self.endpoint.next_time()
    }

    /// Bytes that may be queued on a channel now.
    pub(crate) fn room(&self, stream: u32, channel: u8) -> usize {
        self.endpoint.room(stream, channel)
    }

    /// The next thing that the other end did.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.endpoint.next_event()
    }

    /// Reads stdin once.
    pub(crate) fn handle_readable(&mut self) {
        let now = self.now();
        let result = match read_into(self.stdin.as_fd(), &mut self.scratch, READ_BYTES) {
            Got::Bytes(bytes) if self.preamble.is_over() => self.endpoint.handle_bytes(now, bytes),
            Got::Bytes(bytes) => self.endpoint.handle_bytes(now, &self.preamble.strip(bytes)),
            Got::Nothing => Ok(()),
            Got::End => return self.end(Over::Closed),
        };
        self.check(result);
    }

    /// Lets the protocol's clock tick.
    pub(crate) fn handle_time(&mut self) {
        let now = self.now();
        let result = self.endpoint.handle_time(now);
        self.check(result);
    }

    /// Reads at most `most` bytes of a descriptor that does not block.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, most: usize) -> Got<'_> {
        read_into(fd, &mut self.scratch, most)
    }

    /// Writes bytes before the first frame.
    pub(crate) fn preface(&mut self, bytes: &[u8], hello: &Hello) {
        self.out.extend_from_slice(bytes);
        let result = self.endpoint.hello(hello);
        self.check(result);
    }

    /// Queues bytes on a channel.
    pub(crate) fn send(&mut self, stream: u32, channel: u8, bytes: Vec<u8>, end: bool) {
        self.endpoint.send(stream, channel, bytes, end);
    }

    /// Tells that a request crossed its execution boundary.
    pub(crate) fn dispatched(&mut self, stream: u32, pid: Option<u32>, note: Option<String>) {
        let result = self.endpoint.dispatched(stream, &Dispatched { pid, note });
        self.check(result);
    }

    /// Ends a stream that did what it should.
    pub(crate) fn outcome(&mut self, stream: u32, outcome: &Outcome) {
        let result = self.endpoint.outcome(stream, outcome);
        self.check(result);
    }

    /// Ends a stream that could not.
    pub(crate) fn refuse(&mut self, stream: u32, refusal: &Refusal) {
        let result = self.endpoint.refuse(stream, refusal);
        self.check(result);
    }

    /// Lends the other end as many bytes of input as were used.
    pub(crate) fn consumed(&mut self, stream: u32, channel: u8, bytes: usize) {
        let now = self.now();
        let result = self.endpoint.consumed(now, stream, channel, bytes);
        self.check(result);
    }

    /// Puts the last frame of the line behind what is encoded already; what is only queued is not sent any more.
    pub(crate) fn bye(&mut self, reason: String) {
        let payload = message::encode("bye", &Bye { reason });
        // A reason is far below the bound of a frame.
        let encoded = payload.map(|payload| frame::encode_parts(Kind::Bye, 0, 0, &payload, &mut self.out));
        debug_assert!(matches!(encoded, Ok(Ok(()))), "the last frame is too long");
    }

    /// Ends the line; the first reason counts.
    pub(crate) fn end(&mut self, over: Over) {
        self.over.get_or_insert(over);
    }

    /// Writes what may be sent, as far as stdout takes it.
    pub(crate) fn flush(&mut self) {
        loop {
            if self.out.len() < OUT_BYTES_MAX / 2 {
                let now = self.now();
                self.endpoint.transmit(now, &mut self.out, OUT_BYTES_MAX);
            }
            if self.out.is_empty() || !self.flush_encoded() {
                return;
            }
        }
    }

    /// Writes what is encoded, and encodes no more. Returns whether stdout took it all.
    pub(crate) fn flush_encoded(&mut self) -> bool {
        self.is_blocked = false;
        while !self.out.is_empty() {
            match write(&self.stdout, &self.out) {
                Ok(count) => drop(self.out.drain(..count.min(self.out.len()))),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.is_blocked = true;
                    return false;
                }
                // EPIPE and whatever else: nothing can be said any more.
                Err(_gone) => {
                    self.out.clear();
                    self.end(Over::Closed);
                    return false;
                }
            }
        }
        true
    }

    fn check(&mut self, result: Result<(), ProtocolError>) {
        if let Err(error) = result {
            self.end(Over::Broken(error));
        }
    }
}

fn read_into<'a>(fd: BorrowedFd<'_>, scratch: &'a mut [u8], most: usize) -> Got<'a> {
    let most = most.min(scratch.len());
    let Some(buffer) = scratch.get_mut(..most) else { return Got::Nothing };
    match read(fd, buffer) {
        Ok(0) => Got::End,
        Ok(count) => Got::Bytes(buffer.get(..count).unwrap_or_default()),
        Err(Errno::EAGAIN | Errno::EINTR) => Got::Nothing,
        // A descriptor that can't be read any more has nothing more to say.
        Err(_gone) => Got::End,
    }
}
