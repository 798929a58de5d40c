//! The embedded login node and its mini cluster, seen by a raw SSH client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]
#![cfg(feature = "demo")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use russh::client::{self, Handle, KeyboardInteractiveAuthResponse, Msg};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use russh::{Channel, ChannelMsg, ChannelOpenFailure, MethodKind, Sig};
use tokio::net::UnixStream;
use towline::demo::{Counters, Options, Push, Server};

const MIB: usize = 1 << 20;

/// How often a file or a job's state is looked at, and how many times: 20 s in all.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 1000;

struct Client;

impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

fn start(options: Options) -> Server {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_towline")));
    Server::start(Options { program, ..options }).unwrap()
}

async fn connect(server: &Server) -> Handle<Client> {
    // A small window, so that the server meets its end all the time.
    let config = client::Config { window_size: 256 << 10, ..Default::default() };
    let stream = UnixStream::connect(server.socket()).await.unwrap();
    client::connect_stream(Arc::new(config), stream, Client).await.unwrap()
}

fn key(server: &Server) -> PrivateKeyWithHashAlg {
    let key = load_secret_key(server.identity_file(), None).unwrap();
    PrivateKeyWithHashAlg::new(Arc::new(key), None)
}

async fn log_in(server: &Server) -> Handle<Client> {
    let mut client = connect(server).await;
    let offered = client.authenticate_publickey(server.user(), key(server)).await.unwrap();
    assert!(!offered.success(), "the key alone is not enough");
    let mut reply = client.authenticate_keyboard_interactive_start(server.user(), None).await.unwrap();
    while let KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } = reply {
        let answers = prompts.iter().map(|_| server.passcode().to_owned());
        reply = client.authenticate_keyboard_interactive_respond(answers.collect()).await.unwrap();
    }
    assert!(matches!(reply, KeyboardInteractiveAuthResponse::Success));
    client
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    code: Option<u32>,
    signal: Option<String>,
    stdout: String,
    stderr: String,
}

/// Runs one command on a channel of its own, to its end.
async fn run(client: &Handle<Client>, command: &str) -> Done {
    let mut channel = open(client, command).await;
    channel.eof().await.unwrap();
    let mut done = Done::default();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => stdout.extend_from_slice(&data),
            ChannelMsg::ExtendedData { data, ext: 1 } => stderr.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => done.code = Some(exit_status),
            ChannelMsg::ExitSignal { signal_name, .. } => {
                done.signal = Some(format!("{signal_name:?}"));
            }
            _ => {}
        }
    }
    done.stdout = String::from_utf8(stdout).unwrap();
    done.stderr = String::from_utf8(stderr).unwrap();
    done
}

async fn open(client: &Handle<Client>, command: &str) -> Channel<Msg> {
    let channel = client.channel_open_session().await.unwrap();
    channel.exec(true, command).await.unwrap();
    channel
}

/// Runs a command that must succeed silently on stderr, and returns its stdout without the last newline.
async fn say(client: &Handle<Client>, command: &str) -> String {
    let done = run(client, command).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{command}: {done:?}");
    done.stdout.trim_end_matches('\n').to_owned()
}

