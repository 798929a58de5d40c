//! Submitting, listing, showing, cancelling: each promise against a scripted far end.

use std::sync::atomic::{AtomicUsize, Ordering};

use towline::jobs::{
    Action, Answer, Error, Job, Jobs, Limits, Presence, ResolvedBy, Scope, Script, State, SubmissionKey,
    SubmitOptions,
};

use crate::support::{
    Fake, INVALID_ID, Row, TIMED_OUT, accounted, failed, fence_of, line_lost, ok, recorded, sacct, squeue,
    text,
};

fn script(bytes: &[u8]) -> Script {
    Script::Bytes { bytes: bytes.to_vec(), name: Some(b"job.sh".to_vec()) }
}

fn good() -> Script {
    script(b"#!/bin/sh\nhostname\n")
}

fn ids(list: &[&str]) -> Vec<String> {
    list.iter().map(|id| (*id).to_owned()).collect()
}

fn argv_of(jobs: &Jobs<Fake>, at: usize) -> Vec<String> {
    jobs.remote().calls.lock().unwrap()[at].argv.iter().map(|word| text(word)).collect()
}

#[tokio::test]
async fn what_slurm_would_refuse_is_refused_before_anything_is_sent() {
    let jobs = Fake::jobs(|_, _| panic!("something was sent"));
    let bad: [&[u8]; 5] = [b"", b"echo hi\n", b"#!/bin/sh\r\n", b"#!/bin/sh\n\0\n", b"\n#!/bin/sh\n"];
    for bytes in bad {
        let error = jobs.submit(&script(bytes), &SubmitOptions::default()).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput { what: "script", .. }), "{error:?}");
    }
    for native in ["--comment=x", "--comm=x", "debug", "--wrap=true", "-W"] {
        let options = SubmitOptions { native: vec![native.into()], ..Default::default() };
        let error = jobs.submit(&good(), &options).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput { what: "native", .. }), "{native}: {error:?}");
    }
    for id in ["--me", "-1", "x", "4711.batch"] {
        assert!(matches!(jobs.show(&ids(&[id])).await, Err(Error::InvalidInput { .. })), "{id}");
        let cancel = jobs.act(Action::Cancel, &ids(&[id])).await;
        assert!(matches!(cancel, Err(Error::InvalidInput { .. })), "{id}");
    }
}

#[tokio::test]
async fn every_option_is_one_argument_and_the_script_is_sent_unchanged() {
    let jobs = Fake::jobs(|_, _| Ok(ok(b"4711\n".to_vec())));
    let options = SubmitOptions {
        name: Some(b"a|b; rm -rf $HOME\n`x`".to_vec()),
        queue: Some("debug".into()),
        account: Some("proj1".into()),
        time: Some(std::time::Duration::from_secs(5400)),
        nodes: Some(2),
        tasks: Some(4),
        cpus: Some(8),
        mem_bytes: Some(16 << 30),
        gpus: Some(towline::jobs::Gpus::parse("a100:2").unwrap()),
        array: Some("1-10:2%3".into()),
        after_ok: vec!["1".into(), "2_3".into()],
        after_any: vec!["4".into()],
        hold: true,
        chdir: Some(b"~/run dir".to_vec()),
        output: Some(b"~/%x-%j.out".to_vec()),
        error: Some(b"err'or".to_vec()),
        env: vec![("FOO".into(), b"a,b \"c\"".to_vec())],
        qos: Some("high".into()),
        reservation: Some("course".into()),
        mail: Some(towline::jobs::Mail::parse("end,fail=me@example.org").unwrap()),
        native: vec![b"--constraint=fast".to_vec()],
        args: vec![b"x y".to_vec(), b"--help".to_vec()],
        key: None,
    };
    let made = jobs.submit(&good(), &options).await.unwrap();
    let argv = argv_of(&jobs, 0);
    let key = made.key.to_string();
    let comment = format!("--comment=towline:{key}");
    let expected = [
        "sbatch",
        "--constraint=fast",
        "--parsable",
        "--partition=debug",
        "--account=proj1",
        "--time=0-01:30:00",
        "--nodes=2",
        "--ntasks=4",
        "--cpus-per-task=8",
        "--mem=16384M",
        "--gpus=a100:2",
        "--array=1-10:2%3",
        "--dependency=afterok:1:2_3,afterany:4",
        "--qos=high",
        "--reservation=course",
        "--mail-type=END,FAIL",
        "--mail-user=me@example.org",
        "--output=/home/alice/%x-%j.out",
        "--error=err'or",
        "--chdir=/home/alice/run dir",
        "--export=FOO,SLURM_EXPORT_ENV",
        "--job-name=a|b; rm -rf $HOME\n`x`",
        "--hold",
        &comment,
        "/dev/stdin",
        "x y",
        "--help",
    ];
    assert_eq!(argv, expected);
    let call = jobs.remote().calls.lock().unwrap()[0].clone();
    assert_eq!(call.stdin, b"#!/bin/sh\nhostname\n");
    assert!(call.env.contains(&(b"FOO".to_vec(), b"a,b \"c\"".to_vec())));
    assert_eq!(made.array_id.as_deref(), Some("4711"));
    assert_eq!((made.resolved_by, made.job.state), (ResolvedBy::Answer, State::Held));
    assert!(made.warnings.iter().any(|w| w.contains("run in /tmp")), "{:?}", made.warnings);
}

