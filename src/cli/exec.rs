//! `towline exec`: a command on a site, and how its end is shown.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::{ExecArgs, Variable};
use super::output::{Output, Passed, Stream};
use super::own_line;
use crate::config::{Config, Environment};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, EXIT_TIMED_OUT, Kind};
use crate::line::message::{Exec, ExecOutcome, Keep, Program};
use crate::line::{self, ByteText, Line};

/// Bytes of our standard input that are read and sent at a time.
const STDIN_BYTES: usize = 64 << 10;
/// How long a command that nobody waits for any more may take to end before we leave.
const ENDING_FOR: Duration = Duration::from_secs(4);
/// Exit code when our reader is gone: what a shell sees of a command that ends by SIGPIPE (128 + 13).
const EXIT_NOBODY_READS: u8 = 141;

/// Runs a command on a site.
///
/// # Errors
/// Those of the configuration and of the line; after the dispatch a lost line is `outcome_unknown`.
pub fn run(args: &ExecArgs, environment: Environment, output: &Output) -> Result<u8, Failure> {
    // The parser sees a `--json` before the command's name too late to demand it.
    if args.max_output.is_some() && !output.json() {
        let message = "--max-output was given without --json, and without it all bytes pass";
        return Err(Failure::new(Kind::Usage, message).hint("add --json, or leave --max-output out"));
    }
    let config = Config::load(environment)?;
    let site = config.site(&args.site)?;
    let role = args.role.into();
    site.destination(role)?;
    let exec = exec(args, output);
    // A command out of bounds must not cost a login.
    line::check_exec(&exec)?;
    own_line::block_on(async {
        let line = own_line::open(&config, site, role, output).await?;
        // Remembers a Ctrl-C from here on, also one that comes while nobody waits for it.
        let interrupts = signal(SignalKind::interrupt())
            .map_err(|error| Failure::new(Kind::Internal, format!("cannot hear Ctrl-C: {error}")))?;
        let result = on_line(&line, exec, args, (output, interrupts)).await;
        line.close();
        line.closed().await;
        result
    })
}

