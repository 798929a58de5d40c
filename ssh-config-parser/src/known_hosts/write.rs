//! Recording a new host key.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rand::TryRngCore;
use rand::rngs::OsRng;

use super::key::KeyBlob;
use super::line::{HASH_BYTES, hashed as hash_name};
use super::name::LookupName;

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
        source: io::Error,
    },
    /// The system has no random bytes for a salt.
    #[error("no random bytes for the salt of a hashed name")]
    Random,
}

/// Appends one line for `key` to `file`, creating it (0600) and its folder (0700) if missing.
///
/// The file is locked meanwhile (this blocks while another process holds the lock), and what it already holds is
/// never rewritten: only a missing newline at its end is added first. With `hashed` the name is written with a
/// fresh salt.
///
/// # Errors
/// `Name` when the name cannot be recorded, `Io` when folder or file cannot be written, `Random` for want of a
/// salt. Trying again is safe: a line that stands twice is harmless.
pub fn append(file: &Path, name: &LookupName, key: &KeyBlob, hashed: bool) -> Result<(), WriteError> {
    let line = line(name, key, hashed)?;
    let fault = |path: &Path| {
        let path = path.to_path_buf();
        move |source| WriteError::Io { path, source }
    };
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(fault(folder))?;
    }
    write(file, &line).map_err(fault(file))
}

fn line(name: &LookupName, key: &KeyBlob, hashed: bool) -> Result<String, WriteError> {
    let illegal = |character: char| {
        "@?*#[]|'\"\\,!".contains(character) || character.is_whitespace() || character.is_control()
    };
    if let Some(character) = name.host().chars().find(|character| illegal(*character)) {
        return Err(WriteError::Name { name: name.host().to_owned(), character });
    }
    let written = if hashed {
        let mut salt = [0; HASH_BYTES];
        OsRng.try_fill_bytes(&mut salt).map_err(|_| WriteError::Random)?;
        hash_name(name, &salt).ok_or(WriteError::Random)?
    } else {
        name.text().to_owned()
    };
    Ok(format!("{written} {} {}\n", key.key_type(), key.to_base64()))
}

fn write(path: &Path, line: &str) -> io::Result<()> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    // The lock keeps two writers from both adding the missing newline; readers do not take it.
    let mut file: Flock<File> =
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
    let mut text = String::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != [b'\n'] {
            text.push('\n');
        }
    }
    text.push_str(line);
    // One call, so that a reader never sees half a line of ours.
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
