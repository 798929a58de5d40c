//! Slurm's answers: no bytes make a reader panic, and no text that a user chose changes the number of records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towline::jobs::{
    Action, Answer, Fence, Job, JobId, Part, Scheduler, Scope, Slurm, State, Submitted,
};

/// Writes one row of squeue around texts that a user chose.
fn row(fence: &Fence, number: usize, state: &[u8], text: &[u8]) -> Vec<u8> {
    let fence = fence.as_str();
    // Slurm's own words hold no separator and are text.
    let state: String = String::from_utf8_lossy(state)
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    let mut row = format!(
        "\x1e{fence}\x1f{number}\x1f{number}\x1f{number}\x1f{state}\x1fNone\x1fu\x1fa\x1fp\x1fq\x1f1\x1f1\x1f1\x1f2\x1f3\x1f0:01\x1f1:00\x1fn1\x1fN/A\x1f"
    )
    .into_bytes();
    for _ in 0..3 {
        row.extend_from_slice(format!("{fence}\x1f").as_bytes());
        row.extend_from_slice(text);
        row.push(0x1f);
    }
    row.extend_from_slice(format!("{fence}\x1e\n").as_bytes());
    row
}

fuzz_target!(|data: &[u8]| {
    let Some(slurm) = Slurm::from_version(b"slurm 24.05.1") else {
        return;
    };
    let fence = Fence::from_random(0x1122_3344_5566_7788);
    let answer = Answer {
        rc: data.first().map(|byte| i32::from(byte % 3)),
        stdout: data.to_vec(),
        stderr: data.to_vec(),
        ..Answer::default()
    };
    let id = JobId { text: "1".into(), number: 1, cluster: None, part: Part::Whole };
    let ids = std::slice::from_ref(&id);
    let mut job = Job::bare(id.clone(), State::Failed, "FAILED");
    job.raw_number = Some(1);
    // Whatever they say, it is an answer or an error.
    drop(slurm.read_queue(&Scope::AllUsers, &fence, &answer));
    drop(slurm.read_history(ids, &fence, &answer));
    drop(slurm.read_detail(&mut job, &answer));
    drop(slurm.read_queues(&answer));
    drop(slurm.read_act(Action::Hold, ids, &answer));
    if let Submitted::Job(made) = slurm.read_submit(&answer) {
        assert_eq!(slurm.parse_id(&made.to_string()).ok(), Some(made));
    }
    drop(slurm.expand(data, &job));

    // The fence was drawn after the texts were chosen, so they don't hold it.
    if data.windows(16).any(|window| window == fence.as_str().as_bytes()) {
        return;
    }
    let pieces: Vec<&[u8]> = data.chunks(24).take(32).collect();
    let stdout = pieces
        .iter()
        .enumerate()
        .flat_map(|(at, piece)| row(&fence, at + 1, piece, piece))
        .collect();
    let answer = Answer { rc: Some(0), stdout, ..Answer::default() };
    match slurm.read_queue(&Scope::Mine, &fence, &answer) {
        Ok(rows) => assert_eq!(rows.jobs.len(), pieces.len()),
        Err(error) => panic!("{error}"),
    }
});
