//! File work: everything that asks a file system something, in steps on the pool's threads.
//!
//! Promise: links are never followed for recursion, nothing existing is overwritten unless asked, a half-written
//! file never stands in its target's place, and every error carries the system's own number and the path.

mod change;
mod disk_usage;
mod hash;
mod list;
mod metadata;
mod open;
mod place;
mod read;
mod remove;
mod tail;
mod walk;
mod write;

use towline_helper::wire::message::{Outcome, Refusal, Request};

use super::pool::{Next, Turn, Work};
use super::session::Session;

/// Work that was asked for and has not begun.
pub(crate) struct Task {
    pub(crate) work: Box<dyn Work>,
    /// Whether it gives way to all others.
    pub(crate) is_polite: bool,
}

impl Task {
    fn new(work: impl Work + 'static) -> Task {
        Task { work: Box::new(work), is_polite: false }
    }

    /// A task in one step.
    fn once(run: impl FnMut(&Turn) -> Result<Outcome, Refusal> + Send + 'static) -> Task {
        Task::new(Once(run))
    }
}

/// The task of a file request; none when the request is no file work.
///
/// # Errors
/// When its path is no path.
pub(crate) fn task(request: Request, session: &Session) -> Result<Option<Task>, Refusal> {
    let umask = session.umask;
    let task = match request {
        Request::Stat { path, follow } => {
            let path = session.resolve(&path)?;
            Task::once(move |_| metadata::stat(&path, follow))
        }
        Request::Mkdir { path, parents, mode } => {
            let path = session.resolve(&path)?;
            Task::once(move |_| change::make_folder(&path, parents, mode, umask))
        }
        Request::Rename { from, to, overwrite } => {
            let (from, to) = (session.resolve(&from)?, session.resolve(&to)?);
            Task::once(move |_| place::rename_path(&from, &to, overwrite))
        }
        Request::Remove { path, recursive } => {
            let (path, home) = (session.resolve(&path)?, session.home.clone());
            Task::once(move |turn| remove::remove(&path, recursive, &home, &|| turn.is_cancelled()))
        }
        Request::DiskUsage { path } => {
            let path = session.resolve(&path)?;
            Task::once(move |turn| disk_usage::disk_usage(&path, &|| turn.is_cancelled()))
        }
        Request::List { path } => Task::new(list::List::new(session.resolve(&path)?)),
        Request::Read { path, offset, length } => {
            Task::new(read::Read::new(session.resolve(&path)?, offset, length))
        }
        Request::Hash { path, offset, length } => {
            let work = Box::new(hash::Hash::new(session.resolve(&path)?, offset, length));
            Task { work, is_polite: true }
        }
        Request::Write(write) => {
            Task::new(write::WriteFile::new(session.resolve(&write.path)?, write, umask))
        }
        Request::Tail { path, from, follow } => {
            Task::new(tail::Tail::new(session.resolve(&path)?, from, follow))
        }
        Request::Exec(_) | Request::Probe {} | Request::Pty {} | Request::Dial {} => return Ok(None),
    };
    Ok(Some(task))
}

/// Whether a request changes something, so that a lost line leaves its outcome unknown.
pub(crate) fn is_change(request: &Request) -> bool {
    matches!(
        request,
        Request::Write(_) | Request::Mkdir { .. } | Request::Rename { .. } | Request::Remove { .. }
    )
}

/// Work in one step.
struct Once<F>(F);

impl<F: FnMut(&Turn) -> Result<Outcome, Refusal> + Send> Work for Once<F> {
    fn step(&mut self, turn: &mut Turn) -> Next {
        done((self.0)(turn))
    }
}

/// The answer of a step.
fn done(result: Result<Outcome, Refusal>) -> Next {
    Next::Done(result.map_err(Box::new))
}
