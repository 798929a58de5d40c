//! scancel, scontrol and sinfo: changing jobs and looking at them one by one.

use std::io;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use super::arguments::Grammar;
use super::store::{Job, State, Store, parse_id};
use super::submit::start_runner;
use super::{Answer, CLUSTER_NAME, Failure, NODE, NODE_CPUS, PARTITION, VERSION, clock};
use crate::demo::account::current_user;

const SCANCEL: Grammar = Grammar {
    command: "scancel",
    table: "s/signal= u/user= n/name= -/me t/state= b/batch f/full v/verbose Q/quiet V/version",
    in_order: false,
    code: 1,
};

const SCONTROL: Grammar = Grammar {
    command: "scontrol",
    table: "o/oneliner d/details a/all Q/quiet v/verbose V/version",
    in_order: false,
    code: 1,
};

const SINFO: Grammar = Grammar {
    command: "sinfo",
    table: "h/noheader a/all s/summarize N/Node o/format= p/partition= V/version",
    in_order: false,
    code: 1,
};

const NO_SUCH_JOB: &str = "Invalid job id specified";

/// Marks active jobs as cancelled; the runner ends those that run.
pub(super) fn cancel(store: &Store, wanted: impl Fn(&Job) -> bool) -> io::Result<Vec<u64>> {
    let lock = store.lock()?;
    let mut cancelled = Vec::new();
    for mut job in store.jobs()? {
        if !job.active() || !wanted(&job) {
            continue;
        }
        job.cancelled_by = Some(geteuid().as_raw());
        if job.state == State::Pending {
            job.reason = job.held.then(|| "JobHeldUser".to_owned());
            job.state = State::Cancelled;
            job.ended = Some(clock::now());
        }
        store.save(&job, &lock)?;
        cancelled.push(job.id);
    }
    Ok(cancelled)
}

pub(super) fn scancel(store: &Store, arguments: &[String]) -> Result<Answer, Failure> {
    let options = SCANCEL.parse(arguments)?;
    if options.has("version") {
        return Ok(VERSION.to_owned().into());
    }
    let ids = options
        .rest
        .iter()
        .flat_map(|argument| argument.split(','))
        .map(|id| parse_id(id, "scancel: error: Invalid job id "))
        .collect::<Result<Vec<_>, _>>()?;
    let me = options.has("me").then(current_user);
    let user = options.value("user").map(str::to_owned).or(me);
    let name = options.value("name");
    if ids.is_empty() && user.is_none() && name.is_none() {
        return Err(Failure::new(1, "scancel: error: No job identification provided"));
    }
    let wanted = |job: &Job| {
        (ids.is_empty() || ids.contains(&job.id))
            && user.as_ref().is_none_or(|user| *user == job.user)
            && name.is_none_or(|name| name == job.name)
    };
    let hit = match options.value("signal") {
        Some(signal) => send(store, signal, wanted)?,
        None => cancel(store, wanted)?,
    };
    let mut stderr = String::new();
    for id in ids.iter().filter(|_| options.has("verbose")) {
        stderr.push_str(&format!("scancel: Terminating job {id}\n"));
        if !hit.contains(id) {
            let known = store.job(*id)?.is_some_and(|job| job.remembered());
            let why = if known { "Job/step already completing or completed" } else { NO_SUCH_JOB };
            stderr.push_str(&format!("scancel: error: Kill job error on job id {id}: {why}\n"));
        }
    }
    // Without -v Slurm says nothing, and the exit code is 0 either way.
    let stdout = String::new();
    Ok(Answer { stdout, stderr })
}

