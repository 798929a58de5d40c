//! What the known lines say about an offered key.

use std::path::{Path, PathBuf};

use super::key::{CertificateFacts, KeyBlob};
use crate::rejection::Note;

/// All lines of one or more known_hosts files.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    notes: Vec<Note>,
}

/// The name under which a host is looked up: the alias, or the host with its port in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupName {
    text: String,
}

impl LookupName {
    /// Makes the name of `hostname` at `port`; an `alias` replaces it and never carries a port.
    pub fn new(hostname: &str, _port: u16, _alias: Option<&str>) -> Self {
        Self {
            text: hostname.to_owned(),
        }
    }

    /// Gives the text that lines are compared with.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A line of a known_hosts file, with the key that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u64,
    /// The key on it.
    pub key: KeyBlob,
}

/// What the known lines say about a plain key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A line holds this very key.
    Ok {
        /// That line.
        line: Place,
    },
    /// No line knows this host.
    New,
    /// Lines know this host, none with this key.
    Changed {
        /// Those lines.
        lines: Vec<Place>,
    },
    /// The key is revoked.
    Revoked {
        /// The line that says so.
        line: Place,
    },
}

/// What the known lines say about a host certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateVerdict {
    /// A trusted authority vouches for this host.
    Ok {
        /// The authority's line.
        line: Place,
    },
    /// The key or its authority is revoked.
    Revoked {
        /// The line that says so.
        line: Place,
    },
    /// The certificate does not count; the plain key inside is to be judged.
    JudgePlainKey {
        /// Why it does not count.
        reason: String,
    },
}

impl KnownHosts {
    /// Reads the user's files and then the system's; one that is missing or unreadable is skipped with a note.
    pub fn load(_user: &[PathBuf], _global: &[PathBuf]) -> KnownHosts {
        KnownHosts::default()
    }

    /// Takes the bytes of one file.
    pub fn parse(_path: &Path, _bytes: &[u8]) -> KnownHosts {
        KnownHosts::default()
    }

    /// Gives what was skipped: files and malformed lines.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Judges a plain key.
    pub fn judge_key(&self, _name: &LookupName, _key: &KeyBlob) -> Verdict {
        Verdict::New
    }

    /// Judges a host certificate at a time in seconds since 1970.
    pub fn judge_certificate(
        &self,
        _name: &LookupName,
        _certificate: &CertificateFacts,
        _now_unix: u64,
        _ca_algorithms: &[String],
    ) -> CertificateVerdict {
        CertificateVerdict::JudgePlainKey {
            reason: String::new(),
        }
    }

    /// Orders host key algorithms so that known types come first.
    pub fn prefer_algorithms(&self, _name: &LookupName, default: &[String]) -> Vec<String> {
        default.to_vec()
    }
}
