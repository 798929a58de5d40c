//! `towline connect` and `towline disconnect`: opens a role's line, with a human's word where one is needed.

use std::time::Instant;

use serde_json::{Value, json};

use super::args::{ConnectArgs, DisconnectArgs};
use super::output::Output;
use super::{ask, own_line};
use crate::broker::{self, Destination, Launcher, Permission, Place, Receipt, client};
use crate::config::{Approval, Config, Environment, Role, Site};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::opening::Opening;
use crate::policy::requests::{Asked, Requests, Wanted};
use crate::policy::state::{Method, Mode, Scope};
use crate::policy::{self, GrantRequest, GrantSecret, Shown, SiteId, Spend, Store};

/// How long a grant lives that is spent at once.
const AT_ONCE: std::time::Duration = std::time::Duration::from_secs(60);
/// What the record says of an answer on a terminal.
const TYPED: &str = "approved on a terminal by typing the site's name";
/// What it says of a site that needs no approval.
const OPEN: &str = "the site's approval is open";
/// What it says of a proven route.
const STANDING: &str = "standing authorisation over a proven VPN route";

/// Opens a line, or finds the open one.
///
/// # Errors
/// Those of the policy, of the opening, and `already_connected`, `destination_changed`.
pub(super) fn run(args: &ConnectArgs, environment: Environment, output: &Output) -> Result<u8, Failure> {
    let begun = Instant::now();
    let config = Config::load(environment)?;
    let site = config.site(&args.site)?;
    let line = Wanting::new(&config, site, args.role.into())?;
    let (receipt, reused) = match line.found()? {
        Some(receipt) => (receipt, true),
        None => {
            let permission = match &args.grant {
                Some(id) => line.by_grant(&GrantSecret::presented(id))?,
                None => line.permitted()?,
            };
            (line.open(permission)?, false)
        }
    };
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    show(&answer(&line, &receipt, reused, elapsed_ms), output)?;
    Ok(0)
}

/// Closes a line.
///
/// # Errors
/// `already_connected` when its broker does not end.
pub(super) fn disconnect(
    args: &DisconnectArgs,
    environment: Environment,
    output: &Output,
) -> Result<u8, Failure> {
    let config = Config::load(environment)?;
    let site = config.site(&args.site)?;
    let role = args.role.into();
    site.destination(role)?;
    let place = Place::of(&config.home, &site.name, role)?;
    let stopped =
        own_line::block_on(async { Ok(client::stop(&place, "`towline disconnect` was called").await?) })?;
    let state = if stopped { "stopped" } else { "absent" };
    if output.json() {
        output.document(&json!({ "site": site.name, "role": role, "state": state }))?;
    } else {
        output.text(&format!("{} ({role}) is {state}\n", site.name))?;
    }
    Ok(0)
}

/// Proves that the route to the site's host is the VPN's.
///
/// # Errors
/// `off_vpn`: this build cannot prove a route.
pub(super) fn prove_route(site: &Site) -> Result<(), Failure> {
    match site.approval {
        Approval::Grant | Approval::Open => Ok(()),
        Approval::Vpn => Err(Failure::new(
            Kind::OffVpn,
            format!("the route to {} cannot be proven by this build of towline", site.name),
        )
        .hint("a human can permit one opening with `towline policy grant --allow-offvpn`")
        .field("site", site.name.as_str())),
    }
}

/// A line that somebody wants open.
pub(super) struct Wanting<'a> {
    config: &'a Config,
    site: &'a Site,
    role: Role,
    place: Place,
    opening: Opening,
    store: Store,
}

