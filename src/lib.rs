//! towline: one SSH connection and one session channel to a cluster, and everything through it.
//!
//! Sites with a second factor may challenge every session channel. So towline opens exactly one a host role, starts a
//! small helper at its far end, and multiplexes commands, jobs, logs and files as frames on that channel.
//!
//! # Layers
//!
//! Each room imports only what stands below it; a room's own page says what it promises.
//!
//! | room | what it is |
//! |---|---|
//! | `cli` | the command line: parses, prints, asks; no logic of its own |
//! | [`failure`] | maps every room's errors to the contract's kinds |
//! | [`jobs`] | batch schedulers: submit, watch, cancel, read logs |
//! | `demo` | the embedded SSH server and mini cluster |
//! | [`doctor`] | checks what an opening needs |
//! | [`opening`] | from a site of the configuration to all that opening its line needs |
//! | [`mod@line`] | streams, commands and files over the one channel |
//! | [`ssh`] | connect, authenticate, host keys, exactly one channel |
//! | [`route`] | proves that the way to a host is the site's VPN |
//! | [`policy`] | what is permitted: modes, grants, cooldowns, pending requests |
//! | [`audit`] | the hash-chained record of policy events and remote operations |
//! | [`disk`] | files that must be the caller's alone |
//! | [`config`] | directories, `config.toml`, the environment |
//! | [`kind`] | the contract's failure kinds and exit codes |
//!
//! The library prints nothing, never exits the process, and reads the environment in
//! [`config::Config::from_env`] only.

pub mod audit;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub mod disk;
pub mod doctor;
pub mod failure;
pub mod jobs;
pub mod kind;
pub mod line;
pub mod opening;
pub mod policy;
pub mod route;
pub mod ssh;
