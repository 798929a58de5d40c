//! A site: one `[site.NAME]` table, typed, with its defaults filled in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{Error, Place};
use super::home::Home;
use super::name::{Role, SiteName};
use super::route::Route;
use super::section::Section;

/// What permits an opening of the site's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// Each opening needs a human's grant.
    #[default]
    Grant,
    /// A proven VPN route also permits one opening.
    Vpn,
    /// Each `connect` permits itself, and is audited as such; for hosts without a second factor.
    Open,
}

/// The site's batch scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerChoice {
    /// Found out by looking at the host.
    #[default]
    Auto,
    /// Slurm.
    Slurm,
    /// PBS Professional or OpenPBS.
    Pbs,
    /// Torque.
    Torque,
    /// LSF.
    Lsf,
    /// Grid Engine.
    Sge,
    /// There is none.
    None,
}

/// Where commands, probes and runs on the host take their environment from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EnvironmentRecipe {
    /// One snapshot of a login shell's a line; without it, what the SSH session gave, with a note.
    #[default]
    LoginIfPossible,
    /// What the SSH session gave.
    None,
    /// One snapshot of a login shell's a line.
    Login,
    /// One snapshot a line, taken after sourcing this script on the host.
    Script(String),
}

/// Where the site's file systems begin, on the host; an operation that needs one that is unset fails and names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// The user's home.
    pub home: Option<String>,
    /// Fast storage that is purged.
    pub scratch: Option<String>,
    /// Durable storage.
    pub group: Option<String>,
    /// The archive tier.
    pub standby: Option<String>,
    /// Active run directories; else derived from `scratch`.
    pub scratch_runs: Option<String>,
    /// Kept run directories; else derived from `group`.
    pub group_runs: Option<String>,
    /// Archived run directories; else derived from `standby`.
    pub standby_archive: Option<String>,
    /// The registry's file; else derived from `group`.
    pub registry: Option<String>,
}

/// Rules of the workspace's clean-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gc {
    /// How many of the newest snapshots stay; 2 unless set.
    pub snapshot_keep: u32,
    /// A file on this workstation with rules in place of the built-in ones.
    pub rules: Option<PathBuf>,
}

/// Words by which run directories are classified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rundir {
    /// Suffixes that name a view of a campaign.
    pub views: Vec<String>,
    /// Markers of runs to keep; the built-in ones when unset.
    pub keep: Option<Vec<String>>,
    /// Markers of runs that may go.
    pub sweep: Vec<String>,
}

/// How a role's host is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// By TCP, as the ssh config says.
    Ssh {
        /// A `Host` of the ssh config, or `user@host:port`.
        host: String,
    },
    /// By a Unix socket on this workstation, without the ssh config: the embedded server of `towline demo`.
    Socket {
        /// The socket.
        path: PathBuf,
        /// The user to log in as.
        user: String,
        /// The only known_hosts file.
        known_hosts: PathBuf,
        /// The only private key.
        identity: PathBuf,
    },
}

/// A cluster, server or pod of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: SiteName,
    /// Where its table begins.
    pub place: Place,
    /// How the login role is reached.
    pub login: Destination,
    /// How the transfer role is reached, when the site has one.
    pub transfer: Option<Destination>,
    /// The ssh config; `~/.ssh/config` when unset, and then a missing one is empty. The system-wide one is never read.
    pub ssh_config: Option<PathBuf>,
    /// What permits an opening.
    pub approval: Approval,
    /// Its scheduler.
    pub scheduler: SchedulerChoice,
    /// Replaces the ssh config's `UserKnownHostsFile`.
    pub known_hosts: Option<PathBuf>,
    /// Pause between keepalives; the ssh config's when unset.
    pub keepalive: Option<Duration>,
    /// Limit of TCP, version and key exchange; the ssh config's when unset.
    pub connect_timeout: Option<Duration>,
    /// Limit of the whole start, human time at a prompt not counted; 90 s unless set.
    pub start_timeout: Duration,
    /// Where runs and ledgered files live on the host; absolute or with a leading `~/`.
    pub remote_dir: String,
    /// Where the environment comes from.
    pub environment: EnvironmentRecipe,
    /// Most questions to the scheduler a minute, all clients together; 4 unless set.
    pub scheduler_calls_per_min: u32,
    /// How long a missing output is looked for again; 60 s unless set.
    pub latency_wait: Duration,
    /// How long a launch may be under way; 15 min unless set.
    pub launch_window: Duration,
    /// A program that asks the human when there is no terminal.
    pub askpass: Option<PathBuf>,
    /// Whether jobs are submitted held; false only where a site forbids user holds.
    pub submit_held: bool,
    /// Whether the helper may run from memory where every directory is noexec.
    pub exec_from_memory: bool,
    /// What proves the VPN's route.
    pub route: Option<Route>,
    /// Where the host's file systems begin.
    pub roots: Roots,
    /// Rules of clean-up.
    pub gc: Gc,
    /// Words of run directories.
    pub rundir: Rundir,
}

