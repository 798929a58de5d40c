//! Peers that are no SSH servers, hang up, stay silent or know only old algorithms.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use towline::ssh::{Error, Phase};

use crate::bench::{Bench, Human, block_on};

/// Serves one connection with `talk`, then keeps it open until the client leaves if `talk` returns true.
fn server(talk: impl FnOnce(&mut TcpStream) -> bool + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        if talk(&mut stream) {
            // Errors and the end alike mean that the client has left.
            while matches!(stream.read(&mut [0; 4096]), Ok(read) if read > 0) {}
        }
    });
    address
}

struct Failure {
    phase: Phase,
    problem: String,
    hint: Option<String>,
}

fn failure(address: SocketAddr) -> Failure {
    let mut bench = Bench::new();
    bench.host("site", address, "none", "");
    bench.deadlines.connect = Duration::from_secs(1);
    match block_on(bench.connect(Human::answering([]))).unwrap_err() {
        Error::ConnectFailed { phase, problem, hint, .. } => Failure { phase, problem, hint },
        other => panic!("not a failed connection: {other}"),
    }
}

fn say(text: &'static [u8]) -> impl FnOnce(&mut TcpStream) -> bool + Send + 'static {
    move |stream| {
        stream.write_all(text).unwrap();
        true
    }
}

/// A key exchange message with the given lists for both directions.
fn kexinit(kex: &str, host_key: &str, cipher: &str, mac: &str) -> Vec<u8> {
    let mut payload = vec![20];
    payload.extend([0; 16]);
    for list in [kex, host_key, cipher, cipher, mac, mac, "none", "none", "", ""] {
        payload.extend((list.len() as u32).to_be_bytes());
        payload.extend(list.as_bytes());
    }
    payload.extend([0; 5]);
    let padding = 8 - (payload.len() + 5) % 8 + 8;
    let mut packet = ((payload.len() + padding + 1) as u32).to_be_bytes().to_vec();
    packet.push(padding as u8);
    packet.extend(payload);
    packet.extend(vec![0; padding]);
    packet
}

fn offering(kex: &'static str, host_key: &'static str, cipher: &'static str) -> SocketAddr {
    server(move |stream| {
        stream.write_all(b"SSH-2.0-old\r\n").unwrap();
        stream.write_all(&kexinit(kex, host_key, cipher, "hmac-sha2-256")).unwrap();
        true
    })
}

#[test]
fn a_server_that_is_not_ssh_is_quoted() {
    for text in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b"220 mail.example ESMTP\r\n"] {
        let failed = failure(server(say(text)));
        assert_eq!(failed.phase, Phase::Version);
        assert!(failed.problem.contains("not an SSH server"), "{}", failed.problem);
        let quoted = std::str::from_utf8(text).unwrap().trim();
        assert!(failed.problem.contains(quoted), "{}", failed.problem);
    }
    // A long line without an end must not be waited for.
    let failed = failure(server(|stream| {
        stream.write_all(&[b'x'; 100_000]).unwrap();
        true
    }));
    assert!(
        failed.problem.contains("not an SSH server: it says: xxx")
            || failed.problem.contains("not an SSH server"),
        "{}",
        failed.problem
    );
}

#[test]
fn an_old_protocol_is_named() {
    let failed = failure(server(say(b"SSH-1.5-antique\n")));
    assert!(failed.problem.contains("SSH-1.5-antique"), "{}", failed.problem);
}

#[test]
fn case_045_a_hang_up_before_the_version_line_hints_at_a_refused_address() {
    let closed = failure(server(|stream| {
        // What we sent is read first: unread bytes at the close turn it into a reset.
        assert!(stream.read(&mut [0; 256]).unwrap() > 0);
        false
    }));
    let reset = failure(server(|stream| {
        stream.peek(&mut [0; 1]).unwrap();
        socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
        false
    }));
    let worded = failure(server(|stream| {
        stream.write_all(b"Exceeded MaxStartups\r\n").unwrap();
        false
    }));
    for (failed, word) in [(closed, "closed"), (reset, "reset"), (worded, "Exceeded MaxStartups")] {
        assert_eq!(failed.phase, Phase::Version);
        assert!(failed.problem.contains(word), "{}", failed.problem);
        assert!(failed.hint.unwrap().contains("refusing this address"));
    }
}

