//! The contract's table of states, cell by cell.

use super::*;
use crate::config::Role;
use crate::policy::error::{Error, GrantFault};
use crate::policy::id::{ClientId, GrantHash, GrantSecret, SiteId};
use std::time::Duration;

const T: i64 = 1_000_000_000;

fn now_at(seconds: i64) -> Now {
    Now {
        at: Timestamp::from_ms((T + seconds) * 1000),
        client: ClientId::named("client"),
        pid: 42,
        fresh: uuid::Uuid::from_u128(u128::from((T + seconds).unsigned_abs())),
    }
}

fn site(name: &str) -> SiteId {
    SiteId::parse(name).unwrap()
}

fn scope(name: &str) -> Scope {
    Scope { site: site(name), role: Role::Login, allow_offvpn: false }
}

fn id(text: &str) -> GrantHash {
    GrantSecret::presented(text).hash()
}

fn cas_of(state: &FileState) -> Cas {
    match state {
        FileState::Valid(policy) => {
            Cas { generation: policy.generation.as_str().to_owned(), revision: policy.revision }
        }
        _ => Cas { generation: "none".to_owned(), revision: 0 },
    }
}

fn grant(state: &FileState, name: &str, secret: &str) -> Operation {
    Operation::Authorize(Box::new(Authorize {
        cas: cas_of(state),
        scope: scope(name),
        ttl: Duration::from_secs(300),
        method: Method::ExplicitUserApproval,
        reference: "because".to_owned(),
        id: id(secret),
    }))
}

fn consume(name: &str, secret: &str) -> Operation {
    Operation::Consume { id: id(secret), site: site(name), role: Role::Login, launcher_pid: 42 }
}

fn finish(secret: &str, ending: Ending) -> Operation {
    Operation::Finish { grant: id(secret).name(), ending }
}

fn step(state: &FileState, operation: &Operation, seconds: i64) -> FileState {
    FileState::Valid(Box::new(apply(state, operation, &now_at(seconds)).unwrap().policy))
}

fn enable(state: &FileState) -> Operation {
    Operation::EnableReuse { cas: cas_of(state), reference: "go on".to_owned() }
}

fn disable() -> Operation {
    Operation::Disable { reason: "stop".to_owned() }
}

fn disabled() -> FileState {
    step(&FileState::Missing, &disable(), -1000)
}

fn enabled() -> FileState {
    let state = disabled();
    step(&state, &enable(&state), -999)
}

fn live() -> FileState {
    let state = enabled();
    step(&state, &grant(&state, "hpc", "g"), -10)
}

fn expired() -> FileState {
    let state = enabled();
    step(&state, &grant(&state, "hpc", "g"), -300)
}

fn active(age: i64) -> FileState {
    let state = enabled();
    let state = step(&state, &grant(&state, "hpc", "g"), -age);
    step(&state, &consume("hpc", "g"), -age)
}

fn cooling() -> FileState {
    step(&active(100), &finish("g", Ending::Failed(Some(1))), -90)
}

fn unsafe_object() -> FileState {
    FileState::Unsafe { reason: "is a link".to_owned() }
}

fn malformed() -> FileState {
    FileState::Malformed { reason: "is half".to_owned(), modified_at: now_at(-100).at }
}

fn policy(state: &FileState) -> &Policy {
    match state {
        FileState::Valid(policy) => policy,
        other => panic!("{other:?}"),
    }
}

/// Columns of the table.
fn columns() -> Vec<(&'static str, FileState)> {
    vec![
        ("M", FileState::Missing),
        ("U", unsafe_object()),
        ("X", malformed()),
        ("D", disabled()),
        ("R", enabled()),
        ("R live", live()),
        ("R expired", expired()),
        ("R A", active(200)),
        ("R C", cooling()),
        ("R A old", active(301)),
    ]
}

/// What came of an operation, in the table's words.
fn outcome(result: Result<Applied, Error>) -> String {
    match result {
        Ok(applied) => {
            let policy = applied.policy;
            let attempt = policy.attempts.values().next().map_or("-", |attempt| attempt.outcome.as_str());
            let mode = if policy.mode == Mode::Disabled { "D" } else { "R" };
            format!("{mode} {} {attempt}", if policy.grant.is_some() { "grant" } else { "-" })
        }
        Err(error) => word(&error),
    }
}

