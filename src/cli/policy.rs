//! `towline policy …`: what is permitted, and who permits it.

use serde_json::json;

use super::args::{GrantArgs, PolicyCommand, SeenArgs};
use super::ask;
use super::output::{Colour, Output};
use super::table::{clean, render};
use crate::audit::rfc3339;
use crate::config::duration::{self, DURATION_MAX, DurationError};
use crate::config::{Config, Destination, Environment, Home, Role};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::policy::state::{Cas, Method, Mode, Operation, Scope};
use crate::policy::{Disabled, GrantName, GrantRequest, GrantSecret, Shown, SiteId, Store};

/// The word that a human types to let open lines be used.
const ENABLE: &str = "enable";
/// The reference of an approval that was typed; the terminal asked for no other reason.
const TYPED: &str = "approved on a terminal";
/// What a pod's site begins with.
const POD: &str = "pod:";

pub(super) fn run(command: &PolicyCommand, environment: Environment, output: &Output) -> Result<u8, Failure> {
    // Nothing but the directories is consulted: a mistake in config.toml must never keep anybody from disabling.
    let home = Home::from_environment(&environment)?;
    let store = Store::new(&home);
    match command {
        PolicyCommand::Show => show(&store.show(), false, output),
        PolicyCommand::History => show(&store.show(), true, output),
        PolicyCommand::Disable { reason } => disable(&store, reason, output),
        PolicyCommand::EnableReuse(seen) => enable_reuse(&store, seen, output),
        PolicyCommand::Grant(args) => grant(&store, args, environment, output),
        PolicyCommand::Revoke { grant } => {
            store.revoke(&GrantName::of_name_or_id(grant), "revoked on the command line")?;
            show(&store.show(), false, output)
        }
    }
}

fn show(shown: &Shown, history: bool, output: &Output) -> Result<u8, Failure> {
    if output.json() {
        let policy = if history { shown.to_json_with_history() } else { shown.to_json() };
        output.document(&json!({ "policy": policy }))?;
    } else {
        output.text(&text(shown, history, output))?;
    }
    Ok(0)
}

fn disable(store: &Store, reason: &str, output: &Output) -> Result<u8, Failure> {
    let done = store.disable(reason)?;
    if output.json() {
        return show(&store.show(), false, output);
    }
    output.text(&match done {
        Disabled::Written(policy) => format!("the policy is disabled (revision {})\n", policy.revision),
        Disabled::Marked => {
            "the policy is disabled by a stop marker, since another process holds the policy; the \
                             next process that gets it writes it down\n"
                .to_owned()
        }
    })?;
    output.note("operations that have begun go on; nothing new is permitted")?;
    Ok(0)
}

fn enable_reuse(store: &Store, seen: &SeenArgs, output: &Output) -> Result<u8, Failure> {
    let shown = store.show();
    let cas = seen_or_shown(seen, &shown);
    store.would(&Operation::EnableReuse { cas: cas.clone(), reference: TYPED.to_owned() })?;
    let stake = [
        "Every program of yours on this workstation may then use the lines that are open, until the policy is disabled."
            .to_owned(),
        format!("Policy {} at revision {}.", shown.path.display(), cas.revision),
    ];
    ask::demand(&stake, ENABLE)?;
    store.enable_reuse(cas, TYPED)?;
    show(&store.show(), false, output)
}

fn grant(store: &Store, args: &GrantArgs, environment: Environment, output: &Output) -> Result<u8, Failure> {
    let ttl = duration::parse(&args.ttl, DURATION_MAX).map_err(|error| {
        // A wrong form is a mistyped option; a value out of its bounds is the contract's invalid_input.
        let kind = match &error {
            DurationError::Form(_) => Kind::Usage,
            DurationError::Zero(_) | DurationError::TooLong { .. } => Kind::InvalidInput,
        };
        Failure::new(kind, error.to_string()).field("which", "ttl")
    })?;
    let role = Role::from(args.role);
    let config = Config::load(environment)?;
    let host = host_of(&config, &args.site, role)?;
    let request = GrantRequest {
        cas: seen_or_shown(&args.seen, &store.show()),
        scope: Scope { site: SiteId::parse(&args.site)?, role, allow_offvpn: args.allow_offvpn },
        ttl,
        method: Method::ExplicitUserApproval,
        reference: args.reason.clone(),
    };
    // Whatever forbids the grant is told before a human is bothered.
    store.would(&request.operation(&GrantSecret::random()?))?;
    let mut stake = vec![
        format!(
            "Whoever has the grant may open one line to {} ({role}), {host}, within {}.",
            args.site, args.ttl
        ),
        format!("Reason: {}", args.reason),
    ];
    if args.allow_offvpn {
        stake.push("It also holds without a proven VPN route.".to_owned());
    }
    ask::demand(&stake, &args.site)?;
    let granted = store.authorize(&request)?;
    let expires_at = rfc3339(granted.grant.expires_at.ms());
    if output.json() {
        output.document(&json!({ "grant": {
            "id": granted.secret.danger_reveal(),
            "name": granted.grant.name(),
            "site": granted.grant.scope.site,
            "role": granted.grant.scope.role,
            "allow_offvpn": granted.grant.scope.allow_offvpn,
            "expires_at": expires_at,
        }}))?;
    } else {
        output.text(&format!("{}\n", granted.secret.danger_reveal()))?;
        output.note(&format!(
            "grant {} for {} ({role}) until {expires_at}; use it with `towline connect {} --role {role} --grant ID`",
            granted.grant.name(),
            args.site,
            args.site,
        ))?;
    }
    Ok(0)
}