#[tokio::test]
async fn directives_are_kept_and_a_contradiction_is_shown() {
    let jobs = Fake::jobs(|_, _| panic!("a dry run sends nothing"));
    let text = b"#!/bin/sh\n#SBATCH -J own --comment='my words'\n#SBATCH --time=10 -p batch\n";
    let options = SubmitOptions {
        queue: Some("debug".into()),
        key: Some(SubmissionKey::parse("k1").unwrap()),
        ..Default::default()
    };
    let dry = jobs.dry_run(&script(text), &options).await.unwrap();
    let argv: Vec<String> = dry.argv.iter().map(|word| String::from_utf8(word.clone()).unwrap()).collect();
    assert!(argv.contains(&"--comment=my words towline:k1".to_owned()), "{argv:?}");
    assert!(!argv.iter().any(|word| word.starts_with("--job-name") || word.starts_with("--time")));
    assert_eq!(dry.script, text);
    assert_eq!(dry.warnings, ["line 3 of the script asks for --partition=batch; --partition=debug is used"]);
}

#[tokio::test]
async fn case_023_a_timed_out_sbatch_is_looked_for_by_its_key_and_never_repeated() {
    tokio::time::pause();
    let seen = AtomicUsize::new(0);
    let mut comment = Vec::new();
    let jobs = Fake::jobs(move |program, call| match program {
        "sbatch" => {
            comment = call.argv.iter().find_map(|w| w.strip_prefix(b"--comment=")).unwrap().to_vec();
            Ok(recorded("sbatch-timed-out--sbatch").answer)
        }
        _ if seen.fetch_add(1, Ordering::Relaxed) == 0 => Ok(failed(1, TIMED_OUT)),
        _ => {
            let mine = Row { comment: comment.clone(), ..Row::new("4711", "PENDING") };
            let other = Row { comment: b"towline:other".to_vec(), ..Row::new("4710", "PENDING") };
            Ok(squeue(&fence_of(&call.argv), &[other, mine]))
        }
    });
    let made = jobs.submit(&good(), &SubmitOptions::default()).await.unwrap();
    assert_eq!((made.resolved_by, made.job.id.number), (ResolvedBy::Search, 4711));
    assert_eq!(jobs.remote().count("sbatch"), 1);
}

#[tokio::test]
async fn case_023_a_doubt_that_no_look_settles_is_outcome_unknown_with_the_key() {
    tokio::time::pause();
    let answers: [fn() -> Result<Answer, _>; 4] = [
        || Ok(recorded("controller-down--sbatch").answer),
        || Ok(Answer { timed_out: true, ..Answer::default() }),
        || Ok(Answer { rc: None, ..Answer::default() }),
        || Err(line_lost(true)),
    ];
    for answer in answers {
        let jobs = Fake::jobs(move |program, call| match program {
            "sbatch" => answer(),
            _ => Ok(squeue(&fence_of(&call.argv), &[])),
        });
        let key = SubmissionKey::parse("k-1").unwrap();
        // No key of ours in the options: a given key would be looked for first.
        let error = jobs.submit(&good(), &SubmitOptions::default()).await.unwrap_err();
        assert!(matches!(&error, Error::OutcomeUnknown { key: Some(_), .. }), "{error:?}");
        assert!(!error.retry_safe());
        assert_eq!(jobs.remote().count("sbatch"), 1, "{key}");
    }
}

