//! Adds up a tree and asks its file system's counters.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FileStat, fstat, fstatat};
use nix::sys::statvfs::statvfs;
use towline_helper::wire::message::{DiskUsage, FileKind, Outcome, Refusal};

use super::metadata::kind;
use super::walk::{Stopped, Visit, walk};
use crate::helper::fault::{cancelled, refuse_errno};

/// Most entries of one tree that are added up.
const ENTRIES_MAX: u64 = 50_000_000;
/// Most inodes with several names that are remembered, so that each counts once; further ones count at each name.
const LINKED_MAX: usize = 1 << 20;
/// Bytes of a block in `st_blocks`, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Answers a `disk_usage` request.
pub(super) fn disk_usage(path: &Path, is_cancelled: &dyn Fn() -> bool) -> Result<Outcome, Refusal> {
    let refuse = |errno| refuse_errno(errno, "add up", path);
    let counters = statvfs(path).map_err(refuse)?;
    let facts = fstatat(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(refuse)?;
    let mut adding = Adding::default();
    if kind(&facts) == FileKind::Directory {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_nul| refuse(Errno::EINVAL))?;
        match walk(AT_FDCWD, &name, &mut adding, is_cancelled) {
            Ok(()) => {}
            Err(Stopped::Cancelled) => return Err(cancelled()),
            Err(Stopped::Failed(errno, place)) => {
                return Err(refuse_errno(errno, "add up", &path.join(std::ffi::OsStr::from_bytes(&place))));
            }
        }
    } else {
        adding.add(&facts).map_err(refuse)?;
    }
    let fragment = counters.fragment_size();
    Ok(Outcome::DiskUsage(DiskUsage {
        allocated: adding.allocated,
        apparent: adding.apparent,
        entries: adding.entries,
        unreadable: adding.unreadable,
        total: counters.blocks().saturating_mul(fragment),
        available: counters.blocks_available().saturating_mul(fragment),
        inodes: counters.files(),
        inodes_free: counters.files_available(),
    }))
}

#[derive(Default)]
struct Adding {
    allocated: u64,
    apparent: u64,
    entries: u64,
    unreadable: u64,
    linked: HashSet<u64>,
}

impl Adding {
    fn add(&mut self, facts: &FileStat) -> Result<(), Errno> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(Errno::E2BIG);
        }
        let is_seen = kind(facts) != FileKind::Directory
            && facts.st_nlink > 1
            && self.linked.len() < LINKED_MAX
            && !self.linked.insert(facts.st_ino);
        if !is_seen {
            self.allocated += u64::try_from(facts.st_blocks).unwrap_or(0) * BLOCK_BYTES;
            self.apparent += u64::try_from(facts.st_size).unwrap_or(0);
        }
        Ok(())
    }
}

impl Visit for Adding {
    fn leaf(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(facts) => self.add(&facts),
            // It vanished meanwhile.
            Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn enter(&mut self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        self.add(&fstat(folder)?)
    }

    fn leave(&mut self, _parent: BorrowedFd<'_>, _name: &CStr) -> Result<(), Errno> {
        Ok(())
    }

    fn unreadable(&mut self, errno: Errno) -> Result<(), Errno> {
        match errno {
            // A mount point is another file system's.
            Errno::EXDEV | Errno::ENOENT => Ok(()),
            Errno::EACCES | Errno::EPERM => {
                self.unreadable += 1;
                Ok(())
            }
            errno => Err(errno),
        }
    }
}
