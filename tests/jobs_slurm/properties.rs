//! What holds for every text that a user can choose.

use proptest::collection::vec;
use proptest::prelude::*;
use towline::jobs::{
    Answer, Fence, Job, JobId, Part, Request, Scheduler, Scope, State, SubmissionKey, SubmitOptions,
};

use crate::support::{Row, accounted, sacct, slurm, squeue};

/// Any bytes but NUL, with the odd ones made often.
fn user_text() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop_oneof![
        Just(b"|".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\x1f".to_vec()),
        Just(b"\x1e".to_vec()),
        Just(b"\x1e0123456789abcdee\x1f".to_vec()),
        Just(b"\n1\x1fRUNNING".to_vec()),
        Just(b"(null)".to_vec()),
        Just(b"\xff".to_vec()),
        Just(b"%j".to_vec()),
        vec(1_u8..=255, 0..8),
    ];
    vec(odd, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_queue_gives_as_many_records_as_it_holds(
        rows in vec((user_text(), user_text(), user_text(), "[A-Z_ +]{0,12}"), 0..40),
        bits in any::<u64>(),
    ) {
        let fence = Fence::from_random(bits);
        let given: Vec<Row> = rows
            .iter()
            .zip(1..)
            .map(|((name, work_dir, comment, state), id)| Row {
                name: name.clone(),
                work_dir: work_dir.clone(),
                comment: comment.clone(),
                ..Row::new(&format!("{id}"), state)
            })
            .collect();
        let read = slurm().read_queue(&Scope::Mine, &fence, &squeue(&fence, &given)).unwrap().jobs;
        prop_assert_eq!(read.len(), given.len());
        for (job, row) in read.iter().zip(&given) {
            prop_assert_eq!(job.name.as_deref(), Some(row.name.as_slice()));
            prop_assert_eq!(&job.id.text, &row.id);
        }
    }

    #[test]
    fn accounting_gives_as_many_records_as_it_holds(
        rows in vec(("[^\0]{0,12}", "[A-Z_ +]{0,12}", "[0-9:]{0,6}"), 0..40),
        bits in any::<u64>(),
    ) {
        let fence = Fence::from_random(bits);
        let ids: Vec<JobId> = (1..=40)
            .map(|n: u64| JobId { text: n.to_string(), number: n, cluster: None, part: Part::Whole })
            .collect();
        let question = slurm().history(&ids, None, &fence).unwrap();
        let given: Vec<_> = rows
            .iter()
            .zip(1..)
            .map(|((name, state, exit), id)| {
                let mut row = accounted(&id.to_string(), state, exit);
                row.iter_mut().find(|(column, _)| *column == "JobName").unwrap().1 = name.clone();
                row
            })
            .collect();
        let answer = sacct(&question.argv, &given);
        let read = slurm().read_history(&ids, &fence, &answer).unwrap().jobs;
        prop_assert_eq!(read.len(), given.len());
        for (job, (name, _, _)) in read.iter().zip(&rows) {
            prop_assert_eq!(job.name.as_deref(), Some(name.as_bytes()));
        }
    }

    #[test]
    fn no_answer_makes_a_reader_panic(stdout in vec(any::<u8>(), 0..300), stderr in vec(any::<u8>(), 0..80), rc in proptest::option::of(-1..256)) {
        let answer = Answer { rc, stdout, stderr, ..Answer::default() };
        let fence = Fence::from_random(1);
        let id = JobId { text: "1".into(), number: 1, cluster: None, part: Part::Whole };
        let mut job = Job::bare(id.clone(), State::Failed, "FAILED");
        // Whatever it is, it is an answer or an error.
        drop(slurm().read_submit(&answer));
        drop(slurm().read_queue(&Scope::AllUsers, &fence, &answer));
        drop(slurm().read_history(&[id], &fence, &answer));
        drop(slurm().read_queues(&answer));
        drop(slurm().read_detail(&mut job, &answer));
    }

    #[test]
    fn a_name_is_one_argument_whatever_it_holds(name in user_text(), value in user_text()) {
        let options = SubmitOptions {
            name: Some(name.clone()),
            env: vec![("V".into(), value.clone())],
            ..Default::default()
        };
        let key = SubmissionKey::from_random([7; 16]);
        let request = Request {
            script: b"#!/bin/sh\n",
            script_name: None,
            options: &options,
            key: &key,
            home: b"/home/alice",
        };
        let question = slurm().submit(&request).unwrap().question;
        let flag = [b"--job-name=".as_slice(), &name].concat();
        prop_assert_eq!(question.argv.iter().filter(|word| **word == flag).count(), 1);
        prop_assert_eq!(question.argv.len(), 5);
        prop_assert!(question.env.contains(&(b"V".to_vec(), value)));
    }

    #[test]
    fn an_id_is_read_as_it_is_shown(number in 1_u64.., task in proptest::option::of(0_u64..4_000_000), cluster in proptest::option::of("[a-z][a-z0-9_-]{0,9}")) {
        let text = task.map_or_else(|| number.to_string(), |task| format!("{number}_{task}"));
        let text = cluster.map_or_else(|| text.clone(), |cluster| format!("{text};{cluster}"));
        let id = slurm().parse_id(&text).unwrap();
        prop_assert_eq!(id.to_string(), text);
        prop_assert_eq!(id.number, number);
    }
}
