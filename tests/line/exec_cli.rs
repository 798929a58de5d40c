//! `towline exec` as a user or a script sees it: exact bytes, exact counts, exact codes.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use towline::failure::Failure;
use towline::kind::Kind;
use towline::line::message::Program;
use towline::line::{Error, WriteOptions};

use crate::far_side::{self, GONE, Running, mark, wait_until_gone};
use crate::support::{
    Answer, PATIENCE, Sshd, TempHome, ThrowawayOptions, census, run_json, server, towline, wait_for,
};

/// A server with a key login, and a home whose site it is.
fn site() -> (Sshd, TempHome) {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    (server, home)
}

/// Runs `towline exec --json OPTIONS hpc -- COMMAND`.
fn exec(home: &TempHome, options: &[&str], command: &[&str]) -> Answer {
    run_json(home, &[&["exec"], options, &["hpc", "--"], command].concat())
}

/// The exit code and streams of a call without `--json`.
fn plain(home: &TempHome, options: &[&str], command: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let output = towline(home).arg("exec").args(options).args(["hpc", "--"]).args(command).output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_exit_code_is_the_commands_own_with_and_without_json() {
    let (_server, home) = site();
    // Text, options, the code, the signal, whether the deadline ended it.
    let table: &[(&str, &[&str], i32, Option<i32>, bool)] = &[
        ("true", &[], 0, None, false),
        ("exit 1", &[], 1, None, false),
        ("exit 255", &[], 255, None, false),
        ("exit 300", &[], 44, None, false),
        ("kill -KILL $$", &[], 137, Some(9), false),
        ("kill -USR1 $$", &[], 138, Some(10), false),
        ("exec sleep 600", &["--timeout", "200ms"], 124, Some(15), true),
        ("trap '' TERM; while :; do sleep 0.1; done", &["--timeout", "100ms"], 124, Some(9), true),
    ];
    for (text, options, code, signal, timed_out) in table {
        let answer = exec(&home, options, &[text]);
        assert_eq!(answer.code, Some(*code), "{text}: {}", answer.text);
        let fields = (&answer.json["rc"], &answer.json["signal"], &answer.json["timed_out"]);
        assert_eq!(fields, (&json!(code), &json!(signal), &json!(timed_out)), "{}", answer.text);
        assert_eq!(plain(&home, options, &[text]).0, Some(*code), "{text}");
    }
    let (code, _, text) = plain(&home, &[], &["no-such-program-here", "x"]);
    assert_eq!(code, Some(127));
    assert!(text.contains("towline: cannot find no-such-program-here"), "{text}");
    let answer = exec(&home, &[], &["no-such-program-here", "x"]);
    assert_eq!((answer.code, &answer.json["rc"]), (Some(127), &json!(127)), "{}", answer.text);
    let error = answer.json["start_error"].as_str().unwrap();
    assert!(error.contains("no-such-program-here"), "{error}");
    let answer = exec(&home, &[], &["/etc/passwd", "x"]);
    assert_eq!((answer.code, answer.json["start_error"].is_string()), (Some(126), true), "{}", answer.text);
}

#[test]
fn our_own_failures_have_their_kind_and_are_255_without_json() {
    let (server, home) = site();
    let missing = ["--cwd", "/no/such/folder"];
    let answer = exec(&home, &missing, &["pwd"]);
    assert_eq!(answer.failure(), (Some(7), "not_found"), "{}", answer.text);
    assert!(
        answer.error["error"]["message"].as_str().unwrap().contains("/no/such/folder"),
        "{}",
        answer.text
    );
    assert_eq!(plain(&home, &missing, &["pwd"]).0, Some(255));
    let answer = exec(&home, &["--cwd", "/etc/passwd"], &["pwd"]);
    assert_eq!(answer.failure(), (Some(7), "remote_error"), "{}", answer.text);
    assert_eq!(answer.error["error"]["reason"], "not_directory", "{}", answer.text);
    server.wait_until_idle();
    let logins = server.connections();
    let answer = exec(&home, &["--cwd", ""], &["pwd"]);
    assert_eq!(answer.failure(), (Some(2), "invalid_input"), "{}", answer.text);
    // 129 KiB in all, no argument of it too long for this system.
    let argument = "a".repeat(43 << 10);
    let long = ["echo", &argument, &argument, &argument];
    let answer = exec(&home, &[], &long);
    assert_eq!(answer.failure(), (Some(2), "invalid_input"), "{}", answer.error);
    let message = answer.error["error"]["message"].as_str().unwrap();
    assert!(message.contains("132104") && message.contains("131072"), "{message}");
    assert_eq!(plain(&home, &[], &long).0, Some(255));
    let text = format!(": {}", "a".repeat(64 << 10));
    let answer = exec(&home, &[], &[&text]);
    assert_eq!(answer.failure(), (Some(2), "invalid_input"), "{}", answer.error);
    let answer = exec(&home, &[], &[""]);
    assert_eq!(answer.failure(), (Some(2), "invalid_input"), "{}", answer.error);
    server.wait_until_idle();
    assert_eq!(server.connections(), logins, "a command out of bounds costs no login");
    // At the bound it runs.
    let whole = format!("printf %s {}", "a".repeat((64 << 10) - 10));
    assert_eq!(exec(&home, &[], &[&whole]).ok()["stdout"].as_str().map(str::len), Some((64 << 10) - 10));
}

#[test]
fn folder_and_variables_are_as_asked_and_arguments_are_not_parsed_again() {
    let (_server, home) = site();
    let answer = exec(
        &home,
        &["--cwd", "/usr", "--env", "A=1 2", "--env", "B=$A", "--env", "A=3"],
        &["pwd; echo \"$A|$B\""],
    );
    assert_eq!(answer.ok()["stdout"], "/usr\n3|$A\n");
    let answer = exec(&home, &["--cwd", "~/"], &["pwd"]);
    assert_eq!(answer.ok()["stdout"], "/home/alice\n");
    let answer = exec(&home, &[], &["printf", "%s.", "a b", "$HOME", "", "*", "'", "--json"]);
    assert_eq!(answer.ok()["stdout"], "a b.$HOME..*.'.--json.");
    let answer = exec(&home, &[], &["true"]);
    let keys: Vec<&str> = answer.ok().as_object().unwrap().keys().map(String::as_str).collect();
    let mut pinned = vec![
        "rc",
        "signal",
        "stdout",
        "stderr",
        "encoding",
        "stdout_truncated",
        "stderr_truncated",
        "stdout_dropped_bytes",
        "stderr_dropped_bytes",
        "timed_out",
        "pipes_held",
        "duration_ms",
    ];
    pinned.sort_unstable();
    assert_eq!(keys, pinned);
    assert_eq!((&answer.json["stdout"], &answer.json["stderr"]), (&json!(""), &json!("")));
}

#[test]
fn what_is_kept_is_exact_and_what_is_dropped_is_counted() {
    let (_server, home) = site();
    let whole: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let both = "seq 1 100000; seq 1 100000 >&2";
    let answer = exec(&home, &["--max-output", "1K:2K"], &[both]);
    let kept = format!("{}{}", &whole[..1024], &whole[whole.len() - 2048..]);
    let dropped = whole.len() - 3072;
    for stream in ["stdout", "stderr"] {
        assert_eq!(answer.ok()[stream], kept.as_str(), "{stream}");
        assert_eq!(answer.json[format!("{stream}_dropped_bytes")], dropped, "{stream}");
        assert_eq!(answer.json[format!("{stream}_truncated")], true, "{stream}");
    }
    let answer = exec(&home, &["--max-output", "0:5"], &["seq 1 100000"]);
    assert_eq!(
        (answer.ok()["stdout"].as_str(), &answer.json["stdout_dropped_bytes"]),
        (Some("0000\n"), &json!(whole.len() - 5))
    );
    // All of it, to the byte: nothing is dropped, and the answer does not say so.
    let answer = exec(&home, &["--max-output", &whole.len().to_string()], &["seq 1 100000"]);
    assert!(answer.ok()["stdout"] == whole.as_str() && answer.json["stdout_truncated"] == false);
    // The default is the first MiB.
    let answer = exec(&home, &[], &["yes | head -c 1048577"]);
    let kept = answer.ok()["stdout"].as_str().unwrap().len();
    assert_eq!((kept, &answer.json["stdout_dropped_bytes"]), (1 << 20, &json!(1)));
}

#[test]
fn bytes_that_are_no_text_come_as_base64_and_a_cut_character_goes_whole() {
    let (_server, home) = site();
    let answer = exec(&home, &[], &[r"printf '\377\000'; printf text >&2"]);
    let fields = [&answer.ok()["encoding"], &answer.json["stdout"], &answer.json["stderr"]];
    assert_eq!(fields, [&json!("base64"), &json!("/wA="), &json!("dGV4dA==")]);
    // Text with a NUL and a control byte is text.
    let answer = exec(&home, &[], &[r"printf 'a\000\033é'"]);
    let fields = [&answer.ok()["encoding"], &answer.json["stdout"]];
    assert_eq!(fields, [&json!("utf-8"), &json!("a\0\u{1b}é")]);
    // Three bytes of four: the head's half character goes, and is counted.
    let answer = exec(&home, &["--max-output", "2"], &["printf 'aéb'"]);
    let fields = [&answer.ok()["encoding"], &answer.json["stdout"], &answer.json["stdout_dropped_bytes"]];
    assert_eq!(fields, [&json!("utf-8"), &json!("a"), &json!(3)]);
    let answer = exec(&home, &["--max-output", "1:2"], &["printf 'aéb'"]);
    let fields = [&answer.ok()["stdout"], &answer.json["stdout_dropped_bytes"]];
    assert_eq!(fields, [&json!("ab"), &json!(2)]);
    // Half a character that the command itself printed is no text.
    let answer = exec(&home, &[], &[r"printf 'a\303'"]);
    assert_eq!(
        (&answer.ok()["encoding"], &answer.json["stdout_dropped_bytes"]),
        (&json!("base64"), &json!(0))
    );
    // Without --json the bytes pass as they are.
    let (code, stdout, _) = plain(&home, &[], &[r"printf '\377\000'; exit 3"]);
    assert_eq!((code, stdout), (Some(3), vec![0xFF, 0]));
}

/// Bytes that no program could guess.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    StdRng::seed_from_u64(7).fill(&mut bytes[..]);
    bytes
}

