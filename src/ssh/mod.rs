//! One authenticated SSH connection to a host of a site, consumed into exactly one session channel.
//!
//! [`connect`] checks the host key before any credential is sent, asks a human only through a
//! [`Prompter`], and yields a [`Transport`]; [`Transport::into_channel`] consumes it into the one
//! [`Channel`] with its one `exec` request. Nothing here reconnects, and nothing opens a second channel.
//! Imports russh, ssh_config_parser and nothing else of this crate.

mod agent;
mod algorithms;
mod auth;
mod channel;
mod clock;
mod dial;
mod error;
mod handler;
mod host_key;
mod identity;
mod interactive;
mod offer;
mod preamble;
mod prompt;
#[cfg(feature = "cli")]
mod prompt_terminal;
mod target;
mod transport;

pub use channel::{Channel, ChannelReader, ChannelWriter, Control, Part};
pub use error::{AuthFailure, Error, HostKeyRefusal, KnownEntry, Phase};
pub use prompt::{AskpassPrompter, NoPrompter, Prompt, Prompter, Secret, Unanswered};
#[cfg(feature = "cli")]
pub use prompt_terminal::TerminalPrompter;
pub use target::{Overrides, Target, as_uri};
pub use transport::{Deadlines, Facts, Transport, connect};
