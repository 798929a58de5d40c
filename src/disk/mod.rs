//! Files that must be the caller's alone: opened once without following links, judged by the descriptor that is then
//! read, replaced as a whole or not at all.
//!
//! Promises: no check looks at a path and opens it again; nothing that somebody else may have touched is read, and
//! nothing of that kind is ever tightened or replaced. Every operation goes through [`Files`], so that tests can let
//! each of them fail. Stands at the bottom and imports nothing of the crate.

mod fault;
#[cfg(test)]
pub(crate) mod faulty;
mod files;
mod folder;
mod lock;

pub use fault::Fault;
pub use files::{Facts, FileKind, Files, Open, System};
pub use folder::Folder;
pub use lock::Locked;
