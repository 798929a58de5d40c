//! Why the system could not be asked, or a socket is not the proven one.

use std::io;
use std::net::IpAddr;

/// What keeps a route from being proven; every variant means that nothing may be dialled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no route to the address.
    #[error("the kernel has no route: {0}")]
    NoRoute(io::Error),
    /// The kernel tells this only to a privileged process.
    #[error("the kernel tells {asked} only to a process with CAP_NET_ADMIN")]
    Privilege {
        /// What was asked.
        asked: &'static str,
    },
    /// The kernel could not be asked.
    #[error("the kernel did not tell {asked}: {source}")]
    Kernel {
        /// What was asked.
        asked: &'static str,
        /// Why it did not tell.
        source: io::Error,
    },
    /// An answer does not have the form that it must have.
    #[error("the answer about {asked} cannot be read: {problem}")]
    Malformed {
        /// What was asked.
        asked: &'static str,
        /// The first thing that is wrong.
        problem: &'static str,
    },
    /// A program that knows the evidence is absent, failed or was too slow.
    #[error("{program}: {problem}")]
    Program {
        /// Absolute path of the program.
        program: &'static str,
        /// What went wrong.
        problem: String,
    },
    /// A file that holds the evidence cannot be read or trusted.
    #[error("{file}: {problem}")]
    File {
        /// Absolute path of the file.
        file: &'static str,
        /// What went wrong.
        problem: String,
    },
    /// This system has no way to tell.
    #[error("{asked} cannot be told on this system")]
    Unsupported {
        /// What was asked.
        asked: &'static str,
    },
    /// The socket was connected to an address that was not proven.
    #[error("the socket leads to {peer}, which was not checked")]
    PeerNotChecked {
        /// Where the socket leads.
        peer: IpAddr,
    },
    /// The socket left by another way than the proven one.
    #[error("the socket's own address is {local}, the checked source is {source_address} on {interface}")]
    OtherSource {
        /// The socket's own address.
        local: IpAddr,
        /// The address that it must have.
        source_address: IpAddr,
        /// The interface that was proven.
        interface: String,
    },
}
