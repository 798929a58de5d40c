//! Batched durability: a thread that syncs what was appended, within a second.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::disk::{Files, Locked};

/// How long appended lines are gathered before they are synced; with the sync itself they are safe within a second.
const GATHER: Duration = Duration::from_millis(500);

/// Syncs in the background. It sleeps without a timer while there is nothing to sync.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    files: Arc<dyn Files>,
    /// Protects what is to be synced and whether the last sync failed.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Open files with unsynced lines; more than one only right after a rotation.
    dirty: Vec<((u64, u64), Arc<File>)>,
    failure: Option<String>,
    closing: bool,
}

impl Syncer {
    pub(super) fn new(files: Arc<dyn Files>) -> Syncer {
        let shared = Shared { files, state: Mutex::default(), changed: Condvar::new() };
        Syncer { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Has the file synced soon.
    ///
    /// # Errors
    /// The system's, when it gives no second descriptor or no thread; nothing will be synced then.
    pub(super) fn soon(&self, locked: &Locked) -> std::io::Result<()> {
        let identity = locked.facts().identity;
        let mut state = self.shared.state();
        if !state.dirty.iter().any(|(known, _)| *known == identity) {
            state.dirty.push((identity, locked.share()?));
            self.shared.changed.notify_all();
        }
        drop(state);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("audit-sync".to_owned()).stack_size(128 << 10);
            *thread = Some(builder.spawn(move || shared.run())?);
        }
        Ok(())
    }

    /// Why the last background sync failed; asked once.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.state().failure.take()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut state = self.state();
            while state.dirty.is_empty() && !state.closing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if !state.closing {
                let waited = self.changed.wait_timeout_while(state, GATHER, |state| !state.closing);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let dirty = std::mem::take(&mut state.dirty);
            let closing = state.closing;
            drop(state);
            for (_, file) in dirty {
                if let Err(error) = self.files.sync(&file) {
                    self.state().failure = Some(error.to_string());
                }
            }
            if closing {
                return;
            }
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It ends after a last sync; a panic of its own was reported by its own thread.
            drop(thread.join());
        }
    }
}
