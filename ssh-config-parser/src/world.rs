//! The facts about this machine and user that a configuration may refer to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::rejection::{Reason, Rejection};

/// What `~`, tokens and `${NAME}` refer to; taken once, so that an answer is reproducible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The home folder of the user database.
    pub home: PathBuf,
    /// The home folder that `$HOME` names, if set; only `Include` follows it.
    pub home_env: Option<PathBuf>,
    /// The local user's name.
    pub user: String,
    /// The local user's number.
    pub uid: u32,
    /// The local host name.
    pub local_host: String,
    /// The environment.
    pub env: BTreeMap<OsString, OsString>,
}

impl World {
    /// Asks the system for all of it.
    ///
    /// # Errors
    /// `Io` when the user database does not know the caller or the host name cannot be had.
    pub fn from_system() -> Result<World, Rejection> {
        let uid = nix::unistd::getuid();
        let user = nix::unistd::User::from_uid(uid)
            .map_err(|error| Rejection::new(Reason::Io, format!("user database not readable: {error}")))?
            .ok_or_else(|| Rejection::new(Reason::Io, format!("no user {uid} in the user database")))?;
        let local_host = nix::unistd::gethostname()
            .map_err(|error| Rejection::new(Reason::Io, format!("local host name not readable: {error}")))?;
        let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        Ok(World {
            home: user.dir,
            home_env: env.get("HOME".as_ref() as &std::ffi::OsStr).map(PathBuf::from),
            user: user.name,
            uid: uid.as_raw(),
            local_host: local_host.to_string_lossy().into_owned(),
            env,
        })
    }
}
