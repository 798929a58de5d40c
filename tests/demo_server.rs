//! The demo's server, an embedded login node with a mini cluster, seen by a raw SSH client.
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

/// The columns that towline asks squeue for.
const SQUEUE: &str = "%i|%A|%F|%T|%r|%a|%P|%q|%D|%C|%S|%e|%M|%l|%N|%b|%j|%Z|%k";

/// A submission of one line of shell, the script on stdin as towline gives it.
fn sbatch(options: &str, line: &str) -> String {
    format!("printf '%s\\n' '#!/bin/sh' '{line}' | sbatch --parsable {options}")
}

#[tokio::test]
async fn a_job_of_the_demo_is_queued_run_and_accounted_for() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    assert_eq!(say(&client, "sbatch --version").await, "slurm-wlm 22.05.8 (towline demo)");
    let script = "#!/bin/sh\n#SBATCH --job-name=one # its name\n#SBATCH -o 'out-%x-%j.txt' --error=%A.err\n\
                  cat gate; echo $SLURM_JOB_ID $SLURM_JOB_NAME \"$1\"; echo oops >&2\n";
    std::fs::write(server.home().join("job.sh"), script).unwrap();
    say(&client, "mkfifo gate").await;
    let submit = "sbatch --parsable --comment=towline:k1 -t 2:00 job.sh 'an argument'";
    assert_eq!(say(&client, submit).await, "1");
    assert_eq!(say(&client, &sbatch("-J two -D /tmp -o /dev/null", "exit 3")).await, "2");
    until(&client, "squeue --jobs=1 -o %T", "RUNNING").await;
    assert_eq!(
        say(&client, &format!("squeue --noheader --states=all --jobs=2 --format='{SQUEUE}'")).await,
        "2|2|2|PENDING|Resources|demo|debug|normal|1|1|N/A|N/A|00:00:00|00:05:00||N/A|two|/tmp|(null)"
    );
    say(&client, "echo through > gate").await;
    until(&client, "squeue --me", "").await;
    let home = server.home();
    let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
    assert_eq!(read("out-one-1.txt"), "through\n1 one an argument\n");
    assert_eq!(read("1.err"), "oops\n");
    let fields =
        "JobID,JobName,Partition,State,ExitCode,DerivedExitCode,TimelimitRaw,AllocCPUS,NodeList,Comment";
    assert_eq!(
        say(&client, &format!("sacct --noheader --parsable2 --delimiter=, --jobs=1,2 -o {fields}")).await,
        "1,one,debug,COMPLETED,0:0,0:0,2,1,node1,towline:k1\n\
         2,two,debug,FAILED,3:0,0:0,5,1,node1,"
    );
    assert_eq!(say(&client, "sacct -j 1 -o SubmitLine").await, submit.replace('\'', ""));
}

#[tokio::test]
async fn a_job_of_the_demo_is_nobodys_but_the_servers() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    // A helper ends all descendants of its commands with the line; a job must not be one of them.
    say(&client, &sbatch("", "echo $PPID > parent")).await;
    until(&client, "sacct -j 1 -o State", "COMPLETED").await;
    let parent = std::fs::read_to_string(server.home().join("parent")).unwrap();
    assert_eq!(parent.trim(), std::process::id().to_string());
}

#[tokio::test]
async fn the_demo_shows_a_job_and_its_one_queue_in_full() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    say(&client, &sbatch("-n 2 -J shown --mem=1G -e err", "exit 3")).await;
    until(&client, "sacct -j 1 -o State", "FAILED").await;
    let shown = say(&client, "scontrol show job 1").await;
    let times = ["RunTime=", "SubmitTime=", "StartTime=", "UserId="];
    let lines = shown.lines().filter(|line| !times.iter().any(|time| line.trim_start().starts_with(time)));
    let home = server.home().display().to_string();
    let expected = "JobId=1 JobName=shown\n   Account=demo QOS=normal\n   \
        JobState=FAILED Reason=NonZeroExitCode\n   Restarts=0 ExitCode=3:0\n   Partition=debug\n   \
        NodeList=node1\n   NumNodes=1 NumCPUs=2\n   \
        TRES=billing=2,cpu=2,mem=1G,node=1\n   Command=(null)\n   WorkDir=HOME\n   StdErr=HOME/err\n   \
        StdOut=HOME/slurm-1.out\n   ";
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected.replace("HOME", &home), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.contains("Time=2")).count(), 2, "{shown}");
    assert_eq!(
        say(&client, "scontrol --oneliner show partition").await,
        "PartitionName=debug Default=YES MaxTime=UNLIMITED State=UP TotalCPUs=2 TotalNodes=1"
    );
}

