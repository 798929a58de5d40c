//! One line of the log: what it says, how it is written, how it is checked.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::clock::rfc3339;
use super::error::Error;
use super::redact::{self, bounded};

/// Longest name of a program, client, kind or outcome, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Bytes of `,"hash":"…"}` at the end of each line.
const SEAL_BYTES: usize = 9 + 64 + 2;

/// Who does something, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The process.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// The client's identity: a process of ours, or the name that an MCP client gave.
    pub client: String,
}

impl Who {
    /// This process, under a client's name.
    pub fn here(client: impl Into<String>) -> Who {
        let program = std::env::current_exe()
            .ok()
            .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
        // A program that was removed meanwhile has no name any more; the pid still tells.
        let program = program.unwrap_or_else(|| "unknown".to_owned());
        Who { pid: std::process::id(), program, client: client.into() }
    }
}

/// What is done: a word for its kind, and a description that is bounded and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct What {
    kind: String,
    detail: String,
}

impl What {
    /// Describes an operation in the caller's own words, cut to [`redact::DETAIL_BYTES_MAX`] bytes.
    ///
    /// Nothing is masked here: words of a command go through [`What::command`].
    pub fn new(kind: &str, detail: &str) -> What {
        What { kind: bounded(kind, NAME_BYTES_MAX), detail: bounded(detail, redact::DETAIL_BYTES_MAX) }
    }

    /// Describes a command by its words; secrets are masked as [`redact::words`] says.
    pub fn command<'a>(kind: &str, words: impl IntoIterator<Item = &'a str>) -> What {
        What { kind: bounded(kind, NAME_BYTES_MAX), detail: redact::words(words) }
    }

    /// Describes shell text; secrets are masked as [`redact::shell`] says.
    pub fn shell(kind: &str, text: &str) -> What {
        What { kind: bounded(kind, NAME_BYTES_MAX), detail: redact::shell(text) }
    }

    /// The kind's word.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The description.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// What is to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who does it.
    pub who: Who,
    /// On which site, if on one.
    pub site: Option<String>,
    /// On which role of it.
    pub role: Option<String>,
    /// What.
    pub what: What,
    /// How it ended, or that it begins.
    pub outcome: String,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its number, from 1.
    pub seq: u64,
    /// When it was written, RFC 3339 in UTC.
    pub at: String,
    /// Who did it.
    pub who: Who,
    /// On which site.
    pub site: Option<String>,
    /// On which role.
    pub role: Option<String>,
    /// What.
    pub what: What,
    /// How it ended.
    pub outcome: String,
    /// The hash of the line before; zeros for the first one; for a sealing line a hash over what is sealed.
    pub prev: String,
    /// SHA-256 of this line's bytes before `,"hash":`, in hexadecimal.
    pub hash: String,
}

/// The end of the chain: what the next line continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    /// Number of the last line; 0 before the first.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: String,
}

impl Tip {
    /// The tip of an empty chain.
    pub(super) fn beginning() -> Tip {
        Tip { seq: 0, hash: "0".repeat(64) }
    }

    /// What a line names as its predecessor when damaged bytes stand between it and this tip.
    pub(super) fn sealing(&self, damaged: &[u8]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.hash.as_bytes());
        hasher.update(damaged);
        hex(&hasher.finalize())
    }
}

/// The members of a line in the order in which they are hashed.
#[derive(Serialize)]
struct Unhashed<'a> {
    seq: u64,
    at: String,
    who: Who,
    site: Option<String>,
    role: Option<String>,
    what: &'a What,
    outcome: String,
    prev: &'a str,
}

/// Writes an entry as a line with its line end, and gives the tip that it makes.
pub(super) fn encode(entry: &Entry, seq: u64, at_ms: i64, prev: &str) -> Result<(Vec<u8>, Tip), Error> {
    let short = |text: &str| bounded(text, NAME_BYTES_MAX);
    let unhashed = Unhashed {
        seq,
        at: rfc3339(at_ms),
        who: Who { pid: entry.who.pid, program: short(&entry.who.program), client: short(&entry.who.client) },
        site: entry.site.as_deref().map(short),
        role: entry.role.as_deref().map(short),
        what: &entry.what,
        outcome: short(&entry.outcome),
        prev,
    };
    let mut bytes = serde_json::to_vec(&unhashed).map_err(Error::Encode)?;
    // The closing brace comes after the hash.
    bytes.pop();
    let hash = hex(&Sha256::digest(&bytes));
    bytes.extend_from_slice(format!(",\"hash\":\"{hash}\"}}\n").as_bytes());
    Ok((bytes, Tip { seq, hash }))
}

/// Reads a line without its line end; none unless its form and its own hash are right.
pub(super) fn decode(bytes: &[u8]) -> Option<Line> {
    let hashed = bytes.len().checked_sub(SEAL_BYTES).and_then(|length| bytes.get(..length))?;
    let line: Line = serde_json::from_slice(bytes).ok()?;
    (line.hash == hex(&Sha256::digest(hashed))).then_some(line)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn entry(kind: &str) -> Entry {
        Entry {
            who: Who { pid: 7, program: "towline".to_owned(), client: "c".to_owned() },
            site: Some("hpc".to_owned()),
            role: None,
            what: What::new(kind, "a\nb"),
            outcome: "ok".to_owned(),
        }
    }

    #[test]
    fn a_line_reads_back_and_any_changed_byte_is_seen() {
        let (bytes, tip) = encode(&entry("exec"), 1, 0, &Tip::beginning().hash).unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with(r#"{"seq":1,"at":"1970-01-01T00:00:00.000Z","who":{"pid":7"#), "{text}");
        assert!(text.ends_with("\"}\n"));
        let line = decode(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((line.seq, &line.hash), (1, &tip.hash));
        assert_eq!(line.what.detail(), "a\\nb");
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes[..bytes.len() - 1].to_vec();
            changed[at] ^= 1;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
    }

    #[test]
    fn every_member_is_bounded() {
        let long = "x".repeat(100_000);
        let entry = Entry {
            who: Who { pid: u32::MAX, program: long.clone(), client: long.clone() },
            site: Some(long.clone()),
            role: Some(long.clone()),
            what: What::new(&long, &long),
            outcome: long,
        };
        let (bytes, _) = encode(&entry, u64::MAX, i64::MAX, &Tip::beginning().hash).unwrap();
        assert!(bytes.len() < 2048, "{}", bytes.len());
        assert!(decode(&bytes[..bytes.len() - 1]).is_some());
    }
}
