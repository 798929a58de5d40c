//! What the known lines may say about an offered key.

use std::path::PathBuf;

use super::key::KeyBlob;

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
    /// Lines know this host, none with this key; they may be of another type.
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
