//! Tables over recorded answers of Slurm 22.05.8.

use towline::jobs::{Action, Error, Fence, Job, Part, QueueState, Scheduler, Scope, State, Submitted};

use crate::support::{
    Row, fence_of, names_of, recorded, refenced_sacct, refenced_squeue, sacct, slurm, squeue,
};

fn fence() -> Fence {
    Fence::from_random(0x0123_4567_89ab_cdef)
}

/// Reads a recorded answer that was asked with towline's own question.
fn queue_of(name: &str) -> Vec<Job> {
    let recorded = recorded(name);
    let fence = fence_of(&recorded.argv);
    slurm().read_queue(&Scope::AllUsers, &fence, &recorded.answer).unwrap().jobs
}

fn history_of(name: &str, ids: &[&str]) -> Vec<Job> {
    let recorded = recorded(name);
    let fence = fence_of(&recorded.argv);
    let ids: Vec<_> = ids.iter().map(|id| slurm().parse_id(id).unwrap()).collect();
    slurm().read_history(&ids, &fence, &recorded.answer).unwrap().jobs
}

/// Reads a recorded sacct answer, asked with bars, about the ids in it.
fn accounting_of(name: &str) -> Vec<Job> {
    let recorded = recorded(name);
    let id = recorded.argv.iter().skip_while(|word| *word != "-j").nth(1).unwrap();
    let ids: Vec<_> = id.split(',').map(|id| slurm().parse_id(id).unwrap()).collect();
    let question = slurm().history(&ids, None, &fence()).unwrap();
    let (_, answer) = refenced_sacct(&recorded, &question.argv);
    slurm().read_history(&ids, &fence(), &answer).unwrap().jobs
}

fn odd(name: &str) -> bool {
    // Names with a bar or a line end can't be told in these older recordings; the fenced ones have them.
    ["pipe", "newline", "names", "fenced"].iter().any(|text| name.contains(text))
}

#[test]
fn every_recorded_squeue_answer_gives_as_many_records_as_lines_and_no_unknown_state() {
    let mut read = 0;
    for name in names_of("squeue").into_iter().filter(|name| !odd(name)) {
        let recorded = recorded(&name);
        let standard = recorded.argv.iter().any(|word| word.starts_with("%i|%F|%K|%T|%t"));
        if recorded.answer.rc != Some(0) || !standard {
            continue;
        }
        let (lines, answer) = refenced_squeue(&recorded, &fence());
        let rows = slurm().read_queue(&Scope::AllUsers, &fence(), &answer).unwrap();
        assert_eq!(rows.jobs.len(), lines, "{name}");
        for job in rows.jobs {
            assert_ne!(job.state, State::Unknown, "{name}: {}", job.state_raw);
            assert_eq!(job.warnings, [], "{name}");
            assert!(job.submitted_at.is_some(), "{name}");
            read += 1;
        }
    }
    assert!(read > 60, "only {read} records");
}

#[test]
fn every_recorded_sacct_answer_is_read_without_an_unknown_state() {
    let mut read = 0;
    for name in names_of("sacct").into_iter().filter(|name| !odd(name)) {
        let recorded = recorded(&name);
        let standard = recorded.argv.iter().any(|word| word.starts_with("JobID,JobIDRaw,JobName"));
        if recorded.answer.rc != Some(0) || !standard || !recorded.argv.contains(&"-j".to_owned()) {
            continue;
        }
        let jobs = accounting_of(&name);
        let lines = String::from_utf8_lossy(&recorded.answer.stdout).into_owned();
        let expected = lines.lines().filter(|line| !line.split('|').next().unwrap().contains('.'));
        assert_eq!(jobs.len(), expected.count(), "{name}");
        for job in jobs {
            let requeued = job.state_raw == "REQUEUED";
            assert!(requeued || job.state != State::Unknown, "{name}: {}", job.state_raw);
            read += 1;
        }
    }
    assert!(read > 80, "only {read} records");
}

