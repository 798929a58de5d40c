//! The grammar of the commands about permission and record.

use clap::{Args, Subcommand};

use super::RoleArg;

/// Arguments of `policy`.
#[derive(Clone, Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The policy's commands.
#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show what is permitted now, and the newest events
    Show,
    /// Show the same with all events that the policy file keeps
    History,
    /// Forbid at once that lines be opened or used; always possible
    Disable {
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Permit that open lines be used; asks on the terminal
    EnableReuse(SeenArgs),
    /// Give a one-shot permission to open one line; asks on the terminal
    Grant(GrantArgs),
    /// Take a grant back that nobody has used yet
    Revoke {
        /// The grant's name, or its id
        #[arg(allow_hyphen_values = true)]
        grant: String,
    },
}

/// What the caller saw of the policy.
#[derive(Clone, Debug, Args)]
pub struct SeenArgs {
    /// The generation that `policy show` told [default: the present one]
    #[arg(long, value_name = "UUID", requires = "revision")]
    pub generation: Option<String>,
    /// The revision that `policy show` told [default: the present one]
    #[arg(long, value_name = "N", requires = "generation")]
    pub revision: Option<u64>,
}

/// Arguments of `policy grant`.
#[derive(Clone, Debug, Args)]
pub struct GrantArgs {
    /// The site's name in config.toml
    pub site: String,
    /// Which host of the site
    #[arg(long, value_name = "ROLE", value_enum, default_value_t, hide_possible_values = true)]
    pub role: RoleArg,
    /// How long the grant may wait, at most 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub ttl: String,
    /// Permit the opening without a proven VPN route
    #[arg(long)]
    pub allow_offvpn: bool,
    /// What the caller saw of the policy.
    #[command(flatten)]
    pub seen: SeenArgs,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Arguments of `audit`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    /// Go on with what is written from now on, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
}

/// The audit log's commands.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no line was changed, removed or added in between
    Verify,
}

/// Arguments of `deny`.
#[derive(Clone, Debug, Args)]
pub struct DenyArgs {
    /// The request's id, as `towline approve` shows it
    #[arg(allow_hyphen_values = true)]
    pub request: String,
}
