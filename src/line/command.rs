//! Commands, shaped as tokio's: describe, then spawn or collect the output.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};

use super::ByteText;
use super::error::Error;
use super::handle::Line;
use super::message::{
    ARGV_BYTES_MAX, DEADLINE_MS_MAX, Dispatched, Exec, ExecOutcome, Keep, OUTPUT_TAIL_BYTES_MAX, Outcome,
    Program, Request, SHELL_TEXT_BYTES_MAX,
};
use super::stream::{Stream, StreamEvent, StreamSender};

/// A command that is being described.
#[derive(Clone, Debug)]
pub struct Command {
    line: Line,
    exec: Exec,
}

/// A finished command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub outcome: ExecOutcome,
    /// What it printed, as far as it was kept.
    pub stdout: Vec<u8>,
    /// Its diagnostics, as far as they were kept.
    pub stderr: Vec<u8>,
    /// Something that the user should know, such as why there is no login environment.
    pub note: Option<String>,
}

impl Command {
    pub(super) fn new(line: Line, exec: Exec) -> Self {
        Command { line, exec }
    }

    /// Sets the working directory; the session's start directory otherwise.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<ByteText>) -> Self {
        self.exec.cwd = Some(path.into());
        self
    }

    /// Adds a variable to the environment; a later one of the same name wins.
    #[must_use]
    pub fn env(mut self, name: impl Into<ByteText>, value: impl Into<ByteText>) -> Self {
        self.exec.env.push((name.into(), value.into()));
        self
    }

    /// Ends the command after this time, counted from its dispatch: TERM, two seconds of grace, KILL.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.exec.deadline_ms = Some(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Keeps only the first and last bytes of each output; all of it otherwise.
    #[must_use]
    pub fn keep(mut self, head: u64, tail: u64) -> Self {
        self.exec.keep = Some(Keep { head, tail });
        self
    }

    /// Lets descendants outlive the deadline, the caller and the line.
    #[must_use]
    pub fn detach(mut self, detach: bool) -> Self {
        self.exec.detach = detach;
        self
    }

    /// Ends children that still hold a pipe after the command's end.
    #[must_use]
    pub fn end_background(mut self, end: bool) -> Self {
        self.exec.end_background = end;
        self
    }

    /// Runs the command with this standard input and collects its output.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is sent; [`Error::OutcomeUnknown`] when the line ends meanwhile. A command
    /// that fails is no error: its exit code is in the output.
    ///
    /// # Cancel safety
    /// The command of a dropped call is ended, unless it is detached.
    pub async fn output(mut self, stdin: Vec<u8>) -> Result<Output, Error> {
        self.exec.stdin = !stdin.is_empty();
        let mut stream = self.start().await?;
        let sender = stream.sender();
        let feed = async {
            if !stdin.is_empty() {
                // A command that does not read its input to the end is no error.
                sender.send(STDIN, stdin, true).await;
            }
            std::future::pending::<()>().await;
        };
        let collect = async {
            let (mut stdout, mut stderr, mut note) = (Vec::new(), Vec::new(), None);
            while let Some(event) = stream.next().await {
                match event {
                    StreamEvent::Data { channel: STDERR, bytes, .. } => stderr.extend_from_slice(&bytes),
                    StreamEvent::Data { bytes, .. } => stdout.extend_from_slice(&bytes),
                    StreamEvent::Dispatched(Dispatched { note: told, .. }) => note = told,
                    StreamEvent::End(end) => {
                        return Ok(Output { outcome: exec_outcome(*end?)?, stdout, stderr, note });
                    }
                }
            }
            Err(Error::Unexpected { asked: "exec" })
        };
        tokio::select! {
            output = collect => output,
            () = feed => Err(Error::Unexpected { asked: "exec" }),
        }
    }

    /// Starts the command; its standard input, output and diagnostics are pipes.
    ///
    /// # Errors
    /// As [`Command::output`].
    ///
    /// # Cancel safety
    /// The command of a dropped call is ended, unless it is detached.
    pub async fn spawn(mut self, stdin: bool) -> Result<Child, Error> {
        self.exec.stdin = stdin;
        let stream = self.start().await?;
        let stdin = stdin.then(|| ChildInput { sender: stream.sender(), is_ended: false });
        let (cancel, cancelled) = oneshot::channel();
        // One piece each: a reader that stops holds back only this command.
        let (out, stdout) = mpsc::channel(1);
        let (err, stderr) = mpsc::channel(1);
        let (ended, end) = oneshot::channel();
        let (noted, note) = oneshot::channel();
        let pump = Pump { out: Some(out), err: Some(err), noted: Some(noted) };
        let task = tokio::spawn(pump.run(stream, cancelled, ended));
        Ok(Child {
            stdin,
            stdout: ChildOutput { pieces: stdout, rest: Bytes::new() },
            stderr: ChildOutput { pieces: stderr, rest: Bytes::new() },
            cancel: Some(cancel),
            end,
            note,
            task,
        })
    }

    async fn start(&self) -> Result<Stream, Error> {
        check_exec(&self.exec)?;
        self.line.open(Request::Exec(self.exec.clone())).await
    }
}

