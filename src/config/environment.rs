//! What towline takes from the process's environment, read in one place.

use std::ffi::OsString;
use std::path::PathBuf;

/// The variables that towline obeys, as they were when the program began.
///
/// Tests and embedding programs fill it by hand; [`Environment::capture`] is what the command line does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `HOME`: what a leading `~/` of our own configuration means; the user database's answer when unset.
    pub home: Option<PathBuf>,
    /// `TOWLINE_HOME`: one directory for everything.
    pub towline_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`: used when absolute, as its specification demands.
    pub xdg_config_home: Option<PathBuf>,
    /// `XDG_STATE_HOME`: the same.
    pub xdg_state_home: Option<PathBuf>,
    /// `SSH_AUTH_SOCK`: the agent's socket.
    pub ssh_auth_sock: Option<PathBuf>,
    /// `TOWLINE_HELPER`: a helper to send instead of the embedded one; only an opening obeys it.
    pub helper: Option<PathBuf>,
    /// `TOWLINE_LOG`: which log lines go to stderr, such as `towline=debug`; none when unset.
    pub log: Option<OsString>,
    /// `NO_COLOR`, when it is set and not empty.
    pub no_color: bool,
}

impl Environment {
    /// Reads the process's environment; an empty variable counts as unset.
    pub fn capture() -> Environment {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = |name: &str| var(name).map(PathBuf::from);
        Environment {
            home: path("HOME"),
            towline_home: path("TOWLINE_HOME"),
            xdg_config_home: path("XDG_CONFIG_HOME"),
            xdg_state_home: path("XDG_STATE_HOME"),
            ssh_auth_sock: path("SSH_AUTH_SOCK"),
            helper: path("TOWLINE_HELPER"),
            log: var("TOWLINE_LOG"),
            no_color: var("NO_COLOR").is_some(),
        }
    }
}
