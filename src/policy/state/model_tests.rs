//! Random sequences of operations against a second, independent idea of the policy.

use super::*;
use crate::config::Role;
use crate::policy::error::Error;
use crate::policy::id::{ClientId, GrantSecret, SiteId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

const SITES: [&str; 2] = ["a", "b"];
const CLIENTS: [&str; 2] = ["x", "y"];
const START: i64 = 1_000_000;

/// A step as the generator makes it; numbers choose among few values, so that they meet.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Disable,
    Enable { fresh: bool },
    Grant { site: usize, role: bool, ttl: i64, standing: bool, offvpn: bool, fresh: bool, client: usize },
    Open { site: usize, client: usize },
    Consume { grant: usize, site: usize, role: bool, client: usize },
    Finish { grant: usize, ending: usize },
    Revoke { grant: usize },
    RevokeStanding { grant: usize, client: usize },
    Damage,
}

fn steps() -> impl Strategy<Value = Step> {
    let client = 0_usize..2;
    prop_oneof![
        3 => prop_oneof![1_i64..20, 250_i64..310].prop_map(Step::Wait),
        1 => Just(Step::Disable),
        3 => prop::bool::weighted(0.8).prop_map(|fresh| Step::Enable { fresh }),
        5 => (0_usize..2, any::<bool>(), prop_oneof![Just(0), Just(301), 1_i64..=300], any::<bool>(),
              prop::bool::weighted(0.2), prop::bool::weighted(0.9), client.clone())
            .prop_map(|(site, role, ttl, standing, offvpn, fresh, client)| {
                Step::Grant { site, role, ttl, standing, offvpn, fresh, client }
            }),
        2 => (0_usize..2, client.clone()).prop_map(|(site, client)| Step::Open { site, client }),
        5 => (0_usize..3, 0_usize..2, any::<bool>(), client.clone())
            .prop_map(|(grant, site, role, client)| Step::Consume { grant, site, role, client }),
        4 => (0_usize..3, 0_usize..5).prop_map(|(grant, ending)| Step::Finish { grant, ending }),
        1 => (0_usize..3).prop_map(|grant| Step::Revoke { grant }),
        1 => (0_usize..3, client).prop_map(|(grant, client)| Step::RevokeStanding { grant, client }),
        1 => Just(Step::Damage),
    ]
}

/// The model: plain variables, one per fact, and nothing shared with the code that it judges.
#[derive(Default)]
struct Model {
    file: File,
    enabled: bool,
    revision: u64,
    generations: u32,
    waiting: Option<Waiting>,
    /// Site → who holds it: the grant's number, when it began, until when it blocks, whether it is under way.
    tried: HashMap<usize, Tried>,
    /// Until when a repair blocks everything.
    all_blocked_until: i64,
    broken_since: i64,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum File {
    #[default]
    None,
    Broken,
    Good,
}

#[derive(Clone)]
struct Waiting {
    number: usize,
    site: usize,
    role: bool,
    until: i64,
    bound_to: Option<usize>,
}

#[derive(Clone)]
struct Tried {
    number: usize,
    began: i64,
    blocks_until: i64,
    running: bool,
    open: bool,
}

type Word = &'static str;

impl Model {
    fn usable_file(&self) -> Result<(), Word> {
        if self.file == File::Good { Ok(()) } else { Err("policy_invalid") }
    }

    fn on(&self) -> Result<(), Word> {
        self.usable_file()?;
        if self.enabled { Ok(()) } else { Err("policy_denied") }
    }

    fn free(&self, site: usize, now: i64) -> Result<(), Word> {
        let site_until = self.tried.get(&site).map_or(i64::MIN, |tried| tried.blocks_until);
        if now < site_until.max(self.all_blocked_until) { Err("cooldown") } else { Ok(()) }
    }