#[tokio::test]
async fn a_clear_refusal_is_told_in_the_schedulers_words() {
    let jobs = Fake::jobs(|_, _| Ok(recorded("error-invalid-partition--sbatch").answer));
    match jobs.submit(&good(), &SubmitOptions::default()).await.unwrap_err() {
        Error::Refused { words, meaning, .. } => {
            assert!(words.contains("invalid partition specified: nosuch"), "{words}");
            assert!(meaning.unwrap().contains("no such queue"));
        }
        other => panic!("{other:?}"),
    }
    let jobs = Fake::jobs(|_, _| Err(line_lost(false)));
    let error = jobs.submit(&good(), &SubmitOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Remote { .. }) && error.retry_safe(), "{error:?}");
}

#[tokio::test]
async fn a_key_that_a_job_carries_already_is_not_submitted_again() {
    let jobs = Fake::jobs(|program, call| {
        assert_eq!(program, "squeue");
        let row = Row { comment: b"own towline:k1".to_vec(), ..Row::new("7", "RUNNING") };
        Ok(squeue(&fence_of(&call.argv), &[row]))
    });
    let options = SubmitOptions {
        key: Some(SubmissionKey::parse("k1").unwrap()),
        name: Some(b"another".to_vec()),
        ..Default::default()
    };
    let made = jobs.submit(&good(), &options).await.unwrap();
    assert_eq!((made.job.id.number, made.resolved_by), (7, ResolvedBy::Search));
    assert_eq!(made.job.name.as_deref(), Some(&b"job"[..]), "it keeps the name that it was submitted with");
}

#[tokio::test]
async fn case_025_variables_of_a_surrounding_job_do_not_leak() {
    let session = b"HOME=/home/alice\0SLURM_JOB_ID=9\0SLURM_CPU_BIND=quiet\0SBATCH_PARTITION=x\0PMIX_RANK=0\0PMI_FD=3\0SLURM_CONF=/etc/s.conf\0SQUEUE_STATES=CD\0SLURM_EXPORT_ENV=NONE\0PATH=/bin\0";
    let fake = Fake::new(|program, call| match program {
        "env" => Ok(ok(session.to_vec())),
        _ if call.argv.contains(&b"--version".to_vec()) => Ok(ok(b"slurm-wlm 22.05.8\n".to_vec())),
        _ => Ok(ok(b"1\n".to_vec())),
    });
    let jobs = Jobs::detect(fake, None, Limits::default()).await.unwrap();
    assert_eq!(jobs.version(), "22.05.8");
    jobs.submit(&good(), &SubmitOptions::default()).await.unwrap();
    let argv = argv_of(&jobs, 2);
    let at = argv.iter().position(|word| word == "sbatch").unwrap();
    let taken: Vec<&str> = argv[..at].iter().map(String::as_str).filter(|w| *w != "-u").collect();
    assert_eq!(
        taken,
        ["env", "SLURM_JOB_ID", "SLURM_CPU_BIND", "SBATCH_PARTITION", "PMIX_RANK", "PMI_FD", "SQUEUE_STATES"]
    );
    // What steps of the job get is set on purpose, so it is not taken out again.
    let call = jobs.remote().calls.lock().unwrap()[2].clone();
    assert_eq!(call.env, [(b"SLURM_EXPORT_ENV".to_vec(), b"ALL".to_vec())]);
}