/// A running command. Dropping it ends the command, unless it is detached.
#[derive(Debug)]
pub struct Child {
    /// Its standard input; dropping it ends it.
    pub stdin: Option<ChildInput>,
    /// What it prints. Must be read, or the command waits.
    pub stdout: ChildOutput,
    /// Its diagnostics. Must be read, or the command waits.
    pub stderr: ChildOutput,
    cancel: Option<oneshot::Sender<()>>,
    end: oneshot::Receiver<Result<ExecOutcome, Error>>,
    note: oneshot::Receiver<Option<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Child {
    /// Asks for the command's end: TERM, two seconds of grace, KILL. It still ends with an outcome.
    pub fn kill(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // A command that has ended needs no killing.
            cancel.send(()).ok();
        }
    }

    /// Drops the output that was not read and that is still to come, so that the command never waits for a reader.
    pub fn ignore_output(&mut self) {
        for output in [&mut self.stdout, &mut self.stderr] {
            output.pieces.close();
            output.rest.clear();
        }
    }

    /// Waits for the command's end. Read its output at the same time, or before.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] when the line ends first.
    ///
    /// # Cancel safety
    /// A dropped call may be repeated.
    pub async fn wait(&mut self) -> Result<ExecOutcome, Error> {
        match (&mut self.end).await {
            Ok(end) => end,
            Err(_pump_gone) => Err(Error::Unexpected { asked: "exec" }),
        }
    }

