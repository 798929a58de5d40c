//! The way to a host: every hop answered for as a host of the same configuration.

use crate::canonical::NameLookup;
use crate::rejection::{Reason, Rejection};
use crate::resolve::{Asked, resolve};
use crate::resolved::{Jump, Resolved};
use crate::snapshot::Snapshot;

/// Most hosts of a route, the last one included.
const ROUTE_HOSTS_MAX: usize = 16;

/// Answers for every host on the way, in the order in which they are dialled.
///
/// As in OpenSSH, which starts a second client for the hops, only the first hop's own `ProxyJump` is followed.
pub(crate) fn route(
    snapshot: &Snapshot,
    host: &str,
    lookup: NameLookup<'_>,
) -> Result<Vec<Resolved>, Rejection> {
    let target = resolve(snapshot, &Asked::parse_destination(host, snapshot)?, lookup)?;
    let mut route = vec![target];
    // The front of the route has hops of its own to be put before it, until it has none.
    loop {
        let front = route.first().map(|front| front.jump.clone());
        let Some(hops) = front.filter(|hops| !hops.is_empty()) else {
            return Ok(route);
        };
        let mut before = Vec::new();
        for (place, hop) in hops.iter().enumerate() {
            let mut resolved = resolve(snapshot, &asked(hop), lookup)?;
            if place > 0 {
                resolved.jump.clear();
            }
            before.push(resolved);
        }
        before.append(&mut route);
        route = before;
        check(&route)?;
    }
}

fn asked(hop: &Jump) -> Asked {
    Asked {
        host: hop.host.clone().into_bytes(),
        user: hop.user.clone().map(String::into_bytes),
        port: hop.port,
    }
}

/// Rejects a route that is too long or comes by a host twice.
fn check(route: &[Resolved]) -> Result<(), Rejection> {
    let reject = |message| Err(Rejection::new(Reason::JumpLoop, message));
    for (place, host) in route.iter().enumerate() {
        let same = |other: &&Resolved| {
            other.hostname == host.hostname && other.port == host.port && other.user == host.user
        };
        if route.iter().take(place).any(|other| same(&other)) {
            return reject(format!("the way to a host comes by {} twice", host.typed_host));
        }
    }
    if route.len() > ROUTE_HOSTS_MAX {
        return reject(format!(
            "the way to a host has {} hosts, the limit is {ROUTE_HOSTS_MAX}",
            route.len()
        ));
    }
    Ok(())
}
