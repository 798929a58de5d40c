use super::*;
use crate::audit::{Reader, Record, SystemClock, What, Who, verify};
use crate::disk::faulty::{Faulty, Wrong};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

fn scratch() -> tempfile::TempDir {
    let mode = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

fn audit(dir: &Path) -> Audit {
    Audit::new(dir, Arc::new(SystemClock))
}

fn small(dir: &Path) -> Audit {
    Audit { limits: Limits { file_bytes: 1000, files: 4 }, ..audit(dir) }
}

fn entry(detail: &str) -> Entry {
    Entry {
        who: Who { pid: 1, program: "towline".to_owned(), client: "c".to_owned() },
        site: Some("hpc".to_owned()),
        role: Some("login".to_owned()),
        what: What::new("exec", detail),
        outcome: "dispatched".to_owned(),
    }
}

fn details(dir: &Path) -> Vec<String> {
    let mut reader = Reader::new(dir);
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        found.push(match record {
            Record::Entry(line) => line.what.detail().to_owned(),
            Record::Damaged(_) => "damaged".to_owned(),
        });
    }
    found
}

#[test]
fn nothing_is_made_before_the_first_entry() {
    let scratch = scratch();
    let dir = scratch.path().join("state");
    let audit = audit(&dir);
    assert!(verify(&dir).unwrap().ok && details(&dir).is_empty() && !dir.exists());
    assert_eq!(audit.append(&entry("a"), Durability::Now).unwrap(), 1);
    assert_eq!(fs::metadata(audit.path()).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn several_writers_make_one_chain() {
    let scratch = scratch();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = scratch.path();
            scope.spawn(move || {
                let audit = audit(dir);
                for number in 0..50 {
                    audit.append(&entry(&format!("{thread}.{number}")), Durability::Batched).unwrap();
                }
            });
        }
    });
    let report = verify(scratch.path()).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.entries, report.last_seq), (200, Some(200)));
    let found = details(scratch.path());
    for thread in 0..4 {
        let prefix = format!("{thread}.");
        let own: Vec<_> = found.iter().filter(|detail| detail.starts_with(&prefix)).collect();
        assert_eq!(own.len(), 50);
        assert!(own.iter().enumerate().all(|(number, detail)| **detail == format!("{thread}.{number}")));
    }
}

#[test]
fn a_torn_line_is_sealed_by_the_next_writer() {
    let scratch = scratch();
    audit(scratch.path()).append(&entry("a"), Durability::Now).unwrap();
    let path = scratch.path().join(FILE);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"seq\":2,\"at\":\"20").unwrap();
    let report = verify(scratch.path()).unwrap();
    assert!(report.ok && report.torn[0].line == 2, "{report:?}");
    assert_eq!(audit(scratch.path()).append(&entry("b"), Durability::Now).unwrap(), 3);
    assert_eq!(details(scratch.path())[1], "damaged");
    let report = verify(scratch.path()).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.torn.len(), report.entries, report.torn[0].line), (1, 3, 2));
}

#[test]
fn rotation_keeps_the_chain_and_the_newest_files() {
    let scratch = scratch();
    for number in 0..40 {
        // A new writer each time has to find the end by itself; the others know it.
        let audit = small(scratch.path());
        audit.append(&entry(&format!("{number}")), Durability::Batched).unwrap();
        audit.append(&entry(&format!("{number}+")), Durability::Batched).unwrap();
    }
    let mut names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"]);
    let found = details(scratch.path());
    assert_eq!(found.last().unwrap(), "39+");
    let mut reader = Reader::new(scratch.path());
    let mut last = None;
    while let Some(Record::Entry(line)) = reader.next_record().unwrap() {
        assert!(last.is_none_or(|last| line.seq == last + 1));
        last = Some(line.seq);
    }
    assert_eq!(last, Some(80));
}

#[test]
fn a_line_torn_at_the_end_of_a_rotated_file_is_sealed_in_the_next() {
    let scratch = scratch();
    small(scratch.path()).append(&entry("a"), Durability::Now).unwrap();
    let path = scratch.path().join(FILE);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&[b'x'; 900]).unwrap();
    small(scratch.path()).append(&entry("b"), Durability::Now).unwrap();
    assert!(scratch.path().join("audit.jsonl.1").exists());
    let report = verify(scratch.path()).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.entries, report.torn.len()), (3, 1));
}

#[test]
fn a_follower_sees_each_line_once_through_rotations() {
    let scratch = scratch();
    let mut reader = Reader::new(scratch.path());
    let mut seen = Vec::new();
    for number in 0..30 {
        small(scratch.path()).append(&entry(&format!("{number}")), Durability::Batched).unwrap();
        if number % 3 == 0 {
            while let Some(Record::Entry(line)) = reader.next_record().unwrap() {
                seen.push(line.seq);
            }
        }
    }
    while let Some(Record::Entry(line)) = reader.next_record().unwrap() {
        seen.push(line.seq);
    }
    assert_eq!(seen, (1..=30).collect::<Vec<_>>());
}

