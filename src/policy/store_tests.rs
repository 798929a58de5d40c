//! The driver on real files, with a clock that tests move.

use super::state::{Cas, Ending, Launch, Method, Mode, Outcome, Scope};
use super::*;
use crate::audit::{Clock, Reader, Record, Who, verify};
use crate::config::Role;
use crate::disk::{Folder, System};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub(super) struct StillClock {
    unix_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl StillClock {
    pub(super) fn new() -> Arc<StillClock> {
        let clock =
            StillClock { unix_ms: AtomicI64::new(1_700_000_000_000), monotonic_ms: AtomicU64::new(0) };
        Arc::new(clock)
    }

    pub(super) fn forward(&self, seconds: f64) {
        let ms = Duration::from_secs_f64(seconds).as_millis();
        self.unix_ms.fetch_add(i64::try_from(ms).unwrap(), Ordering::SeqCst);
        self.monotonic_ms.fetch_add(u64::try_from(ms).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn unix_ms(&self) -> i64 {
        self.unix_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
    }
}

pub(super) struct Desk {
    pub(super) scratch: tempfile::TempDir,
    pub(super) clock: Arc<StillClock>,
}

impl Desk {
    pub(super) fn new() -> Desk {
        let mode = fs::Permissions::from_mode(0o700);
        let scratch = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
        Desk { scratch, clock: StillClock::new() }
    }

    pub(super) fn enabled() -> Desk {
        let desk = Desk::new();
        desk.store().disable("first").unwrap();
        desk.enable();
        desk
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    pub(super) fn store(&self) -> Store {
        Store::on(Arc::new(System), self.clock.clone(), &self.dir(), ClientId::named("c"))
    }

    pub(super) fn enable(&self) {
        let store = self.store();
        store.enable_reuse(store.show().cas().unwrap(), "go on").unwrap();
    }

    pub(super) fn grant(&self, site: &str) -> Result<Granted, Error> {
        let store = self.store();
        let cas = store.show().cas().unwrap_or(Cas { generation: String::new(), revision: 0 });
        store.authorize(&request(cas, site))
    }

    fn file(&self) -> PathBuf {
        self.dir().join(FILE)
    }

    fn folder(&self) -> Folder {
        Folder::open(Arc::new(System), &self.dir()).unwrap()
    }
}

pub(super) fn request(cas: Cas, site: &str) -> GrantRequest {
    GrantRequest {
        cas,
        scope: Scope { site: SiteId::parse(site).unwrap(), role: Role::Login, allow_offvpn: false },
        ttl: Duration::from_secs(300),
        method: Method::ExplicitUserApproval,
        reference: "because".to_owned(),
    }
}

pub(super) fn spend(secret: &GrantSecret, site: &str) -> Spend {
    Spend { secret: secret.clone(), site: SiteId::parse(site).unwrap(), role: Role::Login, launcher_pid: 7 }
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn audited(dir: &Path) -> Vec<String> {
    let mut reader = Reader::new(dir);
    let mut found = Vec::new();
    while let Some(Record::Entry(line)) = reader.next_record().unwrap() {
        found.push(line.what.kind().to_owned());
    }
    found
}

#[test]
fn without_a_file_nothing_is_permitted_and_nothing_is_made() {
    let desk = Desk::new();
    let store = desk.store();
    let shown = store.show();
    assert_eq!((shown.valid, shown.mode, shown.revision, shown.generation), (false, Mode::Disabled, 0, None));
    let refused = store.gate::<(), Error>(|| Ok(()), || panic!("dispatched"));
    assert!(matches!(refused, Err(Error::Invalid { file: Some(_), .. })));
    assert!(matches!(desk.grant("hpc"), Err(Error::Invalid { .. })));
    assert!(!desk.dir().exists());
    fs::create_dir(desk.dir()).unwrap();
    fs::set_permissions(desk.dir(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(desk.grant("hpc").is_err() && store.gate::<(), Error>(|| Ok(()), || ()).is_err());
    assert_eq!(fs::read_dir(desk.dir()).unwrap().count(), 0);
}

#[test]
fn disable_makes_a_private_file_and_counts_on() {
    let desk = Desk::new();
    let store = desk.store();
    store.disable("first").unwrap();
    let first = store.show();
    assert_eq!((first.valid, first.mode, first.revision, first.events.len()), (true, Mode::Disabled, 1, 1));
    assert_eq!(
        (mode_of(&desk.dir()), mode_of(&desk.file()), mode_of(&desk.dir().join(MUTEX))),
        (0o700, 0o600, 0o600)
    );
    store.disable("second").unwrap();
    let second = store.show();
    assert_eq!((second.revision, second.events.len()), (2, 2));
    assert_eq!(second.generation, first.generation);
    assert!(fs::read_to_string(desk.file()).unwrap().ends_with("}\n"));
}

#[test]
fn a_grant_goes_from_issue_to_success_and_all_of_it_is_audited() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let text = fs::read_to_string(desk.file()).unwrap();
    assert!(!text.contains(granted.secret.danger_reveal()), "the id itself is nowhere");
    let store = desk.store();
    let checked = store.check_grant(&spend(&granted.secret, "hpc")).unwrap();
    assert_eq!(checked.name(), granted.grant.name());
    let attempt = store.consume(&spend(&granted.secret, "hpc"), Clone::clone).unwrap();
    let launch = Launch {
        grant: attempt.grant.clone(),
        site: attempt.scope.site.clone(),
        role: Role::Login,
        client: attempt.client.clone(),
        launcher_pid: 7,
    };
    assert_eq!(store.authorize_launch(&launch, || 5).unwrap(), 5);
    // Spent is spent.
    assert!(matches!(store.consume(&spend(&granted.secret, "hpc"), |_| ()), Err(Error::Grant { .. })));
    let finished = store.finish(&attempt.grant, Ending::Success).unwrap();
    assert_eq!(finished.outcome, Outcome::Success);
    assert!(store.authorize_launch(&launch, || ()).is_err());
    assert!(matches!(store.finish(&attempt.grant, Ending::Error), Err(Error::Conflict { .. })));
    assert_eq!(
        audited(&desk.dir()),
        [
            "policy_disabled",
            "policy_reuse_enabled",
            "login_authorized",
            "login_grant_consumed",
            "login_attempt_finished",
        ]
    );
    let text = fs::read_to_string(desk.dir().join("audit.jsonl")).unwrap();
    assert!(!text.contains(granted.secret.danger_reveal()));
    assert!(verify(&desk.dir()).unwrap().ok);
}

#[test]
fn p5_a_late_a_foreign_and_a_mistyped_grant_are_refused_and_begin_no_attempt() {
    let desk = Desk::enabled();
    let store = desk.store();
    let short = GrantRequest { ttl: Duration::from_secs(10), ..request(store.show().cas().unwrap(), "hpc") };
    let granted = store.authorize(&short).unwrap();
    desk.clock.forward(11.0);
    let refused = |spend: &Spend| match store.consume(spend, |_| panic!("started")) {
        Err(Error::Grant { fault }) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&spend(&granted.secret, "hpc")), GrantFault::Expired);
    let granted = desk.grant("hpc").unwrap();
    let transfer = Spend { role: Role::Transfer, ..spend(&granted.secret, "hpc") };
    assert_eq!(refused(&transfer), GrantFault::OtherRole);
    let mut text = granted.secret.danger_reveal().to_owned();
    let last = text.pop().unwrap();
    text.push(if last == '0' { '1' } else { '0' });
    assert_eq!(refused(&spend(&GrantSecret::presented(&text), "hpc")), GrantFault::OtherId);
    assert!(store.show().attempts.is_empty());
}

#[test]
fn p6_a_failed_attempt_blocks_for_300_s_and_then_a_new_id_is_given() {
    let desk = Desk::enabled();
    let first = desk.grant("hpc").unwrap();
    let store = desk.store();
    let name = store.consume(&spend(&first.secret, "hpc"), |attempt| attempt.grant.clone()).unwrap();
    store.finish(&name, Ending::Unreached).unwrap();
    desk.clock.forward(299.0);
    assert!(matches!(desk.grant("hpc"), Err(Error::Cooldown { seconds_left: 1, .. })));
    assert!(desk.grant("other").is_ok(), "the cooldown is the site's");
    let other = store.show().grant.unwrap().name();
    store.revoke(&other, "not now").unwrap();
    desk.clock.forward(2.0);
    let second = desk.grant("hpc").unwrap();
    assert_ne!(second.secret.danger_reveal(), first.secret.danger_reveal());
}

#[test]
fn p7_a_half_file_is_repaired_with_a_cooldown_as_old_as_it_is() {
    let desk = Desk::enabled();
    let before = desk.store().show();
    let bytes = fs::read(desk.file()).unwrap();
    fs::write(desk.file(), &bytes[..bytes.len() / 2]).unwrap();
    let modified = std::time::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 - 100_000);
    fs::File::options().write(true).open(desk.file()).unwrap().set_modified(modified).unwrap();
    let broken = desk.store().show();
    assert!(!broken.valid && broken.error.unwrap().contains("malformed"));
    assert!(matches!(desk.grant("hpc"), Err(Error::Invalid { .. })));
    desk.store().disable("repair it").unwrap();
    let repaired = desk.store().show();
    assert_ne!(repaired.generation, before.generation);
    assert_eq!((repaired.revision, repaired.attempts[0].outcome), (1, Outcome::Error));
    desk.enable();
    assert!(matches!(desk.grant("hpc"), Err(Error::Cooldown { seconds_left: 200, .. })));
}

#[test]
fn p4_links_foreign_and_open_files_permit_nothing_and_stay_as_they_are() {
    let desk = Desk::enabled();
    let store = desk.store();
    let target = desk.scratch.path().join("target.json");
    fs::rename(desk.file(), &target).unwrap();
    symlink(&target, desk.file()).unwrap();
    let before = fs::read(&target).unwrap();
    assert!(!store.show().valid && store.show().mode == Mode::Disabled);
    assert!(matches!(store.disable("x"), Err(Error::Invalid { .. })));
    assert!(store.gate::<(), Error>(|| Ok(()), || ()).is_err());
    assert_eq!(fs::read(&target).unwrap(), before);
    assert_eq!(fs::read_link(desk.file()).unwrap(), target);
    fs::remove_file(desk.file()).unwrap();
    fs::copy(&target, desk.file()).unwrap();
    for mode in [0o640, 0o604, 0o660, 0o610] {
        fs::set_permissions(desk.file(), fs::Permissions::from_mode(mode)).unwrap();
        assert!(!store.show().valid, "{mode:o}");
        assert!(store.disable("x").is_err());
        assert_eq!((mode_of(&desk.file()), fs::read(desk.file()).unwrap()), (mode, before.clone()));
    }
    for mode in [0o600, 0o400, 0o700] {
        fs::set_permissions(desk.file(), fs::Permissions::from_mode(mode)).unwrap();
        assert!(store.show().valid, "{mode:o}");
    }
    fs::set_permissions(desk.dir(), fs::Permissions::from_mode(0o710)).unwrap();
    assert!(!store.show().valid && store.disable("x").is_err());
    assert_eq!(mode_of(&desk.dir()), 0o710);
    fs::set_permissions(desk.dir(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(desk.dir().join(MUTEX)).unwrap();
    symlink("elsewhere", desk.dir().join(MUTEX)).unwrap();
    assert!(store.disable("x").is_err() && store.gate::<(), Error>(|| Ok(()), || ()).is_err());
    assert!(!desk.dir().join("elsewhere").exists());
}

#[test]
fn disable_gets_past_a_holder_that_never_lets_go_and_every_gate_obeys() {
    let desk = Desk::enabled();
    let store = desk.store();
    let held = desk.folder().lock(MUTEX, Duration::from_secs(1)).unwrap();
    let begun = Instant::now();
    assert_eq!(store.disable("the holder hangs").unwrap(), Disabled::Marked);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let shown = store.show();
    assert!(shown.valid && shown.stop_marker && shown.mode == Mode::Disabled);
    assert_eq!(mode_of(&desk.dir().join(MARKER)), 0o600);
    assert!(matches!(
        store.would(&request(shown.cas().unwrap(), "hpc").operation(&GrantSecret::presented("x"))),
        Err(Error::Denied { .. })
    ));
    // A second one is as good.
    assert_eq!(store.disable("again").unwrap(), Disabled::Marked);
    drop(held);
    assert!(matches!(store.gate::<(), Error>(|| Ok(()), || panic!("dispatched")), Err(Error::Denied { .. })));
    let shown = store.show();
    assert!(!shown.stop_marker && shown.mode == Mode::Disabled, "the gate has folded the marker in");
    let reasons = format!("{:?}", shown.events.last().unwrap().kind);
    assert!(reasons.contains("the holder hangs"), "{reasons}");
}

#[test]
fn a_disable_that_waits_a_little_is_written_by_itself() {
    let desk = Desk::enabled();
    let held = desk.folder().lock(MUTEX, Duration::from_secs(1)).unwrap();
    std::thread::scope(|scope| {
        let disabling = scope.spawn(|| desk.store().disable("x").unwrap());
        // Until the marker is there, the disable waits for the mutex.
        while !desk.dir().join(MARKER).exists() {
            std::thread::yield_now();
        }
        drop(held);
        assert!(matches!(disabling.join().unwrap(), Disabled::Written(_)));
    });
    assert!(!desk.store().show().stop_marker);
}

#[test]
fn a_gate_that_stood_still_between_its_look_and_its_act_looks_again() {
    let desk = Desk::enabled();
    let store = desk.store();
    // Stopped for a second while it prepared; meanwhile somebody disabled.
    let refused = store.gate::<(), Error>(
        || {
            desk.clock.forward(1.0);
            fs::write(desk.dir().join(MARKER), "").unwrap();
            Ok(())
        },
        || panic!("dispatched"),
    );
    assert!(matches!(refused, Err(Error::Denied { .. })));
    desk.enable();
    let prepared = std::cell::Cell::new(0);
    let done = store.gate::<u8, Error>(
        || {
            prepared.set(prepared.get() + 1);
            desk.clock.forward(1.0);
            Ok(())
        },
        || 3,
    );
    assert_eq!((done.unwrap(), prepared.get()), (3, 1), "it looked again, and prepared once");
    // The mutex is free in between: the second look is a look at what others did.
    let other = desk.store();
    let mut left = 1;
    let refused = store.gate::<(), Error>(
        || {
            desk.clock.forward(1.0);
            left -= 1;
            // Another process gets it as soon as this gate lets go, since it looks again only after that.
            fs::write(desk.dir().join(MARKER), "{\"reason\":\"now\"}").unwrap();
            Ok(())
        },
        || panic!("dispatched"),
    );
    assert!(refused.is_err() && left == 0 && other.show().mode == Mode::Disabled);
}

/// A clock that leaves a stop marker when it is asked for the elapsed time: right before the last look.
#[derive(Debug)]
struct MarkingClock(Arc<StillClock>, PathBuf);

impl Clock for MarkingClock {
    fn unix_ms(&self) -> i64 {
        self.0.unix_ms()
    }

    fn monotonic(&self) -> Duration {
        fs::write(&self.1, "{}").unwrap();
        self.0.monotonic()
    }
}

#[test]
fn a_marker_that_comes_while_a_grant_is_spent_stops_the_start() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let clock = Arc::new(MarkingClock(desk.clock.clone(), desk.dir().join(MARKER)));
    let store = Store::on(Arc::new(System), clock, &desk.dir(), ClientId::named("c"));
    let refused = store.consume(&spend(&granted.secret, "hpc"), |_| panic!("started"));
    assert!(matches!(refused, Err(Error::Denied { .. })));
    let shown = desk.store().show();
    assert_eq!((shown.mode, shown.attempts[0].outcome), (Mode::Disabled, Outcome::Error));
    desk.enable();
    desk.clock.forward(300.0);
    let granted = desk.grant("hpc").unwrap();
    // The marker is there before, so it is folded in and the grant is gone.
    fs::write(desk.dir().join(MARKER), "").unwrap();
    let refused = desk.store().consume(&spend(&granted.secret, "hpc"), |_| panic!("started"));
    assert!(matches!(refused, Err(Error::Denied { .. })));
    assert!(desk.store().show().grant.is_none());
}

#[test]
fn a_marker_that_cannot_be_removed_keeps_everything_stopped() {
    let desk = Desk::enabled();
    fs::create_dir(desk.dir().join(MARKER)).unwrap();
    let store = desk.store();
    assert!(store.gate::<(), Error>(|| Ok(()), || ()).is_err());
    assert!(store.gate::<(), Error>(|| Ok(()), || ()).is_err());
    assert!(matches!(store.disable("x"), Ok(Disabled::Written(_))));
    assert_eq!(store.show().mode, Mode::Disabled);
    assert!(store.enable_reuse(store.show().cas().unwrap(), "go").is_err());
    assert_eq!(store.show().mode, Mode::Disabled);
}

#[test]
fn while_gates_pass_a_disable_lands_between_them_and_none_passes_after_it() {
    let desk = Desk::enabled();
    let disabled = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let store = desk.store();
                let mut passed = 0;
                while store.gate::<(), Error>(|| Ok(()), || assert!(!disabled.load(Ordering::SeqCst))).is_ok()
                {
                    passed += 1;
                    assert!(passed < 1_000_000);
                }
            });
        }
        scope.spawn(|| {
            desk.store().disable("now").unwrap();
            disabled.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn of_many_that_present_one_grant_exactly_one_starts() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let started = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let started = &started;
                // All but one are refused, which is the point.
                drop(
                    desk.store()
                        .consume(&spend(&granted.secret, "hpc"), |_| started.fetch_add(1, Ordering::SeqCst)),
                );
            });
        }
    });
    assert_eq!(started.load(Ordering::SeqCst), 1);
}

