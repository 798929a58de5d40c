//! The typed control payloads: JSON objects with exactly these fields.
//!
//! Unknown fields and unknown types are refused on both ends: what one end does not understand must not be
//! silently left out. Paths are literal bytes, but for a leading `~/` that means the session's home.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::byte_text::ByteText;

/// Largest shell text of one command, in bytes.
pub const SHELL_TEXT_BYTES_MAX: usize = 64 << 10;
/// Largest total of one argv, in bytes, each argument counted with its NUL.
pub const ARGV_BYTES_MAX: usize = 128 << 10;
/// Longest deadline, in milliseconds (seven days).
pub const DEADLINE_MS_MAX: u64 = 604_800_000;
/// Most bytes that an `exec` may ask to keep from the end of one output.
pub const OUTPUT_TAIL_BYTES_MAX: u64 = 16 << 20;
/// Most streams that one line carries at once.
pub const STREAMS_MAX: usize = 64;

/// The helper's first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Protocol version; another one than [`super::PROTOCOL`] ends the line.
    pub protocol: u32,
    /// Version of the helper's package.
    pub version: String,
    /// SHA-256 of the helper's own file in lower-case hexadecimal; empty when it can't read its own file.
    pub sha256: String,
    /// Process id of the helper on its host.
    pub pid: u32,
    /// Boot id of the host, which tells process ids of two boots apart.
    pub boot_id: String,
    /// Name of the host as it calls itself.
    pub host: String,
    /// Numeric user id that the helper runs as.
    pub uid: u32,
    /// The session's home directory; what a leading `~/` means.
    pub home: ByteText,
    /// The session's start directory; where commands begin.
    pub cwd: ByteText,
    /// What this helper can do beyond protocol 1, as words.
    pub capabilities: Vec<String>,
}

/// The client's first frame, the answer to the hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Protocol version, which the helper checks.
    pub protocol: u32,
    /// Version of the client's package.
    pub version: String,
    /// Where commands take their environment from.
    pub environment: Environment,
}

/// Where `exec` and `probe` take their environment from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Environment {
    /// Exactly what the SSH session gave to the helper.
    None,
    /// One snapshot of a login shell's; without it (a note tells why) the session's.
    LoginIfPossible,
    /// One snapshot of a login shell's.
    Login,
    /// One snapshot taken after sourcing this script.
    Script(ByteText),
}

/// Opens a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// What the stream is to do.
    pub request: Request,
}

/// What a stream does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Runs a command. Channel 0 is its stdin, 1 its stdout, 2 its stderr.
    Exec(Exec),
    /// Tells what a path is. Answers [`Outcome::Stat`].
    Stat {
        /// The path.
        path: ByteText,
        /// Whether a symbolic link is followed.
        follow: bool,
    },
    /// Lists a directory: one JSON [`Entry`] a line on channel 1, in byte order of the names.
    List {
        /// The directory.
        path: ByteText,
    },
    /// Reads a file's bytes on channel 1.
    Read {
        /// The file.
        path: ByteText,
        /// First byte.
        offset: u64,
        /// How many bytes at most; all that follow when absent.
        length: Option<u64>,
    },
    /// Writes channel 0 to a file: beside the target, then by rename.
    Write(Write),
    /// Tells the SHA-256 of a file's bytes. Answers [`Outcome::Hash`].
    Hash {
        /// The file.
        path: ByteText,
        /// First byte.
        offset: u64,
        /// How many bytes at most; all that follow when absent.
        length: Option<u64>,
    },
    /// Makes a directory.
    Mkdir {
        /// The directory.
        path: ByteText,
        /// Also makes missing parents, and an existing directory is no error.
        parents: bool,
        /// Mode bits before the umask.
        mode: u32,
    },
    /// Renames a path within one file system.
    Rename {
        /// The old path.
        from: ByteText,
        /// The new path.
        to: ByteText,
        /// Whether something at the new path may be replaced.
        overwrite: bool,
    },
    /// Removes a file, a link or a directory.
    Remove {
        /// The path; a link is removed, not followed.
        path: ByteText,
        /// Whether a directory is removed with all that is below it, never crossing a mount point.
        recursive: bool,
    },
    /// Adds up what lies below a path and asks the file system's counters. Answers [`Outcome::DiskUsage`].
    DiskUsage {
        /// The path.
        path: ByteText,
    },
    /// Sends a file's last bytes on channel 1, and with `follow` what is appended later.
    Tail {
        /// The file.
        path: ByteText,
        /// Where to begin.
        from: TailFrom,
        /// Goes on until cancelled; waits for a file that is not there yet.
        follow: bool,
    },
    /// Tells what the host is. Answers [`Outcome::Probe`].
    Probe {},
    /// Reserved: an interactive shell on a pseudo-terminal.
    Pty {},
    /// Reserved: a connection that the helper dials.
    Dial {},
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// What to run.
    pub command: Program,
    /// Working directory; the session's start directory when absent.
    pub cwd: Option<ByteText>,
    /// Variables added to the environment, later ones win.
    pub env: Vec<(ByteText, ByteText)>,
    /// Milliseconds from dispatch until the command is ended: TERM, two seconds of grace, KILL.
    pub deadline_ms: Option<u64>,
    /// Whether channel 0 is forwarded; otherwise stdin is at its end at once.
    pub stdin: bool,
    /// Whether descendants outlive the deadline, the caller and the line.
    pub detach: bool,
    /// Whether children that still hold a pipe after the command's end are ended too.
    pub end_background: bool,
    /// How much of each output is kept; all of it when absent.
    pub keep: Option<Keep>,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Program {
    /// An argument vector, run without a shell.
    Argv(Vec<ByteText>),
    /// Text for `bash` without start-up files, or for `sh` where there is no bash.
    Shell(ByteText),
}