fn send(store: &Store, signal: &str, wanted: impl Fn(&Job) -> bool) -> Result<Vec<u64>, Failure> {
    let name = format!("SIG{}", signal.trim_start_matches("SIG"));
    let parsed = match signal.parse::<i32>() {
        Ok(number) => Signal::try_from(number).ok(),
        Err(_) => name.parse().ok(),
    };
    let signal =
        parsed.ok_or_else(|| Failure::new(1, format!("scancel: error: Unknown job signal: {signal}")))?;
    let mut hit = Vec::new();
    for job in store.jobs()?.into_iter().filter(|job| job.active() && wanted(job)) {
        if let Some(group) = job.group {
            // One that has just ended is no error here, as with Slurm.
            if let Err(error) = killpg(Pid::from_raw(group), signal)
                && error != nix::Error::ESRCH
            {
                return Err(io::Error::from(error).into());
            }
        }
        hit.push(job.id);
    }
    Ok(hit)
}

pub(super) fn scontrol(store: &Store, arguments: &[String]) -> Result<Answer, Failure> {
    let options = SCONTROL.parse(arguments)?;
    if options.has("version") {
        return Ok(VERSION.to_owned().into());
    }
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["show", "job" | "jobs", ids @ ..] => show(store, ids, options.has("oneliner")),
        ["show", "config"] => {
            Ok(format!("ClusterName             = {CLUSTER_NAME}\nMinJobAge               = 300 sec\n")
                .into())
        }
        ["ping"] => Ok("Slurmctld(primary) at login1 is UP\n".to_owned().into()),
        ["hold", ids @ ..] => hold(store, ids, true),
        ["release", ids @ ..] => hold(store, ids, false),
        _ => Err(Failure::new(1, format!("invalid keyword: {}", words.join(" ")))),
    }
}

fn hold(store: &Store, ids: &[&str], held: bool) -> Result<Answer, Failure> {
    for id in ids.iter().flat_map(|ids| ids.split(',')) {
        let refused = |why| Failure::new(1, format!("{why} for job {id}\nslurm_suspend error: {why}"));
        let lock = store.lock()?;
        let job = id.parse().ok().map_or(Ok(None), |id| store.job(id))?;
        let mut job = job.filter(Job::remembered).ok_or_else(|| refused(NO_SUCH_JOB))?;
        match job.state {
            State::Pending => job.held = held,
            State::Running => return Err(refused("Job is no longer pending execution")),
            _ => return Err(refused("Job has already finished")),
        }
        store.save(&job, &lock)?;
    }
    if !held {
        start_runner()?;
    }
    Ok(Answer::default())
}

fn show(store: &Store, ids: &[&str], one_line: bool) -> Result<Answer, Failure> {
    let jobs: Vec<Job> = store.jobs()?.into_iter().filter(Job::remembered).collect();
    let wanted = |job: &&Job| {
        ids.is_empty() || ids.iter().flat_map(|ids| ids.split(',')).any(|id| id == job.id.to_string())
    };
    let texts: Vec<String> = jobs
        .iter()
        .filter(wanted)
        .map(|job| {
            let lines = layout(job, &jobs);
            if one_line { lines.join(" ") + " \n" } else { lines.join("\n   ") + "\n   \n\n" }
        })
        .collect();
    match texts.is_empty() {
        true if ids.is_empty() => Ok("No jobs in the system\n".to_owned().into()),
        true => Err(Failure::new(1, format!("slurm_load_jobs error: {NO_SUCH_JOB}"))),
        false => Ok(texts.concat().into()),
    }
}

