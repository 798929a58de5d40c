//! The policy file: no bytes panic, whatever reads as a policy keeps every rule through every step, and no damaged
//! cooldown reads as permission.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use towline::config::Role;
use towline::policy::state::{
    Authorize, Cas, Ending, FileState, Method, Now, Operation, Policy, Scope, Timestamp, apply, decode,
    encode, permits_dispatch,
};
use towline::policy::{ClientId, Error, GrantSecret, SiteId};

const NOW_MS: i64 = 1_800_000_000_000;

fn now() -> Now {
    Now { at: Timestamp::from_ms(NOW_MS), client: ClientId::named("fuzz"), pid: 7, fresh: Default::default() }
}

/// Every kind of step, aimed at what the policy holds.
fn steps(policy: Option<&Policy>, site: &SiteId) -> Vec<Operation> {
    let cas = policy.map_or(Cas { generation: String::new(), revision: 0 }, |policy| Cas {
        generation: policy.generation.as_str().to_owned(),
        revision: policy.revision,
    });
    let scope = Scope { site: site.clone(), role: Role::Login, allow_offvpn: false };
    let secret = GrantSecret::presented("fuzz");
    let grant = policy.and_then(|policy| policy.grant.as_ref());
    let attempts = policy.into_iter().flat_map(|policy| policy.attempts.values());
    let text = || "why not".to_owned();
    let mut steps = vec![
        Operation::Disable { reason: text() },
        Operation::EnableReuse { cas: cas.clone(), reference: text() },
        Operation::Authorize(Box::new(Authorize {
            cas,
            scope: scope.clone(),
            ttl: Duration::from_secs(300),
            method: Method::ExplicitUserApproval,
            reference: text(),
            id: secret.hash(),
        })),
        Operation::OpenSite { scope, id: secret.hash(), launcher_pid: 7, reference: text() },
    ];
    if let Some(grant) = grant {
        steps.push(Operation::Revoke { grant: grant.name(), reason: text() });
        steps.push(Operation::RevokeStanding { id: grant.id.clone(), reason: text() });
        steps.push(Operation::Consume {
            id: grant.id.clone(),
            site: grant.scope.site.clone(),
            role: grant.scope.role,
            launcher_pid: 7,
        });
    }
    for attempt in attempts {
        for ending in [Ending::Success, Ending::Unreached, Ending::Failed(Some(1))] {
            steps.push(Operation::Finish { grant: attempt.grant.clone(), ending });
        }
    }
    steps
}

fuzz_target!(|data: &[u8]| {
    let at = Timestamp::from_ms(NOW_MS);
    let state = match decode(data, at) {
        Ok(policy) => {
            let bytes = encode(&policy).expect("a policy is written");
            assert_eq!(decode(&bytes, at).as_ref(), Ok(&policy), "what is written reads back");
            FileState::Valid(Box::new(policy))
        }
        Err(reason) => FileState::Malformed { reason, modified_at: at },
    };
    let policy = match &state {
        FileState::Valid(policy) => Some(policy.as_ref()),
        _ => None,
    };
    assert!(policy.is_some() || permits_dispatch(&state).is_err());
    let sites = policy.into_iter().flat_map(|policy| policy.attempts.keys().cloned());
    let sites: Vec<SiteId> = sites.take(3).chain(SiteId::parse("hpc").ok()).collect();
    for site in &sites {
        for step in steps(policy, site) {
            let result = apply(&state, &step, &now());
            let permits = matches!(
                step,
                Operation::Authorize(_) | Operation::OpenSite { .. } | Operation::Consume { .. }
            );
            match result {
                Ok(applied) => {
                    let bytes = encode(&applied.policy).expect("a policy is written");
                    assert_eq!(decode(&bytes, at).as_ref(), Ok(&applied.policy), "{step:?}");
                    assert!(applied.policy.events.len() <= 64);
                    assert!(!permits || permits_dispatch(&state).is_ok());
                    let blocked = policy.and_then(|policy| policy.attempts.get(site));
                    let blocked = blocked.is_some_and(|attempt| attempt.blocks(at));
                    let gives = matches!(step, Operation::Authorize(_) | Operation::OpenSite { .. });
                    assert!(!(gives && blocked), "a cooldown holds: {step:?}");
                }
                Err(error) => {
                    let spent = policy
                        .is_some_and(|policy| policy.revision + 1 > towline::policy::state::REVISION_MAX);
                    let disables = matches!(step, Operation::Disable { .. });
                    assert!(!disables || (spent && !matches!(error, Error::Denied { .. })), "{error}");
                }
            }
        }
    }
});