const KEYS: &[&str] = &[
    "host",
    "transfer_host",
    "ssh_config",
    "approval",
    "scheduler",
    "known_hosts",
    "keepalive",
    "connect_timeout",
    "start_timeout",
    "remote_dir",
    "environment",
    "scheduler_calls_per_min",
    "latency_wait",
    "launch_window",
    "askpass",
    "submit_held",
    "exec_from_memory",
    "route",
    "roots",
    "gc",
    "rundir",
    "socket",
    "user",
    "identity",
];

impl Site {
    /// Reads a site's table.
    pub(super) fn read(name: SiteName, section: &Section<'_>, home: &Home) -> Result<Site, Error> {
        section.only(KEYS)?;
        let approvals = [("grant", Approval::Grant), ("vpn", Approval::Vpn), ("open", Approval::Open)];
        let approval = section.choice("approval", &approvals)?.unwrap_or_default();
        let route = section.section("route")?.as_ref().map(Route::read).transpose()?;
        if approval == Approval::Vpn && route.is_none() {
            return Err(section.mistake(
                "approval",
                "is `vpn`, which needs a `route` table that says how the route is proven",
            ));
        }
        let (login, transfer) = destinations(section, home)?;
        Ok(Site {
            name,
            place: section.place(),
            login,
            transfer,
            ssh_config: local_path(section, "ssh_config", home)?,
            approval,
            scheduler: scheduler(section)?,
            known_hosts: local_path(section, "known_hosts", home)?,
            keepalive: section.duration("keepalive")?,
            connect_timeout: section.duration("connect_timeout")?,
            start_timeout: section.duration("start_timeout")?.unwrap_or(Duration::from_secs(90)),
            remote_dir: remote_path(section, "remote_dir")?.unwrap_or_else(|| "~/.towline".to_owned()),
            environment: environment(section)?,
            // Once a second is more than any site's administrators welcome.
            scheduler_calls_per_min: section.count("scheduler_calls_per_min", 1..=60)?.unwrap_or(4),
            latency_wait: section.duration("latency_wait")?.unwrap_or(Duration::from_secs(60)),
            launch_window: section.duration("launch_window")?.unwrap_or(Duration::from_secs(900)),
            askpass: local_path(section, "askpass", home)?,
            submit_held: section.boolean("submit_held")?.unwrap_or(true),
            exec_from_memory: section.boolean("exec_from_memory")?.unwrap_or(false),
            route,
            roots: section.section("roots")?.as_ref().map(roots).transpose()?.unwrap_or_default(),
            gc: gc(section, home)?,
            rundir: section.section("rundir")?.as_ref().map(rundir).transpose()?.unwrap_or_default(),
        })
    }

    /// The roles that the site has.
    pub fn roles(&self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(|role| *role == Role::Login || self.transfer.is_some())
    }

    /// How a role's host is reached.
    ///
    /// # Errors
    /// [`Error::NoRole`] when the site has no such role.
    pub fn destination(&self, role: Role) -> Result<&Destination, Error> {
        match role {
            Role::Login => Ok(&self.login),
            Role::Transfer => self.transfer.as_ref().ok_or_else(|| Error::NoRole {
                site: self.name.to_string(),
                role,
                place: self.place.clone(),
            }),
        }
    }
}

fn destinations(section: &Section<'_>, home: &Home) -> Result<(Destination, Option<Destination>), Error> {
    let host =
        |key: &str| match section.text(key)? {
            Some(text) if text.starts_with('-') || text.contains(char::is_whitespace) => Err(section
                .mistake(key, &format!("is `{text}`; a host has no blanks and does not begin with `-`"))),
            Some(text) if !port_is_possible(text) => {
                Err(section.mistake(key, &format!("is `{text}`; a port is a number from 1 to 65535")))
            }
            text => Ok(text.map(|text| Destination::Ssh { host: text.to_owned() })),
        };
    let Some(path) = local_path(section, "socket", home)? else {
        for key in ["user", "identity"] {
            if section.text(key)?.is_some() {
                return Err(
                    section.mistake(key, "goes with `socket` only; for a host it belongs in the ssh config")
                );
            }
        }
        let login =
            host("host")?.ok_or_else(|| section.mistake("host", "is missing; each site needs a host"))?;
        return Ok((login, host("transfer_host")?));
    };
    for key in ["host", "transfer_host", "ssh_config"] {
        if section.text(key)?.is_some() {
            return Err(
                section.mistake(key, "does not go with `socket`: the socket is the only way to that site")
            );
        }
    }
    let missing =
        |key: &str| section.mistake(key, "is missing; `socket` needs user, known_hosts and identity");
    let user = section.text("user")?.ok_or_else(|| missing("user"))?.to_owned();
    let known_hosts = local_path(section, "known_hosts", home)?.ok_or_else(|| missing("known_hosts"))?;
    let identity = local_path(section, "identity", home)?.ok_or_else(|| missing("identity"))?;
    Ok((Destination::Socket { path, user, known_hosts, identity }, None))
}

