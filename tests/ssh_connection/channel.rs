//! The one channel: every byte in both directions, ends in order, keepalives, the end of a connection.

use std::time::Duration;

use bytes::Bytes;
use towline::ssh::{Channel, Error, Part, Phase};

use crate::bench::{Bench, Human, block_on, bytes, collect};
use crate::support::link::{Direction, Link, Shape};
use crate::support::server::{Sshd, ThrowawayOptions};

async fn open(bench: &Bench, command: &str) -> Channel {
    let transport = bench.connect(Human::answering([])).await.unwrap();
    transport.into_channel(command).await.unwrap()
}

#[test]
fn both_streams_the_exit_code_and_a_signal_come_through() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let ran = block_on(bench.run("echo out; echo err >&2; exit 7"));
    assert_eq!((ran.text(), ran.stderr.as_slice(), ran.exit), ("out", b"err\n".as_slice(), Some(7)));
    let ran = block_on(bench.run("kill -TERM $$"));
    assert_eq!((ran.exit, ran.signal.as_deref()), (None, Some("TERM")));
}

#[test]
fn no_environment_terminal_or_agent_is_asked_for() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend("SendEnv LANG LC_*\nSetEnv LC_X=1\nForwardAgent yes\nForwardX11 yes\nRequestTTY force");
    block_on(bench.run("tty; env"));
    sshd.wait_until_idle();
    let log = sshd.log();
    let requests: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("server_input_channel_req: "))
        .map(|(_, rest)| rest)
        .collect();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].contains("request exec"), "{requests:?}");
}

#[test]
fn case_053_the_end_never_overtakes_the_data() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        let Channel { mut reader, .. } = open(&bench, "head -c 5242880 /dev/zero; exit 3").await;
        let mut received = 0;
        let mut exit = None;
        while let Some(part) = reader.next().await {
            match part {
                Part::Stdout(data) => {
                    assert_eq!(exit, None, "data after the exit");
                    received += data.len();
                    // A slow reader: the whole output and both ends are queued behind this.
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                Part::Exit { code, .. } => exit = code,
                Part::Stderr(_) | Part::Closed { .. } => {}
            }
        }
        assert_eq!((received, exit), (5_242_880, Some(3)));
    });
}

#[test]
fn case_053_our_own_end_never_overtakes_our_data() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        // The remote side reads late, so the server's window fills up before our end is sent.
        let Channel { mut reader, mut writer, .. } = open(&bench, "sleep 0.5; sha256sum").await;
        let data: Vec<u8> = (0..6_000_000u32).map(|index| (index % 251) as u8).collect();
        let expected = crate::bench::run(
            "sh",
            &[
                "-c",
                "python3 -c 'import sys;sys.stdout.buffer.write(bytes(i%251 for i in range(6000000)))' | sha256sum",
            ],
        );
        let upload = tokio::spawn(async move {
            for piece in data.chunks(100_000) {
                writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            writer.finish().await.unwrap();
        });
        let mut answer = Vec::new();
        while let Some(part) = reader.next().await {
            if let Part::Stdout(data) = part {
                answer.extend(data);
            }
        }
        upload.await.unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
    });
}

#[test]
fn an_unread_channel_still_answers_keepalives() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        let Channel { mut reader, control, .. } = open(&bench, "head -c 40000000 /dev/zero").await;
        for _ in 0..3 {
            let probed = tokio::time::timeout(Duration::from_secs(10), control.probe()).await;
            probed.expect("the connection stands still").unwrap();
        }
        let mut received = 0;
        while let Some(part) = reader.next().await {
            if let Part::Stdout(data) = part {
                received += data.len();
            }
        }
        assert_eq!(received, 40_000_000);
    });
}

#[test]
fn one_connection_has_one_session_and_a_polite_end() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        let Channel { mut reader, mut writer, control, .. } = open(&bench, "cat").await;
        writer.write(bytes("hello")).await.unwrap();
        assert_eq!(reader.next().await, Some(Part::Stdout(bytes("hello"))));
        assert!(control.probe().await.unwrap() < Duration::from_secs(5));
        control.disconnect("done here").await;
        assert_eq!(control.until_ended().await, "ended here: done here");
        assert!(matches!(control.probe().await, Err(Error::Ended { .. })));
        assert!(matches!(writer.write(bytes("more")).await, Err(Error::Ended { .. })));
        while let Some(part) = reader.next().await {
            assert!(matches!(part, Part::Closed { .. }), "{part:?}");
        }
    });
    sshd.wait_until_idle();
    assert_eq!((sshd.connections(), sshd.session_channels(), sshd.sessions()), (1, 1, 1));
    assert!(sshd.log().contains("done here"), "{}", sshd.log());
}

#[test]
fn dropping_everything_closes_the_connection() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        let channel = open(&bench, "cat").await;
        drop(channel);
        // The session's task needs the runtime to notice.
        tokio::task::spawn_blocking(move || sshd.wait_until_idle()).await.unwrap();
    });
}

