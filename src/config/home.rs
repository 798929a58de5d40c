//! Where towline keeps things on the workstation, and the guard over those directories.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::error::Error;
use super::name::{Role, SiteName};

/// Longest path of a Unix socket, with its NUL.
///
/// Linux holds 108 bytes and macOS 104; 100 leaves room for the suffix of a temporary name on both.
pub const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The directories of one installation: everything below one directory, or as XDG splits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
    user: PathBuf,
}

impl Home {
    /// Decides where things live; touches no file.
    ///
    /// # Errors
    /// [`Error::Variable`] when `TOWLINE_HOME` is not absolute, [`Error::NoHome`] when nobody knows the home directory.
    pub fn from_environment(environment: &Environment) -> Result<Home, Error> {
        let user = user_home(environment)?;
        if let Some(dir) = &environment.towline_home {
            if !dir.is_absolute() {
                return Err(Error::Variable {
                    variable: "TOWLINE_HOME",
                    value: dir.display().to_string(),
                    reason: "it must be an absolute path".to_owned(),
                });
            }
            return Ok(Home { config: dir.clone(), state: dir.clone(), user });
        }
        // The XDG specification has relative values ignored, not refused.
        let base = |set: &Option<PathBuf>, default: &str| {
            set.clone()
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| user.join(default))
                .join("towline")
        };
        Ok(Home {
            config: base(&environment.xdg_config_home, ".config"),
            state: base(&environment.xdg_state_home, ".local/state"),
            user: user.clone(),
        })
    }

    /// The directory of `config.toml` and `toolchains/`.
    pub fn config_dir(&self) -> &Path {
        &self.config
    }

    /// The directory of all else.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// The file that [`super::Config`] is read from.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The index of jobs, runs and transfers.
    pub fn database(&self) -> PathBuf {
        self.state.join("towline.sqlite")
    }

    /// The directory of a role's line.
    pub fn line_dir(&self, site: &SiteName, role: Role) -> PathBuf {
        self.state.join("lines").join(format!("{site}.{role}"))
    }

    /// The socket of a role's line.
    ///
    /// # Errors
    /// [`Error::SocketPath`] when the system could not bind it; so this is asked before anything is spent.
    pub fn line_socket(&self, site: &SiteName, role: Role) -> Result<PathBuf, Error> {
        let path = self.line_dir(site, role).join("command.sock");
        let bytes = path.as_os_str().len() + 1;
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(Error::SocketPath { path, bytes, limit: SOCKET_PATH_BYTES_MAX });
        }
        Ok(path)
    }

    /// Replaces a leading `~/` (or a lone `~`) by the user's home directory; anything else stays as it is.
    pub fn expand(&self, path: &str) -> PathBuf {
        match path.strip_prefix('~') {
            Some("") => self.user.clone(),
            Some(rest) if rest.starts_with('/') => self.user.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(path),
        }
    }

    /// Makes the state directory when it is missing, and checks that it is the caller's alone.
    ///
    /// # Errors
    /// [`Error::Home`] (`policy_invalid`) when others own it or may enter it: it is never tightened, since whoever
    /// could enter may have left something inside. [`Error::Io`] when it cannot be made.
    pub fn prepare(&self) -> Result<(), Error> {
        make_private(&self.state)?;
        self.check()
    }

    /// Checks the state directory without changing anything; a missing one is right.
    ///
    /// # Errors
    /// [`Error::Home`] and [`Error::Io`] as [`Home::prepare`].
    pub fn check(&self) -> Result<(), Error> {
        check_private(&self.state)
    }

    /// Makes a directory of ours with all its parents, each 0700, and checks it as [`Home::prepare`] does.
    ///
    /// # Errors
    /// [`Error::Home`] and [`Error::Io`] as [`Home::prepare`].
    pub fn make_dir(&self, dir: &Path) -> Result<(), Error> {
        make_private(dir)?;
        check_private(dir)
    }

    /// Replaces a file of ours durably: written beside it with mode 0600, synced, then renamed over it.
    ///
    /// # Errors
    /// [`Error::Io`]; the old file is then still whole.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let failed = |source| Error::Io { doing: "write", path: path.to_owned(), source };
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.make_dir(parent)?;
        // Temporary files of this crate are made with 0600.
        let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    /// Checks that no two roles' state directories are one object, through links or otherwise.
    ///
    /// # Errors
    /// [`Error::SharedDirectory`] names both; two lines would take each other's socket and receipt.
    pub(super) fn check_distinct<'a>(
        &self,
        lines: impl Iterator<Item = (&'a SiteName, Role)>,
    ) -> Result<(), Error> {
        let mut seen = std::collections::BTreeMap::new();
        for (site, role) in lines {
            let dir = self.line_dir(site, role);
            // A directory that is missing or unreachable is nobody else's; whoever opens the line meets its own error.
            let Ok(metadata) = std::fs::metadata(&dir) else { continue };
            if let Some(first) = seen.insert((metadata.dev(), metadata.ino()), dir.clone()) {
                return Err(Error::SharedDirectory { first, second: dir });
            }
        }
        Ok(())
    }
}