    fn take(&mut self, step: &Step, number: usize, stale_cas: bool, now: i64) -> Result<(), Word> {
        match step {
            Step::Wait(_) | Step::Damage => return Ok(()),
            Step::Disable => {
                match self.file {
                    File::None => self.generations += 1,
                    File::Broken => {
                        self.generations += 1;
                        self.tried.clear();
                        self.all_blocked_until = self.broken_since.min(now).max(0) + 300;
                        self.revision = 0;
                    }
                    File::Good => {}
                }
                self.file = File::Good;
                self.enabled = false;
                self.waiting = None;
            }
            Step::Enable { .. } => {
                self.usable_file()?;
                if stale_cas {
                    return Err("policy_conflict");
                }
                self.enabled = true;
                self.waiting = None;
            }
            Step::Grant { site, role, ttl, standing, offvpn, client, .. } => {
                if *ttl == 0 || *ttl == 301 || (*standing && *offvpn) {
                    return Err("invalid_input");
                }
                self.usable_file()?;
                if stale_cas {
                    return Err("policy_conflict");
                }
                self.on()?;
                if self.waiting.as_ref().is_some_and(|waiting| now < waiting.until) {
                    return Err("grant_invalid");
                }
                self.free(*site, now)?;
                if let Some(tried) = self.tried.get_mut(site) {
                    tried.running = false;
                }
                let bound_to = standing.then_some(*client);
                self.waiting = Some(Waiting { number, site: *site, role: *role, until: now + ttl, bound_to });
            }
            Step::Open { site, .. } => {
                self.on()?;
                self.free(*site, now)?;
                self.tried.insert(*site, Tried::new(number, now, true));
            }
            Step::Consume { grant, site, role, client } => {
                self.on()?;
                let waiting = self.waiting.clone().ok_or("grant_invalid")?;
                let fits = waiting.number == *grant
                    && waiting.bound_to.is_none_or(|owner| owner == *client)
                    && (waiting.site, waiting.role) == (*site, *role)
                    && now < waiting.until;
                if !fits {
                    return Err("grant_invalid");
                }
                self.waiting = None;
                self.tried.insert(*site, Tried::new(*grant, now, false));
            }
            Step::Finish { grant, ending } => {
                self.usable_file()?;
                let tried = self.tried.values_mut().find(|tried| tried.number == *grant);
                let tried = tried.filter(|tried| tried.running).ok_or("policy_conflict")?;
                tried.running = false;
                tried.blocks_until = match ending {
                    0 => i64::MIN,
                    1 if tried.open => tried.began + 10,
                    _ => tried.began + 300,
                };
            }
            Step::Revoke { grant } => {
                self.usable_file()?;
                if self.waiting.as_ref().is_none_or(|waiting| waiting.number != *grant) {
                    return Err("grant_invalid");
                }
                self.waiting = None;
            }
            Step::RevokeStanding { grant, client } => {
                self.usable_file()?;
                let ours = |waiting: &Waiting| waiting.number == *grant && waiting.bound_to == Some(*client);
                if !self.waiting.as_ref().is_some_and(ours) {
                    return Err("grant_invalid");
                }
                self.waiting = None;
            }
        }
        self.revision += 1;
        Ok(())
    }
}

impl Tried {
    fn new(number: usize, now: i64, open: bool) -> Tried {
        Tried { number, began: now, blocks_until: now + 300, running: true, open }
    }
}

fn secret(number: usize) -> crate::policy::id::GrantHash {
    GrantSecret::presented(&format!("grant {number}")).hash()
}

fn role(transfer: bool) -> Role {
    if transfer { Role::Transfer } else { Role::Login }
}

fn operation(step: &Step, number: usize, cas: Cas) -> Option<(Operation, usize)> {
    let site = |index: usize| SiteId::parse(SITES[index]).unwrap();
    Some(match step.clone() {
        Step::Wait(_) | Step::Damage => return None,
        Step::Disable => (Operation::Disable { reason: "stop".to_owned() }, 0),
        Step::Enable { .. } => (Operation::EnableReuse { cas, reference: "go".to_owned() }, 0),
        Step::Grant { site: index, role: transfer, ttl, standing, offvpn, client, .. } => {
            let authorize = Authorize {
                cas,
                scope: Scope { site: site(index), role: role(transfer), allow_offvpn: offvpn },
                ttl: Duration::from_secs(u64::try_from(ttl).unwrap()),
                method: if standing { Method::StandingOnVpn } else { Method::ExplicitUserApproval },
                reference: "yes".to_owned(),
                id: secret(number),
            };
            (Operation::Authorize(Box::new(authorize)), client)
        }
        Step::Open { site: index, client } => {
            let scope = Scope { site: site(index), role: Role::Login, allow_offvpn: true };
            (
                Operation::OpenSite {
                    scope,
                    id: secret(number),
                    launcher_pid: 9,
                    reference: "open".to_owned(),
                },
                client,
            )
        }
        Step::Consume { grant, site: index, role: transfer, client } => (
            Operation::Consume {
                id: secret(grant),
                site: site(index),
                role: role(transfer),
                launcher_pid: 9,
            },
            client,
        ),
        Step::Finish { grant, ending } => {
            let ending = [
                Ending::Success,
                Ending::Unreached,
                Ending::Failed(Some(5)),
                Ending::TimedOut,
                Ending::Error,
            ][ending];
            (Operation::Finish { grant: secret(grant).name(), ending }, 0)
        }
        Step::Revoke { grant } => {
            (Operation::Revoke { grant: secret(grant).name(), reason: "no".to_owned() }, 0)
        }
        Step::RevokeStanding { grant, client } => {
            (Operation::RevokeStanding { id: secret(grant), reason: "no".to_owned() }, client)
        }
    })
}

fn word(error: &Error) -> Word {
    match error {
        Error::Invalid { .. } => "policy_invalid",
        Error::Text { .. } => "text",
        Error::Input { .. } => "invalid_input",
        Error::Conflict { .. } => "policy_conflict",
        Error::Denied { .. } => "policy_denied",
        Error::Grant { .. } => "grant_invalid",
        Error::Cooldown { .. } => "cooldown",
        other => panic!("{other:?}"),
    }
}

/// The generator's grant numbers count back from the newest, so that they often hit.
fn aimed(step: &Step, newest: usize) -> Step {
    let at = |back: usize| newest.saturating_sub(back);
    let mut step = step.clone();
    match &mut step {
        Step::Consume { grant, .. }
        | Step::Finish { grant, .. }
        | Step::Revoke { grant }
        | Step::RevokeStanding { grant, .. } => *grant = at(*grant),
        _ => {}
    }
    step
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_policy_does_what_an_independent_model_says(sequence in prop::collection::vec(steps(), 1..80)) {
        let mut state = FileState::Missing;
        let mut model = Model { all_blocked_until: i64::MIN, ..Model::default() };
        let (mut now, mut number) = (START, 0);
        for (index, step) in sequence.iter().enumerate() {
            let step = aimed(step, number);
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Damage => {
                    let modified_at = Timestamp::from_ms(now * 1000);
                    state = FileState::Malformed { reason: "is half".to_owned(), modified_at };
                    model.file = File::Broken;
                    model.broken_since = now;
                }
                _ => {}
            }
            let (generation, revision) = match &state {
                FileState::Valid(policy) => (policy.generation.as_str().to_owned(), policy.revision),
                _ => (String::new(), 0),
            };
            let fresh = !matches!(step, Step::Enable { fresh: false } | Step::Grant { fresh: false, .. });
            let cas = Cas { generation, revision: if fresh { revision } else { revision + 1 } };
            if matches!(step, Step::Grant { .. } | Step::Open { .. }) {
                number += 1;
            }
            let Some((operation, client)) = operation(&step, number, cas) else { continue };
            let moment = Now {
                at: Timestamp::from_ms(now * 1000),
                client: ClientId::named(CLIENTS[client]),
                pid: 9,
                fresh: uuid::Uuid::from_u128(index as u128 + 1),
            };
            let expected = model.take(&step, number, !fresh, now);
            match apply(&state, &operation, &moment) {
                Err(error) => prop_assert_eq!(expected, Err(word(&error)), "{:?}", step),
                Ok(applied) => {
                    prop_assert_eq!(expected, Ok(()), "{:?}", step);
                    // What is written reads back, so every state is one that the rules permit.
                    let bytes = encode(&applied.policy).unwrap();
                    prop_assert_eq!(decode(&bytes, moment.at), Ok(applied.policy.clone()));
                    state = FileState::Valid(Box::new(applied.policy));
                }
            }
            if let FileState::Valid(policy) = &state {
                prop_assert_eq!(policy.mode == Mode::ReuseOnly, model.enabled);
                prop_assert_eq!(policy.revision, model.revision);
                prop_assert_eq!(permits_dispatch(&state).is_ok(), model.enabled);
                let waiting = policy.grant.as_ref().map(|grant| grant.id.clone());
                prop_assert_eq!(waiting, model.waiting.as_ref().map(|waiting| secret(waiting.number)));
                for (site, tried) in &model.tried {
                    let attempt = &policy.attempts[&SiteId::parse(SITES[*site]).unwrap()];
                    prop_assert_eq!(&attempt.grant, &secret(tried.number).name());
                    prop_assert_eq!(attempt.outcome == Outcome::Active, tried.running);
                    let left = u64::try_from(tried.blocks_until.saturating_sub(now)).unwrap_or(0);
                    prop_assert_eq!(attempt.seconds_left(moment.at), left);
                }
                // A grant that was spent never waits again.
                if let Some(grant) = &policy.grant {
                    prop_assert!(policy.attempts.values().all(|attempt| attempt.grant != grant.name()));
                }
            }
        }
    }
}
