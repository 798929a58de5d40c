//! The grammar of the commands about lines.

use clap::Args;

use super::RoleArg;

/// Arguments of `connect`.
#[derive(Clone, Debug, Args)]
pub struct ConnectArgs {
    /// The site's name in config.toml
    pub site: String,
    /// Which host of the site
    #[arg(long, value_name = "ROLE", value_enum, default_value_t, hide_possible_values = true)]
    pub role: RoleArg,
    /// Spend this grant, which `policy grant` has given
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub grant: Option<String>,
}

/// Arguments of `disconnect`.
#[derive(Clone, Debug, Args)]
pub struct DisconnectArgs {
    /// The site's name in config.toml
    pub site: String,
    /// Which host of the site
    #[arg(long, value_name = "ROLE", value_enum, default_value_t, hide_possible_values = true)]
    pub role: RoleArg,
}
