//! What a proof says, and whether a connected socket is the one that it speaks of.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::error::Error;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It holds.
    Ok,
    /// It does not hold: this is not the VPN.
    Failed,
    /// It cannot be told, which counts as not holding.
    Indeterminate,
}

/// One check of one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked: `route`, `interface`, `link`, `source`, `addresses` or the name of an evidence.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub message: String,
}

impl Check {
    /// Says what to do about a check that does not hold.
    pub fn mend(&self) -> Option<&'static str> {
        if self.status == Status::Ok {
            return None;
        }
        Some(match (self.name, self.status) {
            ("route", _) => "start the VPN; `ip route get ADDRESS` shows what the kernel decides",
            ("interface", _) => "start the VPN, or correct `interface` of the site's `route`",
            ("link", _) => "start the VPN again, or correct `kind` of the site's `route`",
            ("source", _) => "start the VPN again; `ip address` and `ip rule` show what is in the way",
            ("wireguard_peer", Status::Indeterminate) => {
                "use `nm_uuid` or `cidr` as evidence: a WireGuard peer can only be read with CAP_NET_ADMIN"
            }
            ("wireguard_peer", _) => {
                "send something through the tunnel (an idle one makes no handshake), or correct `wireguard_peer`"
            }
            ("nm_uuid", _) => "`nmcli connection show --active` lists the UUIDs of what is up",
            ("portal", _) => "connect GlobalProtect to the portal that `route` names",
            _ => "correct the evidence of the site's `route`, or connect to the right VPN",
        })
    }
}

/// An address that may be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedAddress {
    /// Where to connect to; nothing else may be dialled.
    pub address: SocketAddr,
    /// The address that the connected socket must have on this side.
    pub source: IpAddr,
    /// The tunnel's interface.
    pub interface: String,
}

/// What was found about the way to a host, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Every check that was made, in order; of the proven addresses alone where there are some.
    pub checks: Vec<Check>,
    /// The addresses that may be dialled, in the resolver's order; empty when nothing is proven.
    pub addresses: Vec<CheckedAddress>,
}

impl Proof {
    /// Tells whether some address may be dialled.
    pub fn proven(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// How the whole came out: off the VPN as soon as one check says so, else undecided.
    pub fn status(&self) -> Status {
        if self.proven() {
            Status::Ok
        } else if self.checks.iter().any(|check| check.status == Status::Failed) {
            Status::Failed
        } else {
            Status::Indeterminate
        }
    }

    /// The first check that does not hold, which is the reason to tell.
    pub fn first_problem(&self) -> Option<&Check> {
        let of = |status| self.checks.iter().find(|check| check.status == status);
        of(Status::Failed).or_else(|| of(Status::Indeterminate))
    }

    /// Holds a connected socket against the proof, before any credential is sent.
    ///
    /// # Errors
    /// [`Error::PeerNotChecked`] and [`Error::OtherSource`]; the socket must be closed then.
    pub fn verify_socket(&self, peer: SocketAddr, local: SocketAddr) -> Result<(), Error> {
        let bare = |address: SocketAddr| address.ip().to_canonical();
        let same = |checked: &&CheckedAddress| {
            bare(checked.address) == bare(peer) && checked.address.port() == peer.port()
        };
        let Some(checked) = self.addresses.iter().find(same) else {
            return Err(Error::PeerNotChecked { peer: bare(peer) });
        };
        if checked.source != bare(local) {
            return Err(Error::OtherSource {
                local: bare(local),
                source_address: checked.source,
                interface: checked.interface.clone(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> Proof {
        let address = CheckedAddress {
            address: "192.0.2.7:22".parse().unwrap(),
            source: "10.8.0.2".parse().unwrap(),
            interface: "wg0".to_owned(),
        };
        Proof { checks: Vec::new(), addresses: vec![address] }
    }

    fn verify(peer: &str, local: &str) -> Result<(), Error> {
        proof().verify_socket(peer.parse().unwrap(), local.parse().unwrap())
    }

    #[test]
    fn a_socket_is_the_proven_one_only_with_the_checked_peer_and_source() {
        verify("192.0.2.7:22", "10.8.0.2:40000").unwrap();
        // A dual-stack socket shows IPv4 addresses in IPv6's clothes.
        verify("[::ffff:192.0.2.7]:22", "[::ffff:10.8.0.2]:40000").unwrap();
        assert!(matches!(verify("192.0.2.7:22", "192.168.1.2:40000"), Err(Error::OtherSource { .. })));
        for other in ["192.0.2.8:22", "192.0.2.7:23"] {
            assert!(matches!(verify(other, "10.8.0.2:40000"), Err(Error::PeerNotChecked { .. })), "{other}");
        }
        let none = Proof::default();
        assert!(none.verify_socket("192.0.2.7:22".parse().unwrap(), "10.8.0.2:1".parse().unwrap()).is_err());
    }

    #[test]
    fn what_is_not_ok_has_a_mend() {
        for name in ["route", "interface", "link", "source", "wireguard_peer", "nm_uuid", "portal", "cidr"] {
            for status in [Status::Failed, Status::Indeterminate] {
                assert!(Check { name, status, message: String::new() }.mend().is_some());
            }
            assert_eq!(Check { name, status: Status::Ok, message: String::new() }.mend(), None);
        }
    }
}
