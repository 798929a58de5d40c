//! Chooses the system that is asked.

use std::net::SocketAddr;

use super::proof::{Check, Proof, Status};
use crate::config::Route;

/// Judges the way to each address of a host, by asking the local system and nobody else.
///
/// Blocks for some milliseconds, and for at most 2 s for each evidence that only a program knows. Never fails:
/// what cannot be told is a check that says so. `spec` is the site's `route`; `addresses` are those that the
/// host's name was resolved to, once.
pub fn prove(spec: &Route, addresses: &[SocketAddr]) -> Proof {
    #[cfg(target_os = "linux")]
    let proof = super::linux::Linux::new().map(|kernel| super::judge::prove_with(&kernel, spec, addresses));
    #[cfg(target_os = "macos")]
    let proof = Ok::<_, super::Error>(super::judge::prove_with(&super::macos::MacOs, spec, addresses));
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    let proof = Err(super::Error::Unsupported { asked: "the route" });
    proof.unwrap_or_else(|error| {
        let check = Check { name: "route", status: Status::Indeterminate, message: error.to_string() };
        Proof { checks: vec![check], addresses: Vec::new() }
    })
}
