//! Renames, and so puts whole files in their place: with the promise that nothing existing is lost unless asked.

use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use towline_helper::wire::message::{Outcome, Refusal};

use crate::helper::fault::refuse_errno;

/// Answers a `rename` request.
pub(super) fn rename_path(from: &Path, to: &Path, overwrite: bool) -> Result<Outcome, Refusal> {
    let result = match overwrite {
        true => renameat(AT_FDCWD, from, AT_FDCWD, to),
        false => rename_new(AT_FDCWD, from, to),
    };
    match result {
        Ok(()) => Ok(Outcome::Done {}),
        Err(errno @ (Errno::EEXIST | Errno::ENOTEMPTY | Errno::EISDIR)) => {
            Err(refuse_errno(errno, "replace", to))
        }
        Err(errno) => Err(refuse_errno(errno, "rename", from)),
    }
}

/// Renames within a folder (or of paths, with the current one) where nothing has the new name, even when somebody
/// else makes it at the same moment.
///
/// # Errors
/// `EEXIST` when something has the name.
pub(super) fn rename_new(folder: impl AsFd + Copy, from: &Path, to: &Path) -> Result<(), Errno> {
    match rename_no_replace(folder, from, to) {
        // NFS and older file systems don't know the flag. EINVAL has other reasons too: they come again below.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => rename_new_by_link(folder, from, to),
        result => result,
    }
}

#[cfg(target_env = "gnu")]
fn rename_no_replace(folder: impl AsFd + Copy, from: &Path, to: &Path) -> Result<(), Errno> {
    use nix::fcntl::{RenameFlags, renameat2};
    renameat2(folder, from, folder, to, RenameFlags::RENAME_NOREPLACE)
}

/// Other C libraries have no wrapper for the call.
#[cfg(not(target_env = "gnu"))]
fn rename_no_replace(_folder: impl AsFd + Copy, _from: &Path, _to: &Path) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

/// A second name is never given to something that exists, so link and unlink rename without replacing.
fn rename_new_by_link(folder: impl AsFd + Copy, from: &Path, to: &Path) -> Result<(), Errno> {
    let facts = fstatat(folder, from, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let is_folder = SFlag::from_bits_truncate(facts.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    match linkat(folder, from, folder, to, AtFlags::empty()) {
        Ok(()) => unlinkat(folder, from, UnlinkatFlags::NoRemoveDir),
        Err(Errno::EEXIST) => {
            // An NFS server that lost its answer to the first try says so about its own link.
            let there = fstatat(folder, to, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            match (there.st_dev, there.st_ino) == (facts.st_dev, facts.st_ino) && there.st_nlink == 2 {
                true => unlinkat(folder, from, UnlinkatFlags::NoRemoveDir),
                false => Err(Errno::EEXIST),
            }
        }
        // A folder has one name only. Between the look and the rename somebody may make the new one; the kernel then
        // still refuses to replace anything but an empty folder.
        Err(Errno::EPERM) if is_folder => match fstatat(folder, to, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(_there) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => renameat(folder, from, folder, to),
            Err(errno) => Err(errno),
        },
        // No links here at all: an empty file of our own reserves the name.
        Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EMLINK) => {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            drop(openat(folder, to, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
            renameat(folder, from, folder, to)
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_fall_back_for_old_file_systems_renames_and_never_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "new").unwrap();
        fs::write(path("b"), "old").unwrap();
        assert_eq!(rename_new_by_link(AT_FDCWD, &path("a"), &path("b")), Err(Errno::EEXIST));
        assert_eq!(fs::read(path("b")).unwrap(), b"old");
        rename_new_by_link(AT_FDCWD, &path("a"), &path("c")).unwrap();
        assert_eq!(fs::read(path("c")).unwrap(), b"new");
        assert!(!path("a").exists());
        fs::create_dir(path("d")).unwrap();
        fs::create_dir(path("e")).unwrap();
        assert_eq!(rename_new_by_link(AT_FDCWD, &path("d"), &path("e")), Err(Errno::EEXIST));
        rename_new_by_link(AT_FDCWD, &path("d"), &path("f")).unwrap();
        assert!(path("f").is_dir());
    }
}
