//! From a host name to a connected socket: look-up and dialling, kept apart.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use ssh_config_parser::AddressFamily;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use super::target::Dialing;

/// Between two rounds over all addresses (ConnectionAttempts), as OpenSSH pauses.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// More unsent data than this in the kernel only delays the small commands behind it.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Looks a name up and keeps the addresses of the wanted family, in the resolver's order.
pub(super) async fn resolve(host: &str, port: u16, family: AddressFamily) -> io::Result<Vec<SocketAddr>> {
    let wanted = |address: &SocketAddr| match family {
        AddressFamily::Any => true,
        AddressFamily::Inet => address.is_ipv4(),
        AddressFamily::Inet6 => address.is_ipv6(),
    };
    Ok(lookup_host((host, port)).await?.filter(wanted).collect())
}

/// Why no address of a list could be reached.
#[derive(Debug)]
pub(super) struct Unreached {
    pub tried: Vec<(SocketAddr, io::Error)>,
}

impl Unreached {
    pub fn describe(&self) -> String {
        let tried: Vec<String> =
            self.tried.iter().map(|(address, error)| format!("{address}: {error}")).collect();
        tried.join(", ")
    }
}

/// Tries the given addresses in order within `limit`, and no others.
///
/// Each address gets its share of what is left, so that one that never answers cannot use up the time of
/// those behind it.
pub(super) async fn dial(
    addresses: &[SocketAddr],
    dialing: &Dialing,
    limit: Duration,
) -> Result<TcpStream, Unreached> {
    let due = Instant::now() + limit;
    let mut tried = Vec::new();
    for attempt in 0..dialing.attempts {
        if attempt > 0 {
            if due.saturating_duration_since(Instant::now()) <= ATTEMPT_PAUSE {
                break;
            }
            tokio::time::sleep(ATTEMPT_PAUSE).await;
        }
        tried.clear();
        for (index, address) in addresses.iter().enumerate() {
            let left = due.saturating_duration_since(Instant::now());
            let behind = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            match timeout(left / behind, dial_one(*address, dialing)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => tried.push((*address, error)),
                Err(_) => {
                    let what = format!("no answer within {:.1} s", (left / behind).as_secs_f64());
                    tried.push((*address, io::Error::new(io::ErrorKind::TimedOut, what)));
                }
            }
        }
    }
    Err(Unreached { tried })
}

async fn dial_one(address: SocketAddr, dialing: &Dialing) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(local) = local_address(address, dialing).await? {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    let stream = socket.connect(address).await?;
    tune(&stream, dialing)?;
    Ok(stream)
}

async fn local_address(remote: SocketAddr, dialing: &Dialing) -> io::Result<Option<IpAddr>> {
    let of_family = |address: &IpAddr| address.is_ipv4() == remote.is_ipv4();
    let missing = |what: &str, name: &str| {
        let problem = format!("{what} {name} has no address of this family");
        io::Error::new(io::ErrorKind::AddrNotAvailable, problem)
    };
    if let Some(name) = &dialing.bind_address {
        let mut found = lookup_host((name.as_str(), 0)).await?.map(|address| address.ip());
        return found.find(of_family).map(Some).ok_or_else(|| missing("bind address", name));
    }
    if let Some(name) = &dialing.bind_interface {
        let mut found = interface_addresses(name)?.into_iter();
        return found.find(of_family).map(Some).ok_or_else(|| missing("interface", name));
    }
    Ok(None)
}

/// Binding to an interface's address, as OpenSSH does, needs no privilege (binding to the device does).
fn interface_addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let all = nix::ifaddrs::getifaddrs().map_err(io::Error::from)?;
    let addresses = all.filter(|interface| interface.interface_name == name).filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|inet| IpAddr::V4(inet.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|inet| IpAddr::V6(inet.ip())))
    });
    Ok(addresses.collect())
}

fn tune(stream: &TcpStream, dialing: &Dialing) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_keepalive(dialing.keep_alive)?;
    #[cfg(target_os = "linux")]
    linux::tune(stream, dialing)?;
    Ok(())
}

#[cfg(target_os = "linux")]
pub(super) use linux::QuickAck;

/// Socket options that only Linux has.
#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    // The macro's expansion names these without a path.
    use nix::libc;
    use nix::sys::socket::{setsockopt, sockopt};
    use nix::{setsockopt_impl, sockopt_impl};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::TcpStream;

    use super::{Dialing, UNSENT_BYTES_MAX};

    sockopt_impl!(
        /// Acknowledge at once; the kernel switches it off again by itself.
        TcpQuickAck,
        SetOnly,
        libc::IPPROTO_TCP,
        libc::TCP_QUICKACK,
        bool
    );
    sockopt_impl!(
        /// How much unsent data the kernel takes before the socket counts as not writable.
        TcpNotSentLowat,
        SetOnly,
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        u32
    );

    pub fn tune(stream: &TcpStream, dialing: &Dialing) -> io::Result<()> {
        setsockopt(stream, TcpNotSentLowat, &UNSENT_BYTES_MAX)?;
        let timeout_ms = u32::try_from(dialing.user_timeout.as_millis()).unwrap_or(u32::MAX);
        setsockopt(stream, sockopt::TcpUserTimeout, &timeout_ms)?;
        Ok(())
    }

    /// Acknowledges each segment at once for as long as the switch is on.
    ///
    /// sshd's Nagle algorithm against our delayed acknowledgements costs 40 ms while connecting.
    pub struct QuickAck {
        stream: TcpStream,
        on: Arc<AtomicBool>,
    }

    impl QuickAck {
        pub fn new(stream: TcpStream, on: Arc<AtomicBool>) -> Self {
            QuickAck { stream, on }
        }

        fn arm(&self) {
            // Without it everything still works, only slower.
            if self.on.load(Ordering::Relaxed)
                && let Err(error) = setsockopt(&self.stream, TcpQuickAck, &true)
            {
                tracing::debug!("no TCP_QUICKACK: {error}");
            }
        }
    }

    impl AsyncRead for QuickAck {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
            self.arm();
            polled
        }
    }

    impl AsyncWrite for QuickAck {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
            self.arm();
            polled
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialing() -> Dialing {
        Dialing {
            family: AddressFamily::Any,
            bind_address: None,
            bind_interface: None,
            attempts: 1,
            keep_alive: true,
            user_timeout: Duration::from_secs(120),
        }
    }

    #[tokio::test]
    async fn addresses_are_tried_in_order_and_each_failure_is_kept() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (open_at, closed_at) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        let limit = Duration::from_secs(5);
        let stream = dial(&[closed_at, open_at], &dialing(), limit).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open_at);
        let unreached = dial(&[closed_at, closed_at], &dialing(), limit).await.unwrap_err();
        assert_eq!(unreached.tried.len(), 2);
        assert!(unreached.describe().contains(&closed_at.to_string()));
    }

    #[tokio::test]
    async fn the_family_that_is_asked_for_is_kept() {
        for (family, v4) in [(AddressFamily::Inet, true), (AddressFamily::Inet6, false)] {
            let found = resolve("127.0.0.1", 22, family).await.unwrap();
            assert_eq!(!found.is_empty(), v4);
        }
    }
}
