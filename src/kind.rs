//! The contract's failure kinds: one word, one exit code, one answer to "may I repeat this call?".
//!
//! Stands at the bottom of the crate and imports nothing. Scripts and agents branch on these words, so a word or a
//! code that was published never changes its meaning.

use serde::{Deserialize, Serialize};

/// Exit code when the work was done but its answer is a failure, such as `doctor` with a failing check.
pub const EXIT_ANSWER_IS_FAILURE: u8 = 1;
/// Exit code when a wait or a command reached its time limit.
pub const EXIT_TIMED_OUT: u8 = 124;
/// Exit code when the user interrupted the command.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Exit code of `exec` for failures that are not the remote command's, without `--json`; the same as `ssh` uses.
pub const EXIT_NOT_THE_COMMANDS: u8 = 255;

/// Declares the kinds as one table, so that a kind cannot lack its word, code, retry answer or hint.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $code:literal, $retry_safe:literal, $hint:literal;)*) => {
        /// Why something failed, as the contract names it.
        ///
        /// ```
        /// use towline::kind::Kind;
        /// assert_eq!(Kind::OutcomeUnknown.as_str(), "outcome_unknown");
        /// assert_eq!(Kind::OutcomeUnknown.exit_code(), 6);
        /// assert!(!Kind::OutcomeUnknown.retry_safe_by_default());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            /// Every kind, in the order of the contract's exit table.
            pub const ALL: &[Kind] = &[$(Kind::$variant,)*];

            /// Returns the word that stands in `error.kind`.
            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$variant => $word,)* }
            }

            /// Returns the exit code of a command that fails this way.
            pub fn exit_code(self) -> u8 {
                match self { $(Kind::$variant => $code,)* }
            }

            /// Tells whether the same call may be repeated as it is, when nothing more is known.
            ///
            /// A failed pure read may be repeated whatever its kind: the caller that knows it says so.
            pub fn retry_safe_by_default(self) -> bool {
                match self { $(Kind::$variant => $retry_safe,)* }
            }

            /// Returns what to do next when whoever failed has nothing more exact to say.
            pub fn default_hint(self) -> &'static str {
                match self { $(Kind::$variant => $hint,)* }
            }
        }
    };
}

