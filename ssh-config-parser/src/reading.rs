//! Reads whole files, but nothing that never ends and nothing that never begins.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Largest file that is read; a configuration is far below, an endless device is not.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Opens a file and looks at it. A named pipe is refused, since nobody may ever write to it; what stands in `/dev` is
/// the caller's own, such as a shell's `<(…)`.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata)> {
    let is_device = path.starts_with("/dev") || path.starts_with("/proc/self/fd");
    // Without it, the opening itself would wait for a writer.
    let flags = if is_device { OFlag::empty() } else { OFlag::O_NONBLOCK };
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let facts = file.metadata()?;
    match facts.file_type().is_fifo() && !is_device {
        true => Err(Error::other("it is a named pipe")),
        false => Ok((file, facts)),
    }
}

/// Reads the rest of a file of bounded size.
pub(crate) fn rest(file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(Error::other(format!("longer than {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads a file from its beginning to its end.
pub(crate) fn whole(path: &Path) -> Result<Vec<u8>> {
    open(path).and_then(|(file, _)| rest(file))
}