#[test]
fn ends_are_read_as_they_were() {
    // Fixture, state, exit code, signal, the scheduler's own words: written by hand from the bytes.
    let table = [
        ("completed--sacct", State::Succeeded, Some(0), None, "COMPLETED 0:0"),
        ("failed-exit3--sacct", State::Failed, Some(3), None, "FAILED 3:0"),
        ("failed-exit127--sacct", State::Failed, Some(127), None, "FAILED 127:0"),
        ("failed-sig9--sacct", State::Failed, None, Some(9), "FAILED 0:9"),
        ("failed-segv--sacct", State::Failed, None, Some(11), "FAILED 0:11"),
        ("timeout--sacct", State::TimedOut, Some(0), None, "TIMEOUT 0:0"),
        ("timeout-trapped--sacct", State::TimedOut, Some(0), None, "TIMEOUT 0:0"),
        ("deadline--sacct", State::TimedOut, None, None, "DEADLINE 1:0"),
        ("cancelled-running--sacct", State::Cancelled, None, None, "CANCELLED by 1001 0:0"),
        ("cancelled-pending--sacct", State::Cancelled, None, None, "CANCELLED by 1001 0:0"),
        ("cancelled-by-root--sacct", State::Cancelled, None, None, "CANCELLED by 0 0:0"),
        ("nodefail-lost--sacct", State::NodeFailed, None, None, "NODE_FAIL 0:0"),
        ("bad-output-path--sacct", State::Failed, None, Some(53), "FAILED 0:53"),
        ("purged--sacct", State::Succeeded, Some(0), None, "COMPLETED 0:0"),
        ("signal-warned--sacct", State::Failed, Some(7), None, "FAILED 7:0"),
    ];
    for (name, state, exit_code, signal, words) in table {
        let jobs = accounting_of(name);
        let [job] = jobs.as_slice() else { panic!("{name}: {jobs:?}") };
        let said = format!("{} {}", job.state_raw, job.exit_raw.as_deref().unwrap_or("-"));
        assert_eq!((job.state, job.exit_code, job.signal), (state, exit_code, signal), "{name}");
        assert_eq!(said, words, "{name}");
    }
}

#[test]
fn an_exit_code_that_accounting_cut_is_said_to_be_doubtful() {
    let jobs = accounting_of("failed-exit137--sacct");
    assert_eq!(jobs[0].exit_code, Some(9));
    assert!(jobs[0].warnings[0].message.contains("may be 137"), "{:?}", jobs[0].warnings);
}

#[test]
fn case_001_odd_names_come_back_byte_for_byte() {
    let jobs = queue_of("fenced-names--squeue");
    let names: Vec<&[u8]> = jobs.iter().map(|job| job.name.as_deref().unwrap()).collect();
    let expected: [&[u8]; 15] = [
        b"a|b",
        b"two words",
        b"line1\nline2",
        "naïve-日本-🚀".as_bytes(),
        b"x JobState=COMPLETED ExitCode=0:0",
        b"say \"hi\"",
        b"%j-%A",
        b"tab\there",
        b" lead",
        b"(null)",
        b"-x",
        b"esc\x1b[31m",
        b"a\x1fb\x1ec",
        b"",
        b"z\n   UserId=root(0)\n   Command=x\n   StdOut=/etc/passwd",
    ];
    assert_eq!(jobs.len(), 15);
    for name in expected {
        assert!(names.contains(&name), "{:?}", String::from_utf8_lossy(name));
    }
    assert!(jobs.iter().all(|job| job.state == State::Held && job.submission_key.is_some()));
}

#[test]
fn case_001_names_in_accounting_shift_no_column() {
    let ids: Vec<String> = (22..=36).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let jobs = history_of("fenced-names-cancelled--sacct", &ids);
    assert_eq!(jobs.len(), 15);
    for job in &jobs {
        assert_eq!(job.state, State::Cancelled, "{job:?}");
        assert_eq!(job.work_dir.as_deref(), Some(&b"/home/alice"[..]));
    }
    let forged = jobs.iter().find(|job| job.id.number == 36).unwrap();
    assert!(forged.name.as_deref().unwrap().ends_with(b"StdOut=/etc/passwd"));
}

