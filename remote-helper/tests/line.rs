//! The line itself: how it begins, how it ends, and what the environment of commands is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Helper, argv, is_alive, number, shell, wait_gone};
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{Code, Environment, Exec, Outcome, Probe, Request};

/// Longest that a helper may need to end (`o2.md` 3.3).
const END_MOST: Duration = Duration::from_secs(5);

fn run(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_towline-helper")).args(arguments).output().unwrap()
}

#[test]
fn it_proves_that_it_runs_and_refuses_wrong_usage() {
    assert!(run(&["-t"]).status.success());
    for wrong in [&[][..], &["x"], &[support::MARKER, "x"], &["0123456789ABCDEF0123456789abcdef"]] {
        let output = run(wrong);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
}

#[test]
fn the_hello_says_who_is_there() {
    let helper = Helper::spawn(|command| {
        command.current_dir("/usr").env("HOME", "/some/home");
    });
    let hello = helper.hello.clone().unwrap();
    let program = fs::read(env!("CARGO_BIN_EXE_towline-helper")).unwrap();
    use sha2::Digest as _;
    let digest: String = sha2::Sha256::digest(&program).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((hello.sha256, hello.pid, hello.protocol), (digest, helper.child.id(), 1));
    assert_eq!((hello.home, hello.cwd), (ByteText::from("/some/home"), ByteText::from("/usr")));
    assert_eq!(fs::read_to_string(format!("/proc/{}/comm", hello.pid)).unwrap(), "towline-helper\n");
    assert_eq!(hello.boot_id.len(), 36);
}

#[test]
fn an_idle_helper_is_small_and_ends_at_once_with_its_input() {
    let helper = Helper::start();
    assert!(helper.status_kib("VmRSS") < 8 << 10);
    let (status, elapsed) = helper.close();
    assert_eq!(status.code(), Some(0));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
}

#[test]
fn a_broken_frame_ends_the_line_with_its_reason_and_an_error() {
    let mut helper = Helper::start();
    let stream = helper.open(Request::Exec(shell("echo $$; sleep 1000")));
    helper.wait(|helper| !helper.streams[&stream].stdout.is_empty());
    let pid = number(&helper.streams[&stream].stdout);
    helper.write_raw(b"no frame at all.");
    let (status, bye) = helper.over();
    assert_eq!(status.code(), Some(1));
    assert!(bye.unwrap().contains("not with the magic of a frame"));
    wait_gone(pid);
}

#[test]
fn the_end_of_the_line_ends_everything_that_was_not_detached() {
    let mut helper = Helper::start();
    // One each: a plain child, one in another session, a daemon without its variables, one that ignores the signal.
    let text = "sleep 1000 & echo $!; setsid sleep 1001 & echo $!; \
                (env -i setsid sleep 1002 & echo $!); \
                setsid sh -c \"trap '' TERM; echo \\$\\$; exec sleep 1003\" & sleep 1004";
    let stream = helper.open(Request::Exec(shell(text)));
    let left = helper.ask(Request::Exec(shell("setsid sleep 1005 >/dev/null 2>&1 & echo $!")));
    let detached = Exec { detach: true, ..shell("echo $$; setsid sleep 1006 & echo $!; wait") };
    let detached = helper.open(Request::Exec(detached));
    let lines = |bytes: &[u8]| -> Vec<i32> {
        bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(number).collect()
    };
    helper.wait(|helper| {
        lines(&helper.streams[&stream].stdout).len() == 4
            && lines(&helper.streams[&detached].stdout).len() == 2
    });
    let mut doomed = lines(&helper.streams[&stream].stdout);
    doomed.push(number(&left.stdout));
    let kept = lines(&helper.streams[&detached].stdout);
    assert!(doomed.iter().chain(&kept).all(|pid| is_alive(*pid)));
    let (status, elapsed) = helper.close();
    assert_eq!(status.code(), Some(0));
    assert!(elapsed < END_MOST, "{elapsed:?}");
    // The one without its variables can't be told from a detached one, so it alone is left where there is one.
    let hidden = doomed.remove(2);
    assert!(doomed.iter().all(|pid| !is_alive(*pid)), "left behind");
    assert!(kept.iter().all(|pid| is_alive(*pid)), "what was detached was ended");
    for pid in kept.into_iter().chain([hidden]).filter(|pid| is_alive(*pid)) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

#[test]
fn nothing_hides_from_the_end_of_a_line_without_detached_commands() {
    let mut helper = Helper::start();
    let text = "(env -i setsid sh -c 'echo $$; exec sleep 1010' &); sleep 1011";
    let stream = helper.open(Request::Exec(shell(text)));
    helper.wait(|helper| helper.streams[&stream].stdout.ends_with(b"\n"));
    let pid = number(&helper.streams[&stream].stdout);
    assert!(helper.close().1 < END_MOST);
    assert!(!is_alive(pid));
}

#[test]
fn a_signal_ends_the_line_as_its_input_does() {
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGHUP] {
        let mut helper = Helper::start();
        let stream =
            helper.open(Request::Exec(shell("trap '' TERM HUP; echo $$; while :; do sleep 1; done")));
        helper.wait(|helper| !helper.streams[&stream].stdout.is_empty());
        let pid = number(&helper.streams[&stream].stdout);
        let began = Instant::now();
        let own = nix::unistd::Pid::from_raw(helper.child.id() as i32);
        nix::sys::signal::kill(own, signal).unwrap();
        let (status, bye) = helper.over();
        assert!(began.elapsed() < END_MOST);
        assert_eq!(
            (status.code(), bye),
            (Some(128 + signal as i32), Some(format!("signal {}", signal as i32)))
        );
        assert!(!is_alive(pid));
    }
}

#[test]
fn a_detached_command_whose_caller_leaves_goes_on() {
    let mut helper = Helper::start();
    let stream = helper.open(Request::Exec(Exec { detach: true, ..shell("echo $$; exec sleep 1020") }));
    helper.wait(|helper| !helper.streams[&stream].stdout.is_empty());
    let pid = number(&helper.streams[&stream].stdout);
    helper.endpoint.cancel(stream, true).unwrap();
    assert_eq!(helper.finish(stream).refusal().code, Code::Cancelled);
    assert!(is_alive(pid));
    let stream = helper.open(Request::Exec(Exec { detach: true, ..shell("echo $$; exec sleep 1021") }));
    helper.wait(|helper| !helper.streams[&stream].stdout.is_empty());
    helper.endpoint.cancel(stream, false).unwrap();
    assert_eq!(helper.finish(stream).exec().signal, Some(15), "asked to end, it ends");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_gone(pid);
}

/// A home whose bash profile is `profile`.
fn home(profile: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".bash_profile"), profile).unwrap();
    home
}

