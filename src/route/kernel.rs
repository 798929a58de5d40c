//! The questions that a proof asks of the system; answers are plain values.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::error::Error;
use super::global_protect::GlobalProtect;
use super::network_manager::Connection;

/// What kind of route the kernel chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayKind {
    /// To another machine.
    Unicast,
    /// To this machine itself.
    Local,
    /// Refused with an answer.
    Unreachable,
    /// Dropped in silence.
    Blackhole,
    /// Forbidden by an administrator.
    Prohibit,
    /// Something else, by the kernel's number.
    Other(u8),
}

/// The kernel's decision about one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What kind of route it is.
    pub kind: WayKind,
    /// Index of the interface that packets leave by.
    pub interface: Option<u32>,
    /// The address that they leave with; none where the system does not tell.
    pub source: Option<IpAddr>,
    /// The routing table that decided.
    pub table: Option<u32>,
    /// Whether several ways share the traffic, so that a connection may take another one than was told.
    pub several: bool,
}

/// What an interface is made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// The kernel's WireGuard.
    Wireguard,
    /// A tun device, which a program serves.
    Tun,
    /// No tunnel that we know, by the system's word; empty for hardware.
    Other(String),
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is made by.
    pub kind: LinkKind,
    /// Whether an administrator has switched it on.
    pub up: bool,
    /// Whether something serves its other end.
    pub carrier: bool,
    /// Whether it leads back to this machine.
    pub loopback: bool,
}

/// A peer of a WireGuard device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its public key.
    pub key: [u8; 32],
    /// When the last handshake was, since 1970; none when there was none.
    pub handshake: Option<Duration>,
    /// The networks that are sent to it, with their prefix lengths.
    pub allowed: Vec<(IpAddr, u8)>,
}

/// The system, as far as a proof asks it.
pub trait Kernel {
    /// Tells by which way a TCP connection of ours would leave, given its source address where that is known.
    ///
    /// # Errors
    /// When the system does not tell, as for every other question.
    fn way(&self, to: SocketAddr, from: Option<IpAddr>) -> Result<Way, Error>;

    /// Describes an interface.
    ///
    /// # Errors
    /// When the system does not tell.
    fn link(&self, index: u32) -> Result<Link, Error>;

    /// Lists the addresses that an interface has now.
    ///
    /// # Errors
    /// When the system does not tell.
    fn addresses(&self, link: &Link) -> Result<Vec<IpAddr>, Error>;

    /// Lists the peers of a WireGuard device.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_ADMIN; when the system does not tell.
    fn peers(&self, link: &Link) -> Result<Vec<Peer>, Error>;

    /// Describes the NetworkManager connection with a UUID; none when there is none.
    ///
    /// # Errors
    /// When NetworkManager does not tell.
    fn connection(&self, uuid: &str) -> Result<Option<Connection>, Error>;

    /// Reads GlobalProtect's own report.
    ///
    /// # Errors
    /// When there is none that can be read and trusted.
    fn global_protect(&self) -> Result<GlobalProtect, Error>;

    /// The wall clock, since 1970; handshakes are told in it.
    fn now(&self) -> Duration;
}
