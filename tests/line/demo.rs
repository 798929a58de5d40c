//! `towline demo` keeps its promise: one connection, one channel, one prompt, and nothing left.

use std::time::Duration;

use portable_pty::CommandBuilder;
use serde_json::Value;

use crate::far_side::GONE;
use crate::support::{PATIENCE, Process, Pty, TempHome, census, run_json, towline, wait_for};

/// The demo's own time on a busy machine, in a debug build.
const DEMO: Duration = Duration::from_secs(90);

#[test]
fn the_demo_counts_one_connection_one_channel_and_one_prompt() {
    let home = TempHome::empty();
    let answer = run_json(&home, &["demo"]);
    let fields = answer.ok();
    assert_eq!(
        (&fields["connections"], &fields["session_channels"], &fields["prompts"]),
        (&1.into(), &1.into(), &1.into())
    );
    for pinned in ["connections", "session_channels", "prompts", "commands", "median_ms", "job", "elapsed_ms"]
    {
        assert!(fields.get(pinned).is_some_and(|value| !value.is_null()), "{pinned}: {fields}");
    }
    assert!(fields["commands"].as_u64() >= Some(100) && fields["median_ms"].as_f64() > Some(0.0), "{fields}");
    let job = &fields["job"];
    assert_eq!((&job["state"], &job["exit_code"]), (&"succeeded".into(), &0.into()), "{job}");
    // What the same work costs with a channel a command, on the same server.
    let without = &fields["one_channel_per_command"];
    assert_eq!(without["session_channels"], fields["commands"], "{without}");
    // Nothing was written into the caller's home.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn the_demos_table_says_it_to_a_person() {
    let home = TempHome::empty();
    let output = towline(&home).arg("demo").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for (row, ours) in [("connections", "1"), ("session channels", "1"), ("second-factor prompts", "1")] {
        let line =
            text.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no {row}: {text}"));
        let words: Vec<&str> = line[row.len()..].split_whitespace().collect();
        assert_eq!((words[0], words.len()), (ours, 2), "{line}");
        assert!(words[1].parse::<u32>().unwrap() >= 100, "{line}");
    }
    assert!(text.contains("succeeded") && text.contains("sum of 1..1000 = 500500"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colour where there is no terminal");
}

/// Everything that runs in the home of a demo's server.
fn of_demo(scratch: &str) -> Vec<Process> {
    census::with_environment(&format!("HOME={scratch}/home"))
}

#[test]
fn a_kept_demo_serves_other_commands_with_its_passcode_and_goes_on_ctrl_c() {
    let home = TempHome::empty();
    let mut demo = Pty::towline(&home, &["demo", "--keep"]);
    demo.wait_for("its second factor is ", DEMO);
    let passcode = demo.wait_for(". ", PATIENCE).trim_end_matches(". ").to_owned();
    demo.wait_for("TOWLINE_HOME=", PATIENCE);
    let kept = demo.wait_for(" ", PATIENCE).trim().to_owned();
    let scratch = kept.strip_suffix("/towline").expect(&kept).to_owned();

    let exec = |command: &str| {
        let mut builder = CommandBuilder::new(env!("CARGO_BIN_EXE_towline"));
        builder.args(["exec", "demo", "--", command]);
        builder.env_clear();
        home.environment().iter().for_each(|(key, value)| builder.env(key, value));
        builder.env("TOWLINE_HOME", &kept);
        Pty::spawn(builder)
    };
    let mut terminal = exec("echo $((6 * 7)) in $HOME; sbatch --version; exit 5");
    terminal.wait_for("asscode", PATIENCE);
    terminal.type_line(&passcode);
    terminal.wait_for(&format!("42 in {scratch}/home"), PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 5, "{}", terminal.transcript());

    let mut wrong = exec("echo never");
    wrong.wait_for("asscode", PATIENCE);
    wrong.type_line("000000x");
    assert!(!wrong.transcript().contains("never\r\n"));
    drop(wrong);

    // A command is still running when the server is told to go.
    let mut running = exec("echo up; exec sleep 600");
    running.wait_for("asscode", PATIENCE);
    running.type_line(&passcode);
    running.wait_for("up", PATIENCE);
    wait_for(PATIENCE, "the command runs in the demo's home", || {
        of_demo(&scratch).iter().any(|process| process.command == "sleep 600").then_some(())
    });
    demo.type_bytes(b"\x03");
    assert_eq!(demo.wait_exit(PATIENCE), 0, "{}", demo.transcript());
    census::wait_until_none(GONE, || of_demo(&scratch));
    assert_ne!(running.wait_exit(PATIENCE), 0, "{}", running.transcript());
    assert!(running.transcript().contains("outcome is unknown"), "{}", running.transcript());

    // Without its server the site is there and cannot be reached.
    let output =
        towline(&home).env("TOWLINE_HOME", &kept).args(["--json", "exec", "demo", "--", "true"]).output();
    let error: Value = serde_json::from_slice(&output.unwrap().stderr).unwrap();
    assert_eq!(error["error"]["kind"], "connect_failed", "{error}");
    // The kept home is the caller's to remove.
    std::fs::remove_dir_all(&scratch).unwrap();
}