/// How the passing-on of a command's outputs ended.
enum Passing {
    /// Both are at their end.
    Complete,
    /// The reader of ours is gone.
    NobodyReads,
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// Runs the command over an open line.
async fn on_line(
    line: &Line,
    exec: Exec,
    args: &ExecArgs,
    (output, interrupts): (&Output, Signal),
) -> Result<u8, Failure> {
    let mut child = line.exec(exec).spawn(args.stdin).await?;
    let mut kept = (Vec::new(), Vec::new());
    let leave = match pass(&mut child, &mut kept, output, interrupts).await? {
        Passing::Complete => None,
        Passing::NobodyReads => Some(EXIT_NOBODY_READS),
        Passing::Interrupted => Some(EXIT_INTERRUPTED),
    };
    if let Some(code) = leave {
        // What is detached outlives its caller, however that leaves.
        if !args.detach {
            child.kill();
            child.ignore_output();
            // The far side ends it in time, and if it doesn't, closing the line does.
            drop(tokio::time::timeout(ENDING_FOR, child.wait()).await);
        }
        return Ok(code);
    }
    if let Some(note) = child.note().await {
        output.note(&format!("note: {note}"))?;
    }
    let outcome = child.wait().await?;
    if output.json() {
        output.document(&ExecAnswer::new(&outcome, args.keep(), &kept.0, &kept.1))?;
    } else if let Some(error) = &outcome.start_error {
        output.note(&format!("towline: {error}"))?;
    }
    Ok(exit_code(&outcome))
}

/// Passes both outputs on, and our input, until the outputs end or somebody wants no more of them.
async fn pass(
    child: &mut line::Child,
    kept: &mut (Vec<u8>, Vec<u8>),
    output: &Output,
    mut interrupts: Signal,
) -> Result<Passing, Failure> {
    let stdin = child.stdin.take();
    let out = copy(&mut child.stdout, &mut kept.0, *output, Stream::Stdout);
    let err = copy(&mut child.stderr, &mut kept.1, *output, Stream::Stderr);
    let outputs = async {
        match tokio::try_join!(out, err) {
            Ok(_) => Ok(Passing::Complete),
            Err(Stop::NobodyReads) => Ok(Passing::NobodyReads),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    };
    let feed = async {
        if let Some(stdin) = stdin {
            forward_stdin(stdin).await?;
        }
        std::future::pending::<Result<Passing, Failure>>().await
    };
    tokio::select! {
        ended = outputs => ended,
        failed = feed => failed,
        _ = interrupts.recv() => Ok(Passing::Interrupted),
    }
}

/// What is sent: all that the arguments say.
fn exec(args: &ExecArgs, output: &Output) -> Exec {
    let word = |word: &OsString| ByteText(word.as_bytes().to_vec());
    let variable = |variable: &Variable| {
        (ByteText::from(variable.name.as_str()), ByteText::from(variable.value.as_slice()))
    };
    Exec {
        command: match args.command.as_slice() {
            [text] => Program::Shell(word(text)),
            argv => Program::Argv(argv.iter().map(word).collect()),
        },
        cwd: args.cwd.as_ref().map(word),
        env: args.env.iter().map(variable).collect(),
        deadline_ms: args.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        stdin: args.stdin,
        detach: args.detach,
        end_background: args.end_background,
        keep: output.json().then(|| args.keep()),
    }
}

/// Why a copy stopped before the end of its output.
enum Stop {
    NobodyReads,
    Failed(Failure),
}

/// Passes a stream on as it comes; with `--json` it is kept, within the bound that the helper keeps to.
async fn copy(
    from: &mut line::ChildOutput,
    kept: &mut Vec<u8>,
    output: Output,
    to: Stream,
) -> Result<(), Stop> {
    while let Some(bytes) = from.next().await {
        if output.json() {
            kept.extend_from_slice(&bytes);
            continue;
        }
        // On a thread of its own: a reader that stops must hold back neither the other stream nor Ctrl-C.
        let written = tokio::task::spawn_blocking(move || output.pass(to, &bytes)).await;
        match written {
            Ok(Ok(Passed::Written)) => {}
            Ok(Ok(Passed::NobodyReads)) => return Err(Stop::NobodyReads),
            Ok(Err(failure)) => return Err(Stop::Failed(failure)),
            Err(error) => {
                let failure = Failure::new(Kind::Internal, format!("cannot write: {error}"));
                return Err(Stop::Failed(failure));
            }
        }
    }
    Ok(())
}

/// Forwards our standard input until its end, or until the command takes no more.
async fn forward_stdin(mut to: line::ChildInput) -> Result<(), Failure> {
    let (pieces, mut arrivals) = tokio::sync::mpsc::channel(2);
    // A thread of its own, since reading a terminal or a pipe blocks and cannot be called back.
    std::thread::Builder::new()
        .name("towline-stdin".to_owned())
        .spawn(move || {
            let mut stdin = std::io::stdin().lock();
            loop {
                let mut piece = vec![0; STDIN_BYTES];
                let read = match std::io::Read::read(&mut stdin, &mut piece) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let piece = read.map(|count| {
                    piece.truncate(count);
                    piece
                });
                let last = piece.as_ref().map_or(true, Vec::is_empty);
                if pieces.blocking_send(piece).is_err() || last {
                    return;
                }
            }
        })
        .map_err(|error| Failure::new(Kind::Internal, format!("cannot start a thread: {error}")))?;
    while let Some(piece) = arrivals.recv().await {
        let piece = piece.map_err(|error| {
            Failure::new(Kind::InvalidInput, format!("cannot read our standard input: {error}"))
        })?;
        if piece.is_empty() {
            break;
        }
        if !to.send(piece).await {
            return Ok(());
        }
    }
    to.finish().await;
    Ok(())
}

/// How the two streams of an [`ExecAnswer`] are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Encoding {
    /// As text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// In base64, both, since at least one is not UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// The pinned result of `exec --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecAnswer {
    /// The command's own code; 128 + N for signal N, 124 on its deadline.
    pub rc: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output, as `encoding` says.
    pub stdout: String,
    /// Its standard error, as `encoding` says.
    pub stderr: String,
    /// How both streams are written.
    pub encoding: Encoding,
    /// Whether bytes of stdout were dropped.
    pub stdout_truncated: bool,
    /// Whether bytes of stderr were dropped.
    pub stderr_truncated: bool,
    /// How many bytes of stdout were dropped.
    pub stdout_dropped_bytes: u64,
    /// How many bytes of stderr were dropped.
    pub stderr_dropped_bytes: u64,
    /// Whether the deadline ended it.
    pub timed_out: bool,
    /// Whether a descendant still held a pipe.
    pub pipes_held: bool,
    /// From dispatch to the end of the main process.
    pub duration_ms: u64,
    /// Why it could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
}

impl ExecAnswer {
    /// Makes the answer of a command's end and of what was kept of its streams.
    ///
    /// `keep` is what was asked for: where bytes were dropped, it tells where the head ends and the tail begins.
    pub fn new(outcome: &ExecOutcome, keep: Keep, stdout: &[u8], stderr: &[u8]) -> ExecAnswer {
        let (out, err) = (
            Kept::new(stdout, outcome.stdout_dropped, keep),
            Kept::new(stderr, outcome.stderr_dropped, keep),
        );
        let texts = out.text().zip(err.text());
        let (encoding, stdout, stderr) = match texts {
            Some((out, err)) => (Encoding::Utf8, out, err),
            None => (Encoding::Base64, out.base64(), err.base64()),
        };
        ExecAnswer {
            rc: outcome.rc,
            signal: outcome.signal,
            stdout: stdout.shown,
            stderr: stderr.shown,
            encoding,
            stdout_truncated: stdout.dropped > 0,
            stderr_truncated: stderr.dropped > 0,
            stdout_dropped_bytes: stdout.dropped,
            stderr_dropped_bytes: stderr.dropped,
            timed_out: outcome.timed_out,
            pipes_held: outcome.pipes_held,
            duration_ms: outcome.duration_ms,
            start_error: outcome.start_error.clone(),
        }
    }
}

/// The exit code of `towline exec` for a command that was run.
pub fn exit_code(outcome: &ExecOutcome) -> u8 {
    if outcome.timed_out {
        return EXIT_TIMED_OUT;
    }
    let code = outcome.signal.map_or(outcome.rc, |signal| 128 + signal);
    // A helper sends 0 to 255; whatever else arrives is no success.
    u8::try_from(code).unwrap_or(EXIT_UNREADABLE)
}

/// Exit code for a code that no process can have.
const EXIT_UNREADABLE: u8 = 255;

/// A stream in its final form.
struct Shown {
    shown: String,
    dropped: u64,
}

/// What was kept of a stream: its head, and its tail where bytes between them were dropped.
struct Kept<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    dropped: u64,
}

