//! The driver for Linux: asks the kernel over netlink sockets, which need no privilege.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, getsockopt, recvmsg, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::error::Error;
use super::global_protect::{self, GlobalProtect};
use super::kernel::{Kernel, Link, Peer, Way, WayKind};
use super::netlink::{self, Message, Selector};
use super::network_manager::{self, Connection};

/// The kernel answers at once; this bounds a bug.
const ANSWER_WAIT: TimeVal = TimeVal::new(2, 0);
/// The kernel's datagrams are at most half of that.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// Most datagrams of one answer: 16 MiB, some 100,000 addresses.
const DATAGRAMS_MAX: usize = 512;
/// A list that changes each time it is asked for is no answer.
const TRIES_MAX: u32 = 3;
/// Where GlobalProtect's client keeps its settings.
const GLOBAL_PROTECT_FILE: &str = "/opt/paloaltonetworks/globalprotect/pangps.xml";
const GLOBAL_PROTECT_BYTES_MAX: u64 = 1 << 20;

/// What the kernel's policy rules may ask of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Mark of its sockets.
    pub mark: u32,
    /// User that its sockets belong to.
    pub uid: u32,
    /// Interface that its sockets are bound to.
    pub interface: Option<u32>,
}

impl Caller {
    /// Looks at a fresh TCP socket: a control group's program may mark or bind it (`ip vrf exec` does).
    ///
    /// # Errors
    /// [`Error::Kernel`]
    pub fn of_this_process() -> Result<Caller, Error> {
        const ASKED: &str = "what our sockets are";
        let fd =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(of(ASKED))?;
        let device = getsockopt(&fd, sockopt::BindToDevice).map_err(of(ASKED))?;
        let interface = match device.to_str() {
            Some("") => None,
            Some(name) => Some(if_nametoindex(name).map_err(of(ASKED))?),
            None => return Err(Error::Malformed { asked: ASKED, problem: "a device's name is not UTF-8" }),
        };
        let mark = getsockopt(&fd, sockopt::Mark).map_err(of(ASKED))?;
        Ok(Caller { mark, uid: nix::unistd::geteuid().as_raw(), interface })
    }
}

/// The kernel of this machine, in the calling thread's network namespace.
#[derive(Debug)]
pub struct Linux {
    caller: Caller,
    route: Netlink,
}

impl Linux {
    /// Opens a socket to the kernel; questions are asked as this process.
    ///
    /// # Errors
    /// [`Error::Kernel`]
    pub fn new() -> Result<Linux, Error> {
        Linux::asking_as(Caller::of_this_process()?)
    }

    /// Opens a socket to the kernel; questions are asked as somebody else.
    ///
    /// # Errors
    /// [`Error::Kernel`]
    pub fn asking_as(caller: Caller) -> Result<Linux, Error> {
        Ok(Linux { caller, route: Netlink::open(SockProtocol::NetlinkRoute)? })
    }

    fn one_way(&self, to: SocketAddr, from: Option<IpAddr>, entry: bool) -> Result<Way, Error> {
        const ASKED: &str = "the route";
        let Caller { mark, uid, interface } = self.caller;
        let selector = Selector { source: from, mark, uid, interface, entry };
        let request = |number| netlink::route_request(number, to, &selector);
        let found = self.route.ask(ASKED, request, |found, message| {
            if message.kind == netlink::NEW_ROUTE {
                *found = Some(netlink::read_route(message.payload)?);
            }
            Ok(())
        })?;
        found.ok_or(Error::Malformed { asked: ASKED, problem: "there is none in it" })
    }
}

impl Kernel for Linux {
    fn way(&self, to: SocketAddr, from: Option<IpAddr>) -> Result<Way, Error> {
        // IPv4 addresses of a dual-stack resolver are routed as what they are.
        let to = match to.ip().to_canonical() {
            IpAddr::V4(v4) => SocketAddr::from((v4, to.port())),
            IpAddr::V6(_) => to,
        };
        let mut way = match self.one_way(to, from, false) {
            Err(Error::Kernel { source, .. }) => return refused_way(source),
            way => way?,
        };
        if way.kind == WayKind::Unicast {
            way.several = self.one_way(to, from, true)?.several;
        }
        Ok(way)
    }

    fn link(&self, index: u32) -> Result<Link, Error> {
        const ASKED: &str = "the interface";
        let request = |number| netlink::link_request(number, index);
        let found: Option<Link> = self.route.ask(ASKED, request, |found, message| {
            if message.kind == netlink::NEW_LINK {
                *found = Some(netlink::read_link(message.payload)?);
            }
            Ok(())
        })?;
        let found = found.filter(|link| link.index == index);
        found.ok_or(Error::Malformed { asked: ASKED, problem: "it is about another one" })
    }

    fn addresses(&self, link: &Link) -> Result<Vec<IpAddr>, Error> {
        const ASKED: &str = "the interface's addresses";
        self.route.ask(ASKED, netlink::addresses_request, |found: &mut Vec<IpAddr>, message| {
            if message.kind == netlink::NEW_ADDRESS {
                let (index, address) = netlink::read_address(message.payload)?;
                found.extend(address.filter(|_| index == link.index));
            }
            Ok(())
        })
    }

