//! Makes directories.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, stat};
use nix::unistd::mkdir;
use towline_helper::wire::message::{Outcome, Refusal};

use crate::helper::fault::refuse_errno;

/// Mode bits of parents before the umask, as `mkdir -p` makes them.
const MODE_OF_PARENTS: Mode = Mode::from_bits_truncate(0o777);

/// Answers a `mkdir` request.
pub(super) fn make_folder(path: &Path, parents: bool, mode: u32, umask: Mode) -> Result<Outcome, Refusal> {
    if parents && let Some(parent) = path.parent() {
        make_parents(parent)?;
    }
    let mode = Mode::from_bits_truncate(mode) & Mode::from_bits_truncate(0o7777);
    match mkdir(path, mode) {
        // The kernel takes permission bits only; what else was asked for is set afterwards.
        Ok(()) if mode.bits() & 0o7000 != 0 => {
            let mode = mode & !umask;
            fchmodat(AT_FDCWD, path, mode, FchmodatFlags::FollowSymlink)
                .map_err(|errno| refuse_errno(errno, "set the mode of", path))?;
        }
        Ok(()) => {}
        Err(Errno::EEXIST) if parents && is_folder(path) => {}
        Err(errno) => return Err(refuse_errno(errno, "make the directory", path)),
    }
    Ok(Outcome::Done {})
}

/// Makes a directory and all that lead to it, where they are missing.
pub(super) fn make_parents(path: &Path) -> Result<(), Refusal> {
    if path.as_os_str().is_empty() || is_folder(path) {
        return Ok(());
    }
    let missing: Vec<&Path> =
        path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !is_folder(p)).collect();
    for folder in missing.into_iter().rev() {
        match mkdir(folder, MODE_OF_PARENTS) {
            Ok(()) => {}
            // Another process may have made it meanwhile.
            Err(Errno::EEXIST) if is_folder(folder) => {}
            // Something else has that name: the path can't lead through it.
            Err(Errno::EEXIST) => return Err(refuse_errno(Errno::ENOTDIR, "make directories below", folder)),
            Err(errno) => return Err(refuse_errno(errno, "make the directory", folder)),
        }
    }
    Ok(())
}

fn is_folder(path: &Path) -> bool {
    use nix::sys::stat::SFlag;
    stat(path).is_ok_and(|facts| SFlag::from_bits_truncate(facts.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}
