//! scancel, scontrol and sinfo: changing jobs and looking at them one by one.

use std::io;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use super::arguments::Grammar;
use super::store::{Job, State, Store};
use super::submit::start_runner;
use super::{Answer, Failure, NODE, NODE_CPUS, PARTITION, clock, report};
use crate::demo::account::current_user;

const SCANCEL: Grammar = Grammar {
    command: "scancel",
    table: "s/signal= u/user= n/name= -/me M/clusters= b/batch f/full v/verbose Q/quiet",
    in_order: false,
    code: 1,
};
const SCONTROL: Grammar = Grammar {
    command: "scontrol",
    table: "o/oneliner d/details a/all M/clusters= Q/quiet",
    in_order: false,
    code: 1,
};
const SINFO: Grammar =
    Grammar { command: "sinfo", table: "h/noheader a/all o/format= p/partition=", in_order: false, code: 1 };

const NO_SUCH_JOB: &str = "Invalid job id specified";

/// Marks active jobs as cancelled; the runner ends those that run.
pub(super) fn cancel(store: &Store, wanted: impl Fn(&Job) -> bool) -> io::Result<Vec<u64>> {
    let lock = store.lock()?;
    let mut cancelled = Vec::new();
    for mut job in store.jobs()?.into_iter().filter(|job| job.active() && wanted(job)) {
        job.cancelled_by = Some(geteuid().as_raw());
        if job.state == State::Pending {
            job.state = State::Cancelled;
            job.ended = Some(clock::now());
        }
        store.save(&job, &lock)?;
        cancelled.push(job.id);
    }
    Ok(cancelled)
}

pub(super) fn scancel(store: &Store, arguments: &[String]) -> Answer {
    let options = SCANCEL.parse(arguments)?;
    let ids = options.ids("-", "scancel: error: Invalid job id ")?;
    let me = options.has("me").then(current_user);
    if ids.is_empty() && me.is_none() && !options.has("user") && !options.has("name") {
        return Err(Failure::new(1, "scancel: error: No job identification provided\n"));
    }
    let wanted = |job: &Job| {
        (ids.is_empty() || ids.contains(&job.id))
            && options.admits("user", &[&job.user])
            && options.admits("name", &[&job.name])
            && me.as_ref().is_none_or(|me| *me == job.user)
    };
    let hit = match options.value("signal") {
        Some(signal) => send(store, signal, wanted)?,
        None => cancel(store, wanted)?,
    };
    // Without -v Slurm says nothing, and its exit code is 0 either way.
    let mut told = String::new();
    for id in ids.iter().filter(|_| options.has("verbose")) {
        told.push_str(&format!("scancel: Terminating job {id}\n"));
        if !hit.contains(id) {
            let known = store.job(*id)?.is_some_and(|job| job.remembered());
            let why = if known { "Job/step already completing or completed" } else { NO_SUCH_JOB };
            told.push_str(&format!("scancel: error: Kill job error on job id {id}: {why}\n"));
        }
    }
    Err(Failure::new(0, told))
}