fn word(error: &Error) -> String {
    match error {
        Error::Invalid { .. } => "policy_invalid".to_owned(),
        Error::Denied { .. } => "policy_denied".to_owned(),
        Error::Conflict { .. } => "policy_conflict".to_owned(),
        Error::Grant { fault } => format!("grant_invalid {}", fault.as_str()),
        Error::Cooldown { seconds_left, .. } => format!("cooldown {seconds_left}"),
        other => format!("{other:?}"),
    }
}

fn row(operation: impl Fn(&FileState) -> Operation) -> Vec<(&'static str, String)> {
    columns()
        .into_iter()
        .map(|(name, state)| (name, outcome(apply(&state, &operation(&state), &now_at(0)))))
        .collect()
}

fn expect(found: Vec<(&'static str, String)>, expected: [&str; 10]) {
    let found: Vec<String> = found.into_iter().map(|(column, cell)| format!("{column}: {cell}")).collect();
    let names = columns();
    let expected: Vec<String> =
        names.iter().zip(expected).map(|((column, _), cell)| format!("{column}: {cell}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn disable_always_works_but_on_an_unsafe_object() {
    expect(
        row(|_| disable()),
        [
            "D - -",
            "policy_invalid",
            "D - error",
            "D - -",
            "D - -",
            "D - -",
            "D - -",
            "D - active",
            "D - failed",
            "D - active",
        ],
    );
}

#[test]
fn enable_reuse_needs_a_valid_file_and_drops_a_grant() {
    expect(
        row(enable),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "R - -",
            "R - -",
            "R - -",
            "R - -",
            "R - active",
            "R - failed",
            "R - active",
        ],
    );
}

#[test]
fn authorize_gives_one_grant_outside_of_cooldowns() {
    expect(
        row(|state| grant(state, "hpc", "new")),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_denied",
            "R grant -",
            "grant_invalid exists",
            "R grant -",
            "cooldown 100",
            "cooldown 200",
            "R grant stale",
        ],
    );
}

#[test]
fn consume_spends_a_live_grant_only() {
    expect(
        row(|_| consume("hpc", "g")),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_denied",
            "grant_invalid none",
            "R - active",
            "grant_invalid expired",
            "grant_invalid none",
            "grant_invalid none",
            "grant_invalid none",
        ],
    );
}

#[test]
fn finish_needs_the_active_attempt_and_leaves_the_mode() {
    expect(
        row(|_| finish("g", Ending::Success)),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_conflict",
            "policy_conflict",
            "policy_conflict",
            "policy_conflict",
            "R - success",
            "policy_conflict",
            "R - success",
        ],
    );
    let disabled = step(&active(100), &disable(), -1);
    assert_eq!(outcome(apply(&disabled, &finish("g", Ending::Success), &now_at(0))), "D - success");
}

#[test]
fn dispatch_and_launch_follow_their_rows() {
    let launch = |secret: &str| Launch {
        grant: id(secret).name(),
        site: site("hpc"),
        role: Role::Login,
        client: ClientId::named("client"),
        launcher_pid: 42,
    };
    let cells = |check: &dyn Fn(&FileState) -> Result<(), Error>| -> Vec<(&'static str, String)> {
        let cell = |state: &FileState| check(state).map_or_else(|error| word(&error), |()| "ok".to_owned());
        columns().into_iter().map(|(name, state)| (name, cell(&state))).collect()
    };
    expect(
        cells(&|state| permits_dispatch(state).map(drop)),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_denied",
            "ok",
            "ok",
            "ok",
            "ok",
            "ok",
            "ok",
        ],
    );
    let other = "grant_invalid other_attempt";
    expect(
        cells(&|state| permits_launch(state, &launch("g"))),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_denied",
            other,
            other,
            other,
            "ok",
            other,
            "ok",
        ],
    );
    for wrong in [
        launch("x"),
        Launch { site: site("other"), ..launch("g") },
        Launch { role: Role::Transfer, ..launch("g") },
        Launch { client: ClientId::named("x"), ..launch("g") },
        Launch { launcher_pid: 43, ..launch("g") },
    ] {
        assert_eq!(word(&permits_launch(&active(10), &wrong).unwrap_err()), other, "{wrong:?}");
    }
}