/// How many bytes of each output are kept; what lies between is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The first bytes.
    pub head: u64,
    /// The last bytes, at most [`OUTPUT_TAIL_BYTES_MAX`].
    pub tail: u64,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The target.
    pub path: ByteText,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Mode bits before the umask; an existing target's own when absent and replaced, else 0666.
    pub mode: Option<u32>,
    /// Exact size that must arrive, if known.
    pub size: Option<u64>,
    /// SHA-256 in hexadecimal that the content must have, if known.
    pub sha256: Option<String>,
    /// Whether missing parents of the target are made.
    pub parents: bool,
}

/// Where a tail begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TailFrom {
    /// At this byte.
    Offset(u64),
    /// At the beginning of the line that is this many lines before the end.
    Lines(u64),
}

/// The request crossed its execution boundary: from here on, a lost line means an unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatched {
    /// Process id of the command, for `exec`.
    pub pid: Option<u32>,
    /// Something that the user should know, such as why there is no login environment.
    pub note: Option<String>,
}

/// Ends what a stream does. The stream still ends with an outcome or a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Whether output that is still queued is dropped.
    pub discard: bool,
}

/// New size of a pseudo-terminal. Reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Rows in characters.
    pub rows: u16,
    /// Columns in characters.
    pub columns: u16,
}

/// How a stream ended when it did what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// A command's end.
    Exec(ExecOutcome),
    /// What a path is.
    Stat(Metadata),
    /// A directory was listed.
    List {
        /// How many entries were sent.
        entries: u64,
    },
    /// A range was read, or a tail ended.
    Read {
        /// Offset of the byte after the last one sent.
        end: u64,
        /// Size of the file when it was opened.
        size: u64,
    },
    /// A file was written and is in its place.
    Written {
        /// Bytes written.
        size: u64,
        /// SHA-256 of the content in hexadecimal.
        sha256: String,
    },
    /// A digest.
    Hash {
        /// Bytes hashed.
        size: u64,
        /// Their SHA-256 in hexadecimal.
        sha256: String,
    },
    /// A directory was made, a path renamed or removed.
    Done {},
    /// Disk usage.
    DiskUsage(DiskUsage),
    /// What the host is.
    Probe(Box<Probe>),
}

/// A command's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecOutcome {
    /// Exit code; 128 + N for signal N, 124 on the deadline, 126 when it could not be started.
    pub rc: i32,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Whether the deadline ended it.
    pub timed_out: bool,
    /// Whether a descendant still held a pipe when this was sent.
    pub pipes_held: bool,
    /// Milliseconds from dispatch to the end of the main process.
    pub duration_ms: u64,
    /// Bytes of stdout that were dropped.
    pub stdout_dropped: u64,
    /// Bytes of stderr that were dropped.
    pub stderr_dropped: u64,
    /// Why the command could not be started, with `rc` 126 or 127.
    pub start_error: Option<String>,
}