fn login(home: &Path) -> Helper {
    Helper::start_with(Environment::LoginIfPossible, |command| {
        command.env("HOME", home).env("SHELL", "/bin/bash");
    })
}

fn probe(helper: &mut Helper) -> Probe {
    match helper.ask(Request::Probe {}).outcome() {
        Outcome::Probe(probe) => (**probe).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_exists_only_in_the_login_shell_is_there_for_commands_and_probe() {
    let home = home(
        "echo noise; echo more >&2; set -x\n\
         module() { echo \"module $*\"; }\nexport -f module\n\
         export ODD=$'a\\nb' BASH_ENV=/nonexistent\nmkdir -p $HOME/bin\nexport PATH=$HOME/bin:$PATH\n\
         printf '#!/bin/sh\\necho found' >$HOME/bin/squeue; chmod 755 $HOME/bin/squeue\ncd /\n",
    );
    let mut helper = login(home.path());
    let here = std::env::current_dir().unwrap();
    let done = helper.sh("module load R/4.4; squeue; echo \"[$ODD][$BASH_ENV]\"; pwd; echo $PWD");
    let here = here.display();
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        format!("module load R/4.4\nfound\n[a\nb][]\n{here}\n{here}\n")
    );
    assert_eq!((done.stderr.len(), done.note.clone()), (0, None));
    assert_eq!(helper.ask(Request::Exec(argv(&["squeue"]))).stdout, b"found\n");
    let probe = probe(&mut helper);
    assert_eq!((probe.environment.as_str(), &probe.environment_note), ("login", &None));
    let squeue = ByteText::from(home.path().join("bin/squeue").to_str().unwrap());
    assert!(probe.commands.contains(&("squeue".to_owned(), squeue)), "{:?}", probe.commands);
    assert!(probe.system.starts_with("Linux ") && probe.cpus > 0 && probe.mem_bytes.unwrap() > 0);
    assert!(probe.shells.iter().any(|(name, _)| name == "sh"));
    assert_eq!(probe.shell, Some("/bin/bash".into()));
}

#[test]
fn a_profile_that_fails_costs_a_note_and_nothing_else() {
    let home = home("export LEAKED=1; exec true");
    let mut helper = login(home.path());
    let done = helper.sh("echo [$LEAKED]");
    assert_eq!(done.stdout, b"[]\n");
    assert!(done.note.unwrap().contains("the login shell"));
    let probe = probe(&mut helper);
    assert_eq!(probe.environment, "none");
    assert!(probe.environment_note.is_some());
}

#[test]
fn a_profile_that_hangs_delays_commands_by_ten_seconds_at_most_and_files_not_at_all() {
    let home = home("echo $$ >$HOME/pid; sleep 1000");
    let mut helper = login(home.path());
    let began = Instant::now();
    let waiting = helper.open(Request::Exec(Exec { stdin: true, ..argv(&["cat"]) }));
    helper.send(waiting, b"early", true);
    let cancelled = helper.open(Request::Exec(shell("true")));
    helper.endpoint.cancel(cancelled, false).unwrap();
    assert_eq!(helper.finish(cancelled).refusal().code, Code::Cancelled);
    helper.ask(Request::Stat { path: "/".into(), follow: true }).outcome();
    assert!(began.elapsed() < Duration::from_secs(5));
    let done = helper.finish(waiting);
    assert_eq!(done.stdout, b"early");
    assert!(done.note.unwrap().contains("within 10 s"));
    let elapsed = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(14)).contains(&elapsed), "{elapsed:?}");
    wait_gone(number(&fs::read(home.path().join("pid")).unwrap()));
}

#[test]
fn a_script_is_the_recipe_where_it_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("env.sh");
    fs::write(&script, "echo noise; export FROM_SCRIPT=\"it's\"; false").unwrap();
    let path = ByteText::from(script.to_str().unwrap());
    let mut helper = Helper::start_with(Environment::Script(path), |_| {});
    assert_eq!(helper.sh("echo $FROM_SCRIPT").stdout, b"it's\n");
    assert_eq!(probe(&mut helper).environment, "script");
    let mut helper = Helper::start_with(Environment::Script("/no/such/script".into()), |_| {});
    assert!(helper.sh("true").note.unwrap().contains("/no/such/script"));
}