#[test]
fn what_the_audit_log_cannot_take_is_refused_but_never_a_disable() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let log = desk.dir().join("audit.jsonl");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o644)).unwrap();
    let store = desk.store();
    assert!(matches!(
        store.consume(&spend(&granted.secret, "hpc"), |_| panic!("started")),
        Err(Error::Audit(_))
    ));
    assert!(matches!(store.enable_reuse(store.show().cas().unwrap(), "go"), Err(Error::Audit(_))));
    assert_eq!(store.show().grant.unwrap().name(), granted.grant.name());
    store.disable("x").unwrap();
    assert_eq!(store.show().mode, Mode::Disabled);
    assert!(matches!(desk.grant("hpc"), Err(Error::Denied { .. })));
}

#[test]
fn an_open_site_connects_without_touching_a_grant_that_waits() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let scope = Scope { site: SiteId::parse("cloud").unwrap(), role: Role::Login, allow_offvpn: true };
    let store = desk.store();
    let attempt = store.open_site(&scope, 7, "approval = open", Clone::clone).unwrap();
    assert_eq!((attempt.method, attempt.outcome), (Method::OpenSite, Outcome::Active));
    assert_eq!(store.show().grant.unwrap().name(), granted.grant.name());
    store.finish(&attempt.grant, Ending::Unreached).unwrap();
    assert!(matches!(
        store.open_site(&scope, 7, "again", |_| ()),
        Err(Error::Cooldown { seconds_left: 10, .. })
    ));
    desk.clock.forward(10.0);
    assert!(store.open_site(&scope, 7, "again", |_| ()).is_ok());
}