#[tokio::test]
async fn a_host_without_slurm_is_told() {
    for answer in [failed(127, "sh: 1: sbatch: not found\n"), failed(1, "env: 'sbatch': No such file\n")] {
        let fake = Fake::new(move |_, _| Ok(answer.clone()));
        let error = Jobs::detect(fake, None, Limits::default()).await.unwrap_err();
        assert!(matches!(error, Error::NoScheduler { .. } | Error::Refused { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn case_011_failing_squeue_is_not_finished() {
    let jobs = Fake::jobs(|program, _| match program {
        "squeue" => Ok(failed(1, TIMED_OUT)),
        other => panic!("{other} was asked although the queue could not be"),
    });
    let told = jobs.look(&[jobs.parse_id("4711").unwrap()]).await.unwrap();
    assert!(matches!(&told[0], Presence::CouldNotAsk(words) if words.contains("timed out")));
    let error = jobs.show(&ids(&["4711"])).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.retry_safe());
    let error = jobs.list(&Scope::Mine).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "an empty list instead: {error:?}");
}

#[tokio::test]
async fn an_id_that_nobody_knows_is_not_found_and_all_such_ids_are_named() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(squeue(&fence_of(&call.argv), &[Row::new("1", "RUNNING")])),
        "sacct" => Ok(sacct(&call.argv, &[])),
        _ => Ok(failed(1, INVALID_ID)),
    });
    match jobs.show(&ids(&["8", "1", "9"])).await.unwrap_err() {
        Error::NotFound { ids } => assert_eq!(ids, ["8", "9"]),
        other => panic!("{other:?}"),
    }
    // Nothing is cancelled when one of the ids is unknown.
    assert!(matches!(jobs.act(Action::Cancel, &ids(&["1", "9"])).await, Err(Error::NotFound { .. })));
    assert_eq!(jobs.remote().count("scancel"), 0);
}

#[tokio::test]
async fn an_ended_job_that_the_queue_forgot_is_read_from_accounting() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" | "scontrol" => Ok(failed(1, INVALID_ID)),
        _ => Ok(sacct(&call.argv, &[accounted("4711", "CANCELLED by 1234", "0:0")])),
    });
    let shown = jobs.show(&ids(&["4711"])).await.unwrap();
    assert_eq!((shown[0].state, shown[0].cancelled_by), (State::Cancelled, Some(1234)));
    assert_eq!(shown[0].state_raw, "CANCELLED by 1234");
}

#[tokio::test]
async fn with_accounting_down_the_queue_still_counts_but_an_absence_proves_nothing() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(squeue(&fence_of(&call.argv), &[Row::new("1", "COMPLETED")])),
        _ => Ok(recorded("dbd-down--sacct").answer),
    });
    let both = [jobs.parse_id("1").unwrap(), jobs.parse_id("2").unwrap()];
    let told = jobs.look(&both).await.unwrap();
    assert!(matches!(&told[0], Presence::Present(Job { state: State::Succeeded, .. })), "{told:?}");
    assert!(matches!(&told[1], Presence::CouldNotAsk(_)), "{told:?}");
}

