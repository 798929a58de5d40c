//! Each operation with each of its file operations going wrong, and with the process dying around each of them.

use super::state::{Ending, Mode, Outcome};
use super::store_tests::{Desk, request, spend};
use super::*;
use crate::disk::faulty::{Faulty, Wrong};
use std::sync::Arc;

/// Runs `act` with fault number 1, 2, … until none is left, each on a desk of its own, and lets `judge` look.
fn with_every_fault<P, T>(
    prepare: impl Fn() -> (Desk, P),
    act: impl Fn(&Store, &P) -> Result<T, Error>,
    judge: impl Fn(&Desk, &P, Result<T, Error>, &str),
) {
    for wrong in Wrong::ALL {
        for at in 1.. {
            let (desk, prepared) = prepare();
            let faulty = Arc::new(Faulty::new(at, wrong));
            let store = Store::on(faulty.clone(), desk.clock.clone(), &desk.dir(), ClientId::named("c"));
            let result = act(&store, &prepared);
            drop(store);
            if !faulty.struck() {
                assert!(result.is_ok(), "without a fault it works");
                assert!(at > 5, "faults were injected");
                break;
            }
            judge(&desk, &prepared, result, &format!("{wrong:?} at {at}"));
        }
    }
}

fn with_grant() -> (Desk, Granted) {
    let desk = Desk::enabled();
    let granted = desk.grant("hpc").unwrap();
    (desk, granted)
}

#[test]
fn a_grant_is_unused_or_spent_whatever_fails_and_never_used_twice() {
    let started = std::cell::Cell::new(false);
    with_every_fault(
        with_grant,
        |store, granted| {
            started.set(false);
            store.consume(&spend(&granted.secret, "hpc"), |_| started.set(true))
        },
        |desk, granted, result, fault| {
            let shown = desk.store().show();
            assert!(shown.valid, "{fault}: {:?}", shown.error);
            let waits = shown.grant.is_some();
            let attempt = shown.attempts.iter().find(|attempt| attempt.grant == granted.grant.name());
            assert_ne!(waits, attempt.is_some(), "{fault}: unused or spent, never both, never neither");
            assert_eq!(result.is_ok(), started.get(), "{fault}");
            assert!(!(started.get() && waits), "{fault}: what was started has spent its grant");
            let again = desk.store().consume(&spend(&granted.secret, "hpc"), |_| ());
            assert_eq!(again.is_ok(), waits, "{fault}");
            assert!(desk.store().consume(&spend(&granted.secret, "hpc"), |_| ()).is_err(), "{fault}");
        },
    );
}

#[test]
fn an_open_site_is_blocked_or_untouched_whatever_fails() {
    let started = std::cell::Cell::new(false);
    with_every_fault(
        || (Desk::enabled(), ()),
        |store, ()| {
            started.set(false);
            let scope = request(store.show().cas().ok_or(GrantFault::None)?, "hpc").scope;
            store.open_site(&scope, 7, "open", |_| started.set(true))
        },
        |desk, (), _, fault| {
            let shown = desk.store().show();
            assert!(shown.valid, "{fault}");
            assert!(!started.get() || shown.attempts.len() == 1, "{fault}");
        },
    );
}

#[test]
fn an_issued_grant_is_whole_or_not_there_and_only_a_told_one_can_be_used() {
    with_every_fault(
        || (Desk::enabled(), ()),
        |store, ()| store.authorize(&request(store.show().cas().ok_or(GrantFault::None)?, "hpc")),
        |desk, (), result, fault| {
            let shown = desk.store().show();
            assert!(shown.valid, "{fault}: {:?}", shown.error);
            match result {
                Ok(granted) => assert_eq!(shown.grant.unwrap().name(), granted.grant.name(), "{fault}"),
                // A grant whose id nobody was told is of no use, and gone after its time.
                Err(_) => {
                    desk.clock.forward(300.0);
                    assert!(desk.grant("hpc").is_ok(), "{fault}");
                }
            }
        },
    );
}

