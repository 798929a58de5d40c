//! Lists of revoked keys.

use std::path::{Path, PathBuf};

use super::key::KeyBlob;
use crate::lines::numbered;

/// How a binary list begins.
const BINARY_MAGIC: &[u8] = b"SSHKRL\n\0";

/// Says why a list of revoked keys cannot be used; then no key may be accepted.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The list cannot be read.
    #[error("list of revoked keys {} cannot be read", path.display())]
    Unreadable {
        /// The list.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The list is a binary one.
    #[error("list of revoked keys {} is a binary KRL, only plain lists of keys are understood", path.display())]
    Binary {
        /// The list.
        path: PathBuf,
    },
    /// A line is no public key.
    #[error("list of revoked keys {}, line {line}: {message}", path.display())]
    Line {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        message: String,
    },
}

/// Tells whether any list names `key` or its authority `ca`.
///
/// A list holds one public key a line: type, base64, and a comment.
///
/// # Errors
/// When a list cannot be read or understood, even if another one names the key: it must then be refused anyway.
pub fn revoked_by_list(files: &[PathBuf], key: &KeyBlob, ca: Option<&KeyBlob>) -> Result<bool, ListError> {
    let mut revoked = false;
    for path in files {
        let bytes = crate::reading::whole(path)
            .map_err(|source| ListError::Unreadable { path: path.clone(), source })?;
        let keys = parse(path, &bytes)?;
        revoked |= keys.iter().any(|listed| listed == key || Some(listed) == ca);
    }
    Ok(revoked)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<KeyBlob>, ListError> {
    if bytes.starts_with(BINARY_MAGIC) {
        return Err(ListError::Binary { path: path.to_path_buf() });
    }
    let mut keys = Vec::new();
    for (number, line) in numbered(bytes) {
        let wrong = |message: String| ListError::Line { path: path.to_path_buf(), line: number, message };
        let mut fields =
            line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|field| !field.is_empty());
        let Some(key_type) = fields.next().filter(|first| !first.starts_with(b"#")) else {
            continue;
        };
        let key = KeyBlob::from_text(key_type, fields.next().unwrap_or_default())
            .map_err(|error| wrong(error.to_string()))?;
        // The key inside a certificate would be what is revoked, and it is not read here.
        if key.key_type().contains("-cert-v01@") {
            return Err(wrong("a certificate, only plain keys are understood".to_owned()));
        }
        keys.push(key);
    }
    Ok(keys)
}
