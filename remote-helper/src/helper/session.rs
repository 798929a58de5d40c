//! What the SSH session gave to the helper, read once at its start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, gethostname};
use sha2::{Digest as _, Sha256};
use towline_helper::wire::message::{Code, Hello, Refusal};
use towline_helper::wire::{ByteText, PROTOCOL};

use super::fault;

/// Variables that a shell would run code from before the command; they never reach one (`o2.md` 3.3).
const VARIABLES_REMOVED: [&str; 2] = ["BASH_ENV", "ENV"];
/// The variable that tells which command a process descends from, whatever sessions lie between.
pub(crate) const STREAM_VARIABLE: &str = "TOWLINE_STREAM";

/// An environment: names and values as bytes.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// The random text that the bootstrap waits for: 32 lower-case hexadecimal digits.
#[derive(Clone, Debug)]
pub(crate) struct Marker(String);

impl Marker {
    /// Reads a marker from an argument.
    pub(crate) fn parse(argument: &OsStr) -> Option<Marker> {
        let text = argument.to_str()?;
        let is_marker =
            text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_marker.then(|| Marker(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The session's facts.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) marker: Marker,
    /// The session's environment without what must not reach a command.
    pub(crate) variables: Variables,
    pub(crate) home: PathBuf,
    pub(crate) cwd: PathBuf,
    /// Bits that new files don't get.
    pub(crate) umask: Mode,
}

impl Session {
    /// Reads the session's facts. Called before any other thread exists, since it reads the umask by setting it.
    pub(crate) fn read(marker: Marker) -> Session {
        let mask = umask(Mode::empty());
        umask(mask);
        let variables = without_start_files(std::env::vars_os().collect());
        let home = variables
            .get(OsStr::new("HOME"))
            .filter(|home| !home.is_empty())
            .map(PathBuf::from)
            .or_else(|| home_from_passwd(Uid::current()))
            .unwrap_or_else(|| PathBuf::from("/"));
        // A start directory that was removed has no path; commands inherit it all the same.
        let cwd = std::env::current_dir().unwrap_or_else(|_removed| home.clone());
        Session { marker, variables, home, cwd, umask: mask }
    }

    /// The helper's first frame.
    pub(crate) fn hello(&self) -> Hello {
        let host = gethostname().map(|name| name.to_string_lossy().into_owned());
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Without /proc the helper can't read its own file; the client decides whether that is acceptable.
            sha256: own_sha256().unwrap_or_default(),
            pid: std::process::id(),
            boot_id: boot_id(),
            host: host.unwrap_or_default(),
            uid: Uid::current().as_raw(),
            home: bytes_of(&self.home),
            cwd: bytes_of(&self.cwd),
            capabilities: Vec::new(),
        }
    }

    /// The path that a request means: literal but for a leading `~/`; a relative one begins at the start directory.
    pub(crate) fn resolve(&self, path: &ByteText) -> Result<PathBuf, Refusal> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(fault::refuse_path(Code::InvalidRequest, "path is empty".to_owned(), path));
        }
        if bytes.contains(&0) {
            return Err(fault::refuse_path(Code::InvalidRequest, "path holds a NUL byte".to_owned(), path));
        }
        Ok(match bytes.strip_prefix(b"~/") {
            Some(rest) => self.home.join(OsStr::from_bytes(without_leading_slashes(rest))),
            None => PathBuf::from(OsStr::from_bytes(bytes)),
        })
    }

    /// The marking of a command's descendants: the line, the stream, and whether they were detached on purpose.
    pub(crate) fn stream_mark(&self, stream: u32, detach: bool) -> OsString {
        let detached = if detach { "d" } else { "" };
        OsString::from(format!("{}.{stream}{detached}", self.marker.as_str()))
    }
}

/// Leading slashes cut off, so that joining keeps a path below its base.
fn without_leading_slashes(bytes: &[u8]) -> &[u8] {
    let slashes = bytes.iter().take_while(|byte| **byte == b'/').count();
    bytes.get(slashes..).unwrap_or_default()
}

/// Removes what would run start-up files in every shell.
pub(crate) fn without_start_files(mut variables: Variables) -> Variables {
    for name in VARIABLES_REMOVED {
        variables.remove(OsStr::new(name));
    }
    variables
}

/// A path's bytes for a message.
pub(crate) fn bytes_of(path: &Path) -> ByteText {
    ByteText(path.as_os_str().as_bytes().to_vec())
}

/// SHA-256 of the helper's own file; also works when it runs from memory.
fn own_sha256() -> io::Result<String> {
    let mut file = File::open("/proc/self/exe")?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0_u8; 64 << 10]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(buffer.get(..count).unwrap_or_default());
    }
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn boot_id() -> String {
    // Empty where the kernel does not tell it.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The home that the local password file names. The system's own look-up would load shared modules into a static
/// program, so users of a directory service without `HOME` get none.
fn home_from_passwd(uid: Uid) -> Option<PathBuf> {
    let text = std::fs::read("/etc/passwd").ok()?;
    let uid = uid.to_string();
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let home = fields.get(5).filter(|home| !home.is_empty())?;
        (*fields.get(2)? == uid.as_bytes()).then(|| PathBuf::from(OsString::from_vec(home.to_vec())))
    })
}
