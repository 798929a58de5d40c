//! All files of a configuration, read once.

use std::path::{Path, PathBuf};

use crate::rejection::{Finding, Reason, Rejection};
use crate::resolved::Resolved;
use crate::world::World;

/// A configuration whose files were read once; later edits change nothing.
#[derive(Debug)]
pub struct Snapshot {
    world: World,
}

/// One text without `Include` and `Match` that means the same for every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flattened {
    /// The text, byte for byte as it may stand in a file.
    pub text: Vec<u8>,
    /// The files that went into it, in reading order, each once.
    pub files: Vec<PathBuf>,
}

impl Snapshot {
    /// Reads `file`, or `~/.ssh/config` where none is named, and every file that it includes.
    ///
    /// # Errors
    /// `Io` when a named file cannot be read (a missing default one is empty), `Permissions` for the default one.
    pub fn read(_file: Option<&Path>, world: World) -> Result<Snapshot, Rejection> {
        Ok(Snapshot { world })
    }

    /// Answers what `ssh -G` would for `host`, which may be `name`, `user@name` or `ssh://user@name:port`.
    ///
    /// # Errors
    /// The first problem in reading order, with its file and line.
    pub fn resolve(&self, _host: &str) -> Result<Resolved, Rejection> {
        Err(Rejection::new(
            Reason::Io,
            format!("no configuration was read for {}", self.world.user),
        ))
    }

    /// Answers for every hop on the way to `host`, in the order in which they are dialled, `host` itself last.
    ///
    /// # Errors
    /// As [`Snapshot::resolve`], for any hop; `JumpLoop` when a hop comes up twice or the chain is longer than 16.
    pub fn resolve_route(&self, host: &str) -> Result<Vec<Resolved>, Rejection> {
        Ok(vec![self.resolve(host)?])
    }

    /// Gives one text without `Include` and `Match` that means the same for every host.
    ///
    /// # Errors
    /// The first problem in reading order, with its file and line.
    pub fn flatten(&self) -> Result<Flattened, Rejection> {
        Ok(Flattened {
            text: Vec::new(),
            files: Vec::new(),
        })
    }
}

/// Lists all that is wrong with `file` (or `~/.ssh/config`) or without effect, in reading order.
pub fn check(_file: Option<&Path>, _world: &World) -> Vec<Finding> {
    Vec::new()
}
