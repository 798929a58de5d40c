//! The helper: serves the requests of one line on stdin and stdout.
//!
//! Promise: one thread runs the line and never waits for a file system, a child or the other end; file work runs on
//! a bounded pool of threads; whatever was not detached is ended when the line ends. May import: `towline_helper::wire`.
//! Read on in [`server`] (the loop), [`command`] (running programs), [`files`] (file work), [`ending`] (who is ended).

mod command;
mod ending;
mod environment;
mod fault;
mod files;
mod housekeeping;
mod keep;
mod keeper;
mod launch;
mod link;
mod output;
mod pieces;
mod pool;
mod preamble;
mod probe;
mod processes;
mod program;
mod requests;
mod server;
mod session;
mod shutdown;
mod work_stream;

pub(crate) use keeper::{ARGUMENT as KEEPER_ARGUMENT, keep};
pub(crate) use server::serve;
pub(crate) use session::Marker;
