//! The static helpers that `build.rs` embedded.

use std::borrow::Cow;

include!(concat!(env!("OUT_DIR"), "/embedded_helpers.rs"));

/// A platform that a helper exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Platform {
    /// Linux on x86-64, as `uname -sm` prints it: `Linux x86_64`.
    LinuxX86_64,
    /// Linux on 64-bit ARM: `Linux aarch64`.
    LinuxAarch64,
}

impl Platform {
    /// All platforms, for tables and tests.
    pub const ALL: [Platform; 2] = [Platform::LinuxX86_64, Platform::LinuxAarch64];

    /// The platform that `uname -sm` names.
    pub fn from_uname(uname: &str) -> Option<Platform> {
        let machine = uname.strip_prefix("Linux ")?;
        Self::ALL.into_iter().find(|platform| platform.machine() == machine)
    }

    /// The machine's name as `uname -m` prints it.
    pub fn machine(self) -> &'static str {
        match self {
            Platform::LinuxX86_64 => "x86_64",
            Platform::LinuxAarch64 => "aarch64",
        }
    }
}

/// A helper's program file.
#[derive(Clone, PartialEq, Eq)]
pub struct EmbeddedHelper {
    /// The file's bytes.
    pub bytes: Cow<'static, [u8]>,
    /// Their SHA-256 in lower-case hexadecimal; hosts cache the helper under this name.
    pub sha256_hex: Cow<'static, str>,
}

impl std::fmt::Debug for EmbeddedHelper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddedHelper({} bytes, {})", self.bytes.len(), self.sha256_hex)
    }
}

/// The helper that this build of towline holds for a platform, if any.
pub fn for_platform(platform: Platform) -> Option<EmbeddedHelper> {
    HELPERS.iter().find(|(architecture, _, _)| *architecture == platform.machine()).map(
        |(_, bytes, sha256_hex)| EmbeddedHelper {
            bytes: Cow::Borrowed(bytes),
            sha256_hex: Cow::Borrowed(sha256_hex),
        },
    )
}
