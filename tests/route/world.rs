//! A network namespace of the test's own: an uplink made of a veth pair, and a tunnel.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use towline::config::{Evidence, Route, RouteKind};
use towline::route::{Caller, Check, Linux, Proof, Status, prove_with};

/// The host that the tests ask about; its network leads through the tunnel.
pub const HOST: &str = "192.0.2.7:22";

/// Runs a test on a thread in a fresh network namespace, which ends with it.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("network namespaces need root: run these tests as root");
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the calling thread's namespace.
pub fn try_ip(arguments: &str) -> Output {
    let said = Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    said.unwrap_or_else(|error| panic!("ip cannot be run ({error}): apt-get install iproute2"))
}

/// Runs `ip`, which must succeed.
pub fn ip(arguments: &str) {
    let output = try_ip(arguments);
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes the uplink: eth0 with 192.168.1.2, and the default routes by it.
pub fn uplink() {
    ip("link add eth0 type veth peer name far0");
    ip("link set far0 up");
    ip("link set eth0 up");
    ip("address add 192.168.1.2/24 dev eth0");
    ip("address add fd00:1::2/64 dev eth0 nodad");
    ip("route add default via 192.168.1.1");
    ip("route add default via fd00:1::1");
}

/// Makes a tun device with 10.8.0.2, by which the hosts of the tests are reached; it is served while the file lives.
pub fn tunnel(name: &str) -> File {
    let file = serve(name);
    ip(&format!("link set {name} up"));
    ip(&format!("address add 10.8.0.2/24 dev {name}"));
    ip(&format!("address add fd00:8::2/64 dev {name} nodad"));
    ip(&format!("route add 192.0.2.0/24 dev {name}"));
    ip(&format!("route add 2001:db8::/32 dev {name}"));
    file
}

/// Makes a tun device, or serves one that is there.
#[expect(unsafe_code, reason = "no safe crate of ours attaches to a tun device")]
pub fn serve(name: &str) -> File {
    nix::ioctl_write_ptr!(tun_set_interface, b'T', 202, libc::c_int);
    const TUN_WITHOUT_HEADER: libc::c_short = 0x1001;
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let file = file.expect("/dev/net/tun must be there: modprobe tun");
    // struct ifreq: 16 bytes of name, then a union of 24 bytes that begins with the flags.
    let mut request = [0_u64; 5];
    let mut bytes = [0_u8; 40];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes[16..18].copy_from_slice(&TUN_WITHOUT_HEADER.to_ne_bytes());
    for (word, bytes) in request.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap());
    }
    use std::os::fd::AsRawFd as _;
    // SAFETY: the kernel reads and writes sizeof(struct ifreq) = 40 bytes at the pointer, which is to 40 aligned
    // bytes that live across the call; the descriptor is open.
    unsafe { tun_set_interface(file.as_raw_fd(), request.as_mut_ptr().cast_const().cast()) }.unwrap();
    file
}

/// Ends the serving of a tun device.
///
/// A child of another test that is between fork and exec may hold the file a moment longer, so this waits until the
/// device has lost what served it.
pub fn leave(served: File, name: &str) {
    drop(served);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let shown = try_ip(&format!("link show dev {name}"));
        if !shown.status.success() || String::from_utf8_lossy(&shown.stdout).contains("NO-CARRIER") {
            return;
        }
        assert!(Instant::now() < end, "{name} is served on");
    }
}

/// A site's proof: any tunnel with this name, with an address in 10.8.0.0/16.
pub fn spec(interface: &str, kind: RouteKind) -> Route {
    let evidence = Evidence { cidr: Some(("10.8.0.0".parse().unwrap(), 16)), ..Evidence::default() };
    Route { interface: interface.to_owned(), kind, evidence }
}

/// Asks the guard as this process, for tun devices named `tun*`.
pub fn prove(host: &str) -> Proof {
    towline::route::prove(&spec("tun*", RouteKind::Tun), &[host.parse::<SocketAddr>().unwrap()])
}

/// Asks the guard as a process with this mark and user.
pub fn prove_as(mark: u32, uid: u32, host: &str) -> Proof {
    let kernel = Linux::asking_as(Caller { mark, uid, interface: None }).unwrap();
    prove_with(&kernel, &spec("tun*", RouteKind::Tun), &[host.parse().unwrap()])
}

/// Asserts that nothing is proven, and which check says so.
pub fn assert_problem(proof: &Proof, name: &str, status: Status) -> Check {
    assert!(!proof.proven(), "{proof:?}");
    let problem = proof.first_problem().unwrap();
    assert_eq!((problem.name, problem.status), (name, status), "{:?}", proof.checks);
    problem.clone()
}

/// Asserts that the host's address is proven.
pub fn assert_proven(proof: &Proof) {
    assert!(proof.proven(), "{:?}", proof.checks);
}