#[test]
fn a_first_disable_makes_a_file_and_the_next_one_keeps_its_generation() {
    let first = disabled();
    assert_eq!((policy(&first).revision, policy(&first).events.len()), (1, 1));
    let second = step(&first, &disable(), 0);
    assert_eq!((policy(&second).revision, policy(&second).events.len()), (2, 2));
    assert_eq!(policy(&first).generation, policy(&second).generation);
}

#[test]
fn checks_come_in_the_contracts_order() {
    let wrong_cas = Cas { generation: "x".to_owned(), revision: 99 };
    let authorize = |cas: &Cas, ttl: u64, reference: &str| {
        Operation::Authorize(Box::new(Authorize {
            cas: cas.clone(),
            scope: scope("hpc"),
            ttl: Duration::from_secs(ttl),
            method: Method::ExplicitUserApproval,
            reference: reference.to_owned(),
            id: id("n"),
        }))
    };
    let error = |state: &FileState, operation: &Operation| apply(state, operation, &now_at(0)).unwrap_err();
    // Arguments, then text, then validity, then what was seen, then mode, then grant, then cooldown.
    assert!(matches!(error(&FileState::Missing, &authorize(&wrong_cas, 301, "")), Error::Input { .. }));
    assert!(matches!(error(&FileState::Missing, &authorize(&wrong_cas, 0, "")), Error::Input { .. }));
    assert!(matches!(error(&FileState::Missing, &authorize(&wrong_cas, 300, "")), Error::Text { .. }));
    assert!(matches!(error(&malformed(), &authorize(&wrong_cas, 300, "r")), Error::Invalid { .. }));
    assert!(matches!(error(&disabled(), &authorize(&wrong_cas, 300, "r")), Error::Conflict { .. }));
    let state = step(&live(), &disable(), 0);
    assert!(matches!(error(&state, &authorize(&cas_of(&state), 300, "r")), Error::Denied { .. }));
    // A grant for one site and a cooldown of another.
    let state = cooling();
    let state = step(&state, &grant(&state, "other", "o"), -1);
    let exists = error(&state, &authorize(&cas_of(&state), 300, "r"));
    assert!(matches!(exists, Error::Grant { fault: GrantFault::Exists }));
    let enable = Operation::EnableReuse { cas: wrong_cas, reference: " ".to_owned() };
    assert!(matches!(error(&disabled(), &enable), Error::Text { .. }));
}

#[test]
fn a_presented_grant_is_checked_in_order_and_nothing_is_spent() {
    let fault = |state: &FileState, operation: &Operation, now: &Now| match apply(state, operation, now) {
        Err(Error::Grant { fault }) => fault,
        other => panic!("{other:?}"),
    };
    let transfer =
        Operation::Consume { id: id("g"), site: site("hpc"), role: Role::Transfer, launcher_pid: 1 };
    assert_eq!(fault(&live(), &consume("other", "x"), &now_at(900)), GrantFault::OtherId);
    assert_eq!(fault(&live(), &consume("other", "g"), &now_at(900)), GrantFault::OtherSite);
    assert_eq!(fault(&live(), &transfer, &now_at(900)), GrantFault::OtherRole);
    assert_eq!(fault(&live(), &consume("hpc", "g"), &now_at(290)), GrantFault::Expired);
    assert!(
        apply(&live(), &consume("hpc", "g"), &Now { client: ClientId::named("x"), ..now_at(289) }).is_ok()
    );
    let mut used = policy(&live()).clone();
    used.grant.as_mut().unwrap().remaining_attempts = 0;
    let used = FileState::Valid(Box::new(used));
    assert_eq!(fault(&used, &consume("hpc", "g"), &now_at(0)), GrantFault::Used);
    // What towline mints for itself is of no use to another process.
    let mut standing = policy(&live()).clone();
    standing.grant.as_mut().unwrap().method = Method::StandingOnVpn;
    let standing = FileState::Valid(Box::new(standing));
    let stranger = Now { client: ClientId::named("x"), ..now_at(0) };
    assert_eq!(fault(&standing, &consume("hpc", "g"), &stranger), GrantFault::OtherClient);
    assert!(apply(&standing, &consume("hpc", "g"), &now_at(0)).is_ok());
}

