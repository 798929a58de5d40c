//! The files of a snapshot: each read once, at first sight, and then kept.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::{Context, Env, LocalServices};
use crate::file::File;
use crate::{glob, reading};

/// What reading a file gave.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// It is not there; a dangling link counts.
    Missing,
    /// It is there and cannot be read.
    Unreadable(String),
    /// It was read. A folder reads as an empty file.
    Read {
        file: File,
        is_folder: bool,
        /// What is wrong with owner or mode, if anything is.
        unsafe_mode: Option<String>,
    },
}

/// All files and listings that were asked for.
#[derive(Debug)]
pub(crate) struct Store {
    /// Whether the file system may be touched at all.
    open: bool,
    uid: u32,
    services: LocalServices,
    cache: Mutex<Cache>,
}

/// What is kept; the lock protects only this and is never held while a file is read.
#[derive(Debug, Default)]
struct Cache {
    files: HashMap<PathBuf, Arc<Loaded>>,
    listings: HashMap<Vec<u8>, Arc<Vec<PathBuf>>>,
}

impl Store {
    /// Makes an empty store; with `open` false nothing but what is inserted exists.
    pub(crate) fn new(open: bool, uid: u32) -> Store {
        Store { open, uid, services: LocalServices::new(open), cache: Mutex::default() }
    }

    /// Tells whether the system may be asked.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Gives what the reading of a line may refer to.
    pub(crate) fn context<'a>(&'a self, env: &'a Env) -> Context<'a> {
        Context { env, services: &self.services }
    }

    /// Gives a file, reading it if it was never asked for.
    pub(crate) fn file(&self, path: &Path, env: &Env) -> Arc<Loaded> {
        if let Some(known) = self.cache().files.get(path) {
            return Arc::clone(known);
        }
        let loaded =
            Arc::new(if self.open { load(path, self.uid, self.context(env)) } else { Loaded::Missing });
        // Somebody else may have been faster; all must see the same bytes.
        let mut cache = self.cache();
        Arc::clone(cache.files.entry(path.to_path_buf()).or_insert(loaded))
    }

    /// Gives the existing paths that a pattern names, listing folders only once.
    pub(crate) fn listing(&self, pattern: &[u8]) -> Arc<Vec<PathBuf>> {
        if let Some(known) = self.cache().listings.get(pattern) {
            return Arc::clone(known);
        }
        let listed = Arc::new(if self.open { glob::expand(pattern) } else { Vec::new() });
        let mut cache = self.cache();
        Arc::clone(cache.listings.entry(pattern.to_vec()).or_insert(listed))
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // The maps are whole after every single insertion, so a panic elsewhere leaves them usable.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file with its owner and mode.
pub(crate) fn load(path: &Path, uid: u32, context: Context<'_>) -> Loaded {
    let (file, facts) = match reading::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Loaded::Missing,
        Err(error) => return Loaded::Unreadable(error.to_string()),
    };
    let text = if facts.is_dir() { Ok(Vec::new()) } else { reading::rest(file) };
    let text = match text {
        Ok(text) => text,
        Err(error) => return Loaded::Unreadable(error.to_string()),
    };
    let unsafe_mode = unsafe_mode(&facts, uid);
    Loaded::Read { file: File::parse(path, text, context), is_folder: facts.is_dir(), unsafe_mode }
}

/// Says what is wrong with owner or mode: root or the caller must own it, and nobody else may write.
fn unsafe_mode(facts: &std::fs::Metadata, uid: u32) -> Option<String> {
    let mode = facts.mode() & 0o7777;
    if facts.uid() != 0 && facts.uid() != uid {
        Some(format!("owned by user {}, not by root or user {uid}", facts.uid()))
    } else if mode & 0o022 != 0 {
        Some(format!("mode {mode:04o} lets others write"))
    } else {
        None
    }
}
