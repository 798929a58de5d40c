//! macOS: reads what `/sbin/route` and `/sbin/ifconfig` print, and GlobalProtect's settings.
//!
//! The parsers are plain functions of text, compiled and tested everywhere; only the driver is macOS's own.

use std::net::IpAddr;

use super::error::Error;
use super::kernel::{LinkKind, WayKind};

/// What `/sbin/route -n get ADDRESS` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOutput {
    /// What kind of route it is.
    pub kind: WayKind,
    /// The interface that packets leave by.
    pub interface: String,
}

/// What `/sbin/ifconfig INTERFACE` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceOutput {
    /// What the interface is made by.
    pub kind: LinkKind,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether something serves it.
    pub running: bool,
    /// Whether it leads back to this machine.
    pub loopback: bool,
    /// Its addresses on our side, without their scopes.
    pub addresses: Vec<IpAddr>,
}

/// Reads the output of `/sbin/route -n get ADDRESS`.
///
/// # Errors
/// [`Error::Malformed`] when it names no interface.
pub fn parse_route(text: &str) -> Result<RouteOutput, Error> {
    let field = |name: &str| {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.trim() == name).map(|(_, value)| value.trim()).next()
    };
    let flags = field("flags").unwrap_or_default();
    let has = |flag| flags.trim_matches(['<', '>']).split(',').any(|found| found == flag);
    let kind = match () {
        () if has("BLACKHOLE") => WayKind::Blackhole,
        () if has("REJECT") => WayKind::Unreachable,
        () if has("LOCAL") => WayKind::Local,
        () => WayKind::Unicast,
    };
    let problem = "it names no interface";
    let interface = field("interface").ok_or(Error::Malformed { asked: "the route", problem })?;
    Ok(RouteOutput { kind, interface: interface.to_owned() })
}

/// Reads the output of `/sbin/ifconfig NAME`.
///
/// # Errors
/// [`Error::Malformed`] when it is about another interface.
pub fn parse_interface(name: &str, text: &str) -> Result<InterfaceOutput, Error> {
    let head = text.lines().next().and_then(|line| line.strip_prefix(name)?.strip_prefix(": flags="));
    let problem = "it is about another one";
    let head = head.ok_or(Error::Malformed { asked: "the interface", problem })?;
    let flags =
        head.split_once('<').and_then(|(_, flags)| flags.split_once('>')).map_or("", |(flags, _)| flags);
    let has = |flag| flags.split(',').any(|found| found == flag);
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let family = words.next()?;
        let address = words.next()?.split('%').next()?;
        // A line that is no address is about something else.
        matches!(family, "inet" | "inet6").then(|| address.parse().ok()).flatten()
    });
    // Every VPN of macOS, WireGuard's included, is served by a program behind a utun device.
    let tunnel = name.strip_prefix("utun").is_some_and(|number| number.parse::<u32>().is_ok());
    let kind = if tunnel && has("POINTOPOINT") { LinkKind::Tun } else { LinkKind::Other(String::new()) };
    Ok(InterfaceOutput {
        kind,
        up: has("UP"),
        running: has("RUNNING"),
        loopback: has("LOOPBACK"),
        addresses: addresses.collect(),
    })
}

#[cfg(target_os = "macos")]
pub use driver::MacOs;

#[cfg(target_os = "macos")]
mod driver {
    use std::net::{IpAddr, SocketAddr};
    use std::time::{Duration, SystemTime};

    use nix::net::if_::{if_indextoname, if_nametoindex};

    use super::super::global_protect::{self, GlobalProtect};
    use super::super::kernel::{Kernel, Link, Peer, Way};
    use super::super::network_manager::Connection;
    use super::super::program;
    use super::{Error, InterfaceOutput, parse_interface, parse_route};

    const ROUTE: &str = "/sbin/route";
    const IFCONFIG: &str = "/sbin/ifconfig";
    const PLUTIL: &str = "/usr/bin/plutil";
    const GLOBAL_PROTECT_FILE: &str =
        "/Library/Preferences/com.paloaltonetworks.GlobalProtect.settings.plist";

    /// This Mac.
    #[derive(Debug)]
    pub struct MacOs;

    impl Kernel for MacOs {
        fn way(&self, to: SocketAddr, _from: Option<IpAddr>) -> Result<Way, Error> {
            let (family, address) = match to.ip().to_canonical() {
                IpAddr::V4(v4) => ("-inet", v4.to_string()),
                IpAddr::V6(v6) => ("-inet6", v6.to_string()),
            };
            let found = parse_route(&said(ROUTE, &["-n", "get", family, &address])?)?;
            let index = if_nametoindex(found.interface.as_str())
                .map_err(|errno| Error::Kernel { asked: "the interface", source: errno.into() })?;
            Ok(Way { kind: found.kind, interface: Some(index), source: None, table: None, several: false })
        }