#[test]
fn case_089_each_silence_ends_at_a_deadline_that_names_its_phase() {
    let silent = failure(server(|_| true));
    assert_eq!(silent.phase, Phase::Version);
    assert!(silent.problem.contains("within 1 s"), "{}", silent.problem);
    let trickling = failure(server(|stream| {
        // Neither a banner without end nor a slow one extends the deadline.
        while stream.write_all(b"welcome\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }));
    assert_eq!(trickling.phase, Phase::Version);
    let half = failure(server(say(b"SSH-2.0-slow\r\n")));
    assert_eq!(half.phase, Phase::KeyExchange);
    let stuck = failure(offering("curve25519-sha256", "ssh-ed25519", "aes128-ctr"));
    assert_eq!(stuck.phase, Phase::KeyExchange);
}

#[test]
fn a_hang_up_in_the_key_exchange_is_told_apart() {
    let before = failure(server(|stream| {
        stream.write_all(b"SSH-2.0-leaver\r\n").unwrap();
        false
    }));
    let after = failure(server(|stream| {
        stream.write_all(b"SSH-2.0-leaver\r\n").unwrap();
        stream
            .write_all(&kexinit("curve25519-sha256", "ssh-ed25519", "aes128-ctr", "hmac-sha2-256"))
            .unwrap();
        false
    }));
    for failed in [before, after] {
        assert_eq!(failed.phase, Phase::KeyExchange);
        assert!(
            failed.problem.contains("closed the connection") || failed.problem.contains("network failed"),
            "{}",
            failed.problem
        );
    }
}

#[test]
fn only_old_algorithms_are_listed_with_what_could_allow_them() {
    for (address, offered, keyword) in [
        (
            offering("diffie-hellman-group1-sha1", "ssh-ed25519", "aes128-ctr"),
            "diffie-hellman-group1-sha1",
            "KexAlgorithms",
        ),
        (offering("curve25519-sha256", "ssh-dss", "aes128-ctr"), "ssh-dss", "HostKeyAlgorithms"),
        (offering("curve25519-sha256", "ssh-ed25519", "3des-cbc,arcfour"), "3des-cbc,arcfour", "Ciphers"),
    ] {
        let failed = failure(address);
        assert_eq!(failed.phase, Phase::KeyExchange);
        assert!(failed.problem.contains(&format!("offers only {offered}")), "{}", failed.problem);
        assert!(failed.hint.unwrap().contains(keyword));
    }
}

#[test]
fn garbage_after_the_version_line_is_an_error_not_a_wait() {
    let huge = failure(server(say(b"SSH-2.0-x\r\n\xff\xff\xff\xff")));
    assert!(huge.problem.contains("longer than"), "{}", huge.problem);
    let other = failure(server(say(b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x32\0\0\0\0\0\0\0\0\0\0")));
    assert!(other.problem.contains("another message"), "{}", other.problem);
}

#[test]
fn a_closed_port_names_each_address_that_was_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failed = failure(address);
    assert_eq!(failed.phase, Phase::Tcp);
    assert!(failed.problem.contains(&address.to_string()), "{}", failed.problem);
}

#[test]
fn an_unknown_name_fails_in_the_look_up() {
    let mut bench = Bench::new();
    bench.host("site", "127.0.0.1:22".parse().unwrap(), "none", "HostName no-such-host.invalid");
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    let Error::ConnectFailed { phase, host, .. } = error else { panic!("{error}") };
    assert_eq!((phase, host.as_str()), (Phase::Resolve, "no-such-host.invalid"));
}
