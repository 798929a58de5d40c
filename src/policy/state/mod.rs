//! The policy's thinking: what the file says, what each operation makes of it, what permits what.
//!
//! No file, clock or randomness inside: all of it comes in as arguments, so every step can be replayed.

mod attempt;
mod draft;
mod event;
mod file;
mod grant;
mod operation;
mod strict;
mod time;

pub use attempt::{Attempt, Ending, Outcome};
pub use event::{Event, EventKind};
pub use file::{FileState, Generation, Mode, Policy, REVISION_MAX, decode, encode};
pub use grant::{Grant, Method, Scope};
pub use operation::{
    Applied, Authorize, Cas, Launch, Now, Operation, apply, permits_dispatch, permits_launch,
};
pub use time::Timestamp;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod table_tests;