/// The lines that `scontrol show job` prints; the second and later ones are indented there.
fn layout(job: &Job, jobs: &[Job]) -> Vec<String> {
    let Job { id, name, user, uid, gid, account, qos, cpus, memory, work_dir, stdout, stderr, .. } = job;
    let stamp = |time: Option<i64>| time.map_or("Unknown".to_owned(), clock::stamp);
    let (submitted, started) = (clock::stamp(job.submitted), stamp(job.started.or(job.ended)));
    let ended = stamp(job.ended.or(job.started.map(|start| start.saturating_add(job.limit_s))));
    let eligible = if job.held { "Unknown" } else { &submitted };
    let node = job.started.map_or("", |_| NODE);
    let priority = if job.held { 0 } else { 1000 };
    let command = job.command.as_deref().unwrap_or("(null)");
    let mut lines = vec![
        format!("JobId={id} JobName={name}"),
        format!("UserId={user}({uid}) GroupId={user}({gid}) MCS_label=N/A"),
        format!("Priority={priority} Nice=0 Account={account} QOS={qos}"),
        format!("JobState={} Reason={} Dependency=(null)", job.words().0, job.reason(jobs)),
        format!("Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={}:{}", job.code, job.signal),
        format!("RunTime={} TimeLimit={} TimeMin=N/A", clock::full(job.elapsed()), clock::full(job.limit_s)),
        format!("SubmitTime={submitted} EligibleTime={eligible}"),
        format!("AccrueTime={eligible}"),
        format!("StartTime={started} EndTime={ended} Deadline=N/A"),
        format!("SuspendTime=None SecsPreSuspend=0 LastSchedEval={submitted} Scheduler=Main"),
        format!("Partition={PARTITION} AllocNode:Sid=login1:1"),
        "ReqNodeList=(null) ExcNodeList=(null)".to_owned(),
        format!("NodeList={node}"),
    ];
    lines.extend(job.started.map(|_| format!("BatchHost={NODE}")));
    lines.extend([
        format!("NumNodes=1 NumCPUs={cpus} NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*"),
        format!("TRES=cpu={cpus},mem={memory},node=1,billing={cpus}"),
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*".to_owned(),
        format!("MinCPUsNode=1 MinMemoryNode={memory} MinTmpDiskNode=0"),
        "Features=(null) DelayBoot=00:00:00".to_owned(),
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)".to_owned(),
        format!("Command={command}"),
        format!("WorkDir={work_dir}"),
    ]);
    lines.extend(job.comment.as_ref().map(|comment| format!("Comment={comment} ")));
    lines.extend([
        format!("StdErr={stderr}"),
        "StdIn=/dev/null".to_owned(),
        format!("StdOut={stdout}"),
        "Power=".to_owned(),
    ]);
    lines
}

pub(super) fn sinfo(store: &Store, arguments: &[String]) -> Result<Answer, Failure> {
    let options = SINFO.parse(arguments)?;
    if options.has("version") {
        return Ok(VERSION.to_owned().into());
    }
    let running =
        store.jobs()?.iter().find(|job| job.state == State::Running).map_or(0, |job| job.cpus.min(NODE_CPUS));
    let idle = NODE_CPUS.saturating_sub(running);
    let (state, short) = match (running, idle) {
        (0, _) => ("idle", "idle"),
        (_, 0) => ("allocated", "alloc"),
        _ => ("mixed", "mix"),
    };
    let cpus = format!("{running}/{idle}/0/{NODE_CPUS}");
    let total = NODE_CPUS.to_string();
    let mut stdout = String::new();
    if !options.has("noheader") && options.value("format").is_none() {
        stdout.push_str("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n");
    }
    let mut letters = options.value("format").unwrap_or("%9P %5a %10l %6D %6t %N").chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            stdout.push(letter);
            continue;
        }
        let width: String =
            letters.as_str().chars().take_while(|letter| matches!(letter, '0'..='9' | '.')).collect();
        let value = match letters.nth(width.len()) {
            Some('P') => "debug*",
            Some('R') => PARTITION,
            Some('a') => "up",
            Some('l') => "1-00:00:00",
            Some('D') => "1",
            Some('T') => state,
            Some('t') => short,
            Some('c') => &total,
            Some('C') => &cpus,
            Some('m') => "4000",
            Some('N') | Some('n') => NODE,
            Some('E') => "none",
            Some('G' | 'f' | 'b') => "(null)",
            _ => "",
        };
        let width = width.trim_start_matches('.').parse().unwrap_or(0);
        stdout.push_str(&format!("{value:width$}"));
    }
    Ok((stdout + "\n").into())
}
