//! All files of a configuration, read once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::canonical::{NameLookup, system_lookup};
use crate::effective::Effective;
use crate::file::{Body, File};
use crate::flatten;
use crate::include::{self, depends_on_host, world_tokens};
use crate::rejection::{Reason, Rejection};
use crate::resolve;
use crate::resolved::Resolved;
use crate::route;
use crate::store::{Loaded, Store};
use crate::walk::INCLUDE_MENTIONS_MAX;
use crate::world::World;

/// A configuration whose files were read once; later edits change nothing.
///
/// Every file that is included for all hosts alike is read at once. A name that depends on the host (`%h` and
/// its like) is looked at when a host first needs it, and is kept from then on.
///
/// ```
/// use ssh_config_parser::{Snapshot, World};
///
/// let text = b"Host web\n  HostName web.example.net\n  Port 2222\n";
/// let snapshot = Snapshot::from_bytes("config".as_ref(), text, World::from_system()?);
/// let web = snapshot.resolve("alice@web")?;
/// assert_eq!((web.user.as_str(), web.hostname.as_str(), web.port), ("alice", "web.example.net", 2222));
/// # Ok::<(), ssh_config_parser::Rejection>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    world: World,
    store: Store,
    main: Option<File>,
}

/// One text without `Include` and `Match` that means the same for every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flattened {
    /// The text, byte for byte as it may stand in a file.
    pub text: Vec<u8>,
    /// The files that went into it, in reading order, each once.
    pub files: Vec<PathBuf>,
}

impl Flattened {
    /// Gives the text for people; bytes that are not UTF-8 are replaced.
    pub fn text_lossy(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl Snapshot {
    /// Reads `file`, or `~/.ssh/config` where none is named, and every file that it includes.
    ///
    /// A `file` called `none` reads nothing. What is wrong inside the files is told by [`Snapshot::resolve`],
    /// in reading order.
    ///
    /// # Errors
    /// `Io` when a named file cannot be read (a missing default one is empty); `Permissions` when somebody else
    /// owns or may write the default one.
    pub fn read(file: Option<&Path>, world: World) -> Result<Snapshot, Rejection> {
        let store = Store::new(true, world.uid);
        let default = world.home.join(".ssh/config");
        let path = file.unwrap_or(&default);
        if path.as_os_str().eq_ignore_ascii_case("none") {
            return Ok(Snapshot { world, store, main: None });
        }
        let io = |why: String| Rejection::new(Reason::Io, why).at(path, None);
        let main = match crate::store::load(path, world.uid, store.context(&world.env)) {
            Loaded::Missing if file.is_some() => return Err(io("file does not exist".to_owned())),
            Loaded::Missing => None,
            Loaded::Unreadable(why) => return Err(io(format!("file cannot be read: {why}"))),
            // OpenSSH takes it for an empty file, and so dials another host than the file names that was meant.
            Loaded::Read { is_folder: true, .. } => return Err(io("it is a folder, not a file".to_owned())),
            Loaded::Read { unsafe_mode: Some(why), .. } if file.is_none() => {
                return Err(Rejection::new(Reason::Permissions, why).at(path, None));
            }
            Loaded::Read { file, .. } => Some(file),
        };
        let snapshot = Snapshot { world, store, main };
        snapshot.read_ahead();
        Ok(snapshot)
    }

    /// Takes the text of one file without touching the file system: whatever it includes does not exist.
    pub fn from_bytes(path: &Path, text: &[u8], world: World) -> Snapshot {
        let store = Store::new(false, world.uid);
        let main = File::parse(path, text.to_vec(), store.context(&world.env));
        Snapshot { world, store, main: Some(main) }
    }

    /// Answers what `ssh -G` would for `host`, which may be `name`, `user@name` or `ssh://user@name:port`.
    ///
    /// Names are looked up only where `CanonicalizeHostname` asks for it, with the system's resolver; that blocks.
    ///
    /// # Errors
    /// The first problem in reading order, with its file and line.
    pub fn resolve(&self, host: &str) -> Result<Resolved, Rejection> {
        self.resolve_with(host, &system_lookup)
    }

    /// Answers as [`Snapshot::resolve`], asking `lookup` for the addresses of a name.
    ///
    /// # Errors
    /// As [`Snapshot::resolve`].
    pub fn resolve_with(&self, host: &str, lookup: NameLookup<'_>) -> Result<Resolved, Rejection> {
        resolve::resolve(self, &resolve::Asked::parse(host, self)?, lookup)
    }

    /// Answers for every hop on the way to `host`, in the order in which they are dialled, `host` itself last.
    ///
    /// # Errors
    /// As [`Snapshot::resolve`], for any hop; `JumpLoop` when a hop comes up twice or the chain is longer than 16.
    pub fn resolve_route(&self, host: &str) -> Result<Vec<Resolved>, Rejection> {
        route::route(self, host, &system_lookup)
    }

    /// Gives one text without `Include` and `Match` that means the same for every host.
    ///
    /// # Errors
    /// The first problem in reading order, with its file and line; `Include` also for a name that depends on the
    /// host, and for nested blocks whose common hosts no `Host` line of bounded length can name.
    pub fn flatten(&self) -> Result<Flattened, Rejection> {
        flatten::flatten(self)
    }

    /// Gives the facts about machine and user that it was read with.
    pub fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn main(&self) -> Option<&File> {
        self.main.as_ref()
    }

    /// Finds a user's home folder in the user database.
    pub(crate) fn user_home(&self, name: &[u8]) -> Option<PathBuf> {
        if self.store.is_open() { crate::expand::system_users(name) } else { None }
    }

    /// Reads all files that are included for every host alike; what is wrong with them is told later.
    fn read_ahead(&self) {
        let tokens = world_tokens(&self.world, &Effective::default());
        let mut seen = HashSet::new();
        let mut waiting: Vec<Vec<u8>> = Vec::new();
        waiting.extend(self.main.iter().flat_map(plain_includes));
        while let Some(word) = waiting.pop() {
            // A bad name is an error of the line that holds it.
            let Ok(pattern) = include::pattern(&word, &tokens, self) else {
                continue;
            };
            for path in self.store.listing(&pattern).iter() {
                if seen.len() > INCLUDE_MENTIONS_MAX || !seen.insert(path.clone()) {
                    continue;
                }
                if let Loaded::Read { file, .. } = &*self.store.file(path, &self.world.env) {
                    waiting.extend(plain_includes(file));
                }
            }
        }
    }
}

/// Gives the names on a file's `Include` lines that do not depend on the host.
fn plain_includes(file: &File) -> Vec<Vec<u8>> {
    file.lines
        .iter()
        .filter_map(|line| match &line.body {
            Body::Include(words) => Some(words),
            _ => None,
        })
        .flatten()
        .filter(|word| !depends_on_host(word))
        .cloned()
        .collect()
}