impl<'a> Kept<'a> {
    fn new(bytes: &'a [u8], dropped: u64, keep: Keep) -> Kept<'a> {
        let head = usize::try_from(keep.head).unwrap_or(usize::MAX).min(bytes.len());
        let (head, tail) = if dropped == 0 {
            (bytes, &[][..])
        } else {
            bytes.split_at_checked(head).unwrap_or((bytes, &[]))
        };
        Kept { head, tail, dropped }
    }

    /// The text, when all of it is UTF-8 but for a character that the bound cut: that one goes whole, and is counted.
    fn text(&self) -> Option<Shown> {
        let (mut head, mut tail) = (self.head, self.tail);
        if self.dropped > 0 {
            head = without_cut_end(head);
            tail = without_cut_start(tail);
        }
        let cut = (self.head.len() - head.len() + self.tail.len() - tail.len()) as u64;
        // Bytes that are no text are shown in base64, so the reason why they are not does not matter.
        let (head, tail) = (std::str::from_utf8(head).ok()?, std::str::from_utf8(tail).ok()?);
        Some(Shown { shown: format!("{head}{tail}"), dropped: self.dropped + cut })
    }

    fn base64(&self) -> Shown {
        Shown { shown: STANDARD.encode([self.head, self.tail].concat()), dropped: self.dropped }
    }
}

/// Leaves out an unfinished character at the end.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // No length means that the text ends inside a character that was right so far.
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or(bytes),
        _ => bytes,
    }
}