fn user_home(environment: &Environment) -> Result<PathBuf, Error> {
    if let Some(home) = environment.home.clone().filter(|path| path.is_absolute()) {
        return Ok(home);
    }
    match nix::unistd::User::from_uid(nix::unistd::getuid()) {
        Ok(Some(user)) if user.dir.is_absolute() => Ok(user.dir),
        // Without a home directory nothing can be placed, whatever the user database's reason.
        Ok(_) | Err(_) => Err(Error::NoHome),
    }
}

fn make_private(dir: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(|source| Error::Io {
        doing: "make the directory",
        path: dir.to_owned(),
        source,
    })
}

fn check_private(dir: &Path) -> Result<(), Error> {
    let metadata = match std::fs::symlink_metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Io { doing: "look at", path: dir.to_owned(), source }),
    };
    let wrong = |reason: String, mend: String| Err(Error::Home { path: dir.to_owned(), reason, mend });
    let shown = dir.display();
    if !metadata.is_dir() {
        return wrong(
            "is not a directory itself".to_owned(),
            format!("name a real directory instead of {shown}"),
        );
    }
    let caller = nix::unistd::geteuid().as_raw();
    if metadata.uid() != caller {
        return wrong(
            format!("belongs to the user {}, not to {caller}", metadata.uid()),
            format!("use a directory of your own instead of {shown}"),
        );
    }
    if metadata.mode() & 0o077 != 0 {
        return wrong(
            format!("has mode {:04o}, and nobody else may have any right there", metadata.mode() & 0o7777),
            format!("look what is inside, then `chmod 700 {shown}`"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn at(dir: &Path) -> Home {
        let environment = Environment {
            home: Some("/home/u".into()),
            towline_home: Some(dir.to_owned()),
            ..Environment::default()
        };
        Home::from_environment(&environment).unwrap()
    }

    #[test]
    fn towline_home_puts_everything_under_one_directory() {
        let home = at(Path::new("/t"));
        assert_eq!(home.config_file(), Path::new("/t/config.toml"));
        assert_eq!(home.database(), Path::new("/t/towline.sqlite"));
        let site = SiteName::parse("hpc").unwrap();
        assert_eq!(
            home.line_socket(&site, Role::Transfer).unwrap(),
            Path::new("/t/lines/hpc.transfer/command.sock")
        );
    }

    #[test]
    fn a_relative_towline_home_is_refused() {
        let environment = Environment {
            home: Some("/home/u".into()),
            towline_home: Some("x".into()),
            ..Environment::default()
        };
        assert!(matches!(
            Home::from_environment(&environment),
            Err(Error::Variable { variable: "TOWLINE_HOME", .. })
        ));
    }

    #[test]
    fn without_it_xdg_decides_and_relative_values_are_ignored() {
        let mut environment = Environment { home: Some("/home/u".into()), ..Environment::default() };
        let home = Home::from_environment(&environment).unwrap();
        assert_eq!(home.config_file(), Path::new("/home/u/.config/towline/config.toml"));
        assert_eq!(home.state_dir(), Path::new("/home/u/.local/state/towline"));
        environment.xdg_config_home = Some("relative".into());
        environment.xdg_state_home = Some("/s".into());
        let home = Home::from_environment(&environment).unwrap();
        assert_eq!(home.config_dir(), Path::new("/home/u/.config/towline"));
        assert_eq!(home.state_dir(), Path::new("/s/towline"));
    }

    #[test]
    fn what_we_make_is_ours_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let home = at(&scratch.path().join("a/b"));
        home.prepare().unwrap();
        let file = home.state_dir().join("c/d.json");
        home.write_file(&file, b"{}").unwrap();
        for dir in [scratch.path().join("a"), home.state_dir().to_owned(), home.state_dir().join("c")] {
            assert_eq!(std::fs::metadata(dir).unwrap().mode() & 0o7777, 0o700);
        }
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read(&file).unwrap(), b"{}");
    }

    #[test]
    fn a_directory_open_to_others_is_refused_and_never_tightened() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("open");
        std::fs::create_dir(&dir).unwrap();
        for mode in [0o710, 0o701, 0o750, 0o777] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = at(&dir).prepare().unwrap_err();
            assert_eq!(error.kind(), crate::kind::Kind::PolicyInvalid);
            assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o7777, mode);
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        at(&dir).prepare().unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(matches!(at(&link).prepare(), Err(Error::Home { .. })));
    }

    #[test]
    fn a_socket_path_is_bound_by_100_bytes_with_its_nul() {
        let site = SiteName::parse("s").unwrap();
        let fixed = "/lines/s.login/command.sock".len();
        let longest = format!("/{}", "d".repeat(SOCKET_PATH_BYTES_MAX - 1 - fixed - 1));
        assert!(at(Path::new(&longest)).line_socket(&site, Role::Login).is_ok());
        let error = at(Path::new(&format!("{longest}d"))).line_socket(&site, Role::Login).unwrap_err();
        assert!(matches!(error, Error::SocketPath { bytes: 101, limit: 100, .. }), "{error}");
    }

    #[test]
    fn a_leading_tilde_is_the_home_directory_and_nothing_else_is() {
        let home = at(Path::new("/t"));
        for (path, expanded) in [
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("~//x", "/home/u/x"),
            ("~v/x", "~v/x"),
            ("/a/~/b", "/a/~/b"),
            ("$HOME", "$HOME"),
        ] {
            assert_eq!(home.expand(path), Path::new(expanded));
        }
    }
}
