//! An exclusive lock on a file, between processes and between threads.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::files::{Facts, Open};
use super::folder::Folder;

/// First pause between two looks at a lock that somebody else has; it doubles up to the longest one.
const PAUSE_MIN: Duration = Duration::from_micros(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// A file whose lock is held until this is dropped.
#[derive(Debug)]
pub struct Locked {
    file: File,
    facts: Facts,
}

impl Folder {
    /// Takes the lock of a file, which is made (0600) where it is missing.
    ///
    /// It asks again and again rather than waiting in the system, since a holder may be stopped for ever.
    ///
    /// # Errors
    /// [`Fault::Busy`] after `wait`; else as [`Folder::open_file`].
    pub fn lock(&self, name: &str, wait: Duration) -> Result<Locked, Fault> {
        let begun = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let (file, facts) = self.open_file(name, Open::Append)?;
            let taken = self.files.try_lock(&file).map_err(|source| Fault::Io {
                doing: "lock",
                path: self.path_of(name),
                source,
            })?;
            if taken {
                let locked = Locked { file, facts };
                // Whoever removed or renamed the file meanwhile left us with a lock that nobody else sees.
                if self.look(name)?.is_some_and(|there| there.identity == locked.facts.identity) {
                    return Ok(locked);
                }
            }
            let waited = begun.elapsed();
            if waited >= wait {
                return Err(Fault::Busy { path: self.path_of(name), waited });
            }
            std::thread::sleep(pause.min(wait.saturating_sub(waited)));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Appends to a locked file; when only a part could be written, that part is taken back.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn append(&self, name: &str, locked: &Locked, bytes: &[u8]) -> Result<(), Fault> {
        let failed = |doing| move |source| Fault::Io { doing, path: self.path_of(name), source };
        let before = self.files.facts(&locked.file).map_err(failed("look at"))?.size;
        self.files.write(&locked.file, bytes).map_err(|source| {
            // A part that stays is a torn line, which readers know how to tell from a whole one.
            drop(self.files.set_length(&locked.file, before));
            failed("write")(source)
        })
    }
}

impl Locked {
    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What the system said about the file when it was opened.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A second descriptor of the same open file, for whoever syncs it later.
    ///
    /// # Errors
    /// The system's, when there are too many open files.
    pub fn share(&self) -> std::io::Result<Arc<File>> {
        self.file.try_clone().map(Arc::new)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing alone is not enough: a child that is between fork and exec has the descriptor too. An error leaves
        // the closing, which frees the lock a moment later.
        drop(self.file.unlock());
    }
}