#[test]
fn standard_input_arrives_byte_for_byte_and_so_does_its_end() {
    let (_server, home) = site();
    let content = noise(3 << 20);
    let echo = |bytes: Vec<u8>| {
        towline(&home).args(["exec", "--stdin", "hpc", "--", "cat"]).write_stdin(bytes).output().unwrap()
    };
    let output = echo(content.clone());
    assert!(output.status.success() && output.stdout == content, "{} bytes came back", output.stdout.len());
    let output = echo(Vec::new());
    assert!(output.status.success() && output.stdout.is_empty());
    // Without --stdin the command's input is at its end at once, whatever ours holds.
    let output = towline(&home).args(["exec", "hpc", "--", "wc -c"]).write_stdin("unread").output().unwrap();
    assert_eq!(output.stdout, b"0\n");
}

#[test]
fn a_command_that_stops_reading_ends_while_input_still_comes() {
    let (server, home) = site();
    let mut running = Running::towline(&home, &["exec", "--stdin", "hpc", "--", "head -c 5; exit 3"]);
    let mut stdin = running.0.stdin.take().unwrap();
    // Endless, until towline has gone.
    let feeder = std::thread::spawn(move || while stdin.write_all(&[b'x'; 64 << 10]).is_ok() {});
    assert_eq!(running.exit_code(PATIENCE), Some(3));
    feeder.join().unwrap();
    let mut stdout = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(stdout, "xxxxx");
    // An open terminal or pipe that says nothing holds back no command that does not care.
    let mut running = Running::towline(&home, &["exec", "--stdin", "hpc", "--", "true"]);
    assert_eq!(running.exit_code(PATIENCE), Some(0));
    wait_until_gone(&server);
}

