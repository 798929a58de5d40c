//! Lists a directory: names are bytes, and one odd name hides no other.

use std::ffi::CString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{Code, Entry, Outcome, Refusal};

use super::{done, metadata};
use crate::helper::fault::{cancelled, refuse_errno, refuse_path};
use crate::helper::pool::{Next, Turn, Work};
use crate::helper::session::bytes_of;

/// Most entries of one directory that are listed; their names have to be sorted in memory.
const ENTRIES_MAX: usize = 1 << 20;

/// A `list` request.
pub(super) struct List {
    path: PathBuf,
    open: Option<Open>,
    /// Encoded lines that there was no room for yet.
    pending: Vec<u8>,
    entries: u64,
}

struct Open {
    folder: Dir,
    /// The names that are still to come, the next one last.
    names: Vec<CString>,
}

impl List {
    pub(super) fn new(path: PathBuf) -> List {
        List { path, open: None, pending: Vec::new(), entries: 0 }
    }

    fn advance(&mut self, turn: &mut Turn) -> Result<Option<Outcome>, Refusal> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(read_names(&self.path, turn)?),
        };
        while turn.room > 0 {
            if turn.is_cancelled() {
                return Err(cancelled());
            }
            while self.pending.len() < turn.room {
                let Some(name) = open.names.pop() else { break };
                // It may have vanished since, or the folder may be listed and not searched.
                let metadata = metadata::of_entry(open.folder.as_fd(), &name).ok();
                let entry = Entry { name: ByteText(name.into_bytes()), metadata };
                serde_json::to_writer(&mut self.pending, &entry)
                    .map_err(|error| refuse_errno(Errno::EIO, &error.to_string(), &self.path))?;
                self.pending.push(b'\n');
                self.entries += 1;
            }
            if self.pending.is_empty() {
                return Ok(Some(Outcome::List { entries: self.entries }));
            }
            let rest = self.pending.split_off(self.pending.len().min(turn.room));
            turn.send(std::mem::replace(&mut self.pending, rest));
        }
        Ok(None)
    }
}

impl Work for List {
    fn step(&mut self, turn: &mut Turn) -> Next {
        match self.advance(turn).transpose() {
            Some(result) => done(result),
            None => Next::Room,
        }
    }
}

/// Opens a directory and reads its names, sorted so that the last one comes first.
fn read_names(path: &Path, turn: &Turn) -> Result<Open, Refusal> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let refuse = |errno| refuse_errno(errno, "list", path);
    let mut folder = Dir::open(path, flags, Mode::empty()).map_err(refuse)?;
    let mut names = Vec::new();
    for entry in folder.iter() {
        let name = entry.map_err(refuse)?.file_name().to_owned();
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        if names.len() >= ENTRIES_MAX {
            let shown = bytes_of(path);
            let message = format!("{} has more than {ENTRIES_MAX} entries, the limit", shown.escaped());
            return Err(refuse_path(Code::TooLarge, message, &shown));
        }
        if turn.is_cancelled() {
            return Err(cancelled());
        }
        names.push(name);
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(Open { folder, names })
}