impl<'a> Wanting<'a> {
    pub(super) fn new(config: &'a Config, site: &'a Site, role: Role) -> Result<Wanting<'a>, Failure> {
        site.destination(role)?;
        let place = Place::of(&config.home, &site.name, role)?;
        let opening = Opening::of(config, site, role)?;
        Ok(Wanting { config, site, role, place, opening, store: Store::new(&config.home) })
    }

    /// The receipt of the line, when it is open already; nothing is spent or sent for it.
    pub(super) fn found(&self) -> Result<Option<Receipt>, Failure> {
        let shown = self.store.show();
        if self.mode_of(&shown)? == Mode::Disabled {
            let reason = "the policy is disabled, so no line may be opened or used".to_owned();
            return Err(policy::Error::Denied { reason }.into());
        }
        let look = self.place.look();
        let busy = || broker::Error::AlreadyConnected { site: self.site.name.clone(), role: self.role };
        if look.ready().is_none() {
            return if look.alive { Err(busy().into()) } else { Ok(None) };
        }
        let alias = broker::alias(self.site, self.role)?;
        let receipt =
            client::trusted(&self.place, &look, &alias, &Destination::of(&self.opening.target))?.clone();
        match own_line::block_on(async { Ok(client::ping(&self.place).await) })? {
            Some(_) => Ok(Some(receipt)),
            None => Err(busy().into()),
        }
    }

    /// The mode that holds; a missing file is one that a human may be offered to begin with.
    fn mode_of(&self, shown: &Shown) -> Result<Mode, Failure> {
        if shown.valid || (self.may_begin(shown) && ask::available()) {
            return Ok(if shown.valid { shown.mode } else { Mode::ReuseOnly });
        }
        let message = shown.error.clone().unwrap_or_else(|| "the policy file is not valid".to_owned());
        Err(Failure::new(Kind::PolicyInvalid, message)
            .hint("see `towline policy show`; `towline policy disable` makes a missing file and repairs a malformed one")
            .field("file", shown.path.to_string_lossy().into_owned()))
    }

    fn may_begin(&self, shown: &Shown) -> bool {
        // A link that leads nowhere is no missing file.
        !shown.valid && !shown.stop_marker && shown.path.symlink_metadata().is_err()
    }

    /// The permission that a presented grant is.
    fn by_grant(&self, secret: &GrantSecret) -> Result<Permission, Failure> {
        let spend = Spend {
            secret: secret.clone(),
            site: SiteId::from(&self.site.name),
            role: self.role,
            launcher_pid: std::process::id(),
        };
        if !self.store.check_grant(&spend)?.scope.allow_offvpn {
            prove_route(self.site)?;
        }
        Ok(Permission::Grant(secret.clone()))
    }

    /// What the site's configuration or a human on this terminal permits.
    fn permitted(&self) -> Result<Permission, Failure> {
        match self.site.approval {
            Approval::Open => {
                let shown = self.store.show();
                if self.may_begin(&shown) {
                    ask::demand(&self.stake(&shown), self.site.name.as_str())?;
                    self.begin()?;
                }
                Ok(Permission::OpenSite(OPEN.to_owned()))
            }
            Approval::Vpn => self.by_route(),
            Approval::Grant if ask::available() => self.by_human(&[]),
            Approval::Grant => Err(self.request()?),
        }
    }

    fn by_route(&self) -> Result<Permission, Failure> {
        prove_route(self.site)?;
        let secret = self.mint(Method::StandingOnVpn, STANDING)?;
        if let Err(failure) = prove_route(self.site) {
            self.store.revoke_standing(&secret, "the route was not proven again")?;
            return Err(failure);
        }
        Ok(Permission::Grant(secret))
    }

    /// Asks on the terminal; the answer is the approval. `why` is shown too.
    pub(super) fn by_human(&self, why: &[String]) -> Result<Permission, Failure> {
        let shown = self.store.show();
        let mut stake = why.to_vec();
        stake.extend(self.stake(&shown));
        if !self.may_begin(&shown) {
            // Whatever forbids it is told before a human is bothered.
            let request = self.grant_request(Method::ExplicitUserApproval, TYPED);
            self.store.would(&request.operation(&GrantSecret::random()?))?;
        }
        ask::demand(&stake, self.site.name.as_str())?;
        if self.may_begin(&shown) {
            self.begin()?;
        }
        Ok(Permission::Grant(self.mint(Method::ExplicitUserApproval, TYPED)?))
    }

    fn stake(&self, shown: &Shown) -> Vec<String> {
        let (site, role) = (&self.site.name, self.role);
        let to = Destination::of(&self.opening.target);
        let mut stake = vec![format!("This opens the line to {site} ({role}), {to}: one login.")];
        if self.may_begin(shown) {
            stake.push(
                "There is no policy yet: one is made that lets every program of yours here use open lines."
                    .to_owned(),
            );
        }
        stake
    }

    /// Makes a policy where there is none: disabled first, as every new one, then in use.
    fn begin(&self) -> Result<(), Failure> {
        self.store.disable("the first policy, made by connect")?;
        let cas = self.store.show().cas();
        let cas = cas.ok_or_else(|| Failure::new(Kind::PolicyInvalid, "the new policy file is not valid"))?;
        self.store.enable_reuse(cas, TYPED)?;
        Ok(())
    }

    fn mint(&self, method: Method, reference: &str) -> Result<GrantSecret, Failure> {
        Ok(self.store.authorize(&self.grant_request(method, reference))?.secret)
    }

    fn grant_request(&self, method: Method, reference: &str) -> GrantRequest {
        let nothing = policy::state::Cas { generation: String::new(), revision: 0 };
        GrantRequest {
            cas: self.store.show().cas().unwrap_or(nothing),
            scope: Scope {
                site: SiteId::from(&self.site.name),
                role: self.role,
                // A human who was asked has decided that, too.
                allow_offvpn: method == Method::ExplicitUserApproval,
            },
            ttl: AT_ONCE,
            method,
            reference: reference.to_owned(),
        }
    }

    /// Leaves a request for a human, and says how to answer it.
    fn request(&self) -> Result<Failure, Failure> {
        let asked = Asked {
            what: Wanted::Connect,
            site: Some(SiteId::from(&self.site.name)),
            role: Some(self.role),
            reason: "towline connect".to_owned(),
            who: self.store.who().clone(),
        };
        let request = Requests::new(&self.config.home).ask(&asked)?;
        let command = format!("towline approve {}", request.id);
        let message = format!("a human has to approve the opening of {} ({})", self.site.name, self.role);
        Ok(Failure::new(Kind::PolicyDenied, message)
            .hint(format!("have a human run `{command}` on a terminal, then call again"))
            .field("site", self.site.name.as_str())
            .field("role", self.role.as_str())
            .field(
                "approval",
                json!({ "request": request.id, "command": command, "expires_at": request.expires_at }),
            ))
    }

    /// Spends the permission: one login, no second try.
    pub(super) fn open(&self, permission: Permission) -> Result<Receipt, Failure> {
        let launcher = Launcher {
            store: &self.store,
            place: &self.place,
            site: self.site,
            role: self.role,
            opening: &self.opening,
        };
        Ok(launcher.launch(permission, &own_line::prompter(self.site))?)
    }
}

/// The pinned answer of `connect`.
pub(super) fn answer(line: &Wanting<'_>, receipt: &Receipt, reused: bool, elapsed_ms: u64) -> Value {
    json!({
        "site": line.site.name,
        "role": line.role,
        "state": "ready",
        "reused": reused,
        "pid": receipt.pid,
        "host": receipt.destination.hostname,
        "user": receipt.destination.user,
        "port": receipt.destination.port.parse::<u16>().ok(),
        "host_key_sha256": receipt.host_key_sha256,
        "connections": receipt.connections,
        "session_channels": receipt.session_channels,
        "prompts": receipt.prompts,
        "helper": { "sha256": receipt.helper_sha256, "cached": receipt.helper_cached },
        "elapsed_ms": elapsed_ms,
    })
}

fn show(answer: &Value, output: &Output) -> Result<(), Failure> {
    if output.json() {
        output.document(answer)?;
        return Ok(());
    }
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
    let how = match answer.get("reused") {
        Some(Value::Bool(true)) => "is open already",
        _ => "is open",
    };
    let line = format!("{} ({}) {how}: {}@{}\n", text("site"), text("role"), text("user"), text("host"));
    output.text(&line)
}
