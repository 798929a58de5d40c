//! The directory that a demo server lives in: keys, home, cluster and socket.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::batch;

/// The name under which clients find the server's key in [`Server::known_hosts_file`](super::Server::known_hosts_file).
pub const HOST: &str = "towline-demo";

#[derive(Debug)]
pub(super) struct Scratch {
    root: PathBuf,
    /// Removes the directory when dropped; none where the caller named one.
    temporary: Option<tempfile::TempDir>,
}

impl Scratch {
    /// Makes the directory and those in it, all 0700.
    pub(super) fn create(named: Option<PathBuf>) -> io::Result<Self> {
        let (root, temporary) = if let Some(root) = named {
            directory(&root)?;
            (fs::canonicalize(root)?, None)
        } else {
            let made = tempfile::Builder::new()
                .prefix("towline-demo-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()?;
            (fs::canonicalize(made.path())?, Some(made))
        };
        let scratch = Self { root, temporary };
        directory(&scratch.home())?;
        directory(&scratch.home().join("bin"))?;
        directory(&scratch.cluster())?;
        Ok(scratch)
    }

    /// Puts the batch commands into the home's `bin`, all names of one program, and the `bin` first in login shells
    /// too: a system's profile may have set the path anew.
    pub(super) fn link_batch_commands(&self, program: &Path) -> io::Result<()> {
        for name in batch::COMMANDS {
            let link = self.home().join("bin").join(name);
            match fs::remove_file(&link) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => symlink(program, link)?,
            }
        }
        write_private(&self.home().join(".profile"), "PATH=\"$HOME/bin:$PATH\"\n")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.root.join("sock")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.root.join("cluster")
    }

    pub(super) fn identity_file(&self) -> PathBuf {
        self.root.join("id_ed25519")
    }

    pub(super) fn known_hosts_file(&self) -> PathBuf {
        self.root.join("known_hosts")
    }

    /// Removes a temporary directory; keeps a named one.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.temporary.take().map_or(Ok(()), tempfile::TempDir::close)
    }
}

/// Makes a directory that only its owner can use; one that is open to others already is refused, not tightened.
fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("{} has mode {mode:o}, which lets others in", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
