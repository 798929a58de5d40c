//! The byte stream under a connection: it can be frozen and cut, and it slows down while a command doesn't read.
//!
//! russh refills a channel's window when data arrives, not when somebody has consumed it, and awaiting a full queue in
//! a handler would stop its whole session: the command's output, window adjustments and pings with it. `cat` fed faster
//! than it is drained would then hang for ever. So the handler never waits. While more than [`Backlog::LIMIT`] bytes are
//! unread it grants two bytes at a time (that keeps the grants going), and this stream pauses after each such crumb.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The pause between two reads while grants are two bytes each; it bounds the work of waiting, not a rate.
const NAP: Duration = Duration::from_millis(5);

/// Read at most this much at once while the bytes until a cut are counted.
const COUNTED_READ: usize = 4096;

/// Bytes of a connection that no command has read yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: AtomicUsize,
    /// A crumb has come in: pause before the next read.
    crumb: AtomicBool,
}

impl Backlog {
    /// The window granted while commands keep up.
    pub(super) const WINDOW: u32 = 2 << 20;
    /// Unread bytes from which on no such window is granted; with what is in flight then, 4 MiB are the most ever kept.
    const LIMIT: usize = 1 << 20;
    /// The least window that russh refills: it does so below half of it.
    const TRICKLE: u32 = 2;
    /// The largest packet that such a window lets through.
    const CRUMB: usize = 2;

    pub(super) fn add(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if before > Self::LIMIT && bytes <= Self::CRUMB {
            self.crumb.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn consume(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Decides the next window to grant.
    pub(super) fn next_window(&self) -> u32 {
        if self.bytes.load(Ordering::SeqCst) > Self::LIMIT { Self::TRICKLE } else { Self::WINDOW }
    }
}

/// Bad networks on demand, for all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    /// Bytes, both directions together, until the connection that carries the last of them is cut.
    left: Option<u64>,
    /// Links made before the last cut are dead.
    cuts: u64,
    links: u64,
    wakers: HashMap<(u64, Side), Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Read,
    Write,
}

impl Faults {
    /// Stops all traffic without closing anything, as a firewall that lost its state does.
    pub fn freeze(&self) {
        self.change(|state| state.frozen = true);
    }

    /// Ends [`Faults::freeze`]; nothing was lost.
    pub fn thaw(&self) {
        self.change(|state| state.frozen = false);
    }

    /// Cuts the connection that carries the `bytes`-th byte from now on, both directions together; later ones live.
    pub fn cut_after(&self, bytes: u64) {
        self.change(|state| state.left = Some(bytes));
    }

    /// Cuts every connection now; later ones live.
    pub fn cut(&self) {
        self.change(|state| state.cuts = state.cuts.saturating_add(1));
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state();
        how(&mut state);
        let wakers: Vec<Waker> = state.wakers.drain().map(|(_, waker)| waker).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A poisoned lock is taken all the same: every change of the state is a single assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's stream.
pub(super) struct Link<S> {
    stream: S,
    faults: Faults,
    backlog: Arc<Backlog>,
    number: u64,
    cuts: u64,
    dead: bool,
    nap: Option<Pin<Box<Sleep>>>,
}

impl<S> Link<S> {
    pub(super) fn new(stream: S, faults: Faults, backlog: Arc<Backlog>) -> Self {
        let mut state = faults.state();
        state.links = state.links.saturating_add(1);
        let (number, cuts) = (state.links, state.cuts);
        drop(state);
        Self { stream, faults, backlog, number, cuts, dead: false, nap: None }
    }

    /// Says whether bytes may pass now, and how many until the cut where one is set.
    fn admit(&mut self, side: Side, cx: &Context<'_>) -> Poll<io::Result<Option<usize>>> {
        let mut state = self.faults.state();
        if state.left == Some(0) {
            state.left = None;
            self.dead = true;
        }
        if self.dead || state.cuts != self.cuts {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        // Registered even when the bytes may pass: a cut must also wake a reader that waits for the other end.
        state.wakers.insert((self.number, side), cx.waker().clone());
        if state.frozen {
            return Poll::Pending;
        }
        let left = state.left.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
        Poll::Ready(Ok(left))
    }

    fn passed(&mut self, bytes: usize) {
        let mut state = self.faults.state();
        let Some(left) = state.left else { return };
        let left = left.saturating_sub(bytes as u64);
        state.left = (left > 0).then_some(left);
        self.dead = left == 0;
        drop(state);
        if self.dead {
            // The other direction may wait for bytes that will never come.
            self.faults.change(|_| ());
        }
    }

    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.backlog.crumb.swap(false, Ordering::SeqCst) {
            self.nap = Some(Box::pin(sleep(NAP)));
        }
        if let Some(nap) = &mut self.nap {
            ready!(nap.as_mut().poll(cx));
            self.nap = None;
        }
        Poll::Ready(())
    }
}

impl<S> Drop for Link<S> {
    fn drop(&mut self) {
        let mut state = self.faults.state();
        state.wakers.remove(&(self.number, Side::Read));
        state.wakers.remove(&(self.number, Side::Write));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Link<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.rest(cx));
        let Some(left) = ready!(this.admit(Side::Read, cx))? else {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        };
        let mut room = [0; COUNTED_READ];
        let most = left.min(buf.remaining()).min(COUNTED_READ);
        let mut part = ReadBuf::new(room.get_mut(..most).unwrap_or_default());
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        buf.put_slice(part.filled());
        this.passed(part.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Link<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let left = ready!(this.admit(Side::Write, cx))?.unwrap_or(usize::MAX);
        let part = buf.get(..left.min(buf.len())).unwrap_or(buf);
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, part))?;
        this.passed(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