#[test]
fn a_name_that_imitates_scontrol_forges_nothing() {
    let mut job = queue_of("fenced-names--squeue").into_iter().find(|job| job.id.number == 36).unwrap();
    let answer = recorded("fenced-name-forged--scontrol").answer;
    slurm().read_detail(&mut job, &answer).unwrap();
    assert_eq!(job.stdout.as_deref(), Some(&b"/home/alice/slurm-36.out"[..]));
    assert_eq!(job.user.as_deref(), Some("alice"));
}

#[test]
fn scontrol_adds_files_memory_gpus_and_restarts() {
    let mut job = queue_of("fenced-running--squeue").remove(0);
    slurm().read_detail(&mut job, &recorded("fenced-running--scontrol").answer).unwrap();
    assert_eq!(job.mem_bytes, Some(500 << 20));
    assert_eq!((job.gpus, job.cpus, job.restarts), (Some(1), Some(2), Some(0)));
    assert_eq!(job.stdout.as_deref(), Some(&b"/home/alice/slurm-37.out"[..]));
    // An answer about another job adds nothing.
    let before = job.clone();
    slurm().read_detail(&mut job, &recorded("fenced-badout--scontrol").answer).unwrap();
    assert_eq!(job, before);
}

#[test]
fn case_017_tasks_and_ranges_are_parts_of_one_array() {
    let jobs = queue_of("fenced-array-partly--squeue");
    let parts: Vec<&Part> = jobs.iter().map(|job| &job.id.part).collect();
    assert!(parts.contains(&&Part::Tasks("3-10%2".into())), "{parts:?}");
    let task = jobs.iter().find(|job| job.id.part == Part::Task(2)).unwrap();
    assert_eq!((task.id.number, task.raw_number), (43, Some(45)));
    for id in ["43", "43_2", "45"] {
        assert!(slurm().parse_id(id).unwrap().covers(&task.id, task.raw_number), "{id}");
    }
}

#[test]
fn case_007_a_step_killed_for_memory_is_a_warning_on_a_completed_job() {
    let ids = [slurm().parse_id("4711").unwrap()];
    let question = slurm().history(&ids, None, &fence()).unwrap();
    let row = |id: &'static str, state: &'static str, exit: &'static str| {
        crate::support::accounted(id, state, exit)
    };
    let rows = [
        row("4711", "COMPLETED", "0:0"),
        row("4711.batch", "COMPLETED", "0:0"),
        row("4711.0", "OUT_OF_MEMORY", "0:125"),
    ];
    let answer = sacct(&question.argv, &rows);
    let job = slurm().read_history(&ids, &fence(), &answer).unwrap().jobs.remove(0);
    assert_eq!(job.state, State::Succeeded);
    assert_eq!(job.warnings[0].code, "oom_in_step");
    assert!(job.warnings[0].message.contains("4711.0"));
    let answer = sacct(&question.argv, &[row("4711", "OUT_OF_MEMORY", "0:125")]);
    let job = slurm().read_history(&ids, &fence(), &answer).unwrap().jobs.remove(0);
    assert_eq!((job.state, job.exit_code, job.signal), (State::OutOfMemory, Some(0), None));
    assert_eq!(job.exit_raw.as_deref(), Some("0:125"));
}

#[test]
fn case_013_the_newest_run_of_a_requeued_job_counts() {
    let table = [
        ("nodefail-restarted--sacct-D", State::Running, 1),
        ("requeued--sacct-D", State::Pending, 1),
        ("nodefail-lost-requeued--sacct-D", State::Pending, 1),
    ];
    for (name, state, restarts) in table {
        let jobs = accounting_of(name);
        assert_eq!(jobs.len(), 1, "{name}");
        assert_eq!((jobs[0].state, jobs[0].restarts), (state, Some(restarts)), "{name}");
    }
}

#[test]
fn case_015_an_unknown_state_degrades_its_own_row_only() {
    let rows = [Row::new("1", "RUNNING"), Row::new("2", "TELEPORTING"), Row::new("3", "RD")];
    let answer = squeue(&fence(), &rows);
    let jobs = slurm().read_queue(&Scope::Mine, &fence(), &answer).unwrap().jobs;
    let states: Vec<State> = jobs.iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Running, State::Unknown, State::Held]);
    assert_eq!(jobs[1].state_raw, "TELEPORTING");
    assert_eq!(jobs[1].warnings.len(), 1);
}