/// Watches a process until it ends; the most memory that it had.
fn peak_until_end(running: &mut Running, server: &Sshd) -> (u64, u64) {
    let mut peaks = (0, 0);
    wait_for(Duration::from_secs(120), "the command ends", || {
        let helper =
            census::of_logins(server.port()).into_iter().find(|process| process.name == "towline-helper");
        let peak = |pid| census::memory_peak(pid).unwrap_or(0);
        peaks.0 = peaks.0.max(peak(running.0.id()));
        peaks.1 = peaks.1.max(helper.map_or(0, |helper| peak(helper.pid)));
        running.0.try_wait().unwrap()
    });
    (peaks.0 >> 20, peaks.1 >> 20)
}

#[test]
fn a_gibibyte_of_output_costs_bounded_memory_on_both_ends() {
    let (server, home) = site();
    let all = "head -c 1G /dev/zero; yes | head -c 1G >&2";
    let arguments = ["exec", "--json", "--max-output", "1M:4M", "hpc", "--", all];
    let mut running = Running::towline(&home, &arguments);
    let mut stdout = running.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).map(|_| text)
    });
    let peaks = peak_until_end(&mut running, &server);
    let answer: Value = serde_json::from_slice(&reader.join().unwrap().unwrap()).unwrap();
    assert_eq!(running.exit_code(PATIENCE), Some(0));
    for stream in ["stdout", "stderr"] {
        assert_eq!(answer[format!("{stream}_dropped_bytes")], (1 << 30) - (5 << 20), "{stream}");
        assert_eq!(answer[stream].as_str().unwrap().len(), 5 << 20, "{stream}");
    }
    assert!(peaks.1 > 0 && peaks.0 <= 64 && peaks.1 <= 64, "{peaks:?} MiB");
}