#[test]
fn a_log_that_others_could_have_written_is_refused() {
    let scratch = scratch();
    let path = scratch.path().join(FILE);
    symlink("elsewhere", &path).unwrap();
    assert!(matches!(audit(scratch.path()).append(&entry("a"), Durability::Now), Err(Error::Disk(_))));
    assert!(!scratch.path().join("elsewhere").exists());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(audit(scratch.path()).append(&entry("a"), Durability::Now).is_err());
    assert!(verify(scratch.path()).is_err());
}

#[test]
fn a_stopped_writer_delays_others_no_longer_than_they_allow() {
    let scratch = scratch();
    let audit = audit(scratch.path());
    audit.append(&entry("a"), Durability::Now).unwrap();
    let folder = Folder::open(Arc::new(System), scratch.path()).unwrap();
    let held = folder.lock(FILE, Duration::from_secs(1)).unwrap();
    let wait = Duration::from_millis(30);
    let error = audit.append_within(&entry("b"), Durability::Now, wait).unwrap_err();
    assert!(matches!(error, Error::Disk(Fault::Busy { .. })), "{error}");
    drop(held);
    assert_eq!(audit.append(&entry("c"), Durability::Now).unwrap(), 2);
}

#[test]
fn whatever_step_fails_the_chain_holds_and_what_was_acknowledged_is_there() {
    for wrong in Wrong::ALL {
        for at in 1.. {
            let scratch = scratch();
            let limits = Limits { file_bytes: 1000, files: 3 };
            let mut acknowledged = Vec::new();
            let faulty = Arc::new(Faulty::new(at, wrong));
            let files: Arc<dyn Files> = faulty.clone();
            let audit = Audit { limits, ..Audit::on(files, scratch.path(), Arc::new(SystemClock)) };
            for number in 0..4 {
                let detail = format!("{number}");
                if audit.append(&entry(&detail), Durability::Now).is_ok() {
                    acknowledged.push(detail);
                }
            }
            drop(audit);
            let audit = Audit { limits, ..audit_of(scratch.path()) };
            audit.append(&entry("last"), Durability::Now).unwrap();
            acknowledged.push("last".to_owned());
            let report = verify(scratch.path()).unwrap();
            assert!(report.ok, "{wrong:?} {at}: {report:?}");
            let found = details(scratch.path());
            assert!(acknowledged.iter().all(|detail| found.contains(detail)), "{wrong:?} {at}: {found:?}");
            if !faulty.struck() {
                break;
            }
        }
    }
}

fn audit_of(dir: &Path) -> Audit {
    audit(dir)
}

#[test]
fn a_batched_line_reaches_the_disk_by_itself() {
    let scratch = scratch();
    let faulty = Arc::new(Faulty::new(usize::MAX, Wrong::Fails));
    let files: Arc<dyn Files> = faulty.clone();
    let audit = Audit::on(files, scratch.path(), Arc::new(SystemClock));
    audit.append(&entry("a"), Durability::Batched).unwrap();
    let before = faulty.count();
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while faulty.count() == before {
        assert!(std::time::Instant::now() < end, "nobody synced");
        std::thread::yield_now();
    }
    // The only step that comes by itself is the sync; dropping brings no further one.
    drop(audit);
    assert_eq!(faulty.count(), before + 1);
}

#[test]
fn a_failed_background_sync_refuses_the_next_entry() {
    let scratch = scratch();
    audit(scratch.path()).append(&entry("a"), Durability::Now).unwrap();
    let probe = Arc::new(Faulty::new(usize::MAX, Wrong::Fails));
    let files: Arc<dyn Files> = probe.clone();
    let writer = Audit::on(files, scratch.path(), Arc::new(SystemClock));
    writer.append(&entry("b"), Durability::Batched).unwrap();
    let steps = probe.count();
    drop(writer);
    // The step after all those of the append is the sync.
    let faulty = Arc::new(Faulty::new(steps + 1, Wrong::Fails));
    let files: Arc<dyn Files> = faulty.clone();
    let audit = Audit::on(files, scratch.path(), Arc::new(SystemClock));
    audit.append(&entry("c"), Durability::Batched).unwrap();
    while !faulty.struck() {
        std::thread::yield_now();
    }
    // The thread has yet to write down what it met.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        match audit.append(&entry("d"), Durability::Batched) {
            Err(Error::NotDurable { .. }) => break,
            _ => assert!(std::time::Instant::now() < end, "the failure was forgotten"),
        }
    }
    assert!(audit.append(&entry("e"), Durability::Now).is_ok());
}