#[test]
fn case_019_what_was_not_asked_for_is_not_passed_on() {
    let scope = Scope::Ids(vec![slurm().parse_id("2").unwrap()]);
    let rows = [Row::new("1", "RUNNING"), Row::new("2", "RUNNING")];
    let jobs = slurm().read_queue(&scope, &fence(), &squeue(&fence(), &rows)).unwrap().jobs;
    assert_eq!(jobs.len(), 1);
    let question = slurm().queue(&scope, &fence());
    assert!(question.argv.iter().all(|word| word != b"--json"));
    let mut cut = squeue(&fence(), &rows);
    cut.stdout_dropped = 1;
    let error = slurm().read_queue(&scope, &fence(), &cut).unwrap_err();
    assert!(matches!(error, Error::TooLarge { rows: 1, .. }), "{error}");
}

#[test]
fn case_021_the_accounting_window_always_has_a_start() {
    let ids = [slurm().parse_id("4711").unwrap()];
    let flag = |since: Option<&str>| {
        let since = since.map(|time| time.parse().unwrap());
        let question = slurm().history(&ids, since, &fence()).unwrap();
        assert!(question.env.contains(&(b"TZ".to_vec(), b"UTC0".to_vec())));
        let words = question.argv.into_iter().map(|word| String::from_utf8(word).unwrap());
        words.into_iter().find(|word| word.starts_with("--starttime=")).unwrap()
    };
    assert_eq!(flag(None), "--starttime=1970-01-02T00:00:00");
    assert_eq!(flag(Some("2026-03-29T00:59:40Z")), "--starttime=2026-03-28T00:59:40");
    assert_eq!(flag(Some("2026-10-25T23:59:40Z")), "--starttime=2026-10-24T23:59:40");
}

#[test]
fn a_failing_question_is_unreachable_and_only_invalid_id_is_absent() {
    let ids = Scope::Ids(vec![slurm().parse_id("4711").unwrap()]);
    for name in [
        "controller-down--squeue",
        "controller-down--squeue-j",
        "controller-hangs--squeue",
        "munge-down--squeue",
        "no-config--squeue",
    ] {
        let error = slurm().read_queue(&ids, &fence(), &recorded(name).answer).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }) && error.retry_safe(), "{name}: {error:?}");
    }
    for name in ["unknown-id--squeue", "purged--squeue", "unknown-id--squeue-two"] {
        let rows = slurm().read_queue(&ids, &fence(), &recorded(name).answer).unwrap();
        assert_eq!(rows.jobs, [], "{name}");
    }
    for name in ["dbd-down--sacct", "database-down--sacct", "munge-down--sacct"] {
        let ids = [slurm().parse_id("4711").unwrap()];
        let error = slurm().read_history(&ids, &fence(), &recorded(name).answer).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{name}: {error:?}");
    }
    let complaint = recorded("unknown-user--squeue").answer;
    assert!(slurm().read_queue(&Scope::Mine, &fence(), &complaint).is_err());
}

#[test]
fn every_recorded_sbatch_answer_is_a_job_a_refusal_or_a_doubt() {
    let mut counts = [0, 0, 0];
    for name in names_of("sbatch").into_iter().filter(|name| !name.starts_with("version")) {
        let recorded = recorded(&name);
        let class = match slurm().read_submit(&recorded.answer) {
            Submitted::Job(_) => 0,
            Submitted::Refused { .. } => 1,
            Submitted::Doubt { .. } => 2,
        };
        let made = !recorded.answer.stdout.is_empty();
        let doubtful = ["controller-down", "controller-hangs", "sbatch-timed-out"];
        let expected = if made {
            0
        } else if doubtful.iter().any(|text| name.starts_with(text)) {
            2
        } else {
            1
        };
        assert_eq!(class, expected, "{name}: {}", String::from_utf8_lossy(&recorded.answer.stderr));
        counts[class] += 1;
    }
    assert!(counts[0] > 30 && counts[1] > 30 && counts[2] >= 3, "{counts:?}");
}