/// Asks until the answer is the one expected.
async fn until(client: &Handle<Client>, command: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..LOOKS {
        last = say(client, command).await;
        if last == expected {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("{command}: {last:?}, expected {expected:?}");
}

#[tokio::test]
async fn a_login_needs_the_key_and_then_the_second_factor() {
    let server = start(Options::default());
    let mut client = connect(&server).await;
    let early = client.authenticate_keyboard_interactive_start(server.user(), None).await.unwrap();
    assert!(matches!(early, KeyboardInteractiveAuthResponse::Failure { .. }));
    let stranger = client.authenticate_publickey("somebody-else", key(&server)).await.unwrap();
    assert!(!stranger.success());
    let offered = client.authenticate_publickey(server.user(), key(&server)).await.unwrap();
    let client::AuthResult::Failure { remaining_methods, partial_success: true } = offered else {
        panic!("{offered:?}");
    };
    assert_eq!(&remaining_methods[..], [MethodKind::KeyboardInteractive]);
    client.authenticate_keyboard_interactive_start(server.user(), None).await.unwrap();
    let wrong = client.authenticate_keyboard_interactive_respond(vec!["wrong".to_owned()]).await.unwrap();
    assert!(matches!(wrong, KeyboardInteractiveAuthResponse::Failure { .. }));
    assert_eq!(server.counters().refused_logins, 3);
    log_in(&server).await;
}

#[tokio::test]
async fn everything_that_costs_a_person_something_is_counted() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    say(&client, "true").await;
    say(&client, "true").await;
    log_in(&server).await;
    let expected = Counters {
        connections: 2,
        session_channels: 2,
        second_factor_prompts: 2,
        exec_requests: 2,
        ..Counters::default()
    };
    assert_eq!(server.counters(), expected);
}

#[tokio::test]
async fn a_second_session_channel_is_refused_while_one_is_open() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let first = open(&client, "cat").await;
    let refused = client.channel_open_session().await.unwrap_err();
    assert!(matches!(refused, russh::Error::ChannelOpenFailure(ChannelOpenFailure::ConnectFailed)));
    assert_eq!(server.counters().refused_channels, 1);
    first.close().await.unwrap();
    // One after another is fine, each right after the end of the one before.
    for _ in 0..20 {
        say(&client, "true").await;
    }
}

#[tokio::test]
async fn a_push_decides_on_every_session_channel() {
    let push = Push::new(|channel| channel != 2);
    let server = start(Options { push: Some(push), second_factor: false, ..Options::default() });
    let mut client = connect(&server).await;
    let login = client.authenticate_publickey(server.user(), key(&server));
    assert!(login.await.unwrap().success());
    say(&client, "true").await;
    client.channel_open_session().await.unwrap_err();
    say(&client, "true").await;
    let counters = server.counters();
    assert_eq!(counters.second_factor_prompts, 3);
    assert_eq!((counters.session_channels, counters.refused_channels), (2, 1));
}

#[tokio::test]
async fn a_command_runs_at_home_in_a_session_of_its_own_and_tells_how_it_ended() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let home = server.home().display().to_string();
    let text = "printf '%s\\n' \"$HOME\" \"$USER\" \"$PWD\"; cut -d' ' -f1,5,6 /proc/$$/stat; echo $$";
    let said = say(&client, text).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(&lines[..3], [home.as_str(), server.user(), home.as_str()]);
    let pid = lines[4];
    assert_eq!(lines[3], format!("{pid} {pid} {pid}"));
    let done = run(&client, "echo out; echo err >&2; exit 7").await;
    let expected =
        Done { code: Some(7), signal: None, stdout: "out\n".to_owned(), stderr: "err\n".to_owned() };
    assert_eq!(done, expected);
    let done = run(&client, "kill -TERM $$").await;
    assert_eq!((done.code, done.signal), (None, Some(format!("{:?}", Sig::TERM))));
}

#[tokio::test]
async fn a_login_shell_finds_the_batch_commands_of_the_demo_first() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let found = say(&client, "PATH=/usr/bin:/bin sh -lc 'command -v sbatch'").await;
    assert_eq!(found, server.home().join("bin/sbatch").display().to_string());
}

#[tokio::test]
async fn bytes_pass_both_ways_unchanged_past_a_slow_reader() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let (mut reader, writer) = open(&client, "cat").await.split();
    let sending = tokio::spawn(async move {
        for chunk in 0..64 {
            writer.data_bytes(pattern(chunk * MIB, MIB)).await.unwrap();
        }
        writer.eof().await.unwrap();
        writer
    });
    let mut received = 0;
    let (mut code, mut ended) = (None, false);
    while let Some(message) = reader.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                assert!(!ended, "data after the end");
                assert!(data == pattern(received, data.len()), "at {received}");
                received += data.len();
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
            ChannelMsg::Eof => ended = true,
            ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
            _ => {}
        }
    }
    assert_eq!((received, ended, code), (64 * MIB, true, Some(0)));
    sending.await.unwrap();
}

