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

/// The work of a file request and whether it gives way to all others; none when the request is no file work.
pub(crate) fn work(request: Request, session: &Session) -> Option<Result<(Box<dyn Work>, bool), Refusal>> {
    let once =
        |result: Result<Once, Refusal>| Some(result.map(|once| (Box::new(once) as Box<dyn Work>, false)));
    match request {
        Request::Stat { path, follow } => {
            once(session.resolve(&path).map(|path| Once::new(move |_| metadata::stat(&path, follow))))
        }
        Request::Mkdir { path, parents, mode } => once(session.resolve(&path).map(|path| {
            let umask = session.umask;
            Once::new(move |_| change::make_folder(&path, parents, mode, umask))
        })),
        Request::Rename { from, to, overwrite } => once(
            session
                .resolve(&from)
                .and_then(|from| Ok((from, session.resolve(&to)?)))
                .map(|(from, to)| Once::new(move |_| place::rename_path(&from, &to, overwrite))),
        ),
        Request::Remove { path, recursive } => once(session.resolve(&path).map(|path| {
            let home = session.home.clone();
            Once::new(move |turn| remove::remove(&path, recursive, &home, &|| turn.is_cancelled()))
        })),
        Request::DiskUsage { path } => once(
            session
                .resolve(&path)
                .map(|path| Once::new(move |turn| disk_usage::disk_usage(&path, &|| turn.is_cancelled()))),
        ),
        Request::List { path } => {
            Some(session.resolve(&path).map(|path| (Box::new(list::List::new(path)) as Box<dyn Work>, false)))
        }
        Request::Read { path, offset, length } => Some(
            session
                .resolve(&path)
                .map(|path| (Box::new(read::Read::new(path, offset, length)) as Box<dyn Work>, false)),
        ),
        Request::Hash { path, offset, length } => Some(
            session
                .resolve(&path)
                .map(|path| (Box::new(hash::Hash::new(path, offset, length)) as Box<dyn Work>, true)),
        ),
        Request::Write(write) => Some(session.resolve(&write.path).map(|path| {
            (Box::new(write::WriteFile::new(path, write, session.umask)) as Box<dyn Work>, false)
        })),
        Request::Tail { path, from, follow } => Some(
            session
                .resolve(&path)
                .map(|path| (Box::new(tail::Tail::new(path, from, follow)) as Box<dyn Work>, false)),
        ),
        Request::Exec(_) | Request::Probe {} | Request::Pty {} | Request::Dial {} => None,
    }
}

/// Whether a request changes something, so that a lost line leaves its outcome unknown.
pub(crate) fn is_change(request: &Request) -> bool {
    matches!(
        request,
        Request::Write(_) | Request::Mkdir { .. } | Request::Rename { .. } | Request::Remove { .. }
    )
}

/// Work in one step.
struct Once {
    run: Box<dyn FnMut(&Turn) -> Result<Outcome, Refusal> + Send>,
}

impl Once {
    fn new(run: impl FnMut(&Turn) -> Result<Outcome, Refusal> + Send + 'static) -> Once {
        Once { run: Box::new(run) }
    }
}

impl Work for Once {
    fn step(&mut self, turn: &mut Turn) -> Next {
        done((self.run)(turn))
    }
}

/// The answer of a step.
fn done(result: Result<Outcome, Refusal>) -> Next {
    Next::Done(result.map_err(Box::new))
}
