//! The judge: asks in order, address by address, and stops at what makes the rest meaningless.

use std::net::{IpAddr, SocketAddr};

use globset::Glob;

use super::evidence;
use super::kernel::{Kernel, Link, LinkKind, Way, WayKind};
use super::proof::{Check, CheckedAddress, Proof, Status};
use crate::config::{Route, RouteKind};

/// Most addresses of a host that are looked at; the others may not be dialled.
pub const ADDRESSES_MAX: usize = 16;

/// Judges the way to each address of a host by what a system tells.
pub fn prove_with(kernel: &impl Kernel, spec: &Route, addresses: &[SocketAddr]) -> Proof {
    if addresses.is_empty() {
        let message = "the host has no address".to_owned();
        let check = Check { name: "route", status: Status::Indeterminate, message };
        return Proof { checks: vec![check], addresses: Vec::new() };
    }
    let (mut proven, mut good, mut bad, mut left_out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let mut inquiry = Inquiry { kernel, spec, address: *address, checks: Vec::new() };
        match inquiry.run() {
            Some(checked) if inquiry.checks.iter().all(|check| check.status == Status::Ok) => {
                proven.push(checked);
                good.extend(inquiry.checks);
            }
            _ => {
                left_out.push(address.to_string());
                bad.extend(inquiry.checks);
            }
        }
    }
    if proven.is_empty() {
        return Proof { checks: bad, addresses: proven };
    }
    if !left_out.is_empty() {
        let message = format!("not dialled, since their way is not proven: {}", left_out.join(", "));
        good.push(Check { name: "addresses", status: Status::Ok, message });
    }
    Proof { checks: good, addresses: proven }
}

/// The checks of one address.
struct Inquiry<'a, K> {
    kernel: &'a K,
    spec: &'a Route,
    address: SocketAddr,
    checks: Vec<Check>,
}

