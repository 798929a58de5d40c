//! Logs: where they are, why there is none, and following them to the end.

use std::time::Duration;

use tokio::time::Instant;
use towline::jobs::{Error, LogOptions, Output};

use crate::support::{Fake, Row, accounted, failed, fence_of, recorded, sacct, squeue};

/// A job 37 that runs until `seconds` are over.
fn running(seconds: u64) -> towline::jobs::Jobs<Fake> {
    let begin = Instant::now();
    Fake::jobs(move |program, call| {
        let ended = begin.elapsed() >= Duration::from_secs(seconds);
        match program {
            "squeue" => {
                let state = if ended { "COMPLETED" } else { "RUNNING" };
                let row = Row { name: b"run".to_vec(), ..Row::new("37", state) };
                Ok(squeue(&fence_of(&call.argv), &[row]))
            }
            "scontrol" => Ok(recorded("fenced-running--scontrol").answer),
            _ => Ok(sacct(&call.argv, &[accounted("37", "COMPLETED", "0:0")])),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_last_lines_and_the_whole_log_are_read() {
    let jobs = running(5);
    let long: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    *jobs.remote().file.lock().unwrap() = Some(long.clone().into_bytes());
    let part = jobs.logs("37", &LogOptions::default()).await.unwrap();
    assert_eq!(
        (part.path.as_str(), part.text == long, part.truncated),
        ("/home/alice/slurm-37.out", true, false)
    );
    let options = LogOptions { tail: Some(30_000), output: Output::Stderr };
    let part = jobs.logs("37", &options).await.unwrap();
    assert_eq!(part.text.lines().count(), 30_000);
    assert!(part.text.starts_with("line 70000\n") && part.text.ends_with("line 99999\n"));
    assert_eq!(part.offset + part.text.len() as u64, part.size);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_text_comes_as_base64() {
    let jobs = running(5);
    *jobs.remote().file.lock().unwrap() = Some(b"\xff\x00".to_vec());
    let part = jobs.logs("37", &LogOptions::default()).await.unwrap();
    assert_eq!((part.encoding, part.text.as_str()), ("base64", "/wA="));
}

#[tokio::test(start_paused = true)]
async fn following_survives_a_late_file_a_cut_character_and_a_truncation() {
    let jobs = running(60);
    let mut follow = jobs.follow("37", &LogOptions::default()).await.unwrap();
    let file = &jobs.remote().file;
    let write = |bytes: &[u8]| *file.lock().unwrap() = Some(bytes.to_vec());
    let mut told = Vec::new();
    let mut read = async |after: u64, bytes: &[u8]| {
        let ((), part) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_secs(after)).await;
                write(bytes);
            },
            follow.next()
        );
        let part = part.unwrap().unwrap();
        told.push((part.offset, part.text));
    };
    read(3, "h\u{e9}".as_bytes().get(..2).unwrap()).await;
    read(1, "h\u{e9}llo\n".as_bytes()).await;
    read(1, b"anew\n").await;
    assert_eq!(told, [(0, "h".into()), (1, "\u{e9}llo\n".into()), (0, "anew\n".into())]);
    // It ends ten seconds after the job's end was seen, and not before.
    let begin = Instant::now();
    assert_eq!(follow.next().await.unwrap(), None);
    assert!(begin.elapsed() > Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn case_061_a_log_that_no_node_could_open_is_explained() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => {
            let row = Row { name: b"badout".to_vec(), ..Row::new("39", "FAILED") };
            Ok(squeue(&fence_of(&call.argv), &[row]))
        }
        "scontrol" => Ok(recorded("fenced-badout--scontrol").answer),
        _ => Ok(sacct(&call.argv, &[accounted("39", "FAILED", "0:53")])),
    });
    for follow in [false, true] {
        let error = if follow {
            let mut follow = jobs.follow("39", &LogOptions::default()).await.unwrap();
            follow.next().await.unwrap_err()
        } else {
            jobs.logs("39", &LogOptions::default()).await.unwrap_err()
        };
        match error {
            Error::NoLog { path, explanation, .. } => {
                assert_eq!(path.as_deref(), Some("/no/such/dir/x.out"));
                assert!(explanation.contains("node1 could not open the output file"), "{explanation}");
                assert!(explanation.contains("file system that the compute nodes see"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_array_as_a_whole_has_no_log() {
    let jobs = Fake::jobs(|program, call| match program {
        "squeue" => {
            Ok(squeue(&fence_of(&call.argv), &[Row::new("62_1", "RUNNING"), Row::new("62_2", "RUNNING")]))
        }
        "sacct" => Ok(sacct(&call.argv, &[])),
        _ => Ok(failed(1, "")),
    });
    let error = jobs.logs("62", &LogOptions::default()).await.unwrap_err();
    assert!(matches!(&error, Error::InvalidInput { message, .. } if message.contains("62_1")), "{error:?}");
}
