//! Which files an `Include` line names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::effective::Effective;
use crate::expand::{HOST_TOKENS, Tokens, expand, expand_host_name, shown, tilde};
use crate::jump::Hop;
use crate::keywords::Keyword;
use crate::rejection::{Reason, Rejection};
use crate::snapshot::Snapshot;
use crate::values::Value;
use crate::walk::INCLUDE_DEPTH_MAX;
use crate::world::World;

/// The names of the host that a reading is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    /// What `Host` lines see: the typed name, in a second pass the final one.
    pub(crate) host: &'a [u8],
    /// The name as typed.
    pub(crate) typed: &'a [u8],
}

impl Names<'_> {
    /// Gives the tokens as far as they are known in the middle of a reading.
    pub(crate) fn tokens(&self, world: &World, effective: &Effective) -> Tokens {
        let configured = effective.text(Keyword::HostName);
        let host = match (&effective.settled, configured) {
            (Some(name), _) => name.clone(),
            // A bad token is reported where HostName is used; here the name as seen will do.
            (None, Some(name)) => expand_host_name(name, self.host).unwrap_or_else(|_| self.host.to_vec()),
            (None, None) => self.host.to_vec(),
        };
        let port =
            effective.given_port.map(u64::from).or_else(|| effective.number(Keyword::Port)).unwrap_or(22);
        let user = effective
            .given_user
            .as_deref()
            .or_else(|| effective.text(Keyword::User))
            .unwrap_or(world.user.as_bytes());
        Tokens {
            typed: self.typed.to_vec(),
            port: port.to_string().into_bytes(),
            user: Some(user.to_vec()),
            key_alias: effective.text(Keyword::HostKeyAlias).unwrap_or(&host).to_vec(),
            host,
            ..world_tokens(world, effective)
        }
    }
}

/// Gives the tokens that are known before any host is.
pub(crate) fn world_tokens(world: &World, effective: &Effective) -> Tokens {
    let last_hop = match effective.value(Keyword::ProxyJump) {
        Some(Value::Jump(spec)) => spec.hops().last().map(|hop: &Hop| hop.host.clone()),
        _ => None,
    };
    Tokens {
        local_user: world.user.clone().into_bytes(),
        uid: world.uid.to_string().into_bytes(),
        home: world.home.as_os_str().as_bytes().to_vec(),
        local_host: world.local_host.clone().into_bytes(),
        jump_host: last_hop.unwrap_or_default(),
        ..Tokens::default()
    }
}

/// Tells whether a name holds a token that depends on the host.
pub(crate) fn depends_on_host(word: &[u8]) -> bool {
    let mut bytes = word.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%'
            && let Some(token) = bytes.next()
            && HOST_TOKENS.contains(token)
        {
            return true;
        }
    }
    false
}

/// Gives the absolute file pattern of one word of an `Include` line.
pub(crate) fn pattern(word: &[u8], tokens: &Tokens, snapshot: &Snapshot) -> Result<Vec<u8>, Rejection> {
    if word.is_empty() {
        return Err(Rejection::new(Reason::Syntax, "empty file name"));
    }
    let world = snapshot.world();
    let name =
        expand(word, Some(tokens), Some(&world.env)).map_err(|why| Rejection::new(Reason::Expansion, why))?;
    // Unlike everywhere else, the home folder is the one that $HOME names.
    let home = world.home_env.as_deref().filter(|home| !home.as_os_str().is_empty()).unwrap_or(&world.home);
    if name.starts_with(b"~") {
        // An unknown user leaves the name as it is, which then matches nothing.
        return Ok(tilde(&name, home, &|user| snapshot.user_home(user)).unwrap_or(name));
    }
    if name.starts_with(b"/") {
        return Ok(name);
    }
    let folder = [home.as_os_str().as_bytes(), b"/.ssh/"].concat();
    Ok([folder, name].concat())
}

/// Checks that `path` is not too deep below the open files; the message of a cycle names its chain.
pub(crate) fn check_depth(chain: &[Arc<Path>], path: &Path) -> Result<(), Rejection> {
    if chain.len() <= INCLUDE_DEPTH_MAX {
        return Ok(());
    }
    let message = match chain.iter().rposition(|open| open.as_ref() == path) {
        Some(start) => {
            let cycle = chain.get(start..).unwrap_or_default();
            let names: Vec<String> = cycle
                .iter()
                .map(AsRef::as_ref)
                .chain([path])
                .map(|path| path.display().to_string())
                .collect();
            format!("include cycle: {}", names.join(" -> "))
        }
        None => {
            format!("{} is {} includes deep, the limit is {INCLUDE_DEPTH_MAX}", path.display(), chain.len())
        }
    };
    Err(Rejection::new(Reason::Include, message))
}

/// Says that more files are mentioned than are read for one answer.
pub(crate) fn too_many(limit: usize) -> Rejection {
    Rejection::new(Reason::Include, format!("more than {limit} included files, mentions counted"))
}

/// Says that an included file cannot be opened.
pub(crate) fn unreadable(path: &Path, why: &str) -> Rejection {
    let path = shown(path.as_os_str().as_bytes());
    Rejection::new(Reason::Include, format!("included file {path} cannot be read: {why}"))
}
