//! Waiting: ends are believed when they are proven, and the scheduler is asked within its ceiling.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use towline::jobs::{Error, Jobs, OwnJob, Presence, State, SubmissionKey};

use crate::support::{
    Fake, INVALID_ID, Row, TIMED_OUT, accounted, failed, fence_of, line_lost, sacct, squeue, text,
};

fn ids(list: &[&str]) -> Vec<String> {
    list.iter().map(|id| (*id).to_owned()).collect()
}

/// The job 4711 as one that we submitted just now.
fn ours(jobs: &Jobs<Fake>) {
    jobs.remember(OwnJob {
        id: jobs.parse_id("4711").unwrap(),
        key: SubmissionKey::parse("k1").unwrap(),
        at: Timestamp::from_second(1_796_048_900).unwrap(),
        name: Some(b"exact \"name\"".to_vec()),
        output: None,
        error: None,
    });
}

#[tokio::test(start_paused = true)]
async fn case_009_a_job_of_ours_that_nobody_shows_yet_is_pending_and_later_lost() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(failed(1, INVALID_ID)),
        _ => Ok(sacct(&call.argv, &[])),
    });
    let id = [jobs.parse_id("4711").unwrap()];
    assert_eq!(jobs.look(&id).await.unwrap(), [Presence::Absent]);
    ours(&jobs);
    let shown = jobs.show(&ids(&["4711"])).await.unwrap();
    assert_eq!((shown[0].state, shown[0].reason.as_deref()), (State::Pending, Some("not visible yet")));
    assert_eq!(shown[0].submission_key.as_ref().unwrap().as_str(), "k1");
    tokio::time::advance(Duration::from_secs(601)).await;
    let shown = jobs.show(&ids(&["4711"])).await.unwrap();
    assert_eq!(shown[0].state, State::Lost);
    assert!(shown[0].reason.as_deref().unwrap().contains("4711 may still be queued or running"));
}

#[tokio::test(start_paused = true)]
async fn case_009_waiting_outlasts_the_lag_of_accounting() {
    let begin = Instant::now();
    let jobs = Fake::jobs(move |program, call| {
        let late = begin.elapsed() > Duration::from_secs(25);
        match program {
            "squeue" => Ok(squeue(&fence_of(&call.argv), &[])),
            "sacct" if late => Ok(sacct(&call.argv, &[accounted("4711", "COMPLETED", "0:0")])),
            _ => Ok(sacct(&call.argv, &[])),
        }
    });
    ours(&jobs);
    let waited = jobs.wait(&ids(&["4711"]), None).await.unwrap();
    assert!(!waited.interrupted && waited.all_succeeded());
    assert_eq!(waited.jobs[0].name.as_deref(), Some(&b"exact \"name\""[..]));
}

#[tokio::test(start_paused = true)]
async fn case_011_a_wait_goes_on_while_the_scheduler_cannot_be_asked() {
    let begin = Instant::now();
    let jobs = Fake::jobs(move |program, call| match program {
        "squeue" => match begin.elapsed().as_secs() {
            0..20 => Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", "RUNNING")])),
            20..600 => Ok(failed(1, TIMED_OUT)),
            _ => Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", "COMPLETED")])),
        },
        _ => Ok(sacct(&call.argv, &[accounted("4711", "COMPLETED", "0:0")])),
    });
    let waited = jobs.wait(&ids(&["4711"]), Some(Duration::from_secs(300))).await.unwrap();
    assert!(waited.interrupted);
    assert_eq!(waited.jobs[0].state, State::Running);
    assert!(waited.last_poll_error.unwrap().contains("timed out"));
    let waited = jobs.wait(&ids(&["4711"]), None).await.unwrap();
    assert!(waited.all_succeeded() && begin.elapsed() > Duration::from_secs(600));
}

#[tokio::test(start_paused = true)]
async fn case_013_a_node_failure_that_is_requeued_is_not_the_end() {
    let begin = Instant::now();
    let jobs = Fake::jobs(move |program, call| {
        let now = begin.elapsed().as_secs();
        match program {
            "squeue" if now < 90 => Ok(squeue(&fence_of(&call.argv), &[])),
            "squeue" if now < 200 => Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", "PENDING")])),
            "squeue" => Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", "COMPLETED")])),
            "sacct" if now < 90 => Ok(sacct(&call.argv, &[accounted("4711", "NODE_FAIL", "0:0")])),
            _ => Ok(sacct(&call.argv, &[accounted("4711", "COMPLETED", "0:0")])),
        }
    });
    let waited = jobs.wait(&ids(&["4711"]), None).await.unwrap();
    assert_eq!(waited.jobs[0].state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn case_013_a_node_failure_that_stays_is_the_end() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(squeue(&fence_of(&call.argv), &[])),
        _ => Ok(sacct(&call.argv, &[accounted("4711", "NODE_FAIL", "0:0")])),
    });
    let begin = Instant::now();
    let waited = jobs.wait(&ids(&["4711"]), None).await.unwrap();
    assert_eq!(waited.jobs[0].state, State::NodeFailed);
    assert!(begin.elapsed() >= Duration::from_secs(180));
}

