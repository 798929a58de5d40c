//! How a line ends when something below it breaks: an exact error, in time, and nothing left at the far end.

use std::future::Future;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use towline::failure::Failure;
use towline::line::message::TailFrom;
use towline::line::{Child, EndReason, Error, Line, Tail};

use crate::far_side::{self, GONE, mark, shell, wait_until_gone};
use crate::support::link::Refuse;
use crate::support::{Direction, Link, Process, Shape, Sshd, TempHome, census, server};

/// No end of a line may take its callers longer, whatever broke.
const BOUND: Duration = Duration::from_secs(30);

async fn within<T>(bound: Duration, what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(bound, work).await.unwrap_or_else(|_| panic!("not within {bound:?}: {what}"))
}

/// A command that runs with two descendants, one in a session of its own, and a read that waits.
async fn busy(line: &Line, mark: &str) -> (Child, Tail) {
    let (name, value) = mark.split_once('=').unwrap();
    let text = "trap '' TERM HUP; setsid sleep 600 & sleep 600 & echo up; wait";
    let mut child = line.command(shell(text)).env(name, value).spawn(false).await.unwrap();
    let up = within(BOUND, "the command's first word", child.stdout.next()).await;
    assert_eq!(up.as_deref(), Some(b"up\n".as_slice()));
    far_side::wait_for_marked(mark, 3);
    let mut tail = line.tail("/etc/passwd", TailFrom::Lines(1), true).await.unwrap();
    assert!(within(BOUND, "the tail's first bytes", tail.next()).await.unwrap().is_some());
    (child, tail)
}

/// The errors of what was under way, and the line's reason.
async fn ends(line: &Line, child: &mut Child, tail: &mut Tail) -> EndReason {
    let outcome = within(BOUND, "the command's end", child.wait()).await;
    let Err(Error::OutcomeUnknown(reason)) = outcome else { panic!("{outcome:?}") };
    let read = loop {
        match within(BOUND, "the tail's end", tail.next()).await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(read, Err(Error::Lost(reason.clone())));
    assert_eq!(within(BOUND, "the line's end", line.closed()).await, reason);
    assert_eq!(line.probe().await.unwrap_err(), Error::NotConnected(reason.clone()));
    reason
}

#[tokio::test]
async fn a_killed_sshd_ends_the_line_at_once_and_everything_at_its_far_end() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let (line, mark) = (far_side::open(&home, None).await.unwrap(), mark());
    let (mut child, mut tail) = busy(&line, &mark).await;
    let began = Instant::now();
    server.kill_connections();
    let reason = ends(&line, &mut child, &mut tail).await;
    assert_eq!(reason.as_str(), "connection");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    wait_until_gone(&server);
    census::wait_until_none(GONE, || census::with_environment(&mark));
}

#[tokio::test]
async fn a_killed_helper_ends_the_line_at_once_and_leaves_no_command_behind() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let (line, mark) = (far_side::open(&home, None).await.unwrap(), mark());
    let (mut child, mut tail) = busy(&line, &mark).await;
    let detached = self::mark();
    let (name, value) = detached.split_once('=').unwrap();
    let kept = line.command(shell("exec sleep 600")).env(name, value).detach(true);
    let kept = kept.spawn(false).await.unwrap();
    let survivor = far_side::wait_for_marked(&detached, 1).remove(0);
    let began = Instant::now();
    far_side::helper(&server).signal(Signal::SIGKILL);
    let reason = ends(&line, &mut child, &mut tail).await;
    assert_eq!(reason.as_str(), "connection");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    census::wait_until_none(GONE, || census::with_environment(&mark));
    drop(kept);
    // What was detached goes on, and was the only thing that did.
    let left: Vec<u32> = census::with_environment(&detached).iter().map(|process| process.pid).collect();
    assert_eq!(left, [survivor.pid]);
    survivor.signal(Signal::SIGKILL);
    wait_until_gone(&server);
}

/// Processes that are stopped; they go on when this is dropped, whatever the test's end.
struct Frozen([Process; 2]);

impl Frozen {
    fn new(processes: [Process; 2]) -> Frozen {
        processes.iter().for_each(|process| process.signal(Signal::SIGSTOP));
        Frozen(processes)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|process| process.signal(Signal::SIGCONT));
    }
}