#[test]
fn a_killed_server_ends_reading_and_writing_with_a_reason() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    block_on(async {
        // Nobody reads over there, so this write waits for a window that will never come.
        let command = "echo $PPID; exec sleep 1000";
        let Channel { mut reader, mut writer, control, .. } = open(&bench, command).await;
        let Some(Part::Stdout(pid)) = reader.next().await else { panic!("no pid") };
        let pid: i32 = std::str::from_utf8(&pid).unwrap().trim().parse().unwrap();
        let blocked = tokio::spawn(async move { writer.write(Bytes::from(vec![0; 8 << 20])).await });
        control.probe().await.unwrap();
        // The process that holds the connection.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(matches!(blocked.await.unwrap(), Err(Error::Ended { .. })));
        let mut last = None;
        while let Some(part) = reader.next().await {
            last = Some(part);
        }
        let Some(Part::Closed { reason }) = last else { panic!("{last:?}") };
        assert!(reason.contains("closed") || reason.contains("network"), "{reason}");
        assert!(!control.until_ended().await.is_empty());
    });
}

#[test]
fn case_095_a_black_hole_is_found_by_the_keepalives() {
    let sshd = Sshd::key_only();
    let link = Link::to_tcp(sshd.address(), Shape::default());
    let mut bench = Bench::for_site(link.address(), "ed25519");
    bench.overrides.keepalive = Some(Duration::from_millis(200));
    bench.prepend("ServerAliveCountMax 2");
    block_on(async {
        let Channel { mut reader, .. } = open(&bench, "cat").await;
        link.stall(Direction::Up);
        link.stall(Direction::Down);
        let Some(Part::Closed { reason }) = reader.next().await else { panic!("not closed") };
        assert!(reason.contains("keepalives"), "{reason}");
    });
}

#[test]
fn case_095_a_black_hole_in_the_middle_of_an_upload_is_found_too() {
    let sshd = Sshd::key_only();
    let link = Link::to_tcp(sshd.address(), Shape { window_bytes: 64 << 10, ..Shape::default() });
    let mut bench = Bench::for_site(link.address(), "ed25519");
    bench.overrides.keepalive = Some(Duration::from_millis(300));
    block_on(async {
        let Channel { mut writer, .. } = open(&bench, "cat >/dev/null").await;
        writer.write(Bytes::from(vec![0; 1 << 20])).await.unwrap();
        link.stall(Direction::Up);
        link.stall(Direction::Down);
        // The session blocks in a write, where no keepalive is counted.
        let ended = loop {
            if let Err(error) = writer.write(Bytes::from(vec![0; 1 << 20])).await {
                break error;
            }
        };
        assert!(matches!(ended, Error::Ended { .. }), "{ended}");
    });
}

#[test]
fn an_opening_costs_seven_round_trips() {
    let sshd = Sshd::key_only();
    let half = Duration::from_millis(100);
    let link = Link::to_tcp(sshd.address(), Shape { latency: half, ..Shape::default() });
    let bench = Bench::for_site(link.address(), "ed25519");
    let start = std::time::Instant::now();
    block_on(async { open(&bench, "true").await });
    let trips = start.elapsed().as_secs_f64() / (2.0 * half.as_secs_f64());
    assert!(trips < 8.5, "{trips:.1} round trips");
    println!("{trips:.1} round trips");
}

#[test]
fn a_refused_session_or_command_names_its_phase() {
    let sshd = Sshd::throwaway(ThrowawayOptions {
        lines: vec!["MaxSessions 0".to_owned()],
        ..ThrowawayOptions::default()
    });
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let error = block_on(async {
        let transport = bench.connect(Human::answering([])).await.unwrap();
        transport.into_channel("true").await.unwrap_err()
    });
    let text = error.to_string();
    let Error::ConnectFailed { phase, .. } = error else { panic!("{text}") };
    assert_eq!(phase, Phase::Channel);
    assert!(text.contains("refused a session"), "{text}");
}

#[test]
fn compression_and_rekeying_change_no_byte() {
    let sshd = Sshd::throwaway(ThrowawayOptions {
        lines: vec!["RekeyLimit 1M".to_owned()],
        ..ThrowawayOptions::default()
    });
    for lines in [
        "Compression yes",
        "RekeyLimit 2M",
        "Ciphers aes256-ctr\nMACs hmac-sha2-512",
        "Ciphers chacha20-poly1305@openssh.com",
        "KexAlgorithms ecdh-sha2-nistp384",
    ] {
        let mut bench = Bench::for_site(sshd.address(), "ed25519");
        bench.prepend(lines);
        let ran =
            block_on(bench.run(
                "seq 1 900000 | tee /dev/stderr | sha256sum >/tmp/sum.$$; rm -f /tmp/sum.$$; seq 1 300000",
            ));
        assert_eq!(ran.stderr.len(), 6_188_895, "{lines}");
        assert!(ran.stdout.ends_with(b"299999\n300000\n"), "{lines}");
    }
}

#[test]
fn the_collected_output_of_a_silent_command_is_empty() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let ran = block_on(async { collect(open(&bench, "true").await).await });
    assert_eq!((ran.stdout.len(), ran.exit), (0, Some(0)));
}
