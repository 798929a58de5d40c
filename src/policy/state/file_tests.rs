use super::super::{Ending, Method, Outcome, Scope};
use super::*;
use crate::config::Role;
use crate::policy::GrantSecret;
use proptest::prelude::*;

const GENERATION: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_ms(seconds * 1000)
}

/// A file with everything in it, written by hand.
fn full() -> Value {
    json!({
        "schema_version": 1,
        "generation": GENERATION,
        "revision": 7,
        "mode": "reuse_only",
        "login_grant": {
            "id_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "client_id": "12-x",
            "site": "hpc",
            "role": "login",
            "allow_offvpn": false,
            "authorization_method": "explicit_user_approval",
            "approval_reference": "maintenance is over",
            "created_at": 1000.5,
            "expires_at": 1300.5,
            "remaining_attempts": 1
        },
        "login_attempt": {
            "dtn": {
                "grant_id": "0123456789ab",
                "client_id": "12-x",
                "site": "dtn",
                "role": "transfer",
                "launcher_pid": 12,
                "allow_offvpn": true,
                "authorization_method": "explicit_user_approval",
                "started_at": 900,
                "finished_at": 930.25,
                "outcome": "failed",
                "returncode": 5,
                "blocked_until": 1200
            }
        },
        "events": [
            {"at": 1, "event": "policy_disabled", "client_id": "1-y", "reason": "first"},
            {"at": 2, "event": "login_grant_expired", "client_id": "1-y", "grant_id": "a", "site": "hpc", "role": "login"}
        ],
        "updated_at": 1000.5,
        "updated_by": {"client_id": "12-x", "pid": 12}
    })
}

fn read(value: &Value) -> Result<Policy, String> {
    decode(&serde_json::to_vec(value).unwrap(), at(1100))
}

/// The full file with the member at a JSON pointer replaced, or removed for none.
fn with(pointer: &str, value: Option<Value>) -> Value {
    let mut file = full();
    match value {
        Some(value) => match file.pointer_mut(pointer) {
            Some(member) => *member = value,
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                file.pointer_mut(parent).unwrap()[key] = value;
            }
        },
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            file.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        }
    }
    file
}

#[test]
fn a_file_with_everything_in_it_is_read_and_written_back_as_it_was() {
    let policy = read(&full()).unwrap();
    assert_eq!((policy.revision, policy.mode), (7, Mode::ReuseOnly));
    let grant = policy.grant.as_ref().unwrap();
    assert_eq!((grant.name().as_str(), grant.created_at.ms()), ("ba7816bf8f01", 1_000_500));
    assert_eq!(grant.id, GrantSecret::presented("abc").hash());
    assert_eq!(policy.attempts[&SiteId::parse("dtn").unwrap()].outcome, Outcome::Failed);
    let bytes = encode(&policy).unwrap();
    assert_eq!(decode(&bytes, at(1100)).unwrap(), policy);
    let text = String::from_utf8(bytes).unwrap();
    // Indented, sorted, one line end.
    assert!(
        text.starts_with("{\n  \"events\": [\n    {\n      \"at\": 1.0,\n      \"client_id\": \"1-y\",\n")
    );
    assert!(text.ends_with("\n  }\n}\n") && !text.ends_with("\n\n"));
    let order: Vec<_> = text.lines().filter(|line| line.starts_with("  \"")).collect();
    assert!(order.is_sorted() && order.len() == 9, "{order:?}");
}

#[test]
fn what_may_be_absent_may_be_absent() {
    for pointer in ["/events", "/updated_at", "/updated_by", "/login_attempt/dtn/launcher_pid"] {
        assert!(read(&with(pointer, None)).is_ok(), "{pointer}");
    }
    for pointer in ["/login_grant/authorization_method", "/login_attempt/dtn/authorization_method"] {
        let policy = read(&with(pointer, None)).unwrap();
        assert_eq!(policy.grant.unwrap().method, Method::ExplicitUserApproval);
    }
    for (pointer, value) in [
        ("/login_grant", json!(null)),
        ("/login_attempt", json!(null)),
        ("/login_attempt", json!({})),
        ("/updated_at", json!("whenever")),
        ("/updated_by", json!([1])),
        ("/revision", json!(0)),
        ("/mode", json!("disabled")),
        ("/login_grant/remaining_attempts", json!(0)),
        ("/login_grant/authorization_method", json!("standing_on_vpn")),
        ("/login_attempt/dtn/authorization_method", json!("open_site")),
        ("/generation", json!("67e5504410b1426f9247bb680e5fe0c8")),
    ] {
        assert!(read(&with(pointer, Some(value.clone()))).is_ok(), "{pointer} {value}");
    }
}

