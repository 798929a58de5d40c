//! Names that the user gives to sites and profiles, and the two roles.

use serde::Serialize;

/// Longest name of a site, a provider or a pod's profile.
const NAME_BYTES_MAX: usize = 32;

/// Why a text is no name of a site or profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: it needs a letter or digit, then at most 31 letters, digits, `_` or `-`")]
pub struct NameError(pub String);

/// The name of a site or a profile: `[A-Za-z0-9][A-Za-z0-9_-]{0,31}`.
///
/// It becomes part of file names and never has to be quoted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SiteName(String);

impl SiteName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] when the text has another form.
    pub fn parse(text: &str) -> Result<SiteName, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins_well && text.len() <= NAME_BYTES_MAX && text.bytes().all(allowed) {
            Ok(SiteName(text.to_owned()))
        } else {
            Err(NameError(text.to_owned()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SiteName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host of a site, reached through its own line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The host where commands run and jobs are submitted; the default everywhere.
    #[default]
    Login,
    /// The host for bulk data.
    Transfer,
}

impl Role {
    /// Both roles.
    pub const ALL: [Role; 2] = [Role::Login, Role::Transfer];

    /// The role's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Login => "login",
            Role::Transfer => "transfer",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exactly_those_of_the_contract() {
        let longest = format!("a{}", "-".repeat(31));
        for name in ["a", "9", "hpc", "HPC_2-x", "0-", longest.as_str()] {
            assert!(SiteName::parse(name).is_ok(), "{name}");
        }
        let too_long = format!("{longest}-");
        for name in ["", "-a", "_a", "a.b", "a b", "a/b", "..", "é", "a\n", "pod:x", too_long.as_str()] {
            assert_eq!(SiteName::parse(name), Err(NameError(name.to_owned())), "{name}");
        }
    }
}