#[tokio::test]
async fn case_003_the_cluster_is_handed_to_each_later_question() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(squeue(&fence_of(&call.argv), &[Row::new("7", "RUNNING")])),
        _ => Ok(failed(1, INVALID_ID)),
    });
    jobs.show(&ids(&["7;nautilus"])).await.unwrap();
    for at in 0..2 {
        let argv = argv_of(&jobs, at);
        assert!(argv.contains(&"--clusters=nautilus".to_owned()), "{argv:?}");
    }
    let told =
        jobs.look(&[jobs.parse_id("7;nautilus").unwrap(), jobs.parse_id("7;triton").unwrap()]).await.unwrap();
    let clusters: Vec<Option<String>> = told
        .into_iter()
        .map(|told| match told {
            Presence::Present(job) => job.id.cluster,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(clusters, [Some("nautilus".into()), Some("triton".into())]);
}

#[tokio::test]
async fn a_cancel_is_confirmed_by_looking() {
    tokio::time::pause();
    let mut cancelled = false;
    let jobs = Fake::jobs(move |program, call| match program {
        "scancel" => {
            cancelled = true;
            assert_eq!(call.argv.last().unwrap(), b"4711");
            Ok(ok(Vec::new()))
        }
        "squeue" => {
            let state = if cancelled { "COMPLETING" } else { "RUNNING" };
            Ok(squeue(&fence_of(&call.argv), &[Row::new("4711", state)]))
        }
        _ => Ok(sacct(&call.argv, &[])),
    });
    let after = jobs.act(Action::Cancel, &ids(&["4711"])).await.unwrap();
    assert_eq!(after[0].state, State::Completing);
    // What is ending already is left alone.
    jobs.act(Action::Cancel, &ids(&["4711"])).await.unwrap();
    assert_eq!(jobs.remote().count("scancel"), 1);
}

#[tokio::test]
async fn a_cancel_that_got_no_answer_is_unknown_unless_the_look_shows_it() {
    tokio::time::pause();
    for effect in [false, true] {
        let mut asked = false;
        let jobs = Fake::jobs(move |program, call| match program {
            "scancel" => {
                asked = true;
                Ok(recorded("controller-hangs--scancel").answer)
            }
            "squeue" => {
                let state = if asked && effect { "CANCELLED" } else { "RUNNING" };
                Ok(squeue(&fence_of(&call.argv), &[Row::new("124", state)]))
            }
            _ => Ok(sacct(&call.argv, &[])),
        });
        let outcome = jobs.act(Action::Cancel, &ids(&["124"])).await;
        match outcome {
            Ok(after) => assert!(effect && after[0].state == State::Cancelled),
            Err(error) => assert!(!effect && matches!(error, Error::OutcomeUnknown { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn het_components_and_steps_are_parts_of_a_job() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => Ok(squeue(
            &fence_of(&call.argv),
            &[
                Row { nodes: "n1".into(), ..Row::new("72+0", "RUNNING") },
                Row { nodes: "n2".into(), raw: "73".into(), ..Row::new("72+1", "PENDING") },
                Row::new("80", "RUNNING"),
            ],
        )),
        "sacct" => Ok(sacct(&call.argv, &[])),
        _ => Ok(failed(1, INVALID_ID)),
    });
    let listed = jobs.list(&Scope::Mine).await.unwrap();
    let told: Vec<(&str, usize)> = listed.iter().map(|job| (job.id.text.as_str(), job.parts.len())).collect();
    assert_eq!(told, [("72", 2), ("80", 0)]);
    assert_eq!((listed[0].state, listed[0].cpus), (State::Running, Some(4)));
    let shown = jobs.show(&ids(&["73", "72+1", "72"])).await.unwrap();
    let told: Vec<&str> = shown.iter().map(|job| job.id.text.as_str()).collect();
    assert_eq!(told, ["72+1", "72+1", "72"]);
}

#[test]
fn a_job_serializes_to_the_pinned_fields() {
    let id = towline::jobs::JobId {
        text: "4711_3".into(),
        number: 4711,
        cluster: None,
        part: towline::jobs::Part::Task(3),
    };
    let mut job = Job::bare(id, State::TimedOut, "TIMEOUT");
    job.name = Some(b"caf\xe9".to_vec());
    let value = serde_json::to_value(&job).unwrap();
    let pinned = "id cluster name user queue account state state_raw reason exit_code signal submitted_at started_at ended_at elapsed_s time_limit_s nodes node_count cpus mem_bytes max_rss_bytes gpus work_dir stdout stderr array submission_key restarts warnings";
    for field in pinned.split(' ') {
        assert!(value.get(field).is_some(), "{field}");
    }
    assert_eq!(value["id"], "4711_3");
    assert_eq!(value["state"], "timed_out");
    assert_eq!((value["name"].as_str(), value["name_b64"].as_str()), (Some("caf\\xE9"), Some("Y2Fm6Q==")));
}

#[test]
fn every_operation_can_be_sent_to_another_thread() {
    fn sent<T: Send>(_: T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _guard = runtime.enter();
    let jobs = Fake::jobs(|_, _| panic!("nothing is awaited"));
    let (one, options) = (ids(&["1"]), SubmitOptions::default());
    let script = good();
    sent(jobs.submit(&script, &options));
    sent(jobs.list(&Scope::Mine));
    sent(jobs.show(&one));
    sent(jobs.wait(&one, None));
    sent(jobs.act(Action::Cancel, &one));
    sent(jobs.queues());
    sent(jobs.logs("1", &towline::jobs::LogOptions::default()));
    sent(jobs.follow("1", &towline::jobs::LogOptions::default()));
}