fn send(store: &Store, text: &str, wanted: impl Fn(&Job) -> bool) -> Result<Vec<u64>, Failure> {
    let named = format!("SIG{}", text.trim_start_matches("SIG")).parse().ok();
    let signal: Option<Signal> = named.or(text.parse::<i32>().ok().and_then(|number| number.try_into().ok()));
    let unknown = || Failure::new(1, format!("scancel: error: Unknown job signal: {text}\n"));
    let signal = signal.ok_or_else(unknown)?;
    let mut hit = Vec::new();
    for job in store.jobs()?.into_iter().filter(|job| job.active() && wanted(job)) {
        hit.push(job.id);
        match job.group.map_or(Ok(()), |group| killpg(Pid::from_raw(group), signal)) {
            Ok(()) | Err(nix::Error::ESRCH) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(hit)
}

pub(super) fn scontrol(store: &Store, arguments: &[String]) -> Answer {
    let options = SCONTROL.parse(arguments)?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["show", "job" | "jobs", ids @ ..] => show(store, ids, options.has("oneliner")),
        ["show", "partition" | "partitions", ..] => Ok(partition()),
        ["hold", ids @ ..] => hold(store, ids, true),
        ["release", ids @ ..] => hold(store, ids, false),
        _ => Err(Failure::new(1, format!("invalid keyword: {}\n", words.join(" ")))),
    }
}

fn hold(store: &Store, ids: &[&str], held: bool) -> Answer {
    for id in ids.iter().flat_map(|ids| ids.split(',')) {
        let refused = |why| Failure::new(1, format!("{why} for job {id}\nslurm_suspend error: {why}\n"));
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
    Ok(String::new())
}

fn show(store: &Store, ids: &[&str], one_line: bool) -> Answer {
    let mut jobs = store.jobs()?;
    jobs.retain(Job::remembered);
    let ids: Vec<&str> = ids.iter().flat_map(|ids| ids.split(',')).collect();
    let mut text = String::new();
    for job in jobs.iter().filter(|job| ids.is_empty() || ids.contains(&job.id.to_string().as_str())) {
        let lines = layout(job, &jobs);
        text += &if one_line {
            lines.replace('\n', " ") + " \n"
        } else {
            lines.replace('\n', "\n   ") + "\n   \n\n"
        };
    }
    match (text.is_empty(), ids.is_empty()) {
        (true, true) => Ok("No jobs in the system\n".to_owned()),
        (true, false) => Err(Failure::new(1, format!("slurm_load_jobs error: {NO_SUCH_JOB}\n"))),
        (false, _) => Ok(text),
    }
}

/// The one partition, always on one line.
fn partition() -> String {
    format!(
        "PartitionName={PARTITION} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A \
         DefaultTime=00:05:00 Hidden=NO MaxNodes=1 MaxTime=1-00:00:00 MinNodes=0 Nodes={NODE} State=UP \
         TotalCPUs={NODE_CPUS} TotalNodes=1\n"
    )
}

/// The lines of `scontrol show job`; all but the first are indented there.
fn layout(job: &Job, jobs: &[Job]) -> String {
    let Job { id, name, user, uid, gid, account, qos, cpus, memory, work_dir, stdout, stderr, .. } = job;
    let (state, reason, priority) = (job.words().0, job.reason(jobs), job.priority());
    let (run, limit) = (clock::full(job.elapsed()), clock::full(job.limit_s));
    let submitted = clock::stamp(Some(job.submitted), "Unknown");
    let eligible = if job.held { "Unknown" } else { &submitted };
    let start = clock::stamp(job.started.or(job.ended), "Unknown");
    let end = clock::stamp(job.end(), "Unknown");
    let node = job.started.map_or("NodeList=".to_owned(), |_| format!("NodeList={NODE}\nBatchHost={NODE}"));
    let command = job.command.as_deref().unwrap_or("(null)");
    let comment = job.comment.as_ref().map_or(String::new(), |comment| format!("Comment={comment} \n"));
    format!(
        "JobId={id} JobName={name}
UserId={user}({uid}) GroupId={user}({gid}) MCS_label=N/A
Priority={priority} Nice=0 Account={account} QOS={qos}
JobState={state} Reason={reason} Dependency=(null)
Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={}:{}
RunTime={run} TimeLimit={limit} TimeMin=N/A
SubmitTime={submitted} EligibleTime={eligible}
AccrueTime={eligible}
StartTime={start} EndTime={end} Deadline=N/A
SuspendTime=None SecsPreSuspend=0 LastSchedEval={submitted} Scheduler=Main
Partition={PARTITION} AllocNode:Sid=login1:1
ReqNodeList=(null) ExcNodeList=(null)
{node}
NumNodes=1 NumCPUs={cpus} NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
TRES=cpu={cpus},mem={memory},node=1,billing={cpus}
Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
MinCPUsNode=1 MinMemoryNode={memory} MinTmpDiskNode=0
Features=(null) DelayBoot=00:00:00
OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
Command={command}
WorkDir={work_dir}
{comment}StdErr={stderr}
StdIn=/dev/null
StdOut={stdout}
Power=",
        job.code, job.signal
    )
}

pub(super) fn sinfo(store: &Store, arguments: &[String]) -> Answer {
    let options = SINFO.parse(arguments)?;
    let running = store.jobs()?.into_iter().find(|job| job.state == State::Running);
    let busy = running.map_or(0, |job| job.cpus.min(NODE_CPUS));
    let (state, short) = match busy {
        0 => ("idle", "idle"),
        NODE_CPUS => ("allocated", "alloc"),
        _ => ("mixed", "mix"),
    };
    let field = |letter| match letter {
        'P' => format!("{PARTITION}*"),
        'R' => PARTITION.to_owned(),
        'a' => "up".to_owned(),
        'l' => "1-00:00:00".to_owned(),
        'D' => "1".to_owned(),
        'T' => state.to_owned(),
        't' => short.to_owned(),
        'c' => NODE_CPUS.to_string(),
        'C' => format!("{busy}/{}/0/{NODE_CPUS}", NODE_CPUS.saturating_sub(busy)),
        'm' => "4000".to_owned(),
        'N' | 'n' => NODE.to_owned(),
        'E' => "none".to_owned(),
        'G' | 'f' | 'b' => "(null)".to_owned(),
        _ => String::new(),
    };
    let format = options.value("format");
    let heading = format.is_none() && !options.has("noheader");
    let heading = if heading { "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n" } else { "" };
    Ok(heading.to_owned() + &report::line(format.unwrap_or("%9P %5a %.10l %.6D %.6t %N"), field))
}