#[test]
fn every_broken_rule_of_the_file_makes_it_invalid() {
    for pointer in [
        "/schema_version",
        "/generation",
        "/revision",
        "/mode",
        "/login_grant",
        "/login_attempt",
        "/login_grant/id_sha256",
        "/login_grant/client_id",
        "/login_grant/site",
        "/login_grant/role",
        "/login_grant/allow_offvpn",
        "/login_grant/approval_reference",
        "/login_grant/created_at",
        "/login_grant/expires_at",
        "/login_grant/remaining_attempts",
        "/events/0/at",
        "/events/0/event",
        "/events/0/client_id",
        "/events/0/reason",
        "/events/1/grant_id",
    ] {
        assert!(read(&with(pointer, None)).is_err(), "{pointer} is missing");
    }
    let text = |length| "x".repeat(length);
    for (pointer, value) in [
        ("/schema_version", json!(2)),
        ("/schema_version", json!("1")),
        ("/schema_version", json!(true)),
        ("/schema_version", json!(1.0)),
        ("/generation", json!("")),
        ("/generation", json!("x")),
        ("/generation", json!(1)),
        ("/revision", json!(-1)),
        ("/revision", json!(true)),
        ("/revision", json!(1.5)),
        ("/revision", json!(REVISION_MAX + 1)),
        ("/mode", json!("allow")),
        ("/mode", json!(null)),
        ("/mode", json!("Disabled")),
        ("/events", json!({})),
        ("/events/0", json!(1)),
        ("/events/0/event", json!("x")),
        ("/events/0/more", json!(1)),
        ("/events/0/client_id", json!("")),
        ("/more", json!(1)),
        ("/login_grant/more", json!(1)),
        ("/login_attempt/dtn/more", json!(1)),
        ("/login_grant/id_sha256", json!("abc")),
        ("/login_grant/id_sha256", json!(text(64))),
        ("/login_grant/client_id", json!("")),
        ("/login_grant/site", json!("a/b")),
        ("/login_grant/site", json!("*")),
        ("/login_grant/role", json!("root")),
        ("/login_grant/allow_offvpn", json!(0)),
        ("/login_grant/authorization_method", json!("none")),
        ("/login_grant/approval_reference", json!("")),
        ("/login_grant/approval_reference", json!("a  b")),
        ("/login_grant/approval_reference", json!(text(241))),
        ("/login_grant/created_at", json!(true)),
        ("/login_grant/created_at", json!("1000")),
        ("/login_grant/created_at", json!(1100.1)),
        ("/login_grant/created_at", json!(1000)),
        ("/login_grant/expires_at", json!(1000.5)),
        ("/login_grant/expires_at", json!(1300.6)),
        ("/login_grant/expires_at", json!(900)),
        ("/login_grant/expires_at", json!(1e300)),
        ("/login_grant/remaining_attempts", json!(2)),
        ("/login_grant/remaining_attempts", json!(-1)),
        ("/login_grant/remaining_attempts", json!(true)),
    ] {
        assert!(read(&with(pointer, Some(value.clone()))).is_err(), "{pointer} {value}");
    }
    let standing = with("/login_grant/authorization_method", Some(json!("standing_on_vpn")));
    let mut standing_offvpn = standing;
    standing_offvpn["login_grant"]["allow_offvpn"] = json!(true);
    assert!(read(&standing_offvpn).is_err());
}

#[test]
fn every_broken_rule_of_a_receipt_makes_the_whole_file_invalid() {
    for key in [
        "grant_id",
        "client_id",
        "site",
        "role",
        "allow_offvpn",
        "started_at",
        "finished_at",
        "outcome",
        "returncode",
        "blocked_until",
    ] {
        assert!(read(&with(&format!("/login_attempt/dtn/{key}"), None)).is_err(), "{key} is missing");
    }
    for (key, value) in [
        ("grant_id", json!("")),
        ("client_id", json!("")),
        ("site", json!("hpc")),
        ("role", json!("x")),
        ("launcher_pid", json!(0)),
        ("launcher_pid", json!(-4)),
        ("launcher_pid", json!(true)),
        ("allow_offvpn", json!("no")),
        ("authorization_method", json!("standing_on_vpn")),
        ("started_at", json!(931)),
        ("finished_at", json!(null)),
        ("finished_at", json!(899)),
        ("outcome", json!("active")),
        ("outcome", json!("success")),
        ("outcome", json!("done")),
        ("returncode", json!(1.5)),
        ("returncode", json!("5")),
        ("blocked_until", json!(1199.9)),
        ("blocked_until", json!(null)),
        ("blocked_until", json!(930.25)),
    ] {
        assert!(
            read(&with(&format!("/login_attempt/dtn/{key}"), Some(value.clone()))).is_err(),
            "{key} {value}"
        );
    }
    let receipt = |changes: &[(&str, Value)]| {
        let mut file = full();
        for (key, value) in changes {
            file["login_attempt"]["dtn"][*key] = value.clone();
        }
        read(&file)
    };
    let active = [("outcome", json!("active")), ("finished_at", json!(null)), ("returncode", json!(null))];
    assert!(receipt(&active).is_ok());
    assert!(receipt(&[active[0].clone(), active[1].clone(), ("returncode", json!(0))]).is_err());
    let success = [("outcome", json!("success")), ("returncode", json!(0)), ("blocked_until", json!(930.25))];
    assert!(receipt(&success).is_ok());
    assert!(receipt(&[success[0].clone(), success[1].clone()]).is_err());
    assert!(receipt(&[success[0].clone(), success[2].clone(), ("returncode", json!(1))]).is_err());
    // An open site whose host was not reached blocks for 10 s; nothing else may be as short.
    let unreached = [("authorization_method", json!("open_site")), ("blocked_until", json!(910))];
    assert!(receipt(&unreached).is_ok());
    assert!(receipt(&[unreached[0].clone(), ("blocked_until", json!(909))]).is_err());
    assert!(receipt(&[unreached[0].clone(), unreached[1].clone(), ("outcome", json!("error"))]).is_err());
}