#[tokio::test]
async fn a_command_that_writes_before_it_reads_cannot_stop_the_connection() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let (mut reader, writer) = open(&client, "head -c 67108864 /dev/zero; wc -c").await.split();
    let sending = tokio::spawn(async move {
        for chunk in 0..64 {
            writer.data_bytes(pattern(chunk * MIB, MIB)).await.unwrap();
        }
        writer.eof().await.unwrap();
        writer
    });
    let mut zeros = 0;
    let mut rest = Vec::new();
    while let Some(message) = reader.wait().await {
        if let ChannelMsg::Data { data } = message {
            let here = data.iter().take_while(|byte| **byte == 0).count();
            zeros += here;
            rest.extend_from_slice(&data[here..]);
        }
    }
    assert_eq!(zeros, 64 * MIB);
    assert_eq!(String::from_utf8(rest).unwrap().trim(), "67108864");
    sending.await.unwrap();
}

#[tokio::test]
async fn a_command_that_does_not_read_holds_the_sender_back_and_nothing_else() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    say(&client, "mkfifo gate").await;
    let (mut reader, writer) = open(&client, "read go < gate; wc -c").await.split();
    let sent = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&sent);
    let sending = tokio::spawn(async move {
        let block = Bytes::from(vec![1; 16 << 10]);
        for _ in 0..64 * MIB / block.len() {
            writer.data_bytes(block.clone()).await.unwrap();
            counting.fetch_add(block.len(), Ordering::SeqCst);
        }
        writer.eof().await.unwrap();
        writer
    });
    // Stuck once it doesn't move during many answered pings.
    let (mut last, mut still) = (0, 0);
    while still < 50 {
        client.send_ping().await.unwrap();
        let now = sent.load(Ordering::SeqCst);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
    }
    assert!(last < 8 * MIB, "{last} bytes taken from a sender whose command reads none");
    std::fs::write(server.home().join("gate"), "go\n").unwrap();
    let mut counted = Vec::new();
    while let Some(message) = reader.wait().await {
        if let ChannelMsg::Data { data } = message {
            counted.extend_from_slice(&data);
        }
    }
    assert_eq!(String::from_utf8(counted).unwrap().trim(), "67108864");
    sending.await.unwrap();
}

/// Bytes that differ at every place and never repeat with the packets' sizes.
fn pattern(from: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16) ^ (at >> 24)) as u8;
    (from..from + length).map(byte).collect()
}

#[tokio::test]
async fn a_command_whose_channel_closes_is_killed_with_its_group() {
    let server = start(Options { grace: Duration::ZERO, ..Options::default() });
    let client = log_in(&server).await;
    let mut channel = open(&client, "sleep 600 & echo $! $$; wait").await;
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        if let Some(ChannelMsg::Data { data }) = channel.wait().await {
            said.extend_from_slice(&data);
        }
    }
    let said = String::from_utf8(said).unwrap();
    let processes: Vec<PathBuf> =
        said.split_whitespace().map(|pid| PathBuf::from(format!("/proc/{pid}/cwd"))).collect();
    assert!(processes.iter().all(|process| process.exists()));
    channel.close().await.unwrap();
    // Waits for all commands.
    tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    // A killed process may stay a zombie until somebody reaps it; a zombie has no working directory.
    let alive = |process: &PathBuf| process.read_link().is_ok();
    for _ in 0..LOOKS {
        if !processes.iter().any(alive) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("still alive: {processes:?}");
}

