//! The line: the one SSH channel of a role with the helper at its far end, and the one API to use it.
//!
//! Promises: up to 64 streams at once, the next ones wait their turn; dropping a future or a handle ends what it
//! stood for at the far end and harms nothing else; when the line ends, every open stream gets an exact error,
//! and one whose request may have taken effect says so (`outcome_unknown`). A line never reconnects.
//! May import: `ssh`, `towline_helper::wire`. Read on in [`Line`], `driver` (the owner task), [`bootstrap`].

mod arrived;
pub mod bootstrap;
mod command;
mod driver;
mod embedded;
mod error;
mod files;
mod handle;
mod link;
mod liveness;
mod open;
mod stream;
mod tail;

pub use command::{Child, ChildInput, ChildOutput, Command, Output, check_exec};
pub use embedded::{EmbeddedHelper, Platform};
pub use error::{EndReason, Error};
pub use files::{Files, WriteOptions};
pub use handle::Line;
pub use open::{Facts, HelperFacts, OpenError, Options, open};
pub use tail::Tail;
pub use towline_helper::wire::ByteText;
pub use towline_helper::wire::message;
