//! The keyword table: names, kinds of value, defaults and what is done with each, as data.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::algorithms::Class;
use crate::forward::Direction;

#[path = "keyword_table.rs"]
mod table;

pub(crate) use table::{Keyword, TABLE};

/// The words that a choice accepts, in any case, and how each prints.
pub(crate) type Choices = &'static [(&'static str, &'static str)];

/// What kind of value a keyword takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Patterns that open a block.
    Host,
    /// Refused wherever it stands.
    Match,
    /// Names of files.
    Include,
    /// Withdrawn: whatever follows is accepted and does nothing.
    Withdrawn,
    /// One word of a fixed list.
    Choice(Choices),
    /// A time in seconds, or `none`.
    Time,
    /// A count from 0.
    Count,
    /// A port from 1.
    Port,
    /// One word that is not empty.
    Word,
    /// Words; `none` only alone; no word at all does nothing.
    Files,
    /// At least one word; `none` only alone.
    FilesNeeded,
    /// The raw rest of the line.
    Raw,
    /// A list of algorithm names.
    Algorithms(Class),
    /// A port forwarding.
    Forward(Direction),
    /// Hops.
    Jump,
    /// A socket path whose environment variables are checked where it stands.
    Agent,
    /// Whether to forward the agent, or which one.
    ForwardAgent,
    /// Read by a function of its own.
    Special(Special),
}

/// Kinds of value that one keyword alone has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    AddKeysToAgent,
    CanonicalDomains,
    ChannelTimeout,
    CnameRules,
    ControlPersist,
    EscapeChar,
    IpQos,
    LogVerbose,
    ObscureKeystrokeTiming,
    PermitRemoteOpen,
    RekeyLimit,
    SendEnv,
    SetEnv,
    SocketMask,
    TunnelDevice,
    VersionAddendum,
}

/// Whether and how `ssh -G` prints a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Always; this when nothing is configured.
    Default(&'static str),
    /// Only when configured.
    WhenSet,
    /// When configured and not `none`; the default, if any, when not configured.
    UnlessNone(Option<&'static str>),
    /// Never under its own name, or by a rule of its own.
    Apart,
}

/// What is done with an effective value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Used.
    Honour,
    /// Only validated.
    Check,
    /// No effect: reported unless it prints as one of these words.
    Note(&'static [&'static str], &'static str),
    /// An error unless it prints as one of these words.
    Refuse(&'static [&'static str], &'static str),
}

/// One row of the table; the first name is the one that prints.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) keyword: Keyword,
    pub(crate) names: &'static [&'static str],
    pub(crate) kind: Kind,
    pub(crate) shown: Shown,
    pub(crate) policy: Policy,
}

impl Entry {
    /// Gives the name under which it prints.
    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// Finds the row of a keyword in lower case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Entry> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Entry>> = LazyLock::new(|| {
        let rows =
            TABLE.iter().flat_map(|entry| entry.names.iter().map(move |name| (name.as_bytes(), entry)));
        rows.collect()
    });
    BY_NAME.get(name).copied()
}

/// Flags that print as `yes` and `no`.
pub(crate) const FLAG: Choices = &[("yes", "yes"), ("true", "yes"), ("no", "no"), ("false", "no")];
/// Flags that print as `true` and `false`.
pub(crate) const BOOL_ASK: Choices =
    &[("yes", "true"), ("true", "true"), ("no", "false"), ("false", "false"), ("ask", "ask")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice_and_every_keyword_has_one_row() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|entry| entry.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
        let mut keywords: Vec<Keyword> = TABLE
            .iter()
            .map(|entry| entry.keyword)
            .filter(|keyword| *keyword != Keyword::Withdrawn)
            .collect();
        let count = keywords.len();
        keywords.sort_unstable();
        keywords.dedup();
        assert_eq!(keywords.len(), count);
    }
}
