//! `towline job`: batch jobs.

mod submit;
pub mod tables;

use std::ops::ControlFlow;

use globset::GlobBuilder;
use serde::Serialize;
use serde_json::json;

use super::args::{JobCommand, JobIds, ListArgs, LogsArgs, WaitArgs};
use super::output::{Output, Passed};
use super::own_line::{self, Signals};
use crate::config::{Config, Environment, Role, SchedulerChoice, Site};
use crate::failure::Failure;
use crate::jobs::{Action, Dialect, Job, Jobs, Limits, LogOptions, LogPart, Output as LogOf, Scope};
use crate::kind::{EXIT_ANSWER_IS_FAILURE, EXIT_TIMED_OUT, Kind};
use crate::line::Line;
use tables::{JobRow, QueueRow};

/// Runs a command of `job`.
///
/// # Errors
/// Those of the configuration, the line and the jobs room.
pub fn run(command: &JobCommand, environment: Environment, output: &Output) -> Result<u8, Failure> {
    let config = Config::load(environment)?;
    let site = config.site(site(command))?;
    let expected = dialect(site)?;
    // A script or an option that can't be sent costs no login.
    let submission = match command {
        JobCommand::Submit(args) => Some(submit::prepare(args)?),
        JobCommand::List(args) => {
            args.name.as_deref().map(name_filter).transpose()?;
            None
        }
        _ => None,
    };
    own_line::block_on(async {
        let mut signals = Signals::listen()?;
        let line = match own_line::open(&config, (site, Role::Login), output, &mut signals).await? {
            ControlFlow::Continue(line) => line,
            ControlFlow::Break(code) => return Ok(code),
        };
        let work = async {
            let limits = Limits { calls_per_min: site.scheduler_calls_per_min, ..Limits::default() };
            let jobs = Jobs::detect(line.clone(), expected, limits).await?;
            match (command, submission) {
                (JobCommand::Submit(args), Some((script, options))) => {
                    let what = (&script, &options);
                    if args.dry_run {
                        submit::dry_run(&jobs, what, output).await
                    } else {
                        submit::run(&jobs, what, site, output).await
                    }
                }
                (JobCommand::List(args), _) => list(&jobs, args, output).await,
                (JobCommand::Show(ids), _) => show(&jobs.show(&ids.ids).await?, output),
                (JobCommand::Wait(args), _) => wait(&jobs, args, output).await,
                (JobCommand::Cancel(ids), _) => act(&jobs, Action::Cancel, ids, output).await,
                (JobCommand::Hold(ids), _) => act(&jobs, Action::Hold, ids, output).await,
                (JobCommand::Release(ids), _) => act(&jobs, Action::Release, ids, output).await,
                (JobCommand::Logs(args), _) => logs(&jobs, args, output).await,
                (JobCommand::Queues { .. } | JobCommand::Submit(_), _) => queues(&jobs, output).await,
            }
        };
        let result = tokio::select! {
            result = work => result,
            // What runs on the cluster goes on.
            code = signals.arrived() => interrupted(command, code, output),
        };
        line.close();
        line.closed().await;
        result
    })
}

/// Leaves on a signal; a submission that is under way may have made its job.
fn interrupted(command: &JobCommand, code: u8, output: &Output) -> Result<u8, Failure> {
    if let JobCommand::Submit(args) = command
        && !args.dry_run
    {
        output.note(&format!(
            "interrupted: the job may have been submitted all the same; see `towline job list {}` first",
            args.site
        ))?;
    }
    Ok(code)
}

fn site(command: &JobCommand) -> &str {
    match command {
        JobCommand::Submit(args) => &args.site,
        JobCommand::List(args) => &args.site,
        JobCommand::Show(jobs)
        | JobCommand::Cancel(jobs)
        | JobCommand::Hold(jobs)
        | JobCommand::Release(jobs) => &jobs.site,
        JobCommand::Wait(args) => &args.jobs.site,
        JobCommand::Logs(args) => &args.job.site,
        JobCommand::Queues { site } => site,
    }
}

/// Which scheduler the configuration says that the site has.
fn dialect(site: &Site) -> Result<Option<Dialect>, Failure> {
    Ok(match site.scheduler {
        SchedulerChoice::Auto => None,
        SchedulerChoice::Slurm => Some(Dialect::Slurm),
        SchedulerChoice::Pbs => Some(Dialect::Pbs),
        SchedulerChoice::Torque => Some(Dialect::Torque),
        SchedulerChoice::Lsf => Some(Dialect::Lsf),
        SchedulerChoice::Sge => Some(Dialect::Sge),
        SchedulerChoice::None => {
            return Err(Failure::new(
                Kind::Config,
                format!("site {} is configured to have no scheduler", site.name),
            )
            .hint("take `scheduler = \"none\"` out of that site's table")
            .field("site", site.name.as_str()));
        }
    })
}

