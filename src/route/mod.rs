//! Proves, by the local kernel alone, that the way to a host is the site's VPN (`approval = "vpn"`).
//!
//! Promises: sends nothing to the network, needs no root, and fails closed: what cannot be told is not proven. A
//! proof names the addresses that may be dialled and the source that each connection must have. May import
//! `config` and `kind`. The judge and the decoders are pure; `linux` and `macos` ask. See docs/route.md.

mod error;
mod evidence;
mod global_protect;
mod judge;
mod kernel;
#[cfg(target_os = "linux")]
mod linux;
pub mod macos;
pub mod netlink;
mod network_manager;
mod program;
mod proof;
mod system;

pub use error::Error;
pub use global_protect::{GlobalProtect, parse_settings};
pub use judge::prove_with;
pub use kernel::{Kernel, Link, LinkKind, Peer, Way, WayKind};
#[cfg(target_os = "linux")]
pub use linux::{Caller, Linux};
pub use network_manager::{Connection, parse_connection};
pub use proof::{Check, CheckedAddress, Proof, Status};
pub use system::prove;
