//! towline's own configuration: where things live, and what `config.toml` says.
//!
//! Promises: every key is typed and bounded, every mistake is told with file, line and the nearest right name, and
//! nothing is written before all of it was found right. [`Config::from_env`] is the only reader of the process's
//! environment. Imports [`crate::kind`] and nothing else of the crate.

pub mod duration;
mod environment;
mod error;
mod file;
mod home;
mod name;
mod nearest;
mod route;
mod section;
mod site;
pub mod size;

pub use environment::Environment;
pub use error::{Error, Place};
pub use file::{Config, RawTable, Retention};
pub use home::{Home, SOCKET_PATH_BYTES_MAX};
pub use name::{NameError, Role, SiteName};
pub use route::{Evidence, Route, RouteKind};
pub use site::{Approval, Destination, EnvironmentRecipe, Gc, Roots, Rundir, SchedulerChoice, Site};
