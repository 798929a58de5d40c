use super::*;
use crate::policy::store_tests::Desk;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

fn requests(desk: &Desk) -> Requests {
    Requests::on(Arc::new(System), desk.clock.clone(), &desk.dir())
}

fn asked(site: &str, program: &str) -> Asked {
    Asked {
        what: Wanted::Connect,
        site: Some(SiteId::parse(site).unwrap()),
        role: Some(Role::Login),
        reason: " to see\nthe queue ".to_owned(),
        who: Who { pid: 9, program: program.to_owned(), client: "agent".to_owned() },
    }
}

#[test]
fn a_request_is_a_private_file_with_the_contracts_members() {
    let desk = Desk::new();
    assert!(requests(&desk).list().unwrap().is_empty() && !desk.dir().exists());
    let request = requests(&desk).ask(&asked("hpc", "towline")).unwrap();
    assert_eq!((request.reason.as_str(), request.site.as_deref()), ("to see the queue", Some("hpc")));
    let path = desk.dir().join(DIRECTORY).join(format!("{}.json", request.id));
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let expected = serde_json::json!({
        "request": request.id, "what": "connect", "site": "hpc", "role": "login", "reason": "to see the queue",
        "who": {"pid": 9, "program": "towline", "client": "agent"},
        "created_at": "2023-11-14T22:13:20.000Z", "expires_at": "2023-11-14T22:23:20.000Z",
    });
    assert_eq!(json, expected);
    assert_eq!(requests(&desk).list().unwrap(), [request]);
}

#[test]
fn the_same_question_is_one_request_and_at_most_16_wait() {
    let desk = Desk::new();
    let requests = requests(&desk);
    let first = requests.ask(&asked("s0", "towline")).unwrap();
    assert_eq!(requests.ask(&asked("s0", "towline")).unwrap(), first);
    for number in 1..REQUESTS_MAX {
        desk.clock.forward(1.0);
        requests.ask(&asked(&format!("s{number}"), "towline")).unwrap();
    }
    assert!(matches!(requests.ask(&asked("more", "towline")), Err(Error::TooManyRequests { limit: 16 })));
    let sites: Vec<_> = requests.list().unwrap().into_iter().map(|request| request.site.unwrap()).collect();
    assert_eq!(sites, (0..16).map(|number| format!("s{number}")).collect::<Vec<_>>(), "oldest first");
    requests.take(&first.id).unwrap();
    assert!(requests.ask(&asked("more", "towline")).is_ok());
}

#[test]
fn a_request_lives_for_10_minutes_and_makes_room_then() {
    let desk = Desk::new();
    let requests = requests(&desk);
    let request = requests.ask(&asked("hpc", "towline")).unwrap();
    desk.clock.forward(599.0);
    assert_eq!(requests.find(&request.id).unwrap(), request);
    desk.clock.forward(1.0);
    assert!(requests.list().unwrap().is_empty());
    assert!(matches!(requests.take(&request.id), Err(Error::NoRequest { .. })));
    requests.ask(&asked("other", "towline")).unwrap();
    assert!(!desk.dir().join(DIRECTORY).join(format!("{}.json", request.id)).exists());
}

#[test]
fn of_several_that_answer_one_wins() {
    let desk = Desk::new();
    let request = requests(&desk).ask(&asked("hpc", "towline")).unwrap();
    let won: usize = std::thread::scope(|scope| {
        let answers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| usize::from(requests(&desk).take(&request.id).is_ok()))).collect();
        answers.into_iter().map(|answer| answer.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
}

/// A clock at whose sight somebody else takes a file away: after it was read, before it is removed.
#[derive(Debug)]
struct TakingClock(PathBuf);

impl Clock for TakingClock {
    fn unix_ms(&self) -> i64 {
        fs::remove_file(&self.0).unwrap();
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn whoever_read_a_request_that_another_took_meanwhile_has_not_won() {
    let desk = Desk::new();
    let request = requests(&desk).ask(&asked("hpc", "towline")).unwrap();
    let path = desk.dir().join(DIRECTORY).join(format!("{}.json", request.id));
    let late = Requests::on(Arc::new(System), Arc::new(TakingClock(path)), &desk.dir());
    assert!(matches!(late.take(&request.id), Err(Error::NoRequest { .. })));
}

#[test]
fn what_is_no_request_asks_for_nothing_and_no_id_leads_elsewhere() {
    let desk = Desk::new();
    let requests = requests(&desk);
    let request = requests.ask(&asked("hpc", "towline")).unwrap();
    let dir = desk.dir().join(DIRECTORY);
    fs::write(dir.join("0123456789ab.json"), "{").unwrap();
    symlink("elsewhere", dir.join("0123456789ac.json")).unwrap();
    fs::write(dir.join("readme.txt"), "").unwrap();
    assert_eq!(requests.list().unwrap(), [request]);
    for id in ["", "../x", "0123456789AB", "0123456789abc", "0123456789ab", "readme.txt"] {
        assert!(matches!(requests.take(id), Err(Error::NoRequest { .. })), "{id}");
        assert!(matches!(requests.find(id), Err(Error::NoRequest { .. })), "{id}");
    }
}
