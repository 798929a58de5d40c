//! What proves that the route to a host is the VPN's (`approval = "vpn"`).

use std::net::IpAddr;

use super::error::Error;
use super::section::Section;

/// What the tunnel is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// WireGuard.
    Wireguard,
    /// Any tun device.
    Tun,
    /// GlobalProtect's client.
    Globalprotect,
    /// OpenConnect.
    Openconnect,
    /// Any tunnel.
    Any,
}

/// What binds a tunnel to the organisation; each one given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Public key of the WireGuard peer, in base64.
    pub wireguard_peer: Option<String>,
    /// UUID of the active NetworkManager connection.
    pub nm_uuid: Option<String>,
    /// Portal that GlobalProtect's own report must name.
    pub portal: Option<String>,
    /// Network that the tunnel's own address must be in, with its prefix length.
    pub cidr: Option<(IpAddr, u8)>,
}

/// A site's proof of route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Pattern that the interface's name must match, with `*` and `?`.
    pub interface: String,
    /// What the tunnel is made by.
    pub kind: RouteKind,
    /// What binds it to the organisation.
    pub evidence: Evidence,
}

impl Route {
    /// Reads the table; an interface's name alone is never a proof, so at least one evidence must be there.
    pub(super) fn read(section: &Section<'_>) -> Result<Route, Error> {
        section.only(&["interface", "kind", "evidence"])?;
        let interface =
            section.text("interface")?.ok_or_else(|| section.mistake("interface", "is missing"))?;
        let kinds = [
            ("wireguard", RouteKind::Wireguard),
            ("tun", RouteKind::Tun),
            ("globalprotect", RouteKind::Globalprotect),
            ("openconnect", RouteKind::Openconnect),
            ("any", RouteKind::Any),
        ];
        let kind = section.choice("kind", &kinds)?.ok_or_else(|| section.mistake("kind", "is missing"))?;
        let evidence =
            section.section("evidence")?.ok_or_else(|| section.mistake("evidence", "is missing"))?;
        evidence.only(&["wireguard_peer", "nm_uuid", "portal", "cidr"])?;
        let text = |key| Ok::<_, Error>(evidence.text(key)?.map(str::to_owned));
        let cidr = match evidence.text("cidr")? {
            None => None,
            Some(text) => Some(network(text).ok_or_else(|| {
                evidence.mistake(
                    "cidr",
                    &format!("is `{text}`; it must be a network with its prefix length, such as 10.8.0.0/16"),
                )
            })?),
        };
        let evidence = Evidence {
            wireguard_peer: text("wireguard_peer")?,
            nm_uuid: text("nm_uuid")?,
            portal: text("portal")?,
            cidr,
        };
        if evidence == Evidence::default() {
            return Err(
                section.mistake("evidence", "is empty; it needs wireguard_peer, nm_uuid, portal or cidr")
            );
        }
        Ok(Route { interface: interface.to_owned(), kind, evidence })
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    // The caller says what is wrong with the whole text.
    let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (length <= longest).then_some((address, length))
}