/// The kind of a file system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe, a socket or a device.
    Other,
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner's user id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Modification time, seconds since the epoch.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time.
    pub mtime_ns: u32,
    /// Inode number.
    pub inode: u64,
    /// Device number.
    pub device: u64,
    /// Where a symbolic link points.
    pub target: Option<ByteText>,
}

/// One entry of a directory, as a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name within the directory.
    pub name: ByteText,
    /// What it is; absent when it vanished between listing and asking, or may not be asked.
    pub metadata: Option<Metadata>,
}

/// Disk usage of a tree and the counters of its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskUsage {
    /// Bytes allocated below the path, each inode once, on its own file system only.
    pub allocated: u64,
    /// Sum of the sizes.
    pub apparent: u64,
    /// Files, links and directories.
    pub entries: u64,
    /// Directories that could not be read.
    pub unreadable: u64,
    /// Size of the file system in bytes.
    pub total: u64,
    /// Bytes that the user may still write.
    pub available: u64,
    /// Inodes of the file system; 0 where it does not count them.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// What the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Kernel name, release and machine, as `uname -srm`.
    pub system: String,
    /// `PRETTY_NAME` of os-release.
    pub distribution: Option<String>,
    /// Name of the host.
    pub host: String,
    /// User name of the session, if the environment tells it.
    pub user: Option<String>,
    /// The user's login shell, if the environment tells it.
    pub shell: Option<ByteText>,
    /// Processors this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub mem_bytes: Option<u64>,
    /// Shells found: name and path.
    pub shells: Vec<(String, ByteText)>,
    /// Scheduler and environment commands found on the PATH: name and path.
    pub commands: Vec<(String, ByteText)>,
    /// GPUs as the kernel or `nvidia-smi` names them.
    pub gpus: Vec<String>,
    /// Soft limits: name and value (`unlimited` where there is none).
    pub limits: Vec<(String, String)>,
    /// Which environment recipe was used: `none`, `login` or `script`.
    pub environment: String,
    /// Why it is not the one that was asked for.
    pub environment_note: Option<String>,
}

/// How a stream ended when it could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// What went wrong.
    pub code: Code,
    /// A sentence with the thing and the value.
    pub message: String,
    /// The path that it is about.
    pub path: Option<ByteText>,
    /// The system's error number.
    pub errno: Option<i32>,
    /// With `no_space`: which of `bytes`, `inodes`, `quota` is used up, as far as it can be known.
    pub which: Option<String>,
}

/// What went wrong at the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A message that a correct client never sends.
    InvalidRequest,
    /// Something is over its bound.
    TooLarge,
    /// Nothing has this name.
    NotFound,
    /// Something has this name already.
    Exists,
    /// The user may not do this.
    Permission,
    /// No bytes, inodes or quota left.
    NoSpace,
    /// A directory where a file was due.
    IsDirectory,
    /// Something else where a directory was due.
    NotDirectory,
    /// Any other system error.
    Io,
    /// This helper can't do that.
    Unsupported,
    /// The client cancelled it.
    Cancelled,
    /// A bound on work under way is reached.
    Busy,
    /// What arrived does not have the digest or size that was announced.
    ChecksumMismatch,
    /// The workstation's policy forbids it; only a broker says so.
    PolicyDenied,
    /// The workstation's policy cannot be trusted; only a broker says so.
    PolicyInvalid,
    /// The line ended before it was sent, so nothing was done; only a broker says so.
    NotConnected,
}

/// Why an end closes the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bye {
    /// A sentence.
    pub reason: String,
}

/// A control payload that could not be read. It ends the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} message is malformed: {reason}")]
pub struct MessageError {
    /// Name of the message.
    pub what: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads a control payload.
///
/// # Errors
/// [`MessageError`] when it is not JSON of exactly this shape.
pub fn parse<T: DeserializeOwned>(what: &'static str, payload: &[u8]) -> Result<T, MessageError> {
    serde_json::from_slice(payload).map_err(|error| MessageError { what, reason: error.to_string() })
}

/// Writes a control payload.
///
/// # Errors
/// [`MessageError`] when the value cannot be written as JSON, which none of this module's types cause.
pub fn encode<T: Serialize>(what: &'static str, message: &T) -> Result<Vec<u8>, MessageError> {
    serde_json::to_vec(message).map_err(|error| MessageError { what, reason: error.to_string() })
}
