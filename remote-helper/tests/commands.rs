//! Commands: what runs, what comes back, and who is ended when.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod support;

use std::time::{Duration, Instant};

use support::{Helper, argv, shell};
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{
    ARGV_BYTES_MAX, Code, Environment, Exec, Keep, Request, SHELL_TEXT_BYTES_MAX,
};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_deadline_ends_one_command_and_the_line_lives_on() {
    let mut helper = Helper::start();
    let slow = helper.ask(Request::Exec(Exec { deadline_ms: Some(100), ..shell("printf part; sleep 20") }));
    let outcome = slow.exec();
    assert_eq!((outcome.rc, outcome.timed_out, &slow.stdout[..]), (124, true, &b"part"[..]));
    assert_eq!(helper.sh("printf alive").stdout, b"alive");
}

#[test]
fn both_streams_are_kept_to_their_bound_and_the_next_command_is_exact() {
    let mut helper = Helper::start();
    let text = "head -c 2097152 /dev/zero | tr '\\0' a; head -c 2097152 /dev/zero | tr '\\0' b >&2";
    let keep = Some(Keep { head: 1 << 20, tail: 0 });
    let both = helper.ask(Request::Exec(Exec { keep, ..shell(text) }));
    assert_eq!(both.stdout, vec![b'a'; 1 << 20]);
    assert_eq!(both.stderr, vec![b'b'; 1 << 20]);
    assert_eq!((both.exec().stdout_dropped, both.exec().stderr_dropped), (1 << 20, 1 << 20));
    let next = helper.sh("printf one; printf two >&2");
    assert_eq!((&next.stdout[..], &next.stderr[..]), (&b"one"[..], &b"two"[..]));
    assert_eq!(next.exec().stdout_dropped, 0);
}

#[test]
fn a_tail_is_kept_with_the_exact_count_of_what_is_gone_between() {
    let mut helper = Helper::start();
    let keep = Some(Keep { head: 10, tail: 100_000 });
    let lines: String = (1..=200_000).map(|line| format!("{line}\n")).collect();
    let kept = helper.ask(Request::Exec(Exec { keep, ..argv(&["seq", "200000"]) }));
    let (head, tail) = kept.stdout.split_at(10);
    assert_eq!(head, &lines.as_bytes()[..10]);
    assert_eq!(tail, &lines.as_bytes()[lines.len() - 100_000..]);
    assert_eq!(kept.exec().stdout_dropped as usize, lines.len() - 100_010);
}

#[test]
fn a_child_in_another_session_takes_no_byte_of_its_command_or_of_the_next() {
    let mut helper = Helper::start();
    let first = helper.sh("echo important; setsid sleep 4 &");
    assert_eq!((&first.stdout[..], first.exec().pipes_held), (&b"important\n"[..], true));
    let second = helper.sh("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done");
    assert_eq!((&second.stdout[..], second.exec().pipes_held), (&b"1\n2\n3\n4\n5\n6\n"[..], false));
}

#[test]
fn nothing_persists_between_commands() {
    let mut helper = Helper::start();
    let here = std::env::current_dir().unwrap();
    helper.sh("cd /tmp; export Z=1; umask 0");
    let next = helper.sh("pwd; echo [$Z]");
    assert_eq!(text(&next.stdout), format!("{}\n[]\n", here.display()));
}

#[test]
fn a_background_child_is_not_waited_for_and_goes_on_writing_unharmed() {
    let mut helper = Helper::start();
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let began = Instant::now();
    // It writes more than a pipe holds after its parent's end, and tells when it got through.
    let text = format!(
        "(sleep 1; head -c 300000 /dev/zero && echo $? >{0}.new; mv {0}.new {0}) & echo started",
        done.display()
    );
    let first = helper.sh(&text);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!((&first.stdout[..], first.exec().pipes_held, first.exec().rc), (&b"started\n"[..], true, 0));
    let other = helper.open(Request::Exec(shell("sleep 2; echo exact")));
    helper.wait(|_| done.exists());
    assert_eq!(std::fs::read(&done).unwrap(), b"0\n");
    assert_eq!(helper.finish(other).stdout, b"exact\n");
}

