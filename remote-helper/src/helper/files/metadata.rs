//! What a path is.

use std::ffi::{CStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstatat};
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{FileKind, Metadata, Outcome, Refusal};

use crate::helper::fault::refuse_errno;

/// Answers a `stat` request.
pub(super) fn stat(path: &Path, follow: bool) -> Result<Outcome, Refusal> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    let facts = fstatat(AT_FDCWD, path, flags).map_err(|errno| refuse_errno(errno, "look at", path))?;
    let target = match kind(&facts) {
        FileKind::Symlink => {
            Some(readlinkat(AT_FDCWD, path).map_err(|errno| refuse_errno(errno, "read the link", path))?)
        }
        _ => None,
    };
    Ok(Outcome::Stat(metadata(&facts, target)))
}

/// What an entry of an open folder is, links not followed.
pub(super) fn of_entry(folder: BorrowedFd<'_>, name: &CStr) -> Result<Metadata, Errno> {
    let facts = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let target = match kind(&facts) {
        FileKind::Symlink => Some(readlinkat(folder, name)?),
        _ => None,
    };
    Ok(metadata(&facts, target))
}

/// The kind that a mode word holds.
pub(super) fn kind(facts: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(facts.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

fn metadata(facts: &FileStat, target: Option<OsString>) -> Metadata {
    Metadata {
        kind: kind(facts),
        size: u64::try_from(facts.st_size).unwrap_or(0),
        mode: facts.st_mode & 0o7777,
        uid: facts.st_uid,
        gid: facts.st_gid,
        mtime_s: facts.st_mtime,
        mtime_ns: u32::try_from(facts.st_mtime_nsec).unwrap_or(0),
        inode: facts.st_ino,
        device: facts.st_dev,
        target: target.map(|target| ByteText(target.into_vec())),
    }
}