/// Leaves out the rest of a character at the start: at most three continuation bytes.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    bytes.get(rest..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome(stdout_dropped: u64) -> ExecOutcome {
        ExecOutcome {
            rc: 0,
            signal: None,
            timed_out: false,
            pipes_held: false,
            duration_ms: 7,
            stdout_dropped,
            stderr_dropped: 0,
            start_error: None,
        }
    }

    const ALL: Keep = Keep { head: 1 << 20, tail: 0 };

    #[test]
    fn the_json_form_is_the_contracts() {
        let answer = serde_json::to_value(ExecAnswer::new(&outcome(0), ALL, "é\n".as_bytes(), b"")).unwrap();
        let expected = serde_json::json!({
            "rc": 0, "signal": null, "stdout": "é\n", "stderr": "", "encoding": "utf-8", "stdout_truncated": false,
            "stderr_truncated": false, "stdout_dropped_bytes": 0, "stderr_dropped_bytes": 0, "timed_out": false,
            "pipes_held": false, "duration_ms": 7,
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn one_stream_that_is_not_text_makes_both_base64() {
        let answer = ExecAnswer::new(&outcome(0), ALL, b"fine", b"\xFF");
        assert_eq!(
            (answer.encoding, answer.stdout.as_str(), answer.stderr.as_str()),
            (Encoding::Base64, "ZmluZQ==", "/w==")
        );
    }

    #[test]
    fn a_character_cut_by_the_bound_is_dropped_whole_and_counted() {
        // "aé" + 3 bytes dropped: the head keeps one byte of é.
        let answer = ExecAnswer::new(&outcome(3), Keep { head: 2, tail: 0 }, b"a\xC3", b"");
        assert_eq!(
            (answer.stdout.as_str(), answer.stdout_dropped_bytes, answer.stdout_truncated),
            ("a", 4, true)
        );
        // The tail begins with the last byte of é.
        let answer = ExecAnswer::new(&outcome(3), Keep { head: 1, tail: 2 }, b"a\xA9b", b"");
        assert_eq!((answer.stdout.as_str(), answer.stdout_dropped_bytes), ("ab", 4));
        assert_eq!(answer.encoding, Encoding::Utf8);
    }

    #[test]
    fn an_unfinished_character_that_no_bound_cut_is_not_text() {
        let answer = ExecAnswer::new(&outcome(0), ALL, b"a\xC3", b"");
        assert_eq!((answer.encoding, answer.stdout_dropped_bytes), (Encoding::Base64, 0));
    }

    #[test]
    fn exit_codes_are_the_commands_own() {
        let code = |rc, signal, timed_out| exit_code(&ExecOutcome { rc, signal, timed_out, ..outcome(0) });
        assert_eq!(code(0, None, false), 0);
        assert_eq!(code(255, None, false), 255);
        assert_eq!(code(137, Some(9), false), 137);
        assert_eq!(code(143, Some(15), true), 124);
        assert_eq!(code(-1, None, false), 255);
        assert_eq!(code(256, None, false), 255);
    }

    proptest! {
        #[test]
        fn kept_and_dropped_bytes_are_all_bytes_and_text_stays_text(text in "\\PC{0,40}", head in 0_usize..30, tail in 0_usize..30) {
            let bytes = text.as_bytes();
            let keep = Keep { head: head as u64, tail: tail as u64 };
            let (first, last) = (bytes.len().min(head), tail);
            let last = last.min(bytes.len() - first);
            let kept = [&bytes[..first], &bytes[bytes.len() - last..]].concat();
            let dropped = (bytes.len() - kept.len()) as u64;
            let answer = ExecAnswer::new(&outcome(dropped), keep, &kept, b"");
            prop_assert_eq!(answer.encoding, Encoding::Utf8);
            prop_assert_eq!(answer.stdout.len() as u64 + answer.stdout_dropped_bytes, bytes.len() as u64);
            prop_assert!(answer.stdout_dropped_bytes >= dropped && answer.stdout_dropped_bytes <= dropped + 6);
        }
    }
}