#[test]
fn a_cooldown_is_the_sites_and_ends_to_the_millisecond() {
    let state = cooling();
    assert!(apply(&state, &grant(&state, "other", "n"), &now_at(0)).is_ok());
    // Transfer and login share it.
    let mut transfer = grant(&state, "hpc", "n");
    if let Operation::Authorize(authorize) = &mut transfer {
        authorize.scope.role = Role::Transfer;
    }
    assert!(matches!(apply(&state, &transfer, &now_at(0)), Err(Error::Cooldown { seconds_left: 200, .. })));
    let late = |ms: i64| Now { at: Timestamp::from_ms((T + 200) * 1000 + ms), ..now_at(0) };
    let result = apply(&state, &grant(&state, "hpc", "n"), &late(-1));
    assert!(matches!(result, Err(Error::Cooldown { seconds_left: 1, .. })));
    assert!(apply(&state, &grant(&state, "hpc", "n"), &late(0)).is_ok());
    // Success clears it.
    let state = step(&active(100), &finish("g", Ending::Success), -90);
    assert!(apply(&state, &grant(&state, "hpc", "n"), &now_at(-90)).is_ok());
}

#[test]
fn an_open_site_permits_itself_once_at_a_time() {
    let open = |secret: &str| Operation::OpenSite {
        scope: scope("hpc"),
        id: id(secret),
        launcher_pid: 42,
        reference: "approval = open".to_owned(),
    };
    expect(
        row(|_| open("o")),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "policy_denied",
            "R - active",
            "R grant active",
            "R grant active",
            "cooldown 100",
            "cooldown 200",
            "R - active",
        ],
    );
    let state = step(&enabled(), &open("o"), 0);
    let attempt = &policy(&state).attempts[&site("hpc")];
    assert_eq!((attempt.method, attempt.outcome), (Method::OpenSite, Outcome::Active));
    let unreached = step(&state, &finish("o", Ending::Unreached), 1);
    let left = |state: &FileState, seconds| outcome(apply(state, &open("p"), &now_at(seconds)));
    assert_eq!(left(&unreached, 2), "cooldown 8");
    assert_eq!(left(&unreached, 10), "R - active");
    let refused = step(&state, &finish("o", Ending::Failed(None)), 1);
    assert_eq!(left(&refused, 2), "cooldown 298");
    // Only an open site gets off so lightly.
    let unreached = step(&active(100), &finish("g", Ending::Unreached), -99);
    assert_eq!(left(&unreached, 0), "cooldown 200");
}

#[test]
fn a_repair_blocks_every_site_as_if_it_had_failed_when_the_file_was_written() {
    let state = step(&malformed(), &disable(), 0);
    let repaired = policy(&state);
    assert_eq!((repaired.revision, repaired.mode, repaired.events.len()), (1, Mode::Disabled, 1));
    assert_eq!(repaired.events[0].kind.word(), "policy_repaired_with_conservative_cooldown");
    let state = step(&state, &enable(&state), 1);
    for name in ["hpc", "other"] {
        let result = apply(&state, &grant(&state, name, "n"), &now_at(1));
        assert!(matches!(result, Err(Error::Cooldown { seconds_left: 199, .. })), "{name}");
    }
    assert!(apply(&state, &grant(&state, "hpc", "n"), &now_at(200)).is_ok());
    // An old broken file does not block for ever, one of the future no longer than a fresh one.
    for (modified, left) in [(-10_000, 0), (10_000, 300), (-T - 5, 0)] {
        let file = FileState::Malformed { reason: String::new(), modified_at: now_at(modified).at };
        let applied = apply(&file, &disable(), &now_at(0)).unwrap();
        let attempt = applied.policy.attempts.values().next().unwrap();
        assert_eq!(attempt.seconds_left(now_at(0).at), left);
        assert!(attempt.started_at.ms() >= 0);
        let bytes = encode(&applied.policy).unwrap();
        assert_eq!(decode(&bytes, now_at(0).at).unwrap(), applied.policy);
    }
}

