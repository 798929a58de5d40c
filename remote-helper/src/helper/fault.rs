//! System errors as refusals of the protocol.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{Code, Refusal};

use super::session::bytes_of;

/// A refusal that is about no path.
pub(crate) fn refuse(code: Code, message: String) -> Refusal {
    Refusal { code, message, path: None, errno: None, which: None }
}

/// A refusal that is about a path.
pub(crate) fn refuse_path(code: Code, message: String, path: &ByteText) -> Refusal {
    Refusal { code, message, path: Some(path.clone()), errno: None, which: None }
}

/// The refusal of work that the client cancelled.
pub(crate) fn cancelled() -> Refusal {
    refuse(Code::Cancelled, "cancelled by the client".to_owned())
}

/// The refusal for a failed system call on a path; `doing` completes "cannot …".
///
/// May ask the file system for its counters, so it's called on a file thread only.
pub(crate) fn refuse_errno(errno: Errno, doing: &str, path: &Path) -> Refusal {
    let shown = bytes_of(path);
    let (which, counters) = match errno {
        Errno::ENOSPC | Errno::EDQUOT => space(errno, path),
        _ => (None, String::new()),
    };
    let message = format!("cannot {doing} {}: {}{counters}", shown.escaped(), errno.desc());
    Refusal { code: code_of(errno), message, path: Some(shown), errno: Some(errno as i32), which }
}

/// The refusal for a failed operation of the standard library.
pub(crate) fn refuse_io(error: &std::io::Error, doing: &str, path: &Path) -> Refusal {
    refuse_errno(errno_of(error), doing, path)
}

/// The system's number of an error; `EIO` for what the standard library made up itself.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn code_of(errno: Errno) -> Code {
    match errno {
        Errno::ENOENT => Code::NotFound,
        Errno::EEXIST => Code::Exists,
        Errno::EACCES | Errno::EPERM => Code::Permission,
        Errno::ENOSPC | Errno::EDQUOT => Code::NoSpace,
        Errno::EISDIR => Code::IsDirectory,
        Errno::ENOTDIR => Code::NotDirectory,
        _ => Code::Io,
    }
}

/// What is used up, as far as it can be known, and the counters as text.
fn space(errno: Errno, path: &Path) -> (Option<String>, String) {
    // The path itself may not exist: the nearest ancestor that does is on the file system in question.
    let counters = path.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let counters = counters.map(statvfs).find_map(Result::ok);
    let Some(counters) = counters else {
        return ((errno == Errno::EDQUOT).then(|| "quota".to_owned()), String::new());
    };
    let bytes = counters.blocks_available().saturating_mul(counters.fragment_size());
    let (inodes, all_inodes) = (counters.files_available(), counters.files());
    let which = if errno == Errno::EDQUOT {
        Some("quota")
    } else if all_inodes > 0 && inodes == 0 {
        Some("inodes")
    } else if counters.blocks_available() == 0 || bytes < 1 << 20 {
        Some("bytes")
    } else {
        None
    };
    let text = format!(" ({bytes} bytes and {inodes} of {all_inodes} inodes are free)");
    (which.map(str::to_owned), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_of_the_contract_has_its_code() {
        let table = [
            (Errno::ENOENT, Code::NotFound),
            (Errno::EEXIST, Code::Exists),
            (Errno::EACCES, Code::Permission),
            (Errno::EPERM, Code::Permission),
            (Errno::ENOSPC, Code::NoSpace),
            (Errno::EDQUOT, Code::NoSpace),
            (Errno::EISDIR, Code::IsDirectory),
            (Errno::ENOTDIR, Code::NotDirectory),
            (Errno::EIO, Code::Io),
            (Errno::ESTALE, Code::Io),
        ];
        for (errno, code) in table {
            let refusal = refuse_errno(errno, "open", Path::new("/nowhere/at/all"));
            assert_eq!((refusal.code, refusal.errno), (code, Some(errno as i32)));
        }
    }

    #[test]
    fn a_used_up_quota_is_told_from_a_full_disk() {
        let quota = refuse_errno(Errno::EDQUOT, "write", Path::new("/tmp/x"));
        assert_eq!(quota.which.as_deref(), Some("quota"));
        let full = refuse_errno(Errno::ENOSPC, "write", Path::new("/tmp/x"));
        assert_ne!(full.which.as_deref(), Some("quota"));
        assert!(full.message.contains("inodes are free"), "{}", full.message);
    }
}