#[test]
fn background_children_that_hold_a_pipe_are_ended_where_that_was_asked() {
    let mut helper = Helper::start();
    let text = "setsid sleep 1000 & echo $!; sleep 1001 >/dev/null 2>&1 & echo $!";
    let ended = helper.ask(Request::Exec(Exec { end_background: true, ..shell(text) }));
    assert_eq!((ended.exec().rc, ended.exec().pipes_held), (0, false));
    let pids: Vec<i32> = text_lines(&ended.stdout);
    support::wait_gone(pids[0]);
    assert!(support::is_alive(pids[1]), "a child that holds no pipe was ended");
}

fn text_lines(bytes: &[u8]) -> Vec<i32> {
    text(bytes).lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn the_deadline_answers_whatever_ignores_its_signal() {
    let mut helper = Helper::start();
    let began = Instant::now();
    let script = "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$; exec sleep 1000\" & \
                  echo $$; while :; do sleep 1; done";
    let ended = helper.ask(Request::Exec(Exec { deadline_ms: Some(1000), ..shell(script) }));
    let elapsed = began.elapsed();
    assert_eq!((ended.exec().rc, ended.exec().timed_out, ended.exec().signal), (124, true, Some(9)));
    assert!((Duration::from_secs(3)..Duration::from_secs(6)).contains(&elapsed), "{elapsed:?}");
    let pids = text_lines(&ended.stdout);
    assert_eq!(pids.len(), 2);
    pids.into_iter().for_each(support::wait_gone);
    assert_eq!(helper.sh("echo alive").stdout, b"alive\n");
}

#[test]
fn cancelling_ends_the_command_with_its_descendants() {
    let mut helper = Helper::start();
    let stream = helper.open(Request::Exec(shell("setsid sleep 1000 & echo $!; wait")));
    helper.wait(|helper| !helper.streams[&stream].stdout.is_empty());
    helper.endpoint.cancel(stream, false).unwrap();
    let ended = helper.finish(stream);
    assert_eq!((ended.exec().rc, ended.exec().signal, ended.exec().timed_out), (143, Some(15), false));
    support::wait_gone(support::number(&ended.stdout));
}

#[test]
fn sixty_four_commands_at_once_mix_no_byte() {
    let mut helper = Helper::start();
    let streams: Vec<u32> = (0..64)
        .map(|index| {
            let text = format!("for i in $(seq 2000); do echo {index}:$i; done; echo end {index} >&2");
            helper.open(Request::Exec(shell(&text)))
        })
        .collect();
    let refused = helper.ask(Request::Exec(shell("true")));
    assert_eq!(refused.refusal().code, Code::Busy);
    for (index, stream) in streams.into_iter().enumerate() {
        let done = helper.finish(stream);
        let expected: String = (1..=2000).map(|line| format!("{index}:{line}\n")).collect();
        assert_eq!(text(&done.stdout), expected);
        assert_eq!(text(&done.stderr), format!("end {index}\n"));
    }
}

#[test]
fn input_arrives_exactly_and_its_end_too() {
    let mut helper = Helper::start();
    let stream = helper.open(Request::Exec(Exec { stdin: true, ..argv(&["sha256sum"]) }));
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number * 7 % 251) as u8).collect();
    for piece in content.chunks(100_000) {
        helper.wait(|helper| helper.endpoint.room(stream, 0) >= piece.len());
        helper.send(stream, piece, false);
    }
    helper.send(stream, b"", true);
    let done = helper.finish(stream);
    use sha2::Digest as _;
    let expected: String = sha2::Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text(&done.stdout), format!("{expected}  -\n"));
}

#[test]
fn a_command_that_does_not_read_its_input_stops_nobody() {
    let mut helper = Helper::start();
    let deaf = helper.open(Request::Exec(Exec { stdin: true, ..argv(&["sleep", "1000"]) }));
    while helper.endpoint.room(deaf, 0) > 0 {
        let room = helper.endpoint.room(deaf, 0);
        helper.send(deaf, &vec![0; room], false);
        helper.work(Duration::from_millis(50)).unwrap();
    }
    assert_eq!(helper.sh("echo alive").stdout, b"alive\n");
    let brief = helper.open(Request::Exec(Exec { stdin: true, ..argv(&["true"]) }));
    helper.send(brief, &[0; 100_000], true);
    assert_eq!(helper.finish(brief).exec().rc, 0);
}

