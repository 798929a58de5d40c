//! The directory of a role's line: socket, receipt, life-time lock, log.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::receipt::{Receipt, Status};
use crate::config::{self, Home, Role, SiteName};
use crate::disk::{Fault, Folder, System};

/// The receipt's name.
pub(super) const RECEIPT: &str = "receipt.json";
/// The life-time lock's name.
pub(super) const LOCK: &str = "lock";
/// The log's name.
pub(super) const LOG: &str = "log";

/// Where a role's line lives.
#[derive(Clone, Debug)]
pub struct Place {
    /// The site.
    pub site: SiteName,
    /// The role of it.
    pub role: Role,
    dir: PathBuf,
    socket: PathBuf,
}

/// What is found there, without asking anybody.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The receipt.
    pub receipt: Option<Receipt>,
    /// Why what is there cannot be trusted.
    pub invalid: Option<String>,
    /// Whether a broker's process lives.
    pub alive: bool,
}

impl Place {
    /// The place of a role; touches no file.
    ///
    /// # Errors
    /// [`config::Error::SocketPath`] when the system could not bind its socket.
    pub fn of(home: &Home, site: &SiteName, role: Role) -> Result<Place, config::Error> {
        let socket = home.line_socket(site, role)?;
        Ok(Place { site: site.clone(), role, dir: home.line_dir(site, role), socket })
    }

    /// The places of every line that this workstation has ever had, whatever the configuration says now.
    pub fn all(home: &Home) -> Vec<Place> {
        let Some(lines) = SiteName::parse("x")
            .ok()
            .and_then(|any| home.line_dir(&any, Role::Login).parent().map(Path::to_owned))
        else {
            return Vec::new();
        };
        // Where there is no such directory, there was no line.
        let names = std::fs::read_dir(lines).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names
            .filter_map(|name| {
                let (site, role) = name.to_str()?.rsplit_once('.')?;
                let role = Role::ALL.into_iter().find(|known| known.as_str() == role)?;
                Place::of(home, &SiteName::parse(site).ok()?, role).ok()
            })
            .collect()
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// [`Fault`] when it is missing, or not the caller's alone.
    pub fn open(&self) -> Result<Folder, Fault> {
        Folder::open(Arc::new(System), &self.dir)
    }

    /// The same, and makes it where it is missing.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn make(&self) -> Result<Folder, Fault> {
        Folder::make(Arc::new(System), &self.dir)
    }

    /// Looks at receipt and lock; changes nothing.
    pub fn look(&self) -> Look {
        let invalid = |reason: String| Look { invalid: Some(reason), ..Look::default() };
        let folder = match self.open() {
            Ok(folder) => folder,
            Err(Fault::Missing { .. }) => return Look::default(),
            Err(fault) => return invalid(fault.to_string()),
        };
        let alive = match is_locked(&folder) {
            Ok(alive) => alive,
            Err(fault) => return invalid(fault.to_string()),
        };
        match Receipt::read(&folder) {
            Ok(receipt) => Look { receipt, invalid: None, alive },
            Err(reason) => Look { alive, ..invalid(reason) },
        }
    }

    /// Whether the socket is one, the caller's alone. False when nothing is there.
    ///
    /// # Errors
    /// What else is there.
    pub fn has_socket(&self) -> Result<bool, String> {
        let shown = self.socket.display();
        let metadata = match std::fs::symlink_metadata(&self.socket) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(format!("cannot look at {shown}: {error}")),
        };
        if !metadata.file_type().is_socket() {
            return Err(format!("{shown} is not a socket"));
        }
        if metadata.uid() != nix::unistd::geteuid().as_raw() {
            return Err(format!("{shown} belongs to the user {}", metadata.uid()));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(format!("{shown} has mode {:04o}", metadata.mode() & 0o7777));
        }
        Ok(true)
    }
}

impl Look {
    /// The contract's word for how the line stands, and why.
    pub fn state(&self) -> (&'static str, Option<String>) {
        if let Some(reason) = &self.invalid {
            return ("invalid", Some(reason.clone()));
        }
        match (&self.receipt, self.alive) {
            (None, false) => ("absent", None),
            (None, true) => (Status::Starting.as_str(), None),
            (Some(receipt), alive) => match (receipt.status, alive) {
                (Status::Starting | Status::Ready | Status::Stopping, false) => {
                    let reason = format!(
                        "its broker (pid {}) ended without a word; `towline connect` opens a new line",
                        receipt.pid
                    );
                    (Status::Failed.as_str(), Some(reason))
                }
                // A new broker holds the lock already and has not written yet.
                (Status::Stopped | Status::Failed, true) => (Status::Starting.as_str(), None),
                (status, _) => {
                    (status.as_str(), receipt.error.clone().or_else(|| receipt.stop_reason.clone()))
                }
            },
        }
    }

    /// The receipt of a line that can be used, as far as files tell.
    pub fn ready(&self) -> Option<&Receipt> {
        self.receipt.as_ref().filter(|receipt| self.alive && receipt.status == Status::Ready)
    }
}

/// Whether a broker holds the life-time lock.
pub(super) fn is_locked(folder: &Folder) -> Result<bool, Fault> {
    // A look makes no file.
    if folder.look(LOCK)?.is_none() {
        return Ok(false);
    }
    match folder.lock(LOCK, Duration::ZERO) {
        Ok(_free) => Ok(false),
        Err(Fault::Busy { .. }) => Ok(true),
        Err(fault) => Err(fault),
    }
}
