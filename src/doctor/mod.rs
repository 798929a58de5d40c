//! Local checks of all that opening a line needs, each with its mend.
//!
//! Promises: reads only, opens no connection but to the local agent and, for sites with `approval = "vpn"`, the
//! resolver, and a check that could not be made says so. May import `config`, `failure`, `route`, the ssh config's
//! parser, `ssh`, and `line` for the helpers that it carries. Each face shows what it finds.

mod agent;
mod local;
mod site;
mod vpn;

use serde::Serialize;

use crate::config::{Config, Environment, Role, SiteName};
use crate::failure::Failure;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing to mend.
    Ok,
    /// It works, but deserves a look.
    Warn,
    /// It does not work.
    Fail,
    /// It could not be checked.
    Skipped,
}

impl Status {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
            Status::Skipped => "skipped",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked, as a word.
    pub name: &'static str,
    /// The site, for those that concern one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteName>,
    /// The role, for those that concern one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub message: String,
    /// What to do about it, when something is to be done.
    pub mend: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Status, message: impl Into<String>) -> Check {
        Check { name, site: None, role: None, status, message: message.into(), mend: None }
    }

    fn mend(mut self, mend: impl Into<String>) -> Check {
        self.mend = Some(mend.into());
        self
    }

    /// A failing check that says what a failure says.
    fn failed(name: &'static str, failure: &Failure) -> Check {
        Check::new(name, Status::Fail, failure.human_message()).mend(failure.hint.clone())
    }

    fn about(mut self, site: &SiteName, role: Option<Role>) -> Check {
        self.site = Some(site.clone());
        self.role = role;
        self
    }
}

/// What the doctor found, and the failure that kept it from looking further.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The checks, in the order in which an opening would meet them.
    pub checks: Vec<Check>,
    /// Why the configuration cannot be used at all; the operation fails this way.
    pub failure: Option<Failure>,
}

impl Report {
    /// Tells whether some check fails.
    pub fn failing(&self) -> bool {
        self.checks.iter().any(|check| check.status == Status::Fail)
    }
}

/// Makes all local checks, for one site or for all.
///
/// # Errors
/// `config` when the named site is not configured. A configuration that cannot be read is part of the report.
pub fn examine(site: Option<&str>, environment: Environment) -> Result<Report, Failure> {
    let mut checks = vec![local::home(&environment)];
    let config = match Config::load(environment) {
        Ok(config) => config,
        Err(error) => {
            let failure = Failure::from(error);
            checks.push(Check::failed("config", &failure));
            checks.push(Check::new(
                "sites",
                Status::Skipped,
                "no site was checked, since the configuration cannot be used",
            ));
            return Ok(Report { checks, failure: Some(failure) });
        }
    };
    checks.push(local::config(&config));
    checks.push(local::system_ssh_config(std::path::Path::new("/etc/ssh/ssh_config")));
    checks.push(local::helper(&local::embedded_helpers(), config.environment.helper.as_deref()));
    match site {
        Some(name) => checks.extend(site::examine(&config, config.site(name)?)),
        None => {
            for site in config.sites() {
                checks.extend(site::examine(&config, site));
            }
        }
    }
    Ok(Report { checks, failure: None })
}