#[tokio::test]
async fn a_held_job_of_the_demo_runs_only_once_it_is_released() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    assert_eq!(say(&client, &sbatch("--hold -D /tmp -o /dev/null -J held", "pwd")).await, "1");
    // The queue is worked off past it.
    assert_eq!(say(&client, &sbatch("", "true")).await, "2");
    until(&client, "sacct -j 2 -o State", "COMPLETED").await;
    assert_eq!(say(&client, "squeue --me -o '%i %T %r %Z'").await, "1 PENDING JobHeldUser /tmp");
    say(&client, "scontrol release 1").await;
    until(&client, "sacct -j 1 -o State,ExitCode", "COMPLETED|0:0").await;
    assert_eq!(run(&client, "scontrol hold 1").await.code, Some(1));
}

#[tokio::test]
async fn cancelled_and_timed_out_jobs_of_the_demo_say_so() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let uid = nix::unistd::geteuid();
    say(&client, &sbatch("", "trap \"\" TERM; echo > trapped; sleep 600 & wait; wait")).await;
    say(&client, &sbatch("-t 0:01", "sleep 600")).await;
    say(&client, &sbatch("--hold", "true")).await;
    // Not before the job is deaf to SIGTERM.
    until(&client, "test -e trapped && echo yes || true", "yes").await;
    say(&client, "scancel 1 3").await;
    until(&client, "squeue", "").await;
    assert_eq!(
        say(&client, "sacct --jobs=1,2,3 --format=JobID,State,ExitCode").await,
        format!("1|CANCELLED by {uid}|0:0\n2|TIMEOUT|0:0\n3|CANCELLED by {uid}|0:0")
    );
    // What the signals were, the controller tells.
    for (id, signal) in [(1, "ExitCode=0:9"), (2, "ExitCode=0:15"), (3, "ExitCode=0:0")] {
        let shown = say(&client, &format!("scontrol show job {id}")).await;
        assert!(shown.contains(signal), "{shown}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_the_demo_in_slurms_words() {
    let server = start(Options::default());
    let client = log_in(&server).await;
    let failed = "sbatch: error: Batch job submission failed: ";
    let hint = "Try \"sbatch --help\" for more information\n";
    let wrong = [
        ("squeue --jobs=9", 1, "slurm_load_jobs error: Invalid job id specified\n".to_owned()),
        ("squeue --jobs=8,9", 0, String::new()),
        ("squeue --states=R", 1, "squeue: error: Invalid job state specified: R\n".to_owned()),
        ("scontrol show job 9", 1, "slurm_load_jobs error: Invalid job id specified\n".to_owned()),
        ("squeue --jobs=x", 1, "squeue: error: Invalid job id: x\n".to_owned()),
        ("scancel 9", 0, String::new()),
        ("scancel", 1, "scancel: error: No job identification provided\n".to_owned()),
        ("sacct -o Nonsense", 1, "sacct: error: Invalid field requested: \"Nonsense\"\n".to_owned()),
        ("sbatch none.sh", 1, "sbatch: error: Unable to open file none.sh\n".to_owned()),
        ("sbatch -t soon j", 255, "sbatch: error: Invalid --time specification\n".to_owned()),
        ("sbatch -p none j", 1, format!("{failed}Invalid partition name specified\n")),
        ("sbatch -n 2 -c 2 j", 1, format!("{failed}Requested node configuration is not available\n")),
        ("sbatch -N 2 j", 1, format!("{failed}Requested node configuration is not available\n")),
        ("sbatch --array=1-3 j", 255, format!("sbatch: unrecognized option '--array=1-3'\n{hint}")),
        ("sbatch --time", 255, format!("sbatch: missing or needless value of option '--time'\n{hint}")),
    ];
    say(&client, "printf '#!/bin/sh\\n' > j").await;
    for (command, code, text) in wrong {
        let done = run(&client, command).await;
        assert_eq!((done.code, done.stderr), (Some(code), text), "{command}");
    }
    say(&client, &sbatch("-o none/x", "true")).await;
    let done = run(&client, "squeue --states=all -o %y").await;
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(1), "squeue: error: Invalid job format specification: %y\n")
    );
    until(&client, "sacct -j 1 -o State,ExitCode", "FAILED|0:53").await;
}