#[test]
fn without_input_a_reader_sees_the_end_at_once() {
    let mut helper = Helper::start();
    assert_eq!(helper.sh("cat; echo $?").stdout, b"0\n");
}

#[test]
fn a_reader_that_stops_slows_its_command_and_no_other() {
    let mut helper = Helper::start();
    let frozen = helper.open(Request::Exec(argv(&["head", "-c", "20000000", "/dev/zero"])));
    helper.streams.get_mut(&frozen).unwrap().is_frozen = true;
    helper.wait(|helper| helper.streams[&frozen].received >= 256 << 10);
    assert_eq!(helper.sh("echo alive").stdout, b"alive\n");
    assert_eq!(helper.streams[&frozen].received, 256 << 10, "no more than was lent");
    helper.thaw(frozen);
    let done = helper.finish(frozen);
    assert_eq!((done.received, done.exec().rc), (20_000_000, 0));
}

#[test]
fn a_slow_reader_gets_the_last_byte_though_a_descendant_holds_the_pipe() {
    let mut helper = Helper::start();
    // As much as credit, queue and pipe take together, so that the command can end while nobody reads.
    let text = "head -c 440000 /dev/zero; setsid sleep 5 &";
    let frozen = helper.open(Request::Exec(shell(text)));
    helper.streams.get_mut(&frozen).unwrap().is_frozen = true;
    helper.wait(|helper| helper.streams[&frozen].pid.is_some());
    let pid = helper.streams[&frozen].pid.unwrap();
    helper.wait(|_| !support::is_alive(pid as i32));
    // Longer than a held pipe is waited for.
    helper.sh("sleep 1");
    assert!(helper.streams[&frozen].end.is_none());
    helper.thaw(frozen);
    let done = helper.finish(frozen);
    assert_eq!((done.received, done.exec().pipes_held), (440_000, true));
}

#[test]
fn memory_stays_bounded_whatever_is_printed() {
    let mut helper = Helper::start();
    helper.sh("true");
    let idle = helper.status_kib("VmRSS");
    assert!(idle < 8 << 10, "{idle} KiB while idle");
    let keep = Some(Keep { head: 1 << 20, tail: 1 << 20 });
    let zeros = argv(&["head", "-c", "1G", "/dev/zero"]);
    let kept = helper.open(Request::Exec(Exec { keep, ..zeros.clone() }));
    let slow = helper.open(Request::Exec(zeros));
    helper.streams.get_mut(&slow).unwrap().is_counted_only = true;
    let kept = helper.finish(kept);
    assert_eq!(kept.exec().stdout_dropped, (1 << 30) - (2 << 20));
    assert_eq!(kept.stdout.len(), 2 << 20);
    assert_eq!(helper.finish(slow).received, 1 << 30);
    let most = helper.status_kib("VmHWM");
    assert!(most < idle + (16 << 10), "{most} KiB at most, {idle} KiB idle");
}

#[test]
fn what_cannot_be_started_is_told_apart() {
    let mut helper = Helper::start();
    let missing = helper.ask(Request::Exec(argv(&["no-such-program-anywhere"])));
    assert_eq!(missing.exec().rc, 127);
    assert!(missing.exec().start_error.as_ref().unwrap().contains("no-such-program-anywhere"));
    let folder = helper.ask(Request::Exec(argv(&["/"])));
    assert_eq!(folder.exec().rc, 126);
    let nowhere = helper.ask(Request::Exec(Exec { cwd: Some("/no/such/folder".into()), ..shell("pwd") }));
    let refusal = nowhere.refusal();
    assert_eq!((refusal.code, refusal.path.clone()), (Code::NotFound, Some("/no/such/folder".into())));
    let huge = vec![("BIG".into(), ByteText(vec![b'x'; 200_000]))];
    let huge = helper.ask(Request::Exec(Exec { env: huge, ..shell("true") }));
    assert_eq!(huge.exec().rc, 126);
    assert_eq!(helper.sh("exit 300").exec().rc, 44);
}

#[test]
fn signals_are_told_also_those_of_real_time() {
    let mut helper = Helper::start();
    let killed = helper.sh("kill -9 $$");
    assert_eq!((killed.exec().rc, killed.exec().signal), (137, Some(9)));
    let real_time = helper.sh("kill -35 $$");
    assert_eq!((real_time.exec().rc, real_time.exec().signal), (163, Some(35)));
}

