//! From a site of the configuration to all that opening its line needs.
//!
//! Promise: what is decided here is read once and pinned: a later edit of the ssh config reroutes nothing. Imports
//! `config`, `ssh` and `line`; does no I/O but reading the files that they name.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use ssh_config_parser::{Rejection, Snapshot, World};

use crate::config::{self, Config, Destination, EnvironmentRecipe, Role, Site};
use crate::line::bootstrap::Helpers;
use crate::line::message::Environment;
use crate::line::{EmbeddedHelper, Options};
use crate::ssh::{Deadlines, Overrides, Target};

/// Without a limit of the site's own, TCP, version and key exchange together may take this long.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// A line that is ready to be opened.
#[derive(Debug)]
pub struct Opening {
    /// Where to.
    pub target: Target,
    /// How.
    pub options: Options,
}

/// Why a site's line can't be opened as configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration lacks something.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The ssh config can't be used.
    #[error("{0}")]
    SshConfig(Box<Rejection>),
    /// The ssh config asks for what the SSH room can't do.
    #[error(transparent)]
    Ssh(#[from] crate::ssh::Error),
    /// The helper that the environment names can't be read.
    #[error("cannot read the helper {}: {source}", path.display())]
    Helper {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// This build carries no helper at all.
    #[error("this build of towline carries no helper for any platform")]
    NoHelper,
}

impl Opening {
    /// Resolves a role of a site.
    ///
    /// # Errors
    /// [`Error`] before anything is dialled or asked.
    pub fn of(config: &Config, site: &Site, role: Role) -> Result<Opening, Error> {
        let overrides = Overrides {
            known_hosts: site.known_hosts.clone(),
            keepalive: site.keepalive,
            connect_timeout: site.connect_timeout,
        };
        let target = match site.destination(role)? {
            Destination::Socket { path, user, known_hosts, identity } => {
                Target::unix_socket(path.clone(), user.clone(), known_hosts.clone(), identity.clone())
            }
            Destination::Ssh { host } => {
                let reject = |rejection| Error::SshConfig(Box::new(rejection));
                let world = World::from_system().map_err(reject)?;
                let snapshot = Snapshot::read(site.ssh_config.as_deref(), world).map_err(reject)?;
                Target::from_config(&snapshot, host, &overrides)?
            }
        };
        let options = Options {
            environment: environment(&site.environment),
            helpers: helpers(config)?,
            exec_from_memory: site.exec_from_memory,
            deadlines: Deadlines {
                connect: site.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
                start: site.start_timeout,
            },
        };
        Ok(Opening { target, options })
    }
}

fn environment(recipe: &EnvironmentRecipe) -> Environment {
    match recipe {
        EnvironmentRecipe::LoginIfPossible => Environment::LoginIfPossible,
        EnvironmentRecipe::None => Environment::None,
        EnvironmentRecipe::Login => Environment::Login,
        EnvironmentRecipe::Script(path) => Environment::Script(path.as_str().into()),
    }
}

/// The helpers that may be sent: the one that `TOWLINE_HELPER` names in place of this machine's architecture's, else
/// the embedded ones.
fn helpers(config: &Config) -> Result<Helpers, Error> {
    let mut helpers = Helpers::embedded();
    if let Some(path) = config.environment.helper.as_ref() {
        let bytes = std::fs::read(path).map_err(|source| Error::Helper { path: path.clone(), source })?;
        let digest = Sha256::digest(&bytes);
        let sha256_hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        helpers.x86_64 = Some(EmbeddedHelper { bytes: bytes.into(), sha256_hex: sha256_hex.into() });
    }
    match (&helpers.x86_64, &helpers.aarch64) {
        (None, None) => Err(Error::NoHelper),
        _ => Ok(helpers),
    }
}