#[test]
fn a_standing_grant_is_taken_back_by_its_own_client_only() {
    let desk = Desk::enabled();
    let store = desk.store();
    let standing =
        GrantRequest { method: Method::StandingOnVpn, ..request(store.show().cas().unwrap(), "hpc") };
    let granted = store.authorize(&standing).unwrap();
    let stranger = Store::on(Arc::new(System), desk.clock.clone(), &desk.dir(), ClientId::named("other"));
    assert!(!stranger.revoke_standing(&granted.secret, "route gone").unwrap());
    assert!(stranger.consume(&spend(&granted.secret, "hpc"), |_| ()).is_err());
    let before = store.show().revision;
    assert!(store.revoke_standing(&granted.secret, "route gone").unwrap());
    assert!(!store.revoke_standing(&granted.secret, "route gone").unwrap());
    assert_eq!(store.show().revision, before + 1);
}

#[test]
fn a_look_has_the_contracts_members() {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    let json = desk.store().show().to_json();
    for key in ["mode", "generation", "revision", "valid", "error", "path", "grant", "attempts", "events"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    assert_eq!(json["grant"]["name"], granted.grant.name().as_str());
    assert_eq!(json["grant"]["expires_at"], "2023-11-14T22:18:20.000Z");
    let store = desk.store();
    store.consume(&spend(&granted.secret, "hpc"), |_| ()).unwrap();
    let json = store.show().to_json();
    assert_eq!(json["attempts"][0]["outcome"], "active");
    assert_eq!(json["attempts"][0]["seconds_left"], 300);
    assert!(json["grant"].is_null());
    for _ in 0..20 {
        store.disable("x").unwrap();
    }
    assert_eq!(store.show().to_json()["events"].as_array().unwrap().len(), 10);
    assert_eq!(store.show().to_json_with_history()["events"].as_array().unwrap().len(), 24);
    assert_eq!(store.who(), &Who::here("c"));
}
