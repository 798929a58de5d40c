//! A job through a real sshd with MaxSessions 1 and a second factor, on a real Slurm.

use std::time::Duration;

use crate::support::{Pty, Slurm, Sshd, TempHome};

/// Long enough for a scheduler on a busy machine.
const JOB: Duration = Duration::from_secs(90);

/// Answers the second factor of one command on a terminal, and gives what it printed after.
fn with_second_factor(home: &TempHome, args: &[&str]) -> String {
    let mut pty = Pty::towline(home, args);
    pty.wait_for("Passcode or option (1-2):", Duration::from_secs(30));
    pty.type_line("123456");
    assert_eq!(pty.wait_exit(JOB), 0, "{}", pty.transcript());
    pty.transcript()
}

#[test]
fn a_job_goes_through_a_second_factor_and_one_session_channel_to_slurm() {
    let _slurm = Slurm::start();
    let server = Sshd::second_factor();
    let home = TempHome::for_server(&server, "alice");
    let script = home.user_home().join("job.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\n#SBATCH --output=towline-%j.log\necho out; echo \"$1\" > answer.txt\n",
    )
    .unwrap();
    let submitted = with_second_factor(
        &home,
        &["job", "submit", "hpc", script.to_str().unwrap(), "--json", "--", "a  b"],
    );
    let line = submitted.lines().find(|line| line.contains("\"submission_key\"")).expect("the answer");
    let answer: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    let id = answer["job"]["id"].as_str().unwrap().to_owned();
    assert_eq!(answer["resolved_by"], "answer");
    server.wait_until_idle();
    assert_eq!((server.connections(), server.session_channels(), server.prompts()), (1, 1, 1));

    let waited = with_second_factor(&home, &["job", "wait", "hpc", &id, "--timeout", "80s"]);
    assert!(waited.contains("succeeded"), "{waited}");
    assert!(with_second_factor(&home, &["job", "logs", "hpc", &id]).contains("out"));
    let shown = with_second_factor(&home, &["exec", "hpc", "--", "cat", "answer.txt"]);
    assert!(shown.contains("a  b"), "the argument arrives unchanged: {shown}");
    server.wait_until_idle();
    assert_eq!((server.connections(), server.session_channels(), server.prompts()), (4, 4, 4));
}