async fn list(jobs: &Jobs<Line>, args: &ListArgs, output: &Output) -> Result<u8, Failure> {
    let glob = args.name.as_deref().map(name_filter).transpose()?;
    let scope = if args.all_users { Scope::AllUsers } else { Scope::Mine };
    let mut found = jobs.list(&scope).await?;
    found.retain(|job| {
        let state = args.state.as_deref().is_none_or(|state| state == job.state.as_str());
        let name = job.name.as_deref().unwrap_or_default();
        state && glob.as_ref().is_none_or(|glob| glob.is_match(os(name)))
    });
    if output.json() {
        output.document(&json!({ "jobs": found, "source": "queue", "complete": true }))?;
    } else {
        output.text(&tables::jobs_table(&rows(&found), args.all_users))?;
    }
    Ok(0)
}

fn name_filter(glob: &str) -> Result<globset::GlobMatcher, Failure> {
    // A job's name is no path: `*` also matches a slash.
    let glob = GlobBuilder::new(glob).literal_separator(false).build().map_err(|error| {
        Failure::new(Kind::InvalidInput, format!("--name {glob:?} is no pattern: {error}"))
            .hint("use * and ? and [..]; a backslash takes their meaning away")
    })?;
    Ok(glob.compile_matcher())
}

fn os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

fn rows(jobs: &[Job]) -> Vec<JobRow> {
    jobs.iter().map(JobRow::of).collect()
}

fn show(jobs: &[Job], output: &Output) -> Result<u8, Failure> {
    if output.json() {
        output.document(&json!({ "jobs": jobs }))?;
    } else {
        output.text(&tables::jobs_table(&rows(jobs), true))?;
        for warning in jobs.iter().flat_map(|job| &job.warnings) {
            output.note(&format!("{}: {}", warning.code, warning.message))?;
        }
    }
    Ok(0)
}

async fn wait(jobs: &Jobs<Line>, args: &WaitArgs, output: &Output) -> Result<u8, Failure> {
    let waited = jobs.wait(&args.jobs.ids, args.timeout).await?;
    if output.json() && waited.interrupted {
        output.document(&json!({
            "jobs": waited.jobs,
            "wait_interrupted": true,
            "last_poll_error": waited.last_poll_error,
        }))?;
    } else {
        show(&waited.jobs, output)?;
    }
    Ok(match (waited.interrupted, waited.all_succeeded()) {
        (true, _) => EXIT_TIMED_OUT,
        (false, true) => 0,
        (false, false) => EXIT_ANSWER_IS_FAILURE,
    })
}

async fn act(jobs: &Jobs<Line>, action: Action, ids: &JobIds, output: &Output) -> Result<u8, Failure> {
    show(&jobs.act(action, &ids.ids).await?, output)
}

async fn logs(jobs: &Jobs<Line>, args: &LogsArgs, output: &Output) -> Result<u8, Failure> {
    let of = if args.stderr { LogOf::Stderr } else { LogOf::Stdout };
    let options = LogOptions { output: of, tail: args.tail };
    if !args.follow {
        log_part(&jobs.logs(&args.job.id, &options).await?, output)?;
        return Ok(0);
    }
    let mut follow = jobs.follow(&args.job.id, &options).await?;
    while let Some(part) = follow.next().await? {
        if log_part(&part, output)? == Passed::NobodyReads {
            // A log may grow for days; nobody is left to follow it for.
            break;
        }
    }
    Ok(0)
}

fn log_part(part: &LogPart, output: &Output) -> Result<Passed, Failure> {
    if output.json() {
        return output.document(part);
    }
    if part.truncated {
        output.note(&format!("note: only a part of {} is shown, from byte {}", part.path, part.offset))?;
    }
    output.bytes(&part.bytes())
}

async fn queues(jobs: &Jobs<Line>, output: &Output) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Answer<'a> {
        queues: &'a [crate::jobs::Queue],
    }
    let found = jobs.queues().await?;
    if output.json() {
        output.document(&Answer { queues: &found })?;
    } else {
        let rows: Vec<QueueRow> = found.iter().map(QueueRow::of).collect();
        output.text(&tables::queues_table(&rows))?;
    }
    Ok(0)
}