impl<K: Kernel> Inquiry<'_, K> {
    /// Makes the checks; gives the address when all could be asked. Whether they hold is in the list.
    fn run(&mut self) -> Option<CheckedAddress> {
        let (way, link) = self.route()?;
        self.interface(&link)?;
        self.link(&link);
        let source = self.source(&way, &link)?;
        self.checks.extend(evidence::checks(self.kernel, &self.spec.evidence, &link, self.address, source));
        Some(CheckedAddress { address: self.address, source, interface: link.name })
    }

    fn note(&mut self, name: &'static str, status: Status, message: String) {
        self.checks.push(Check { name, status, message });
    }

    fn ok(&mut self, name: &'static str, message: String) {
        self.note(name, Status::Ok, message);
    }

    /// Notes a failure and ends the inquiry.
    fn failed<T>(&mut self, name: &'static str, message: String) -> Option<T> {
        self.note(name, Status::Failed, message);
        None
    }

    /// Notes that it cannot be told and ends the inquiry.
    fn unclear<T>(&mut self, name: &'static str, message: String) -> Option<T> {
        self.note(name, Status::Indeterminate, message);
        None
    }

    fn route(&mut self) -> Option<(Way, Link)> {
        const NAME: &str = "route";
        let to = self.address;
        let way = match self.kernel.way(to, None) {
            Ok(way) => way,
            Err(error) => return self.unclear(NAME, format!("{to}: {error}")),
        };
        if way.kind != WayKind::Unicast {
            let what = match way.kind {
                WayKind::Local => "this machine itself".to_owned(),
                WayKind::Unreachable => "an unreachable route".to_owned(),
                WayKind::Blackhole => "a blackhole route".to_owned(),
                WayKind::Prohibit => "a prohibited route".to_owned(),
                WayKind::Unicast | WayKind::Other(_) => "a route of an unknown type".to_owned(),
            };
            return self.unclear(NAME, format!("{to} leads to {what}"));
        }
        if way.several {
            return self.unclear(NAME, format!("several ways share the traffic to {to}"));
        }
        let Some(index) = way.interface else {
            return self.unclear(NAME, format!("the way to {to} names no interface"));
        };
        match self.kernel.link(index) {
            Err(error) => self.unclear(NAME, format!("{to} leaves by interface {index}: {error}")),
            Ok(link) if link.loopback => {
                self.unclear(NAME, format!("{to} leaves by the loopback device {}", link.name))
            }
            Ok(link) => {
                let table = way.table.map_or_else(String::new, |table| format!(" (table {table})"));
                self.ok(NAME, format!("{to} leaves by {}{table}", link.name));
                Some((way, link))
            }
        }
    }

    fn interface(&mut self, link: &Link) -> Option<()> {
        const NAME: &str = "interface";
        let (pattern, to, name) = (&self.spec.interface, self.address, &link.name);
        let glob = match Glob::new(pattern) {
            Ok(glob) => glob.compile_matcher(),
            Err(error) => return self.unclear(NAME, format!("`{pattern}` is not a pattern: {error}")),
        };
        if !glob.is_match(name) {
            return self.failed(NAME, format!("{to} leaves by {name}, which does not match `{pattern}`"));
        }
        self.ok(NAME, format!("{name} matches `{pattern}`"));
        Some(())
    }

    fn link(&mut self, link: &Link) {
        const NAME: &str = "link";
        let name = &link.name;
        let shown = match &link.kind {
            LinkKind::Wireguard => "a WireGuard device",
            LinkKind::Tun => "a tun device",
            LinkKind::Other(kind) if kind.is_empty() => "no tunnel",
            LinkKind::Other(kind) => {
                self.note(NAME, Status::Failed, format!("{name} is no tunnel: its kind is {kind}"));
                return;
            }
        };
        let wanted = match self.spec.kind {
            RouteKind::Wireguard => link.kind == LinkKind::Wireguard,
            // GlobalProtect's and OpenConnect's clients serve a tun device; which one it is, evidence must tell.
            RouteKind::Tun | RouteKind::Globalprotect | RouteKind::Openconnect => link.kind == LinkKind::Tun,
            RouteKind::Any => matches!(link.kind, LinkKind::Wireguard | LinkKind::Tun),
        };
        let (status, message) = if !wanted {
            (Status::Failed, format!("{name} is {shown}, which the configured kind does not allow"))
        } else if !link.up {
            (Status::Failed, format!("{name} is {shown}, but down"))
        } else if !link.carrier {
            (Status::Failed, format!("{name} is {shown}, but nothing serves it"))
        } else {
            (Status::Ok, format!("{name} is {shown}, and up"))
        };
        self.note(NAME, status, message);
    }

    fn source(&mut self, way: &Way, link: &Link) -> Option<IpAddr> {
        const NAME: &str = "source";
        let (to, name) = (self.address, &link.name);
        let addresses = match self.kernel.addresses(link) {
            Ok(addresses) => addresses,
            Err(error) => return self.unclear(NAME, format!("{name}: {error}")),
        };
        // For a moment after IPv6 gets an address, the kernel would still send it out instead of keeping it.
        if addresses.contains(&to.ip().to_canonical()) {
            let message = format!("{to} is an address of {name}, so it leads to this machine itself");
            return self.unclear("route", message);
        }
        let source = match way.source.or_else(|| only_candidate(&addresses, to.ip())) {
            Some(source) => source,
            None => return self.unclear(NAME, format!("which source {to} would see cannot be told")),
        };
        if !addresses.contains(&source) {
            return self.failed(NAME, format!("{source} is not an address of {name}"));
        }
        // Once it has a source, a connection's packets are routed by it too: a rule `from SOURCE` may lead elsewhere.
        let again = match self.kernel.way(to, Some(source)) {
            Ok(again) => again,
            Err(error) => return self.unclear(NAME, format!("{to} from {source}: {error}")),
        };
        if again.kind != WayKind::Unicast || again.interface != Some(link.index) || again.several {
            return self
                .failed(NAME, format!("packets from {source} to {to} leave by another way than {name}"));
        }
        self.ok(NAME, format!("{source} is an address of {name}"));
        Some(source)
    }
}

/// The only address of the destination's family that reaches beyond the link, where the system names no source.
fn only_candidate(addresses: &[IpAddr], to: IpAddr) -> Option<IpAddr> {
    let fits = |address: &&IpAddr| match address {
        IpAddr::V4(_) => to.is_ipv4(),
        IpAddr::V6(v6) => to.is_ipv6() && !v6.is_unicast_link_local(),
    };
    let mut fitting = addresses.iter().filter(fits);
    fitting.next().copied().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