#[test]
fn requests_over_their_bounds_are_refused_and_those_at_them_run() {
    let mut helper = Helper::start();
    let padded = |bytes: usize| format!(":{}", " ".repeat(bytes - 1));
    assert_eq!(helper.sh(&padded(SHELL_TEXT_BYTES_MAX)).exec().rc, 0);
    assert_eq!(helper.sh(&padded(SHELL_TEXT_BYTES_MAX + 1)).refusal().code, Code::TooLarge);
    let longest = "x".repeat(ARGV_BYTES_MAX - 5);
    assert_eq!(helper.ask(Request::Exec(argv(&["true", &longest[..ARGV_BYTES_MAX - 6]]))).exec().rc, 0);
    assert_eq!(helper.ask(Request::Exec(argv(&["true", &longest]))).refusal().code, Code::TooLarge);
    assert_eq!(helper.ask(Request::Exec(argv(&["a\0b"]))).refusal().code, Code::InvalidRequest);
    assert_eq!(helper.ask(Request::Pty {}).refusal().code, Code::Unsupported);
    assert_eq!(helper.ask(Request::Dial {}).refusal().code, Code::Unsupported);
}

#[test]
fn environment_and_folder_are_the_sessions_and_the_requests() {
    let mut helper = Helper::start_with(Environment::None, |command| {
        command.env("BASH_ENV", "/nonexistent/start").env("ENV", "/nonexistent/start").env("KEPT", "a b");
    });
    let env = vec![("ADDED".into(), "1=2".into()), ("ADDED".into(), "3".into())];
    let text_of = "echo \"[$BASH_ENV][$ENV][$KEPT][$ADDED]\"; pwd; ps -o pid=,pgid=,sid= -p $$";
    let done = helper.ask(Request::Exec(Exec { env, cwd: Some("/usr".into()), ..shell(text_of) }));
    let lines: Vec<&str> = text(&done.stdout).lines().collect();
    assert_eq!(lines[..2], ["[][][a b][3]", "/usr"]);
    let ids: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(ids, vec![done.pid.unwrap().to_string(); 3], "a session and a group of its own");
    let hello = helper.hello.clone().unwrap();
    assert_eq!(hello.pid, helper.child.id());
    assert_eq!(hello.sha256.len(), 64);
}

#[test]
fn a_command_inherits_nothing_of_the_helper_itself() {
    let mut helper = Helper::start();
    helper.open(Request::Exec(Exec { stdin: true, ..argv(&["cat"]) }));
    let broken_pipe = helper.sh("yes | head -n 1");
    assert_eq!((&broken_pipe.stdout[..], broken_pipe.stderr.len()), (&b"y\n"[..], 0));
    // What the tests' own parent left open is there with and without a helper between.
    let list = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done; grep SigBlk /proc/$$/status";
    let plain = std::process::Command::new("/bin/bash").args(["-c", list]).output().unwrap();
    assert_eq!(text(&helper.sh(list).stdout), text(&plain.stdout));
}

#[test]
fn a_command_that_finds_no_place_for_a_process_says_which_limit() {
    use std::os::unix::process::CommandExt as _;
    // Root is above this limit, so the helper runs as a user that has no other process.
    let folder = tempfile::Builder::new().permissions(world()).tempdir().unwrap();
    let copy = folder.path().join("helper");
    std::fs::copy(env!("CARGO_BIN_EXE_towline-helper"), &copy).unwrap();
    let mut helper = Helper::start_with(Environment::None, |command| {
        let limited = format!("ulimit -u 1; exec {} {}", copy.display(), support::MARKER);
        let mut shell = std::process::Command::new("/bin/bash");
        shell.args(["-c", &limited]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        if nix::unistd::Uid::effective().is_root() {
            shell.uid(54_321).gid(54_321);
        }
        *command = shell;
    });
    for _ in 0..2 {
        let done = helper.sh("true");
        assert_eq!(done.exec().rc, 126);
        assert!(done.exec().start_error.as_ref().unwrap().contains("ulimit -u) is 1"), "{:?}", done.exec());
    }
}

fn world() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::Permissions::from_mode(0o755)
}
