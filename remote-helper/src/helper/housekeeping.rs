//! Keeps the folder of cached helpers in order. Best effort: a line never depends on it.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long a cached helper stays that nobody used. Use touches it, also where it runs on other nodes over NFS.
const UNUSED_MOST: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a temporary file may belong to a bootstrap that is still under way.
const TEMPORARY_MOST: Duration = Duration::from_secs(24 * 3600);
/// Stack of the thread.
const STACK_BYTES: usize = 256 << 10;

const README: &str = "\
This folder belongs to towline, a client for clusters over SSH.

The files named by 64 digits are its helper program. A towline client started one when somebody with this account
opened a connection; it serves that connection alone, and ends with it. Each file is named by its SHA-256.

They can be removed at any time; the next connection brings a new one. Files unused for 30 days remove themselves.
";

/// Begins the work on a thread of its own.
pub(crate) fn start() {
    let thread = std::thread::Builder::new().name("towline-tidy".to_owned()).stack_size(STACK_BYTES);
    // Without a thread the folder waits for the next line.
    drop(thread.spawn(|| {
        let Ok(own) = fs::read_link("/proc/self/exe") else { return };
        if let Some(folder) = own.parent().filter(|folder| is_ours(folder)) {
            tidy(folder, &own, SystemTime::now());
        }
    }));
}

/// Whether a folder is one that the bootstrap makes: nothing else is ever touched.
fn is_ours(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == "towline" || name.starts_with(".towline-"))
}

fn tidy(folder: &Path, own: &Path, now: SystemTime) {
    // Whatever fails here (a full disk, another owner) fails for the next line as well, and harms nobody.
    let touched = File::open(own).and_then(|file| file.set_times(FileTimes::new().set_modified(now)));
    touched.unwrap_or_default();
    let readme = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("README"));
    readme.and_then(|mut file| file.write_all(README.as_bytes())).unwrap_or_default();
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Some(most) = entry.file_name().to_str().and_then(age_most) else { continue };
        let modified =
            entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|facts| facts.modified().ok());
        let is_old = modified.and_then(|at| now.duration_since(at).ok()).is_some_and(|age| age > most);
        if is_old && entry.path() != own {
            fs::remove_file(entry.path()).unwrap_or_default();
        }
    }
}

/// How old a file of this name may get; none for names that are not the bootstrap's.
fn age_most(name: &str) -> Option<Duration> {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if name.len() == 64 && is_hex(name) {
        return Some(UNUSED_MOST);
    }
    let (marker, pid) = name.strip_prefix('.')?.split_once('.')?;
    let is_temporary =
        matches!(marker.len(), 16 | 32) && is_hex(marker) && pid.bytes().all(|b| b.is_ascii_digit());
    is_temporary.then_some(TEMPORARY_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_files_of_the_bootstrap_are_removed_and_never_the_running_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("towline");
        fs::create_dir(&folder).unwrap();
        assert!(is_ours(&folder) && is_ours(Path::new("/tmp/.towline-1000")) && !is_ours(root.path()));
        let now = SystemTime::now();
        let file = |name: &str, days: u64| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(now - Duration::from_secs(days * 24 * 3600)).unwrap();
            folder.join(name)
        };
        let own = file(&"a".repeat(64), 100);
        let (old, young) = (file(&"b".repeat(64), 31), file(&"c".repeat(64), 29));
        let (stale, fresh) = (file(".0123456789abcdef.4711", 2), file(".0123456789abcdef.4712", 0));
        let foreign = file("notes.txt", 1000);
        tidy(&folder, &own, now);
        let there = [&own, &old, &young, &stale, &fresh, &foreign].map(|path| path.exists());
        assert_eq!(there, [true, false, true, false, true, true]);
        assert!(folder.join("README").exists());
        let age = now.duration_since(fs::metadata(&own).unwrap().modified().unwrap());
        assert!(age.unwrap_or_default() < Duration::from_secs(60), "use touches the running file");
    }
}