#[tokio::test(start_paused = true)]
async fn completing_is_not_finished() {
    let begin = Instant::now();
    let jobs = Fake::jobs(move |program, call| match program {
        "squeue" => {
            let state = if begin.elapsed().as_secs() < 30 { "COMPLETING" } else { "COMPLETED" };
            Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", state)]))
        }
        _ => Ok(sacct(&call.argv, &[accounted("4711", "COMPLETED", "0:0")])),
    });
    assert!(jobs.wait(&ids(&["4711"]), None).await.unwrap().all_succeeded());
    assert!(begin.elapsed() >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn an_array_is_waited_for_to_its_last_task() {
    let begin = Instant::now();
    let jobs = Fake::jobs(move |program, call| match program {
        "squeue" if begin.elapsed().as_secs() < 40 => {
            Ok(squeue(&fence_of(&call.argv), &[Row::new("62_[2-3]", "PENDING")]))
        }
        "squeue" => Ok(squeue(&fence_of(&call.argv), &[])),
        "sacct" if begin.elapsed().as_secs() < 40 => {
            Ok(sacct(&call.argv, &[accounted("62_1", "FAILED", "2:0")]))
        }
        "sacct" => Ok(sacct(
            &call.argv,
            &[
                accounted("62_1", "FAILED", "2:0"),
                accounted("62_2", "COMPLETED", "0:0"),
                accounted("62_3", "COMPLETED", "0:0"),
            ],
        )),
        _ => Ok(failed(1, INVALID_ID)),
    });
    let waited = jobs.wait(&ids(&["62"]), None).await.unwrap();
    assert_eq!((waited.jobs[0].state, waited.jobs[0].exit_code), (State::Failed, Some(2)));
    assert_eq!(waited.jobs[0].parts.len(), 3);
    assert!(begin.elapsed() >= Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn case_097_a_thousand_jobs_cost_no_more_questions_than_one() {
    // Submitted long ago by the jobs' own time, so the lower ceiling holds.
    let jobs = Fake::jobs(|program, call| {
        assert_eq!(program, "squeue");
        let list = call.argv.iter().map(|word| text(word)).find(|word| word.starts_with("--jobs="));
        let list = list.unwrap();
        let rows: Vec<Row> = list["--jobs=".len()..]
            .split(',')
            .map(|id| Row { submitted: "1796000000".into(), ..Row::new(id, "RUNNING") })
            .collect();
        Ok(squeue(&fence_of(&call.argv), &rows))
    });
    let thousand: Vec<String> = (1..=1000).map(|id| id.to_string()).collect();
    let minutes = 10;
    let waited = jobs.wait(&thousand, Some(Duration::from_secs(60 * minutes))).await.unwrap();
    assert!(waited.interrupted && waited.jobs.len() == 1000);
    let asked = jobs.remote().programs().len() as u64;
    assert!(asked <= 4 * minutes + 1, "{asked} questions in {minutes} minutes");
    assert!(asked >= 2 * minutes, "{asked} questions are too few to be a wait");
}

#[tokio::test(start_paused = true)]
async fn case_097_a_young_job_is_asked_about_more_often_and_never_above_twelve_a_minute() {
    let jobs = Fake::jobs(|_, call| {
        let submitted = "1796048895".to_owned();
        Ok(squeue(&fence_of(&call.argv), &[Row { submitted, ..Row::new("4711", "RUNNING") }]))
    });
    jobs.wait(&ids(&["4711"]), Some(Duration::from_secs(60))).await.unwrap();
    let asked = jobs.remote().programs().len();
    assert!((8..=13).contains(&asked), "{asked} questions");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_line_ends_or_nobody_knows_the_job() {
    let jobs = Fake::jobs(|_, _| Err(line_lost(true)));
    assert!(matches!(jobs.wait(&ids(&["1"]), None).await, Err(Error::Remote { .. })));
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(failed(1, INVALID_ID)),
        _ => Ok(sacct(&call.argv, &[])),
    });
    assert!(matches!(jobs.wait(&ids(&["1"]), None).await, Err(Error::NotFound { .. })));
}
