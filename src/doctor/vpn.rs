//! The proof of route of a site with `approval = "vpn"`, check by check.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ssh_config_parser::{AddressFamily, Resolved};

use super::{Check, Status};
use crate::config::{Approval, Site};
use crate::route;

/// Longest wait for the resolver.
const LOOK_UP_WAIT: Duration = Duration::from_secs(5);

/// Judges the way to the host that is dialled first, as an opening would; nothing for other sites.
pub(super) fn checks(site: &Site, first_hop: &Resolved) -> Vec<Check> {
    let Some(spec) = site.route.as_ref().filter(|_| site.approval == Approval::Vpn) else {
        return Vec::new();
    };
    match look_up(first_hop) {
        Ok(addresses) => route::prove(spec, &addresses).checks.iter().map(shown).collect(),
        Err(problem) => {
            let message = format!("{} cannot be looked up: {problem}", first_hop.hostname);
            vec![Check::new("route", Status::Fail, message).mend("start the VPN, or correct HostName")]
        }
    }
}

fn shown(check: &route::Check) -> Check {
    let (status, message) = match check.status {
        route::Status::Ok => (Status::Ok, check.message.clone()),
        route::Status::Failed => (Status::Fail, check.message.clone()),
        // It counts as off the VPN, so a connect would fail.
        route::Status::Indeterminate => (Status::Fail, format!("cannot be told: {}", check.message)),
    };
    let shown = Check::new(check.name, status, message);
    match check.mend() {
        Some(mend) => shown.mend(mend),
        None => shown,
    }
}

/// Resolves a name on a thread of its own, since the system's resolver knows no bound.
fn look_up(hop: &Resolved) -> Result<Vec<SocketAddr>, String> {
    let (sender, receiver) = mpsc::channel();
    let (name, port) = (hop.hostname.clone(), hop.port);
    thread::spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs();
        // Nobody listens any more when it took too long.
        drop(sender.send(found.map(Iterator::collect::<Vec<SocketAddr>>)));
    });
    let found = receiver
        .recv_timeout(LOOK_UP_WAIT)
        .map_err(|_| format!("no answer within {} s", LOOK_UP_WAIT.as_secs()))?
        .map_err(|error| error.to_string())?;
    let wanted = |address: &SocketAddr| match hop.address_family {
        AddressFamily::Any => true,
        AddressFamily::Inet => address.is_ipv4(),
        AddressFamily::Inet6 => address.is_ipv6(),
    };
    Ok(found.into_iter().filter(wanted).collect())
}