#[test]
fn an_acknowledged_disable_holds_whatever_fails_and_an_enable_is_done_or_not() {
    with_every_fault(
        with_grant,
        |store, _| store.disable("stop"),
        |desk, granted, result, fault| {
            let store = desk.store();
            let shown = store.show();
            assert!(shown.valid, "{fault}: {:?}", shown.error);
            if result.is_ok() {
                assert_eq!(shown.mode, Mode::Disabled, "{fault}");
                let passed = store.gate::<(), Error>(|| Ok(()), || ());
                assert!(matches!(passed, Err(Error::Denied { .. })), "{fault}");
                assert!(store.consume(&spend(&granted.secret, "hpc"), |_| ()).is_err(), "{fault}");
            }
            store.disable("again").unwrap();
            assert!(!store.show().stop_marker, "{fault}");
        },
    );
    with_every_fault(
        || {
            let desk = Desk::new();
            desk.store().disable("first").unwrap();
            (desk, ())
        },
        |store, ()| store.enable_reuse(store.show().cas().ok_or(GrantFault::None)?, "go"),
        |desk, (), result, fault| {
            let shown = desk.store().show();
            assert!(shown.valid, "{fault}");
            assert!(result.is_err() || shown.mode == Mode::ReuseOnly, "{fault}");
        },
    );
}

#[test]
fn a_first_disable_leaves_no_file_or_a_whole_one() {
    with_every_fault(
        || (Desk::new(), ()),
        |store, ()| store.disable("first"),
        |desk, (), result, fault| {
            let shown = desk.store().show();
            assert_eq!(shown.mode, Mode::Disabled, "{fault}");
            if matches!(result, Ok(Disabled::Written(_))) {
                assert!(shown.valid, "{fault}: {:?}", shown.error);
            }
            assert!(desk.store().gate::<(), Error>(|| Ok(()), || ()).is_err(), "{fault}");
            desk.store().disable("again").unwrap();
            assert!(desk.store().show().valid, "{fault}");
        },
    );
}

#[test]
fn an_attempt_stays_active_or_has_ended_whatever_fails() {
    with_every_fault(
        || {
            let (desk, granted) = with_grant();
            desk.store().consume(&spend(&granted.secret, "hpc"), |_| ()).unwrap();
            (desk, granted)
        },
        |store, granted| store.finish(&granted.grant.name(), Ending::Success),
        |desk, granted, result, fault| {
            let shown = desk.store().show();
            assert!(shown.valid, "{fault}");
            let outcome = shown.attempts[0].outcome;
            assert!(matches!(outcome, Outcome::Active | Outcome::Success), "{fault}");
            assert!(result.is_err() || outcome == Outcome::Success, "{fault}");
            // Only an attempt that has ended lets another one be granted before its time.
            assert_eq!(desk.grant("hpc").is_ok(), outcome == Outcome::Success, "{fault}");
            assert!(desk.store().consume(&spend(&granted.secret, "hpc"), |_| ()).is_err(), "{fault}");
        },
    );
}

#[test]
fn a_gate_dispatches_only_what_it_reports_and_a_fold_can_be_repeated() {
    let dispatched = std::cell::Cell::new(false);
    let gate = |store: &Store, _: &()| {
        dispatched.set(false);
        store.gate::<(), Error>(|| Ok(()), || dispatched.set(true))
    };
    with_every_fault(
        || (Desk::enabled(), ()),
        gate,
        |desk, (), result, fault| {
            assert_eq!(result.is_ok(), dispatched.get(), "{fault}");
            assert_eq!(desk.store().show().mode, Mode::ReuseOnly, "{fault}");
        },
    );
    // With a marker nothing may pass, whichever step of the folding fails.
    for wrong in Wrong::ALL {
        for at in 1.. {
            let desk = Desk::enabled();
            std::fs::write(desk.dir().join(MARKER), "").unwrap();
            let faulty = Arc::new(Faulty::new(at, wrong));
            let store = Store::on(faulty.clone(), desk.clock.clone(), &desk.dir(), ClientId::named("c"));
            assert!(gate(&store, &()).is_err() && !dispatched.get(), "{wrong:?} at {at}");
            drop(store);
            assert_eq!(desk.store().show().mode, Mode::Disabled, "{wrong:?} at {at}");
            assert!(gate(&desk.store(), &()).is_err() && !dispatched.get(), "{wrong:?} at {at}");
            if !faulty.struck() {
                break;
            }
        }
    }
}