#[test]
fn doubled_keys_infinite_numbers_and_trailing_text_are_refused() {
    let text = serde_json::to_string(&full()).unwrap();
    assert!(decode(text.as_bytes(), at(1100)).is_ok());
    for (from, to) in [
        ("\"revision\":7", "\"revision\":6,\"revision\":7"),
        ("\"dtn\":{", "\"dtn\":{},\"dtn\":{"),
        ("\"reason\":\"first\"", "\"reason\":\"first\",\"reason\":\"first\""),
        ("\"started_at\":900", "\"started_at\":NaN"),
        ("\"blocked_until\":1200", "\"blocked_until\":Infinity"),
        ("\"blocked_until\":1200", "\"blocked_until\":1e999"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(decode(changed.as_bytes(), at(1100)).is_err(), "{to}");
    }
    for wrong in [
        format!("{text}x"),
        format!("[{text}]"),
        String::new(),
        "null".to_owned(),
        text[..text.len() / 2].to_owned(),
    ] {
        assert!(decode(wrong.as_bytes(), at(1100)).is_err());
    }
    assert!(decode(b"{\"mode\":\"\xff\"}", at(1100)).is_err());
}

#[test]
fn a_grant_of_the_future_invalidates_the_file_until_its_time_has_come() {
    let bytes = serde_json::to_vec(&full()).unwrap();
    assert!(decode(&bytes, Timestamp::from_ms(1_000_499)).is_err());
    assert!(decode(&bytes, Timestamp::from_ms(1_000_500)).is_ok());
}

#[test]
fn of_many_events_the_newest_64_are_kept() {
    let mut file = full();
    let event =
        |number: i64| json!({"at": number, "event": "policy_disabled", "client_id": "c", "reason": "r"});
    file["events"] = (0..100).map(event).collect();
    let policy = read(&file).unwrap();
    assert_eq!(policy.events.len(), 64);
    assert_eq!(policy.events.last().unwrap().at, at(99));
}

#[test]
fn a_finished_attempt_is_written_as_a_valid_receipt_whatever_the_ending_and_the_clock() {
    for method in [Method::ExplicitUserApproval, Method::StandingOnVpn, Method::OpenSite] {
        for ending in
            [Ending::Success, Ending::Unreached, Ending::Failed(Some(255)), Ending::TimedOut, Ending::Error]
        {
            for end in [500, 900, 901, 5000] {
                let site = SiteId::parse("hpc").unwrap();
                let mut attempt = Attempt {
                    grant: GrantSecret::presented("x").hash().name(),
                    client: ClientId::named("c"),
                    scope: Scope { site: site.clone(), role: Role::Login, allow_offvpn: false },
                    launcher_pid: Some(3),
                    method,
                    started_at: at(900),
                    finished_at: None,
                    outcome: Outcome::Active,
                    returncode: None,
                    blocked_until: at(1200),
                };
                attempt.finish(ending, at(end));
                let mut policy = read(&full()).unwrap();
                policy.attempts.insert(site, attempt);
                let bytes = encode(&policy).unwrap();
                assert_eq!(decode(&bytes, at(5000)).unwrap(), policy, "{method:?} {ending:?} {end}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes, at(0)).is_err());
    }

    #[test]
    fn a_file_cut_anywhere_is_no_policy(cut in 0_usize..2000) {
        let bytes = encode(&read(&full()).unwrap()).unwrap();
        let cut = cut % (bytes.len() - 1);
        prop_assert!(decode(&bytes[..cut], at(1100)).is_err());
    }
}

#[test]
fn the_fuzzers_seeds_are_what_their_names_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/policy_file");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let result = decode(&std::fs::read(&path).unwrap(), at(1_800_000_000));
        let broken = ["future", "half", "doubled"].contains(&name.as_str());
        assert_eq!(result.is_err(), broken, "{name}: {result:?}");
        count += 1;
    }
    assert!(count >= 13);
}
