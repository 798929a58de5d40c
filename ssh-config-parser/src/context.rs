//! What the reading of one line may refer to: the environment and the services database.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

use crate::rejection::Reason;
use crate::values::{Services, services};

/// The environment that `${NAME}` refers to.
pub(crate) type Env = BTreeMap<OsString, OsString>;

/// A problem of one line, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn syntax(message: impl Into<String>) -> Fault {
        Fault { reason: Reason::Syntax, message: message.into() }
    }

    pub(crate) fn expansion(message: impl Into<String>) -> Fault {
        Fault { reason: Reason::Expansion, message: message.into() }
    }
}

/// The local services database, read when a port is first given by name.
#[derive(Debug)]
pub(crate) struct LocalServices {
    readable: bool,
    services: OnceLock<Services>,
}

impl LocalServices {
    /// Makes the database of this system, or an empty one that never touches the file system.
    pub(crate) fn new(readable: bool) -> LocalServices {
        LocalServices { readable, services: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> &Services {
        self.services.get_or_init(|| {
            if !self.readable {
                return Services::new();
            }
            // Without a database a service name is just not a port; the line that uses one is then an error.
            std::fs::read("/etc/services").map_or_else(|_| Services::new(), |text| services(&text))
        })
    }
}

/// What the reading of one line may refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) env: &'a Env,
    pub(crate) services: &'a LocalServices,
}
