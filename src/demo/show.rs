//! The show behind `towline demo`: a day's work through one channel, and what the same costs without it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Counters, Server};
use crate::jobs::{self, Job, Jobs, Limits, LogOptions, Script, SubmitOptions};
use crate::line::bootstrap::Helpers;
use crate::line::message::{Environment, Program};
use crate::line::{self, Line, OpenError, Options};
use crate::ssh::{self, Deadlines, Prompt, Prompter, Secret, Target, Unanswered};

/// Small commands that the show runs.
pub const COMMANDS: usize = 100;
/// Largest result file that it reads.
const RESULT_BYTES_MAX: usize = 64 << 10;
/// How long the demo's job may take.
const JOB_WAIT: Duration = Duration::from_secs(60);

/// The job's script: it leaves a result file and a log.
const SCRIPT: &str = "#!/bin/sh\n\
    #SBATCH --job-name=towline-demo\n\
    echo \"step 1 of 2 on $(uname -n)\"\n\
    i=0; sum=0; while [ $i -lt 1000 ]; do i=$((i+1)); sum=$((sum+i)); done\n\
    echo \"step 2 of 2: writing result.txt\"\n\
    echo \"sum of 1..1000 = $sum\" > result.txt\n";

/// What the show did and cost.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the server counted for all of it.
    pub counters: Counters,
    /// Small commands that went through the line, the job's own not counted.
    pub commands: usize,
    /// Median time of a small command.
    pub median: Duration,
    /// The job as it ended.
    pub job: Job,
    /// Its result file.
    pub result: String,
    /// Its log.
    pub log: String,
    /// Time of all of it.
    pub elapsed: Duration,
    /// The same number of commands with a connection and a channel each.
    pub without: Without,
}

/// The cost of one channel a command, measured on the same server.
#[derive(Clone, Debug)]
pub struct Without {
    /// What the server counted for it.
    pub counters: Counters,
    /// Median time of a command, with nobody to wait for at the second factor.
    pub median: Duration,
    /// Time of all of it.
    pub elapsed: Duration,
}

/// Why the show stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShowError {
    /// The line could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The line failed.
    #[error(transparent)]
    Line(#[from] line::Error),
    /// The job failed.
    #[error(transparent)]
    Jobs(#[from] jobs::Error),
    /// A connection of the comparison failed.
    #[error(transparent)]
    Ssh(#[from] ssh::Error),
    /// A command did not do what the show is about.
    #[error("the demo's {what} ended unexpectedly: {how}")]
    Unexpected {
        /// Which.
        what: &'static str,
        /// How it ended.
        how: String,
    },
}

/// Answers the demo server's second factor, as its user would.
struct Phone(String);

impl Prompter for Phone {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        match prompt {
            Prompt::KeyboardInteractive { .. } => Ok(Secret::new(self.0.clone())),
            Prompt::HostKey { .. } | Prompt::Password { .. } | Prompt::Passphrase { .. } => {
                Err(Unanswered::Nobody)
            }
        }
    }

    fn tell(&self, _text: &str) {}
}

/// Does the show's work on a fresh server.
///
/// # Errors
/// [`ShowError`] at the first thing that does not go as it should.
///
/// # Cancel safety
/// A dropped call closes what it opened.
pub async fn show(server: &Server) -> Result<Report, ShowError> {
    let began = Instant::now();
    let line = open(server).await?;
    let jobs = Jobs::detect(line.clone(), None, Limits { calls_per_min: 60, ..Limits::default() }).await?;
    let options = SubmitOptions { output: Some(b"demo-%j.log".to_vec()), ..SubmitOptions::default() };
    let script = Script::Bytes { bytes: SCRIPT.as_bytes().to_vec(), name: Some(b"demo.sh".to_vec()) };
    let id = jobs.submit(&script, &options).await?.job.id.text;
    let median = small_commands(&line).await?;
    let waited = jobs.wait(std::slice::from_ref(&id), Some(JOB_WAIT)).await?;
    let job = waited.jobs.into_iter().next().ok_or(unexpected("job", "it is gone"))?;
    if !job.state.terminal() {
        return Err(unexpected("job", job.state.as_str()));
    }
    let log = jobs.logs(&id, &LogOptions::default()).await?.text;
    let result = line.files().read_to_end("~/result.txt", RESULT_BYTES_MAX).await?;
    line.close();
    line.closed().await;
    let (counters, elapsed) = (server.counters(), began.elapsed());
    let without = one_channel_each(server).await?;
    Ok(Report {
        counters,
        commands: COMMANDS,
        median,
        job,
        result: String::from_utf8_lossy(&result).into_owned(),
        log,
        elapsed,
        without,
    })
}

async fn open(server: &Server) -> Result<Line, OpenError> {
    let options = Options {
        environment: Environment::None,
        helpers: Helpers::embedded(),
        exec_from_memory: false,
        deadlines: deadlines(),
    };
    line::open(target(server), phone(server), options).await
}

fn target(server: &Server) -> Target {
    let (known_hosts, identity) = (server.known_hosts_file(), server.identity_file());
    Target::unix_socket(server.socket(), server.user().to_owned(), known_hosts, identity)
}

fn phone(server: &Server) -> Arc<dyn Prompter> {
    Arc::new(Phone(server.passcode().to_owned()))
}

fn deadlines() -> Deadlines {
    Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(60) }
}

async fn small_commands(line: &Line) -> Result<Duration, ShowError> {
    let mut times = Vec::with_capacity(COMMANDS);
    for _ in 0..COMMANDS {
        let began = Instant::now();
        let output = line.command(Program::Argv(vec!["true".into()])).output(Vec::new()).await?;
        times.push(began.elapsed());
        if output.outcome.rc != 0 {
            return Err(unexpected("command", &format!("exit code {}", output.outcome.rc)));
        }
    }
    Ok(median(times))
}

/// Runs as many commands as `ssh host command` would: a login and a channel each.
async fn one_channel_each(server: &Server) -> Result<Without, ShowError> {
    let (before, began) = (server.counters(), Instant::now());
    let mut times = Vec::with_capacity(COMMANDS);
    for _ in 0..COMMANDS {
        let began = Instant::now();
        let transport = ssh::connect(&target(server), phone(server), &deadlines()).await?;
        let mut channel = transport.into_channel("true").await?;
        while let Some(part) = channel.reader.next().await {
            if matches!(part, ssh::Part::Closed { .. }) {
                break;
            }
        }
        channel.control.disconnect("done").await;
        times.push(began.elapsed());
    }
    let after = server.counters();
    let counters = Counters {
        connections: after.connections - before.connections,
        session_channels: after.session_channels - before.session_channels,
        refused_channels: after.refused_channels - before.refused_channels,
        second_factor_prompts: after.second_factor_prompts - before.second_factor_prompts,
        refused_logins: after.refused_logins - before.refused_logins,
        exec_requests: after.exec_requests - before.exec_requests,
    };
    Ok(Without { counters, median: median(times), elapsed: began.elapsed() })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn unexpected(what: &'static str, how: &str) -> ShowError {
    ShowError::Unexpected { what, how: how.to_owned() }
}