#[tokio::test]
async fn a_frozen_helper_is_told_from_a_silent_network_and_ends_when_it_may_go_on() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let pinged_server = Sshd::key_only();
    let pinged_home = TempHome::for_server(&pinged_server, "alice");
    let (line, mark) = (far_side::open(&home, None).await.unwrap(), mark());
    let (mut child, mut tail) = busy(&line, &mark).await;
    let pinged = far_side::open(&pinged_home, None).await.unwrap();
    let frozen = Frozen::new([far_side::helper(&server), far_side::helper(&pinged_server)]);
    let began = Instant::now();
    // A line without any stream is watched as well, as soon as it owes an answer.
    let (reason, ping) =
        tokio::join!(ends(&line, &mut child, &mut tail), within(BOUND, "the ping's end", pinged.ping()));
    let (EndReason::Stalled { silent_s }, Err(Error::NotConnected(EndReason::Stalled { .. }))) =
        (reason, ping)
    else {
        panic!("the line ended for another reason")
    };
    let elapsed = began.elapsed();
    assert!((10..20).contains(&silent_s) && elapsed < Duration::from_secs(20), "{silent_s} s, {elapsed:?}");
    assert!(elapsed > Duration::from_secs(9), "given up too soon: {elapsed:?}");
    drop(frozen);
    wait_until_gone(&server);
    wait_until_gone(&pinged_server);
    census::wait_until_none(GONE, || census::with_environment(&mark));
}

/// A line through a link that then carries nothing that way.
async fn stalled(server: &Sshd, keepalive: Duration, direction: Direction) -> (EndReason, Duration) {
    let link = Link::to_tcp(server.address(), Shape::default());
    let home = TempHome::for_address(link.address(), "alice");
    let (line, mark) = (far_side::open(&home, Some(keepalive)).await.unwrap(), mark());
    let (mut child, mut tail) = busy(&line, &mark).await;
    link.stall(direction);
    let began = Instant::now();
    let reason = ends(&line, &mut child, &mut tail).await;
    (reason, began.elapsed())
}

/// A line through a link that carries nothing for `outage`, and then again.
async fn interrupted(server: &Sshd, keepalive: Option<Duration>, outage: Duration) {
    let link = Link::to_tcp(server.address(), Shape::default());
    let home = TempHome::for_address(link.address(), "alice");
    let line = far_side::open(&home, keepalive).await.unwrap();
    let running = line.command(shell("read word; echo $word")).spawn(true).await;
    let mut running = running.unwrap();
    link.stall(Direction::Down);
    link.stall(Direction::Up);
    // The outage itself is what is tested, so there is no event to wait for but the line's end, which must not come.
    let ended = tokio::time::timeout(outage, line.closed()).await;
    assert!(ended.is_err(), "an outage of {outage:?} ended the line: {ended:?}");
    link.resume();
    running.stdin.as_mut().unwrap().send(b"back\n".to_vec()).await;
    let outcome = within(BOUND, "the command's end", running.wait()).await;
    let end = (outcome.map(|outcome| outcome.rc), running.stdout.next().await);
    assert_eq!(end, (Ok(0), Some(b"back\n".as_slice().into())), "after an outage of {outage:?}");
    assert!(within(BOUND, "a ping", line.ping()).await.is_ok());
}

#[tokio::test]
async fn a_silent_network_is_the_keepalives_and_a_short_outage_costs_no_login() {
    let server = Sshd::key_only();
    let two = Duration::from_secs(2);
    let (up, down, (), (), ()) = tokio::join!(
        stalled(&server, two, Direction::Up),
        stalled(&server, two, Direction::Down),
        interrupted(&server, Some(two), Duration::from_secs(3)),
        // Longer than the helper may be silent, so the SSH server is asked meanwhile; it answers first.
        interrupted(&server, None, Duration::from_millis(11_500)),
        interrupted(&server, None, Duration::from_secs(14)),
    );
    for (reason, after) in [up, down] {
        assert_eq!(reason.as_str(), "connection", "{reason}");
        assert!(after > Duration::from_secs(4) && after < Duration::from_secs(15), "{after:?}: {reason}");
    }
    wait_until_gone(&server);
    assert_eq!((server.connections(), server.session_channels()), (5, 5));
}

/// What a cut may hit: everything from the first byte to the middle of bulk data.
const BULK: usize = 3 << 20;

/// The name of a file with [`BULK`] bytes in alice's home, and their digest.
fn bulk_file() -> (String, Vec<u8>) {
    let mut content = vec![0; BULK];
    StdRng::seed_from_u64(1).fill(&mut content[..]);
    let name = format!("bulk-{}", std::process::id());
    let path = server::user_home("alice").join(&name);
    std::fs::write(path, &content).unwrap();
    (name, content)
}

/// Where a seed cuts: as likely among the first bytes as deep in the bulk.
fn place(seed: u64) -> (Direction, u64) {
    let mut chance = StdRng::seed_from_u64(seed);
    let direction = if seed.is_multiple_of(2) { Direction::Down } else { Direction::Up };
    let most = f64::from(u32::try_from(BULK / 2).unwrap());
    (direction, most.powf(chance.random_range(0.0..1.0)) as u64)
}