#[tokio::test]
async fn a_bad_network_can_be_had_on_demand() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let mut channel = open(&client, "cat").await;
    server.faults().freeze();
    channel.data_bytes("late").await.unwrap();
    server.faults().thaw();
    while !matches!(channel.wait().await.unwrap(), ChannelMsg::Data { data } if data == "late") {}
    server.faults().cut_after(MIB as u64);
    let mut received = 0;
    while channel.data_bytes(vec![0; 32 << 10]).await.is_ok() {
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::Data { data } = message {
                received += data.len();
                break;
            }
        }
    }
    assert!((MIB / 4..MIB).contains(&received), "{received}");
    let other = log_in(&server).await;
    let mut channel = open(&other, "cat").await;
    server.faults().cut();
    while channel.wait().await.is_some() {}
    log_in(&server).await;
}

#[tokio::test]
async fn the_socket_and_the_keys_are_private_and_the_host_key_is_known() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = start(Options { listener: Some(listener), ..Options::default() });
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.socket()), 0o600);
    assert_eq!(mode(server.identity_file()), 0o600);
    assert_eq!(mode(server.socket().parent().unwrap().to_owned()), 0o700);
    let known = std::fs::read_to_string(server.known_hosts_file()).unwrap();
    let expected = format!("towline-demo,[127.0.0.1]:{port} ssh-ed25519 ");
    assert!(known.starts_with(&expected), "{known}");
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let config = Arc::new(client::Config::default());
    client::connect_stream(config, stream, Client).await.unwrap();
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let scratch = Some(open.path().to_owned());
    Server::start(Options { scratch, ..Options::default() }).unwrap_err();
    let home = server.home();
    server.stop();
    assert!(!home.exists());
}

const SQUEUE: &str = "%i|%F|%K|%T|%t|%r|%R|%j|%a|%P|%q|%D|%C|%M|%l|%Q|%N|%k";

#[tokio::test]
async fn a_job_is_queued_run_and_accounted_for() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    assert_eq!(say(&client, "sbatch --version").await, "slurm-wlm 22.05.8 (towline demo)");
    let script = "#!/bin/sh\n#SBATCH --job-name=one\n#SBATCH -o 'out-%x-%j.txt' --error=%A.err\n\
                  cat gate; echo $SLURM_JOB_ID $SLURM_JOB_NAME \"$1\"; echo oops >&2\n";
    std::fs::write(server.home().join("job.sh"), script).unwrap();
    say(&client, "mkfifo gate").await;
    let submit = "sbatch --parsable --comment=towline:k1 -t 2:00 job.sh 'an argument'";
    assert_eq!(say(&client, submit).await, "1");
    assert_eq!(say(&client, "sbatch -J two --wrap 'exit 3'").await, "Submitted batch job 2");
    until(&client, "squeue -h -j 1 -o %T", "RUNNING").await;
    assert_eq!(
        say(&client, &format!("squeue -h -j 2 -o '{SQUEUE}'")).await,
        "2|2|N/A|PENDING|PD|Resources|(Resources)|two|demo|debug|normal|1|1|0:00|5:00|1000||(null)"
    );
    assert!(say(&client, "sinfo -h -o '%P %a %T %N'").await.starts_with("debug* up mixed node1"));
    say(&client, "echo through > gate").await;
    until(&client, "squeue -h", "").await;
    let home = server.home();
    let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
    assert_eq!(read("out-one-1.txt"), "through\n1 one an argument\n");
    assert_eq!(read("1.err"), "oops\n");
    let fields =
        "JobID,JobName,Partition,State,ExitCode,DerivedExitCode,Timelimit,AllocCPUS,NodeList,Comment";
    assert_eq!(
        say(&client, &format!("sacct -n -P -j 1,2 -o {fields}")).await,
        "1|one|debug|COMPLETED|0:0|0:0|00:02:00|1|node1|towline:k1\n\
         1.batch|batch||COMPLETED|0:0|||1|node1|\n\
         2|two|debug|FAILED|3:0|0:0|00:05:00|1|node1|\n\
         2.batch|batch||FAILED|3:0|||1|node1|"
    );
    assert_eq!(say(&client, "sacct -nPX -j 1 -o SubmitLine").await, submit.replace('\'', ""));
    let shown = say(&client, "scontrol --oneliner show partition").await;
    assert!(
        shown.starts_with("PartitionName=debug ") && shown.contains(" State=UP TotalCPUs=2 TotalNodes=1")
    );
    let shown = say(&client, "scontrol show job 1").await;
    assert!(shown.starts_with("JobId=1 JobName=one\n   UserId="), "{shown}");
    let expected = format!("\n   StdOut={}/out-one-1.txt\n", home.display());
    assert!(shown.contains(&expected), "{shown}");
    assert!(shown.contains("\n   JobState=COMPLETED Reason=None "), "{shown}");
}