        fn link(&self, index: u32) -> Result<Link, Error> {
            let asked = "the interface";
            let name =
                if_indextoname(index).map_err(|errno| Error::Kernel { asked, source: errno.into() })?;
            let name = name
                .into_string()
                .map_err(|_| Error::Malformed { asked, problem: "its name is not UTF-8" })?;
            let InterfaceOutput { kind, up, running, loopback, .. } = interface(&name)?;
            Ok(Link { index, name, kind, up, carrier: running, loopback })
        }

        fn addresses(&self, link: &Link) -> Result<Vec<IpAddr>, Error> {
            Ok(interface(&link.name)?.addresses)
        }

        fn peers(&self, _link: &Link) -> Result<Vec<Peer>, Error> {
            Err(Error::Unsupported { asked: "a WireGuard peer" })
        }

        fn connection(&self, _uuid: &str) -> Result<Option<Connection>, Error> {
            Err(Error::Unsupported { asked: "a NetworkManager connection" })
        }

        fn global_protect(&self) -> Result<GlobalProtect, Error> {
            // The file may be binary; `plutil` changes nothing when it writes to its standard output.
            let text = said(PLUTIL, &["-convert", "xml1", "-o", "-", GLOBAL_PROTECT_FILE])?;
            global_protect::parse_settings(&text)
                .map_err(|problem| Error::File { file: GLOBAL_PROTECT_FILE, problem: problem.to_owned() })
        }

        fn now(&self) -> Duration {
            // A clock before 1970 is before every handshake, so nothing is proven by it.
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
        }
    }

    fn interface(name: &str) -> Result<InterfaceOutput, Error> {
        parse_interface(name, &said(IFCONFIG, &[name])?)
    }

    fn said(program: &'static str, arguments: &[&str]) -> Result<String, Error> {
        let output = program::run(program, arguments)?;
        match output.code {
            Some(0) => Ok(output.text),
            code => Err(Error::Program { program, problem: format!("ended with {code:?}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "   route to: 10.116.16.1\ndestination: 10.116.0.0\n       mask: 255.255.0.0\n    \
        gateway: 10.116.16.225\n  interface: utun4\n      flags: <UP,GATEWAY,DONE,STATIC,PRCLONING,GLOBAL>\n \
        recvpipe  sendpipe  ssthresh  rtt,msec    rttvar  hopcount      mtu     expire\n       \
        0         0         0         0         0         0      1400         0 \n";

    const UTUN: &str = "utun4: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1400\n\tinet 10.116.16.225 --> \
        10.116.16.225 netmask 0xffffffff \n\tinet6 fe80::aede:48ff:fe00:1122%utun4 prefixlen 64 scopeid 0x12 \n\t\
        nd6 options=201<PERFORMNUD,DAD>\n";

    const LO: &str =
        "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384\n\tinet 127.0.0.1 netmask 0xff000000\n";

    #[test]
    fn the_interface_and_kind_of_a_route_are_read() {
        let found = parse_route(ROUTE).unwrap();
        assert_eq!(found, RouteOutput { kind: WayKind::Unicast, interface: "utun4".to_owned() });
        for (flag, kind) in [
            ("REJECT", WayKind::Unreachable),
            ("BLACKHOLE", WayKind::Blackhole),
            ("LOCAL", WayKind::Local),
            ("LOCALNET", WayKind::Unicast),
        ] {
            assert_eq!(parse_route(&ROUTE.replace("GATEWAY", flag)).unwrap().kind, kind);
        }
        assert!(parse_route("route: writing to routing socket: not in table\n").is_err());
    }

    #[test]
    fn the_kind_flags_and_addresses_of_an_interface_are_read() {
        let found = parse_interface("utun4", UTUN).unwrap();
        assert_eq!(found.kind, LinkKind::Tun);
        assert_eq!((found.up, found.running, found.loopback), (true, true, false));
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.116.16.225", "fe80::aede:48ff:fe00:1122"]);
        let loopback = parse_interface("lo0", LO).unwrap();
        assert_eq!((loopback.kind, loopback.loopback), (LinkKind::Other(String::new()), true));
        assert!(parse_interface("utun", UTUN).is_err());
        assert!(parse_interface("en0", UTUN).is_err());
    }
}