#[test]
fn grants_are_taken_back_by_name_and_standing_ones_by_their_own_client() {
    let revoke = |name: &str| Operation::Revoke { grant: id(name).name(), reason: "no".to_owned() };
    expect(
        row(|_| revoke("g")),
        [
            "policy_invalid",
            "policy_invalid",
            "policy_invalid",
            "grant_invalid none",
            "grant_invalid none",
            "R - -",
            "R - -",
            "grant_invalid none",
            "grant_invalid none",
            "grant_invalid none",
        ],
    );
    assert_eq!(outcome(apply(&live(), &revoke("x"), &now_at(0))), "grant_invalid other_id");
    let standing =
        |name: &str| Operation::RevokeStanding { id: id(name), reason: "route is gone".to_owned() };
    assert_eq!(outcome(apply(&live(), &standing("g"), &now_at(0))), "grant_invalid other_client");
    let mut policy = policy(&live()).clone();
    policy.grant.as_mut().unwrap().method = Method::StandingOnVpn;
    let state = FileState::Valid(Box::new(policy));
    assert_eq!(outcome(apply(&state, &standing("x"), &now_at(0))), "grant_invalid other_id");
    let stranger = Now { client: ClientId::named("x"), ..now_at(0) };
    assert_eq!(outcome(apply(&state, &standing("g"), &stranger)), "grant_invalid other_client");
    assert_eq!(outcome(apply(&state, &standing("g"), &now_at(0))), "R - -");
}

#[test]
fn a_file_without_a_revision_left_is_disabled_into_a_new_generation() {
    let mut last = policy(&enabled()).clone();
    last.revision = REVISION_MAX;
    let state = FileState::Valid(Box::new(last));
    assert!(matches!(apply(&state, &enable(&state), &now_at(0)), Err(Error::Invalid { .. })));
    let applied = apply(&state, &disable(), &now_at(0)).unwrap();
    assert_eq!((applied.policy.revision, applied.policy.mode), (1, Mode::Disabled));
    assert_ne!(&applied.policy.generation, &policy(&state).generation);
}

#[test]
fn events_tell_what_happened_and_the_newest_64_stay() {
    let words = |applied: &Applied| applied.events.iter().map(|event| event.kind.word()).collect::<Vec<_>>();
    let of = |state: &FileState, operation: &Operation| words(&apply(state, operation, &now_at(0)).unwrap());
    assert_eq!(of(&FileState::Missing, &disable()), ["policy_disabled"]);
    assert_eq!(
        of(&live(), &enable(&live())),
        ["login_grant_revoked_on_reuse_enable", "policy_reuse_enabled"]
    );
    assert_eq!(of(&expired(), &grant(&expired(), "hpc", "n")), ["login_grant_expired", "login_authorized"]);
    let old = active(301);
    assert_eq!(of(&old, &grant(&old, "hpc", "n")), ["login_attempt_finished", "login_authorized"]);
    assert_eq!(of(&live(), &consume("hpc", "g")), ["login_grant_consumed"]);
    let applied = apply(&live(), &disable(), &now_at(0)).unwrap();
    let grant_id = Some(id("g").name());
    assert_eq!(applied.events[0].kind, EventKind::PolicyDisabled { reason: "stop".to_owned(), grant_id });
    let mut state = disabled();
    for second in 0..100 {
        state = step(&state, &disable(), second);
    }
    assert_eq!(policy(&state).events.len(), 64);
    assert_eq!(policy(&state).events.last().unwrap().at, now_at(99).at);
}

#[test]
fn receipts_of_many_sites_are_bounded_and_blocking_ones_stay() {
    let mut state = enabled();
    for number in 0..300 {
        let name = format!("s{number}");
        state = step(&state, &grant(&state, &name, &name), number);
        state = step(&state, &consume(&name, &name), number);
        let ending = if number == 0 { Ending::Error } else { Ending::Success };
        state = step(&state, &finish(&name, ending), number);
    }
    let attempts = &policy(&state).attempts;
    assert_eq!(attempts.len(), 256);
    assert!(attempts.contains_key(&site("s299")) && !attempts.contains_key(&site("s1")));
    assert!(attempts.contains_key(&site("s0")), "its cooldown lasts until second 300");
}