#[test]
fn a_refusal_of_an_action_is_told_from_one_that_may_have_been_done() {
    let ids = [slurm().parse_id("32").unwrap()];
    let act = |action, name: &str| slurm().read_act(action, &ids, &recorded(name).answer);
    assert!(matches!(act(Action::Cancel, "cancel-other-user--scancel"), Err(Error::Permission { .. })));
    assert!(matches!(act(Action::Release, "release-adminheld--denied"), Err(Error::Permission { .. })));
    assert!(matches!(act(Action::Cancel, "controller-hangs--scancel"), Err(Error::OutcomeUnknown { .. })));
    assert!(act(Action::Hold, "array-hold--scontrol").is_ok());
    assert!(act(Action::Hold, "fenced-array-hold--scontrol").is_ok());
    assert!(act(Action::Cancel, "cancel-finished--scancel").is_ok());
    assert!(matches!(act(Action::Hold, "update--unknown"), Err(Error::Refused { .. })));
}

#[test]
fn queues_are_read_from_the_partitions() {
    let queues = slurm().read_queues(&recorded("config--partition").answer).unwrap();
    let told: Vec<_> =
        queues.iter().map(|q| (q.name.as_str(), q.state, q.default, q.max_time_s, q.nodes, q.cpus)).collect();
    assert_eq!(
        told,
        [
            ("debug", QueueState::Up, true, Some(600), Some(2), Some(8)),
            ("batch", QueueState::Up, false, Some(86_400), Some(4), Some(16)),
        ]
    );
}

#[test]
fn what_towlines_own_questions_were_answered_is_read_whole() {
    let ended = history_of("fenced-ended--sacct", &["38", "39", "40", "41", "42"]);
    let told: Vec<_> =
        ended.iter().map(|job| (job.id.number, job.state, job.exit_code, job.signal)).collect();
    assert_eq!(
        told,
        [
            (38, State::Succeeded, Some(0), None),
            (39, State::Failed, None, Some(53)),
            (40, State::Failed, None, Some(9)),
            (41, State::Failed, Some(3), None),
            (42, State::Succeeded, Some(0), None),
        ]
    );
    assert_eq!(ended[4].warnings[0].code, "step_failed");
    let job = &ended[3];
    assert_eq!(job.submitted_at.unwrap().to_string(), "2026-11-30T16:35:56Z");
    assert_eq!((job.time_limit_s, job.cpus, job.mem_bytes), (Some(300), Some(1), Some(100 << 20)));
    assert_eq!((job.user.as_deref(), job.queue.as_deref()), (Some("alice"), Some("debug")));
    assert!(job.submission_key.is_some() && job.id.cluster.as_deref() == Some("towline"));

    let limit = history_of("fenced-timeout--sacct", &["46"]).remove(0);
    assert_eq!((limit.state, limit.exit_code, limit.time_limit_s), (State::TimedOut, Some(0), Some(60)));

    let tasks = history_of("fenced-array-done--sacct", &["51"]);
    assert_eq!(tasks.len(), 6);
    let second = tasks.iter().find(|job| job.id.part == Part::Task(2)).unwrap();
    assert_eq!((second.state, second.exit_code), (State::Failed, Some(4)));

    let het = queue_of("fenced-het--squeue");
    let told: Vec<_> = het.iter().map(|job| (job.id.text.as_str(), job.raw_number)).collect();
    assert_eq!(told, [("47+0", Some(47)), ("47+1", Some(48))]);

    let mut again = queue_of("fenced-requeued--squeue").remove(0);
    slurm().read_detail(&mut again, &recorded("fenced-requeued--scontrol").answer).unwrap();
    assert_eq!((again.state, again.restarts), (State::Pending, Some(1)));
    assert_eq!((again.started_at, again.reason.as_deref()), (None, Some("BeginTime")));
}

#[test]
fn a_job_in_memory_of_the_controller_that_never_ran_has_no_start() {
    let cancelled = queue_of("fenced-names-cancelled--squeue");
    assert_eq!(cancelled.len(), 15);
    for job in cancelled {
        assert_eq!((job.state, job.started_at), (State::Cancelled, None), "{job:?}");
        assert!(job.ended_at.is_some());
    }
}
