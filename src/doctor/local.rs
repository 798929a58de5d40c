//! Checks that concern no site: directories, configuration, the system's ssh config, the helper.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Check, Status};
use crate::config::{Config, Environment, Home};
use crate::failure::Failure;
use crate::line::Platform;
use crate::line::bootstrap::Helpers;

/// The state directory: the caller's alone, or not there yet.
pub(super) fn home(environment: &Environment) -> Check {
    const NAME: &str = "home";
    let home = match Home::from_environment(environment) {
        Ok(home) => home,
        Err(error) => return Check::failed(NAME, &Failure::from(error)),
    };
    match home.check() {
        Err(error) => Check::failed(NAME, &Failure::from(error)),
        Ok(()) if home.state_dir().exists() => {
            Check::new(NAME, Status::Ok, format!("{} is yours alone", home.state_dir().display()))
        }
        Ok(()) => Check::new(
            NAME,
            Status::Ok,
            format!("{} will be made when it is first needed", home.state_dir().display()),
        ),
    }
}

/// `config.toml`, which was read without a mistake.
pub(super) fn config(config: &Config) -> Check {
    const NAME: &str = "config";
    let file = config.home.config_file();
    let shown = file.display();
    let mode = match std::fs::metadata(&file) {
        Ok(metadata) => metadata.mode() & 0o7777,
        // Reading it has just succeeded, so it is missing, which is a configuration too.
        Err(_missing) => {
            return Check::new(
                NAME,
                Status::Warn,
                format!("{shown} does not exist, so no site is configured"),
            )
            .mend(format!("write [site.NAME] and host = \"…\" into {shown}"));
        }
    };
    if mode & 0o020 != 0 {
        return Check::new(
            NAME,
            Status::Warn,
            format!("{shown} has mode {mode:04o}: its group decides where towline connects to"),
        )
        .mend(format!("chmod g-w {shown}"));
    }
    let sites: Vec<&str> = config.sites().map(|site| site.name.as_str()).collect();
    if sites.is_empty() {
        return Check::new(NAME, Status::Warn, format!("{shown} configures no site"))
            .mend(format!("write [site.NAME] and host = \"…\" into {shown}"));
    }
    Check::new(NAME, Status::Ok, format!("{shown} configures {}", sites.join(", ")))
}

/// The system-wide ssh config, which towline never reads: what `ssh` does may differ for that reason.
pub(super) fn system_ssh_config(file: &Path) -> Check {
    const NAME: &str = "system_ssh_config";
    if !file.exists() {
        return Check::new(NAME, Status::Ok, format!("{} does not exist", file.display()));
    }
    Check::new(NAME, Status::Ok, format!("{} exists; ssh reads it, towline never does", file.display()))
        .mend("if a host needs something from it, write that into ~/.ssh/config")
}

/// Machines for which this build carries a helper.
pub(super) fn embedded_helpers() -> Vec<&'static str> {
    let Helpers { x86_64, aarch64 } = Helpers::embedded();
    let machines = [x86_64.map(|_| Platform::LinuxX86_64), aarch64.map(|_| Platform::LinuxAarch64)];
    machines.into_iter().flatten().map(Platform::machine).collect()
}

/// The helper that an opening sends.
pub(super) fn helper(embedded: &[&str], replacement: Option<&Path>) -> Check {
    const NAME: &str = "helper";
    if let Some(path) = replacement {
        let shown = path.display();
        return if path.is_file() {
            Check::new(
                NAME,
                Status::Warn,
                format!("TOWLINE_HELPER is set: {shown} is sent instead of the embedded helper"),
            )
            .mend("unset TOWLINE_HELPER")
        } else {
            Check::new(NAME, Status::Fail, format!("TOWLINE_HELPER names {shown}, which is not a file"))
                .mend("unset TOWLINE_HELPER, or name a helper's file")
        };
    }
    let missing: Vec<&str> = Platform::ALL
        .into_iter()
        .map(Platform::machine)
        .filter(|machine| !embedded.contains(machine))
        .collect();
    let mend = "build towline with TOWLINE_HELPER_X86_64 or TOWLINE_HELPER_AARCH64 naming a helper's file";
    match (embedded, missing.as_slice()) {
        ([], _) => Check::new(NAME, Status::Fail, "this build carries no helper, so no line can be opened")
            .mend(mend),
        (_, []) => Check::new(
            NAME,
            Status::Ok,
            format!("this build carries the helper for {}", embedded.join(" and ")),
        ),
        (_, missing) => {
            let message = format!(
                "this build carries the helper for {}; a host with {} cannot be reached",
                embedded.join(" and "),
                missing.join(" or ")
            );
            Check::new(NAME, Status::Ok, message).mend(mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_helper_fails_and_a_partial_one_names_what_is_missing() {
        assert_eq!(helper(&[], None).status, Status::Fail);
        let partial = helper(&["x86_64"], None);
        assert_eq!(partial.status, Status::Ok);
        assert!(partial.message.contains("aarch64"), "{}", partial.message);
        let machines = Platform::ALL.map(Platform::machine);
        assert_eq!(helper(&machines, None).mend, None);
        assert_eq!(helper(&machines, Some(Path::new("/nonexistent"))).status, Status::Fail);
        assert_eq!(helper(&[], Some(Path::new("/proc/self/exe"))).status, Status::Warn);
    }

    #[test]
    fn the_system_wide_ssh_config_is_mentioned_where_it_exists() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("ssh_config");
        assert_eq!(system_ssh_config(&file).mend, None);
        std::fs::write(&file, "").unwrap();
        assert!(system_ssh_config(&file).mend.is_some());
    }
}
