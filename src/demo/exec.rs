//! One command on one session channel: three pipes, and the end told only after the last byte.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};

use super::account::Account;
use super::link::Backlog;
use super::outbox::Outbox;

/// How much of a command's output is read at once.
const CHUNK: usize = 64 << 10;

/// The extended data type of stderr (RFC 4254, 5.2).
const STDERR: u32 = 1;

/// The exit code of a shell that can't start.
const NOT_STARTED: u32 = 127;

/// What the client sends a command.
pub(super) enum Input {
    Data(Bytes),
    Eof,
}

/// One of the connection's `max_sessions` places; given back once, at the latest when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    open: Arc<AtomicUsize>,
    free: AtomicBool,
}

impl Slot {
    /// Takes a place, if one is left.
    pub(super) fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Arc<Self>> {
        if open.fetch_add(1, Ordering::SeqCst) >= most {
            open.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let (open, free) = (Arc::clone(open), AtomicBool::new(false));
        Some(Arc::new(Self { open, free }))
    }

    pub(super) fn release(&self) {
        if !self.free.swap(true, Ordering::SeqCst) {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
    }
}

/// A granted session channel that waits for its command.
pub(super) struct Session {
    pub(super) writer: ChannelWriteHalf<Msg>,
    pub(super) stdin: mpsc::UnboundedReceiver<Input>,
    /// Resolves when the client has closed the channel or the connection is gone.
    pub(super) closed: oneshot::Receiver<()>,
    pub(super) slot: Arc<Slot>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) outbox: Arc<Outbox>,
}

impl Session {
    /// Runs the command and tells its end. A command whose channel closes gets `grace` to notice its closed pipes.
    pub(super) async fn run(self, handle: Handle, account: Arc<Account>, command: Vec<u8>, grace: Duration) {
        let id = self.writer.id();
        let mut child = match Command::from(account.shell(&command)).spawn() {
            Ok(child) => child,
            Err(error) => {
                let text = format!("cannot start the shell: {error}\n");
                // A client that is gone needs no answer; the slot is given back either way.
                drop(self.writer.extended_data_bytes(STDERR, text).await);
                let told = self.writer.exit_status(NOT_STARTED).await.is_ok();
                self.slot.release();
                if told {
                    drop(self.writer.close().await);
                }
                return;
            }
        };
        let feeding = tokio::spawn(feed(child.stdin.take(), self.stdin, self.backlog));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let carried = async {
            tokio::join!(
                pump(stdout, None, &self.writer, &self.outbox),
                pump(stderr, Some(STDERR), &self.writer, &self.outbox),
                child.wait(),
            )
        };
        let end = tokio::select! {
            (true, true, Ok(status)) = carried => Some(status),
            _ = self.closed => None,
        };
        // Closes the command's stdin; its output pipes were dropped with the pumps.
        feeding.abort();
        let Some(status) = end else {
            return reap(child, grace).await;
        };
        if tell_end(&self.writer, &handle, status).await {
            self.slot.release();
            tracing::debug!(channel = %id, %status, "command ended");
            // The session is gone then, and with it the channel.
            drop(self.writer.close().await);
        }
    }
}

/// Writes what the client sends to the command, in order; what a command no longer reads is discarded.
async fn feed(stdin: Option<ChildStdin>, mut input: mpsc::UnboundedReceiver<Input>, backlog: Arc<Backlog>) {
    let mut stdin = stdin;
    while let Some(part) = input.recv().await {
        match part {
            Input::Data(bytes) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
                backlog.consume(bytes.len());
            }
            Input::Eof => stdin = None,
        }
    }
}

/// Carries a pipe's bytes to the client, waiting for its window; false when the session is gone.
async fn pump(
    pipe: Option<impl AsyncRead + Unpin>,
    extended: Option<u32>,
    writer: &ChannelWriteHalf<Msg>,
    outbox: &Outbox,
) -> bool {
    let Some(mut pipe) = pipe else { return true };
    let mut buffer = BytesMut::new();
    loop {
        outbox.room().await;
        buffer.reserve(CHUNK);
        match pipe.read_buf(&mut buffer).await {
            // A pipe that can't be read any more has ended, too.
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
        let bytes = buffer.split().freeze();
        let sent = match extended {
            None => writer.data_bytes(bytes).await,
            Some(kind) => writer.extended_data_bytes(kind, bytes).await,
        };
        if sent.is_err() {
            return false;
        }
    }
}

/// Sends end of file and the exit status or signal; false when the session is gone.
async fn tell_end(writer: &ChannelWriteHalf<Msg>, handle: &Handle, status: ExitStatus) -> bool {
    if writer.eof().await.is_err() {
        return false;
    }
    match status.signal() {
        None => {
            let code = status.code().unwrap_or_default();
            writer.exit_status(u32::try_from(code).unwrap_or(NOT_STARTED)).await.is_ok()
        }
        Some(number) => {
            let (signal, core) = (signal_name(number), status.core_dumped());
            let empty = String::new();
            handle.exit_signal_request(writer.id(), signal, core, empty.clone(), empty).await.is_ok()
        }
    }
}

fn signal_name(number: i32) -> Sig {
    match Signal::try_from(number) {
        Ok(Signal::SIGABRT) => Sig::ABRT,
        Ok(Signal::SIGALRM) => Sig::ALRM,
        Ok(Signal::SIGFPE) => Sig::FPE,
        Ok(Signal::SIGHUP) => Sig::HUP,
        Ok(Signal::SIGILL) => Sig::ILL,
        Ok(Signal::SIGINT) => Sig::INT,
        Ok(Signal::SIGKILL) => Sig::KILL,
        Ok(Signal::SIGPIPE) => Sig::PIPE,
        Ok(Signal::SIGQUIT) => Sig::QUIT,
        Ok(Signal::SIGSEGV) => Sig::SEGV,
        Ok(Signal::SIGTERM) => Sig::TERM,
        Ok(Signal::SIGUSR1) => Sig::USR1,
        // RFC 4254 names no others; OpenSSH says this for all of them.
        _ => Sig::Custom("SIG@openssh.com".to_owned()),
    }
}

/// Waits for a command whose channel is gone; after `grace` its whole process group is killed.
async fn reap(mut child: Child, grace: Duration) {
    if tokio::time::timeout(grace, child.wait()).await.is_ok() {
        return;
    }
    // The leader is not reaped yet, so its number can't belong to a stranger.
    if let Some(group) = child.id().and_then(|id| i32::try_from(id).ok())
        && let Err(error) = killpg(Pid::from_raw(group), Signal::SIGKILL)
    {
        tracing::debug!(group, %error, "no process group to kill");
    }
    if let Err(error) = child.wait().await {
        tracing::debug!(%error, "a killed command could not be waited for");
    }
}