#[tokio::test]
async fn a_held_job_runs_only_once_it_is_released() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let submit = "printf '#!/bin/sh\\npwd\\n' | sbatch --parsable --hold -D /tmp -o /dev/null -J held";
    assert_eq!(say(&client, submit).await, "1");
    // The queue is worked off past it.
    assert_eq!(say(&client, "sbatch --parsable --wrap true").await, "2");
    until(&client, "sacct -nPX -j 2 -o State", "COMPLETED").await;
    assert_eq!(say(&client, "squeue -h --me -o '%i %t %r %Z'").await, "1 PD JobHeldUser /tmp");
    say(&client, "scontrol release 1").await;
    until(&client, "sacct -nPX -j 1 -o State,ExitCode", "COMPLETED|0:0").await;
    assert_eq!(run(&client, "scontrol hold 1").await.code, Some(1));
}

#[tokio::test]
async fn cancelled_and_timed_out_jobs_say_so() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let uid = nix::unistd::geteuid();
    say(&client, "sbatch --wrap 'trap \"\" TERM; sleep 600 & wait; wait'").await;
    say(&client, "sbatch -t 0:01 --wrap 'sleep 600'").await;
    say(&client, "sbatch --hold --wrap true").await;
    until(&client, "squeue -h -j 1 -o %t", "R").await;
    say(&client, "scancel 1 3").await;
    until(&client, "squeue -h", "").await;
    assert_eq!(
        say(&client, "sacct -nP -j 1,2,3 -o JobID,State,ExitCode").await,
        format!(
            "1|CANCELLED by {uid}|0:0\n1.batch|CANCELLED|0:9\n2|TIMEOUT|0:0\n2.batch|CANCELLED|0:15\n\
             3|CANCELLED by {uid}|0:0"
        )
    );
}

#[tokio::test]
async fn what_is_wrong_is_refused_in_slurms_words() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let wrong = [
        ("squeue -h -j 9", 1, "slurm_load_jobs error: Invalid job id specified\n"),
        ("scontrol show job 9", 1, "slurm_load_jobs error: Invalid job id specified\n"),
        ("squeue -h -j x", 1, "squeue: error: Invalid job id: x\n"),
        ("scancel 9", 0, ""),
        (
            "scancel -v 9",
            0,
            "scancel: Terminating job 9\nscancel: error: Kill job error on job id 9: Invalid job id specified\n",
        ),
        ("sacct -o Nonsense", 1, "sacct: error: Invalid field requested: \"Nonsense\"\n"),
        ("sbatch none.sh", 1, "sbatch: error: Unable to open file none.sh\n"),
        ("sbatch -t soon --wrap true", 255, "sbatch: error: Invalid --time specification\n"),
        (
            "sbatch -p none --wrap true",
            1,
            "sbatch: error: invalid partition specified: none\n\
             sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        ),
        (
            "sbatch --array=1-3 --wrap true",
            255,
            "sbatch: unrecognized option '--array=1-3'\nTry \"sbatch --help\" for more information\n",
        ),
    ];
    for (command, code, text) in wrong {
        let done = run(&client, command).await;
        assert_eq!((done.code, done.stderr.as_str()), (Some(code), text), "{command}");
    }
    say(&client, "sbatch -o none/x --wrap true").await;
    until(&client, "sacct -nPX -j 1 -o State,ExitCode", "FAILED|0:53").await;
}