    /// Waits for the dispatch and tells what the user should know about it.
    ///
    /// # Cancel safety
    /// A dropped call may be repeated; a note is told once.
    pub async fn note(&mut self) -> Option<String> {
        (&mut self.note).await.ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The standard input of a running command.
#[derive(Debug)]
pub struct ChildInput {
    sender: StreamSender,
    is_ended: bool,
}

impl ChildInput {
    /// Sends bytes and waits until the line has room for more. `false` when the command takes no more.
    ///
    /// # Cancel safety
    /// The bytes of a dropped call are sent all the same.
    pub async fn send(&mut self, bytes: Vec<u8>) -> bool {
        self.sender.send(STDIN, bytes, false).await
    }

    /// Ends the input.
    ///
    /// # Cancel safety
    /// The end is sent all the same.
    pub async fn finish(mut self) {
        self.is_ended = true;
        // A command that has ended needs no end of its input.
        self.sender.send(STDIN, Vec::new(), true).await;
    }
}

impl Drop for ChildInput {
    fn drop(&mut self) {
        if !self.is_ended {
            self.sender.end(STDIN);
        }
    }
}

/// An output of a running command.
#[derive(Debug)]
pub struct ChildOutput {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl ChildOutput {
    /// Waits for the next piece; `None` at the end of the output.
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next(&mut self) -> Option<Bytes> {
        if !self.rest.is_empty() {
            return Some(std::mem::take(&mut self.rest));
        }
        self.pieces.recv().await
    }
}

impl AsyncRead for ChildOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.rest.is_empty() {
            match self.pieces.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(bytes)) => self.rest = bytes,
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(self.rest.get(..count).unwrap_or_default());
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// Moves a running command's events to its pipes.
///
/// Takes an event only when the pipes have taken the one before, so that credits hold the command back; each pipe
/// has its own queue, so that one unread output does not hide the other's end.
struct Pump {
    out: Option<mpsc::Sender<Bytes>>,
    err: Option<mpsc::Sender<Bytes>>,
    noted: Option<oneshot::Sender<Option<String>>>,
}

impl Pump {
    async fn run(
        mut self,
        mut stream: Stream,
        mut cancelled: oneshot::Receiver<()>,
        ended: oneshot::Sender<Result<ExecOutcome, Error>>,
    ) {
        let mut held: [VecDeque<Bytes>; 2] = Default::default();
        let mut may_cancel = true;
        let end = loop {
            let [stdout, stderr] = &mut held;
            tokio::select! {
                () = offer(&mut self.out, stdout) => {}
                () = offer(&mut self.err, stderr) => {}
                asked = &mut cancelled, if may_cancel => {
                    may_cancel = false;
                    if asked.is_ok() {
                        stream.cancel();
                    }
                }
                // What is held is bounded: credit for a piece is only given back when it is taken from the stream,
                // and the stream is left alone while a pipe is behind by more than a few pieces.
                event = stream.next(), if stdout.len() < 4 && stderr.len() < 4 => match event {
                    Some(StreamEvent::Dispatched(dispatched)) => {
                        if let Some(noted) = self.noted.take() {
                            // Nobody may be interested.
                            drop(noted.send(dispatched.note));
                        }
                    }
                    Some(StreamEvent::Data { channel, bytes, .. }) => {
                        let queue = if channel == STDOUT { stdout } else { stderr };
                        if !bytes.is_empty() {
                            queue.push_back(bytes);
                        }
                    }
                    Some(StreamEvent::End(end)) => break end.and_then(|outcome| exec_outcome(*outcome)),
                    None => break Err(Error::Unexpected { asked: "exec" }),
                },
            }
        };
        // The outcome may be waited for before the last bytes are read.
        drop(ended.send(end));
        let [stdout, stderr] = &mut held;
        let drain_out = drain(self.out, stdout);
        let drain_err = drain(self.err, stderr);
        tokio::join!(drain_out, drain_err);
    }
}

/// Hands the first held piece over once the pipe has a place; waits for ever when there is none.
async fn offer(pipe: &mut Option<mpsc::Sender<Bytes>>, held: &mut VecDeque<Bytes>) {
    let Some(sender) = pipe.as_ref().filter(|_| !held.is_empty()) else {
        return std::future::pending().await;
    };
    if let Ok(place) = sender.reserve().await {
        if let Some(bytes) = held.pop_front() {
            place.send(bytes);
        }
        return;
    }
    // Nobody reads this output: it is drained, as a closed pipe would have it.
    held.clear();
    *pipe = None;
}

async fn drain(pipe: Option<mpsc::Sender<Bytes>>, held: &mut VecDeque<Bytes>) {
    let Some(sender) = pipe else { return };
    while let Some(bytes) = held.pop_front() {
        if sender.send(bytes).await.is_err() {
            return;
        }
    }
}

fn exec_outcome(outcome: Outcome) -> Result<ExecOutcome, Error> {
    match outcome {
        Outcome::Exec(outcome) => Ok(outcome),
        _ => Err(Error::Unexpected { asked: "exec" }),
    }
}

/// Checks a command's bounds, for callers that want to know before they open a line; [`Command`] does it too.
///
/// # Errors
/// [`Error::Invalid`] with the value and the bound.
pub fn check_exec(exec: &Exec) -> Result<(), Error> {
    let invalid = |message: String| Err(Error::Invalid { message });
    let (total, most, what) = match &exec.command {
        Program::Shell(text) => (text.0.len(), SHELL_TEXT_BYTES_MAX, "shell text"),
        Program::Argv(argv) => {
            (argv.iter().map(|argument| argument.0.len() + 1).sum(), ARGV_BYTES_MAX, "argument vector")
        }
    };
    if total > most {
        return invalid(format!("the {what} has {total} bytes, the limit is {most}"));
    }
    let empty = match &exec.command {
        Program::Shell(text) => text.0.is_empty(),
        Program::Argv(argv) => argv.first().is_none_or(|program| program.0.is_empty()),
    };
    if empty {
        return invalid(format!("the {what} is empty"));
    }
    let words: Vec<&ByteText> = match &exec.command {
        Program::Shell(text) => vec![text],
        Program::Argv(argv) => argv.iter().collect(),
    };
    if exec.cwd.as_ref().is_some_and(|cwd| cwd.0.is_empty()) {
        return invalid("the working directory is empty; leave it out for the home directory".to_owned());
    }
    let env = exec.env.iter().flat_map(|(name, value)| [name, value]);
    for word in words.into_iter().chain(env).chain(&exec.cwd) {
        if let Some(position) = word.0.iter().position(|byte| *byte == 0) {
            return invalid(format!("a NUL byte stands at byte {position} of {:?}", word.escaped()));
        }
    }
    if let Some((name, _)) = exec.env.iter().find(|(name, _)| name.0.is_empty() || name.0.contains(&b'=')) {
        return invalid(format!("{:?} is no name of a variable", name.escaped()));
    }
    if let Some(deadline) = exec.deadline_ms.filter(|deadline| !(1..=DEADLINE_MS_MAX).contains(deadline)) {
        return invalid(format!("the deadline is {deadline} ms, the bounds are 1 to {DEADLINE_MS_MAX}"));
    }
    match exec.keep {
        Some(Keep { tail, .. }) if tail > OUTPUT_TAIL_BYTES_MAX => {
            invalid(format!("the tail to keep is {tail} bytes, the limit is {OUTPUT_TAIL_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}
