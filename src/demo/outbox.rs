//! What a connection still has to send, so that its session never waits for a client that doesn't read.
//!
//! russh's session reads nothing while it writes. Two such ends that both have more to send than fits into the socket
//! would wait for each other for ever; a real sshd reads on. So the session writes here, a task of its own writes to
//! the socket, and commands are read no further while [`LIMIT`] bytes wait.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

/// Unsent bytes from which on no more is read from commands.
const LIMIT: usize = 1 << 20;

/// The unsent bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: BytesMut,
    writing: usize,
    closed: bool,
    broken: bool,
}

impl Outbox {
    /// Waits until less than [`LIMIT`] bytes are unsent, or none can be sent any more.
    pub(super) async fn room(&self) {
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            if !self.full() {
                return;
            }
            drained.await;
        }
    }

    fn full(&self) -> bool {
        let state = self.state();
        !state.broken && state.waiting.len().saturating_add(state.writing) >= LIMIT
    }

    /// Writes what comes in until the session closes it, or the connection breaks.
    pub(super) async fn drain(&self, mut socket: impl AsyncWrite + Unpin) {
        let result = loop {
            match self.take() {
                Some(bytes) if bytes.is_empty() => self.filled.notified().await,
                Some(bytes) => match socket.write_all(&bytes).await {
                    Ok(()) => self.wrote(),
                    Err(error) => break Err(error),
                },
                None => break socket.shutdown().await,
            }
        };
        self.state().broken = true;
        self.drained.notify_waiters();
        if let Err(error) = result {
            tracing::debug!(%error, "connection broken");
        }
    }

    /// Everything that waits; `None` once that is nothing and no more will come.
    fn take(&self) -> Option<Bytes> {
        let mut state = self.state();
        let bytes = state.waiting.split().freeze();
        state.writing = bytes.len();
        (!bytes.is_empty() || !state.closed).then_some(bytes)
    }

    fn wrote(&self) {
        self.state().writing = 0;
        self.drained.notify_waiters();
    }

    fn put(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if state.broken || state.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.waiting.extend_from_slice(bytes);
        drop(state);
        self.filled.notify_one();
        Ok(bytes.len())
    }

    fn close(&self) {
        self.state().closed = true;
        self.filled.notify_one();
    }

    /// A poisoned lock is taken all the same: no change of the state can be left half done by a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream that a session sees: reads come from the socket, writes go into the outbox.
pub(super) struct Posted<R> {
    pub(super) reader: R,
    pub(super) outbox: Arc<Outbox>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Posted<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(cx, buf)
    }
}

impl<R: Unpin> AsyncWrite for Posted<R> {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.outbox.put(buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbox.close();
        Poll::Ready(Ok(()))
    }
}

impl<R> Drop for Posted<R> {
    fn drop(&mut self) {
        self.outbox.close();
    }
}
