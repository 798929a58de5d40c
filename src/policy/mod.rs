//! The policy: the one file of a workstation's user that says whether a line may be opened or used.
//!
//! Promises: no line is opened without a fresh permission that is spent by it, and a crash anywhere leaves that
//! permission unused or spent; `disable` is done within 2 s whatever other processes do; a damaged or foreign file never
//! reads as permission. [`state`] is the thinking, without files or clock; [`Store`] the driver around it; [`requests`]
//! what clients without a terminal have asked for. Imports `audit`, `config` and `disk`.

mod error;
mod gate;
mod id;
pub mod requests;
mod shown;
pub mod state;
mod store;
mod text;

pub use error::{Error, GrantFault};
pub use gate::{FRESH, Spend};
pub use id::{ClientId, GrantHash, GrantName, GrantSecret, SiteId};
pub use shown::Shown;
pub use store::{Disabled, FILE, GrantRequest, Granted, MARKER, MUTEX, Store};

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod store_tests;