kinds! {
    /// The command line is wrong.
    Usage = "usage", 2, false, "see `towline COMMAND --help`";
    /// towline's own configuration is wrong, or lacks what this operation needs.
    Config = "config", 2, false, "correct the configuration, then see `towline doctor`";
    /// The ssh config holds an error, or asks for what towline refuses to do.
    SshConfigRejected = "ssh_config_rejected", 2, false, "see `towline ssh-config check` for every finding";
    /// An argument's value is not acceptable.
    InvalidInput = "invalid_input", 2, false, "correct the value and call again";
    /// The policy forbids it, or a human has to approve it first.
    PolicyDenied = "policy_denied", 3, false, "ask a human to approve it on a terminal";
    /// The policy file or its directory cannot be trusted.
    PolicyInvalid = "policy_invalid", 3, false, "correct what the message names; towline never tightens what others made";
    /// The policy changed since it was read.
    PolicyConflict = "policy_conflict", 3, false, "read the policy again and decide anew";
    /// The grant is not there, used up, out of time, or for something else.
    GrantInvalid = "grant_invalid", 3, false, "ask for a new grant";
    /// The route to the host is not proven to be the VPN's.
    OffVpn = "off_vpn", 3, false, "connect the VPN; `towline doctor SITE` shows each check";
    /// A failed attempt was too recent.
    Cooldown = "cooldown", 3, false, "wait until the cooldown has passed";
    /// A pinned toolchain is not the one that is installed.
    ToolchainMismatch = "toolchain_mismatch", 3, false, "install the pinned toolchain, or pin the one that is there";
    /// There is no open line.
    NotConnected = "not_connected", 4, true, "open a line with `towline connect SITE`";
    /// The line ended while only reads or waits were open.
    LineLost = "line_lost", 4, true, "open a line with `towline connect SITE`, then repeat the call";
    /// The open line leads elsewhere than the configuration now says.
    DestinationChanged = "destination_changed", 4, false, "disconnect, and connect anew";
    /// Another opening of this line is under way.
    AlreadyConnected = "already_connected", 4, true, "wait for the other opening to end";
    /// The host could not be reached.
    ConnectFailed = "connect_failed", 5, false, "check the network and the host's name; `towline doctor SITE` helps";
    /// The host's key is not known, and nobody approved it.
    HostKeyUnknown = "host_key_unknown", 5, false, "compare the fingerprint with the one that the site publishes, then connect from a terminal";
    /// The host's key is not the one that was known.
    HostKeyChanged = "host_key_changed", 5, false, "ask the site whether its key changed; remove the old line only then";
    /// The host's key is revoked.
    HostKeyRevoked = "host_key_revoked", 5, false, "do not connect; ask the site";
    /// No authentication method succeeded.
    AuthFailed = "auth_failed", 5, false, "`towline doctor SITE` shows the keys that would be offered";
    /// The helper could not be started on the host.
    BootstrapFailed = "bootstrap_failed", 5, false, "see the message; the host needs `sh` and one directory that may hold a program";
    /// Whether it was done cannot be known.
    OutcomeUnknown = "outcome_unknown", 6, false, "look on the host before doing it again";
    /// The remote side failed.
    RemoteError = "remote_error", 7, false, "see the message of the remote side";
    /// The scheduler refused.
    SchedulerError = "scheduler_error", 7, false, "see the scheduler's own words";
    /// The scheduler could not be asked.
    SchedulerUnreachable = "scheduler_unreachable", 7, true, "ask again later; nothing was changed";
    /// It does not exist.
    NotFound = "not_found", 7, false, "check the name or the id";
    /// It exists already.
    Exists = "exists", 7, false, "choose another name, or say that it may be replaced";
    /// There is no space or quota left.
    NoSpace = "no_space", 7, false, "free some space, then call again";
    /// The remote user may not do it.
    Permission = "permission", 7, false, "check the owner and the mode on the host";
    /// The content is not what its checksum says.
    ChecksumMismatch = "checksum_mismatch", 7, false, "the source may have changed meanwhile; start again";
    /// The run is still active.
    RunActive = "run_active", 7, false, "cancel the run first";
    /// The run's outputs were not all fetched.
    NotHarvested = "not_harvested", 7, false, "harvest the run first, or say that its outputs are abandoned";
    /// Another operation holds it.
    Busy = "busy", 7, true, "call again when the other operation has ended";
    /// No allowed GPU is to be had.
    NoGpu = "no_gpu", 7, false, "allow more kinds of GPU or data centres, or try later";
    /// This host cannot confine programs.
    SandboxUnavailable = "sandbox_unavailable", 7, false, "`towline doctor` tells what the system lacks";
    /// The sandbox itself failed.
    SandboxFailed = "sandbox_failed", 7, false, "see the message";
    /// A bug in towline.
    Internal = "internal", 70, false, "this is a bug in towline; please report it with the message";
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_written_in_json_as_its_word() {
        for kind in Kind::ALL {
            let json = serde_json::to_value(kind).unwrap();
            assert_eq!(json, kind.as_str());
        }
    }

    #[test]
    fn only_the_five_kinds_of_the_contract_may_be_repeated_blindly() {
        let safe: Vec<_> =
            Kind::ALL.iter().filter(|kind| kind.retry_safe_by_default()).map(|kind| kind.as_str()).collect();
        assert_eq!(
            safe,
            ["not_connected", "line_lost", "already_connected", "scheduler_unreachable", "busy"]
        );
    }

    #[test]
    fn words_are_unique() {
        let words: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), Kind::ALL.len());
    }
}