#[test]
fn bulk_output_passes_in_bounded_memory_and_whole() {
    let (server, home) = site();
    let mut running = Running::towline(&home, &["exec", "hpc", "--", "yes towline | head -c 192M"]);
    let mut stdout = running.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
        while let count @ 1.. = stdout.read(&mut buffer).unwrap() {
            digest.update(&buffer[..count]);
        }
        digest.finalize()
    });
    let peaks = peak_until_end(&mut running, &server);
    let expected = (0..(192 << 20) / (8 << 16))
        .fold(Sha256::new(), |digest, _| digest.chain_update(b"towline\n".repeat(1 << 16)));
    assert_eq!(reader.join().unwrap(), expected.finalize());
    assert!(peaks.1 > 0 && peaks.0 <= 64 && peaks.1 <= 64, "{peaks:?} MiB");
}

#[test]
fn keys_are_exchanged_anew_under_load_without_losing_a_byte() {
    let lines = vec!["RekeyLimit 16M".to_owned()];
    let server = Sshd::throwaway(ThrowawayOptions { lines, ..ThrowawayOptions::default() });
    let home = TempHome::for_server(&server, "alice");
    let content = noise(64 << 20);
    let arguments = ["exec", "--stdin", "hpc", "--", "cat"];
    let output = towline(&home).args(arguments).write_stdin(content.clone()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == content, "{} bytes came back", output.stdout.len());
    wait_until_gone(&server);
    let rekeys = server.log().lines().filter(|line| line.contains("SSH2_MSG_KEXINIT received")).count();
    assert!(rekeys >= 5, "keys were exchanged {rekeys} times");
    assert_eq!((server.connections(), server.session_channels()), (1, 1));
}

