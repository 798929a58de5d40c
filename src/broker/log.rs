//! The broker's log: bounded, three files of 1 MiB.

use std::fs::File;
use std::io::Write;

use super::place::LOG;
use crate::disk::{Fault, Folder, Open};

/// Largest file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A log file that begins anew before it grows over its bound; the two before it are kept.
#[derive(Debug)]
pub struct Log {
    folder: Folder,
    file: File,
    size: u64,
}

impl Log {
    /// Opens the log of a line's directory.
    ///
    /// # Errors
    /// [`Fault`] of the file.
    pub(super) fn open(folder: Folder) -> Result<Log, Fault> {
        let (file, facts) = folder.open_file(LOG, Open::Append)?;
        Ok(Log { folder, file, size: facts.size })
    }

    fn rotate(&mut self) -> Result<(), Fault> {
        self.folder.rename(&format!("{LOG}.1"), &format!("{LOG}.2"))?;
        self.folder.rename(LOG, &format!("{LOG}.1"))?;
        let (file, facts) = self.folder.open_file(LOG, Open::Append)?;
        (self.file, self.size) = (file, facts.size);
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.size > 0 && self.size + bytes.len() as u64 > FILE_BYTES_MAX {
            // A file that cannot be renamed goes on growing rather than taking the broker down.
            drop(self.rotate());
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::System;

    #[test]
    fn no_file_grows_over_its_bound_and_three_are_kept() {
        let scratch = tempfile::Builder::new().prefix("tl-").tempdir_in("/tmp").unwrap();
        let dir = scratch.path().join("line");
        let mut log = Log::open(Folder::make(Arc::new(System), &dir).unwrap()).unwrap();
        for at in 0..50_u32 {
            log.write_all(format!("{}{at}\n", "x".repeat(100_000)).as_bytes()).unwrap();
        }
        let mut names: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["log", "log.1", "log.2"]);
        for name in names {
            assert!(std::fs::metadata(dir.join(name)).unwrap().len() <= FILE_BYTES_MAX);
        }
        assert!(std::fs::read_to_string(dir.join("log")).unwrap().contains("49"));
    }
}