/// What the caller names, else what was just shown; where there is no valid policy, nothing matches.
fn seen_or_shown(seen: &SeenArgs, shown: &Shown) -> Cas {
    match (&seen.generation, seen.revision) {
        (Some(generation), Some(revision)) => Cas { generation: generation.clone(), revision },
        _ => shown.cas().unwrap_or(Cas { generation: String::new(), revision: 0 }),
    }
}

/// The host behind a role of a site, which must be configured.
fn host_of(config: &Config, site: &str, role: Role) -> Result<String, Failure> {
    if let Some(profile) = site.strip_prefix(POD)
        && config.pods.keys().any(|known| known.as_str() == profile)
        && role == Role::Login
    {
        return Ok(format!("the pod of the profile {profile}"));
    }
    Ok(match config.site(site)?.destination(role)? {
        Destination::Ssh { host } => format!("host {host}"),
        Destination::Socket { path, .. } => format!("socket {}", path.display()),
    })
}

fn text(shown: &Shown, history: bool, output: &Output) -> String {
    let (mode, colour) = match shown.mode {
        Mode::ReuseOnly => (Mode::ReuseOnly.as_str(), Colour::Green),
        Mode::Disabled => (Mode::Disabled.as_str(), Colour::Yellow),
    };
    let mut text = format!("mode        {}\n", output.on_stdout(mode, colour));
    if let Some(error) = &shown.error {
        text.push_str(&format!("error       {}\n", clean(error)));
    }
    if let Some(generation) = &shown.generation {
        text.push_str(&format!("generation  {}\nrevision    {}\n", clean(generation), shown.revision));
    }
    text.push_str(&format!("file        {}\n", clean(&shown.path.to_string_lossy())));
    if shown.stop_marker {
        text.push_str("a stop marker is there; the next process that gets the policy writes it down\n");
    }
    if let Some(grant) = &shown.grant {
        let left = grant.expires_at.seconds_after(shown.at);
        let (site, role) = (&grant.scope.site, grant.scope.role);
        text.push_str(&format!("grant       {} for {site} ({role}), {left} s left\n", grant.name()));
    }
    let attempts: Vec<Vec<String>> = shown
        .attempts
        .iter()
        .map(|attempt| {
            vec![
                attempt.scope.site.to_string(),
                attempt.scope.role.to_string(),
                attempt.outcome.as_str().to_owned(),
                rfc3339(attempt.started_at.ms()),
                attempt.seconds_left(shown.at).to_string(),
            ]
        })
        .collect();
    if !attempts.is_empty() {
        text.push('\n');
        text.push_str(&render(&["SITE", "ROLE", "OUTCOME", "STARTED", "SECONDS LEFT"], attempts));
    }
    let policy = if history { shown.to_json_with_history() } else { shown.to_json() };
    let events = policy.get("events").and_then(|events| events.as_array()).cloned().unwrap_or_default();
    if !events.is_empty() {
        text.push('\n');
        text.push_str(&render(&["AT", "EVENT", "DETAILS"], events.into_iter().map(event)));
    }
    text
}

fn event(event: serde_json::Value) -> Vec<String> {
    let serde_json::Value::Object(mut event) = event else { return Vec::new() };
    let shown = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut take = |key: &str| event.remove(key).map(shown).unwrap_or_default();
    let (at, word, _client) = (take("at"), take("event"), take("client_id"));
    let details: Vec<String> =
        event.into_iter().map(|(key, value)| format!("{key}={}", shown(value))).collect();
    vec![at, word, details.join(" ")]
}