/// Whether the port of `user@host:port` is one, if there is any. Several colons without brackets are a bare address.
fn port_is_possible(host: &str) -> bool {
    let after_user = host.rsplit_once('@').map_or(host, |(_, rest)| rest);
    match after_user.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        _ => true,
    }
}

fn scheduler(section: &Section<'_>) -> Result<SchedulerChoice, Error> {
    let words = [
        ("auto", SchedulerChoice::Auto),
        ("slurm", SchedulerChoice::Slurm),
        ("pbs", SchedulerChoice::Pbs),
        ("torque", SchedulerChoice::Torque),
        ("lsf", SchedulerChoice::Lsf),
        ("sge", SchedulerChoice::Sge),
        ("none", SchedulerChoice::None),
    ];
    Ok(section.choice("scheduler", &words)?.unwrap_or_default())
}

fn environment(section: &Section<'_>) -> Result<EnvironmentRecipe, Error> {
    Ok(match section.text("environment")? {
        None => EnvironmentRecipe::LoginIfPossible,
        Some("none") => EnvironmentRecipe::None,
        Some("login") => EnvironmentRecipe::Login,
        // A word that is no path is a mistyped `none` or `login`, and must not be taken for a script.
        Some(path) if is_remote_path(path) => EnvironmentRecipe::Script(path.to_owned()),
        Some(other) => {
            let reason = format!(
                "is `{other}`; it must be none, login, or a script's path (absolute or with a leading ~/)"
            );
            return Err(section.mistake("environment", &reason));
        }
    })
}

fn roots(section: &Section<'_>) -> Result<Roots, Error> {
    section.only(&[
        "home",
        "scratch",
        "group",
        "standby",
        "scratch_runs",
        "group_runs",
        "standby_archive",
        "registry",
    ])?;
    Ok(Roots {
        home: remote_path(section, "home")?,
        scratch: remote_path(section, "scratch")?,
        group: remote_path(section, "group")?,
        standby: remote_path(section, "standby")?,
        scratch_runs: remote_path(section, "scratch_runs")?,
        group_runs: remote_path(section, "group_runs")?,
        standby_archive: remote_path(section, "standby_archive")?,
        registry: remote_path(section, "registry")?,
    })
}

fn gc(section: &Section<'_>, home: &Home) -> Result<Gc, Error> {
    let Some(section) = section.section("gc")? else { return Ok(Gc { snapshot_keep: 2, rules: None }) };
    section.only(&["snapshot_keep", "rules"])?;
    // A relative name lives beside the configuration that mentions it.
    let rules = section.text("rules")?.map(|path| home.config_dir().join(home.expand(path)));
    Ok(Gc { snapshot_keep: section.count("snapshot_keep", 0..=10_000)?.unwrap_or(2), rules })
}

fn rundir(section: &Section<'_>) -> Result<Rundir, Error> {
    section.only(&["views", "keep", "sweep"])?;
    Ok(Rundir {
        views: section.texts("views")?.unwrap_or_default(),
        keep: section.texts("keep")?,
        sweep: section.texts("sweep")?.unwrap_or_default(),
    })
}

/// A path on this workstation: absolute, or with a leading `~/`.
fn local_path(section: &Section<'_>, key: &str, home: &Home) -> Result<Option<PathBuf>, Error> {
    let Some(text) = section.text(key)? else { return Ok(None) };
    let path = home.expand(text);
    if path.is_absolute() && path != Path::new("/") {
        Ok(Some(path))
    } else {
        Err(section.mistake(key, &format!("is `{text}`; it must be absolute or begin with ~/")))
    }
}

fn remote_path(section: &Section<'_>, key: &str) -> Result<Option<String>, Error> {
    match section.text(key)? {
        Some(text) if !is_remote_path(text) => {
            Err(section.mistake(key, &format!("is `{text}`; it must be absolute or begin with ~/")))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

fn is_remote_path(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("~/")
}