    fn peers(&self, link: &Link) -> Result<Vec<Peer>, Error> {
        const ASKED: &str = "the WireGuard peers";
        let generic = Netlink::open(SockProtocol::NetlinkGeneric)?;
        let request = |number| netlink::family_request(number, "wireguard");
        let family: Option<u16> = generic.ask(ASKED, request, |found, message| {
            if message.kind == netlink::GENERIC_CONTROL {
                *found = Some(netlink::read_family(message.payload)?);
            }
            Ok(())
        })?;
        let family = family.ok_or(Error::Malformed { asked: ASKED, problem: "there is no family in it" })?;
        let request = |number| netlink::peers_request(number, family, link.index);
        let told = generic.ask(ASKED, request, |peers, message| {
            if message.kind == family {
                netlink::read_peers(message.payload, peers)?;
            }
            Ok(())
        });
        match told {
            Err(Error::Kernel { source, .. }) if source.raw_os_error() == Some(Errno::EPERM as i32) => {
                Err(Error::Privilege { asked: ASKED })
            }
            told => told,
        }
    }

    fn connection(&self, uuid: &str) -> Result<Option<Connection>, Error> {
        network_manager::ask(uuid)
    }

    fn global_protect(&self) -> Result<GlobalProtect, Error> {
        let failed = |problem: String| Error::File { file: GLOBAL_PROTECT_FILE, problem };
        let unread = |error: io::Error| failed(error.to_string());
        let file = File::open(GLOBAL_PROTECT_FILE).map_err(unread)?;
        let metadata = file.metadata().map_err(unread)?;
        // Whoever can write the file can make it name any portal.
        if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
            return Err(failed("others than root may write it".to_owned()));
        }
        let mut text = String::new();
        file.take(GLOBAL_PROTECT_BYTES_MAX).read_to_string(&mut text).map_err(unread)?;
        global_protect::parse_settings(&text).map_err(|problem| failed(problem.to_owned()))
    }

    fn now(&self) -> Duration {
        // A clock before 1970 is before every handshake, so nothing is proven by it.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// IPv4 tells some kinds of routes by an error's number alone.
fn refused_way(source: io::Error) -> Result<Way, Error> {
    let kind = match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EHOSTUNREACH) => WayKind::Unreachable,
        Some(Errno::EINVAL) => WayKind::Blackhole,
        Some(Errno::EACCES) => WayKind::Prohibit,
        _ => return Err(Error::NoRoute(source)),
    };
    Ok(Way { kind, interface: None, source: None, table: None, several: false })
}

/// A netlink socket; one question at a time.
#[derive(Debug)]
struct Netlink {
    fd: OwnedFd,
    /// Number of the last question; none is used twice, so what is left of an answer cannot be taken for another.
    number: Cell<u32>,
}

impl Netlink {
    fn open(protocol: SockProtocol) -> Result<Netlink, Error> {
        const ASKED: &str = "anything";
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).map_err(of(ASKED))?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &ANSWER_WAIT).map_err(of(ASKED))?;
        Ok(Netlink { fd, number: Cell::new(0) })
    }

    /// Asks, and collects the answer with `read`; a list that changed meanwhile is asked for again.
    fn ask<T: Default>(
        &self,
        asked: &'static str,
        request: impl Fn(u32) -> Vec<u8>,
        read: impl Fn(&mut T, Message<'_>) -> Result<(), Error>,
    ) -> Result<T, Error> {
        for _ in 0..TRIES_MAX {
            self.number.set(self.number.get().wrapping_add(1));
            let bytes = request(self.number.get());
            sendto(self.fd.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())
                .map_err(of(asked))?;
            let mut found = T::default();
            if self.answer(asked, |message| read(&mut found, message))? {
                return Ok(found);
            }
        }
        Err(Error::Malformed { asked, problem: "it changed while it was told" })
    }

    /// Reads an answer to its end; false when it was interrupted.
    fn answer(
        &self,
        asked: &'static str,
        mut read: impl FnMut(Message<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let (mut whole, mut ended) = (true, false);
        for _ in 0..DATAGRAMS_MAX {
            let length = self.receive(asked, &mut buffer)?;
            for message in netlink::messages(buffer.get(..length).unwrap_or_default())? {
                if message.sequence != self.number.get() {
                    continue;
                }
                whole &= !message.interrupted;
                match message.kind {
                    netlink::ERROR | netlink::DONE => {
                        let error = netlink::error_number(message.payload)?;
                        if error != 0 {
                            return Err(Error::Kernel { asked, source: io::Error::from_raw_os_error(error) });
                        }
                        ended = true;
                    }
                    _ => {
                        ended |= !message.part_of_list;
                        read(message)?;
                    }
                }
            }
            if ended {
                return Ok(whole);
            }
        }
        Err(Error::Malformed { asked, problem: "it has no end" })
    }

    fn receive(&self, asked: &'static str, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            let mut parts = [IoSliceMut::new(buffer)];
            let received = recvmsg::<NetlinkAddr>(self.fd.as_raw_fd(), &mut parts, None, MsgFlags::empty());
            let received = match received {
                Err(Errno::EINTR) => continue,
                received => received.map_err(of(asked))?,
            };
            if received.flags.contains(MsgFlags::MSG_TRUNC) {
                return Err(Error::Malformed { asked, problem: "a datagram is longer than 64 KiB" });
            }
            // Another process may send to this socket too; only number 0 is the kernel.
            if received.address.is_some_and(|sender| sender.pid() == 0) {
                return Ok(received.bytes);
            }
        }
    }
}

fn of(asked: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Kernel { asked, source: io::Error::from(errno) }
}