#[test]
fn case_087_a_background_child_that_holds_the_pipe_is_told_and_not_waited_for() {
    let (server, home) = site();
    for text in
        ["sleep 600 & echo started", "nohup sleep 600 2>&1 & echo started", "setsid sleep 600 & echo started"]
    {
        let mark = mark();
        let began = Instant::now();
        let answer = exec(&home, &["--env", &mark], &[text]);
        assert_eq!(
            (&answer.ok()["stdout"], &answer.json["pipes_held"]),
            (&json!("started\n"), &json!(true)),
            "{text}"
        );
        assert!(began.elapsed() < Duration::from_secs(10), "{text}: {:?}", began.elapsed());
        // The line was this command's own, and its end is that of all that was not detached.
        census::wait_until_none(GONE, || census::with_environment(&mark));
    }
    let detached = mark();
    let answer = exec(&home, &["--detach", "--env", &detached], &["sleep 600 & echo started"]);
    assert_eq!(answer.ok()["pipes_held"], true, "{}", answer.text);
    let ended = mark();
    let answer = exec(&home, &["--end-background", "--env", &ended], &["sleep 600 & echo started"]);
    let fields = (&answer.ok()["stdout"], &answer.json["pipes_held"], &answer.json["rc"]);
    assert_eq!(fields, (&json!("started\n"), &json!(false), &json!(0)), "{}", answer.text);
    let answer = exec(&home, &["--timeout", "1s"], &["sleep 600 & echo started; sleep 600"]);
    assert_eq!((answer.code, &answer.json["stdout"]), (Some(124), &json!("started\n")), "{}", answer.text);
    let survivors = census::with_environment(&detached);
    assert_eq!(survivors.len(), 1, "what was detached goes on: {survivors:?}");
    survivors[0].signal(nix::sys::signal::Signal::SIGKILL);
    wait_until_gone(&server);
}

#[tokio::test]
async fn the_library_refuses_what_no_system_call_could_carry() {
    let (server, home) = site();
    let line = far_side::open(&home, None).await.unwrap();
    let programs = [
        Program::Argv(vec!["echo".into(), b"a\0b".as_slice().into()]),
        Program::Shell(b"echo a\0b".as_slice().into()),
        Program::Argv(Vec::new()),
        Program::Argv(vec!["a".repeat(129 << 10).as_str().into()]),
    ];
    for program in programs {
        let error = line.command(program).output(Vec::new()).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { .. }) && !error.dispatched(), "{error:?}");
        assert_eq!(Failure::from(error).kind, Kind::InvalidInput);
    }
    let named = line.command(Program::Shell("true".into())).env("A=B", "1").output(Vec::new()).await;
    assert!(matches!(named, Err(Error::Invalid { .. })), "{named:?}");
    line.close();
    line.closed().await;
    wait_until_gone(&server);
}

#[tokio::test]
async fn a_directory_where_a_file_was_due_and_an_empty_file_are_told_apart() {
    let (_server, home) = site();
    let line = far_side::open(&home, None).await.unwrap();
    let files = line.files();
    let failure = Failure::from(files.read_to_end("/etc", 100).await.unwrap_err());
    assert_eq!((failure.kind, &failure.fields["reason"]), (Kind::RemoteError, &json!("is_directory")));
    assert_eq!(failure.fields["path"], "/etc");
    let failure = Failure::from(files.hash("/etc", 0, None).await.unwrap_err());
    assert_eq!((failure.kind, &failure.fields["reason"]), (Kind::RemoteError, &json!("is_directory")));
    let name = format!("~/empty-{}", std::process::id());
    let nothing: &[u8] = &[];
    let written = files.write(name.as_str(), nothing, WriteOptions::default()).await.unwrap();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
    assert_eq!(written, (0, empty.clone()));
    assert_eq!(files.read_to_end(name.as_str(), 0).await.unwrap(), b"");
    assert_eq!(files.hash(name.as_str(), 0, None).await.unwrap(), (0, empty));
    // A second one does not replace it, and a directory is not replaced by a file.
    let failure = files.write(name.as_str(), nothing, WriteOptions::default()).await.unwrap_err();
    assert_eq!(Failure::from(failure).kind, Kind::Exists);
    let overwrite = WriteOptions { overwrite: true, ..WriteOptions::default() };
    let failure = Failure::from(files.write("/tmp", nothing, overwrite).await.unwrap_err());
    assert_eq!((failure.kind, &failure.fields["reason"]), (Kind::RemoteError, &json!("is_directory")));
    files.remove(name.as_str(), false).await.unwrap();
    let failure = Failure::from(files.stat(name.as_str(), true).await.unwrap_err());
    assert_eq!((failure.kind, failure.retry_safe), (Kind::NotFound, false));
    assert!(!server::user_home("alice").join(&name[2..]).exists());
}
