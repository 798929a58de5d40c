//! scancel and scontrol: ending, holding, releasing and showing jobs.

use std::io;

use nix::unistd::geteuid;

use super::arguments::{Arguments, ids};
use super::store::{Job, State, Store};
use super::{Answer, Failure, NODE_CPUS, PARTITION, report, times};

const NO_SUCH_JOB: &str = "Invalid job id specified";

/// Marks active jobs as cancelled; the controller ends the one that runs.
pub(super) fn cancel(store: &Store, wanted: impl Fn(&Job) -> bool) -> io::Result<()> {
    let lock = store.lock()?;
    for mut job in store.jobs()?.into_iter().filter(|job| job.active() && wanted(job)) {
        job.cancelled_by = Some(geteuid().as_raw());
        if job.state == State::Pending {
            job.state = State::Cancelled;
            job.ended = Some(times::now());
        }
        store.save(&job, &lock)?;
    }
    Ok(())
}

/// scancel. Of jobs that are unknown or have ended Slurm says nothing either, and its exit code is 0.
pub(super) fn scancel(store: &Store, arguments: &[String]) -> Answer {
    let options = Arguments::read("scancel", "M/clusters=", arguments)?;
    let asked = ids(&options.rest.join(","), "scancel: error: Invalid job id ")?;
    if asked.is_empty() {
        return Err(Failure(1, "scancel: error: No job identification provided\n".to_owned()));
    }
    cancel(store, |job| asked.contains(&job.id))?;
    Ok(String::new())
}

pub(super) fn scontrol(store: &Store, arguments: &[String]) -> Answer {
    let options = Arguments::read("scontrol", "o/oneliner M/clusters=", arguments)?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["show", "job", id] if !options.has("oneliner") => {
            let id = ids(id, "scontrol: error: Invalid job id ")?;
            let job = store.jobs()?.into_iter().find(|job| id.contains(&job.id));
            let unknown = || Failure(1, format!("slurm_load_jobs error: {NO_SUCH_JOB}\n"));
            job.map(|job| report::record(&job)).ok_or_else(unknown)
        }
        ["show", "partition"] => Ok(format!(
            "PartitionName={PARTITION} Default=YES MaxTime=UNLIMITED State=UP \
             TotalCPUs={NODE_CPUS} TotalNodes=1\n"
        )),
        ["hold", list] => hold(store, list, true),
        ["release", list] => hold(store, list, false),
        _ => Err(Failure(1, format!("invalid keyword: {}\n", words.join(" ")))),
    }
}

fn hold(store: &Store, list: &str, held: bool) -> Answer {
    for id in list.split(',') {
        let refused = |why| Failure(1, format!("{why} for job {id}\nslurm_suspend error: {why}\n"));
        let lock = store.lock()?;
        let job = store.jobs()?.into_iter().find(|job| job.id.to_string() == id);
        let mut job = job.ok_or_else(|| refused(NO_SUCH_JOB))?;
        match job.state {
            State::Pending => job.held = held,
            State::Running => return Err(refused("Job is no longer pending execution")),
            _ => return Err(refused("Job has already finished")),
        }
        store.save(&job, &lock)?;
    }
    Ok(String::new())
}