/// Reads and writes bulk data over a line that is cut; tells the kinds of the errors.
async fn work_until_cut(home: &TempHome, name: &str, content: &[u8]) -> Vec<&'static str> {
    let line = match far_side::open(home, None).await {
        Ok(line) => line,
        Err(error) => {
            let kind = Failure::from(error).kind.as_str();
            assert!(["connect_failed", "auth_failed", "bootstrap_failed"].contains(&kind), "{kind}");
            return vec![kind];
        }
    };
    let path = format!("~/{name}");
    let files = line.files();
    let echo = line.command(shell("cat; exec sleep 600")).output(content.to_vec());
    let (read, sent) = tokio::join!(files.read_to_end(path.as_str(), BULK), echo);
    let read = match read {
        Ok(read) => {
            assert!(read == content, "a read that succeeds is complete");
            "complete"
        }
        Err(error) => Failure::from(error).kind.as_str(),
    };
    let sent = Failure::from(sent.unwrap_err()).kind.as_str();
    assert!(["complete", "line_lost", "not_connected"].contains(&read), "{read}");
    assert!(["outcome_unknown", "not_connected"].contains(&sent), "{sent}");
    assert_eq!(line.closed().await.as_str(), "connection");
    vec![read, sent]
}

#[tokio::test]
async fn a_link_cut_at_any_byte_is_an_exact_error_and_leaves_nothing() {
    let server = Sshd::key_only();
    let (name, content) = bulk_file();
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..40 {
        let (direction, bytes) = place(seed);
        let link = Link::to_tcp(server.address(), Shape::default());
        let home = TempHome::for_address(link.address(), "alice");
        link.cut_after(direction, bytes);
        println!("seed {seed}: {direction:?} is cut after {bytes} bytes");
        let kinds = within(BOUND, "the work's end", work_until_cut(&home, &name, &content)).await;
        println!("  {kinds:?}");
        kinds.into_iter().for_each(|kind| *seen.entry(kind).or_insert(0) += 1);
    }
    wait_until_gone(&server);
    for kind in ["connect_failed", "line_lost", "outcome_unknown"] {
        assert!(seen.contains_key(kind), "no seed led to {kind}: {seen:?}");
    }
    std::fs::remove_file(server::user_home("alice").join(&name)).unwrap();
}

#[test]
fn the_program_ends_by_the_table_when_its_link_is_cut() {
    let server = Sshd::key_only();
    let expected = Sha256::digest(vec![b'x'; BULK]);
    for seed in 100..112 {
        let (_, bytes) = place(seed);
        let link = Link::to_tcp(server.address(), Shape::default());
        let home = TempHome::for_address(link.address(), "alice");
        link.cut_after(Direction::Down, bytes);
        let text = format!("head -c {BULK} /dev/zero | tr '\\0' x; exec sleep 600");
        let mut command = crate::support::towline(&home);
        let answer =
            command.args(["exec", "--json", "--max-output", "4M", "hpc", "--", &text]).output().unwrap();
        let error: serde_json::Value = serde_json::from_slice(&answer.stderr).unwrap();
        let kind = error["error"]["kind"].as_str().unwrap();
        println!("seed {seed}, {bytes} bytes: {kind}");
        let expected = match kind {
            "connect_failed" | "auth_failed" | "bootstrap_failed" => 5,
            "outcome_unknown" => 6,
            _ => panic!("{error}"),
        };
        assert_eq!((answer.status.code(), answer.stdout.len()), (Some(expected), 0), "{error}");
        assert_eq!(error["error"]["retry_safe"], false, "{error}");
    }
    // The control: the same work over a whole link.
    let home = TempHome::for_server(&server, "alice");
    let text = format!("head -c {BULK} /dev/zero | tr '\\0' x");
    let answer = crate::support::towline(&home).args(["exec", "hpc", "--", &text]).output().unwrap();
    assert_eq!(Sha256::digest(&answer.stdout), expected);
    wait_until_gone(&server);
}

#[test]
fn a_server_that_closes_at_once_is_connect_failed_with_its_phase() {
    let server = Sshd::key_only();
    let link = Link::to_tcp(server.address(), Shape::default());
    link.refuse(Refuse::New);
    let home = TempHome::for_address(link.address(), "alice");
    let answer = crate::support::run_json(&home, &["exec", "hpc", "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "connect_failed"), "{}", answer.text);
    assert_eq!(answer.error["error"]["phase"], "version", "{}", answer.text);
}
