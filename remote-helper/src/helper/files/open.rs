//! Opens a regular file for reading, and nothing else: opening a pipe would wait, opening a device may do things.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use towline_helper::wire::message::{Code, Refusal};

use crate::helper::fault::{refuse_errno, refuse_io, refuse_path};
use crate::helper::session::bytes_of;

/// Opens a regular file.
///
/// # Errors
/// Also when the path is a folder, a pipe, a socket or a device.
pub(super) fn open_regular(path: &Path) -> Result<(File, fs::Metadata), Refusal> {
    check_regular(path, &fs::metadata(path).map_err(|error| refuse_io(&error, "open", path))?)?;
    // Between the look and the opening it may have become a pipe, so the opening does not wait.
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match open(libc::O_NONBLOCK | libc::O_NOCTTY) {
        // Somebody holds a lease on the file: then the opening has to wait until he gives it back.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => open(libc::O_NOCTTY),
        result => result,
    };
    let file = file.map_err(|error| refuse_io(&error, "open", path))?;
    let metadata = file.metadata().map_err(|error| refuse_io(&error, "look at", path))?;
    check_regular(path, &metadata)?;
    Ok((file, metadata))
}

fn check_regular(path: &Path, metadata: &fs::Metadata) -> Result<(), Refusal> {
    if metadata.is_dir() {
        return Err(refuse_errno(Errno::EISDIR, "read", path));
    }
    if !metadata.is_file() {
        let shown = bytes_of(path);
        let message = format!("{} is a pipe, a socket or a device, not a regular file", shown.escaped());
        return Err(refuse_path(Code::Unsupported, message, &shown));
    }
    Ok(())
}
