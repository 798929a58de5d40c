//! `config.toml` as a whole: read once, checked completely, then only asked.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use toml::de::DeTable;

use super::environment::Environment;
use super::error::{Error, Place};
use super::home::Home;
use super::name::SiteName;
use super::nearest::nearest;
use super::section::{Section, Source};
use super::site::Site;

/// Largest `config.toml`.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// After how many days finished runs may be cleaned up; never when unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Harvested successes.
    pub succeeded_days: Option<u32>,
    /// Failures.
    pub failed_days: Option<u32>,
}

/// A table whose keys the capability that owns it checks.
#[derive(Clone, Debug, PartialEq)]
pub struct RawTable {
    /// Where it begins.
    pub place: Place,
    /// Its entries.
    pub table: toml::Table,
}

/// The configuration: directories, environment and everything that `config.toml` says.
///
/// ```
/// use towline::config::{Config, Environment, Home};
/// let environment = Environment { home: Some("/home/u".into()), ..Environment::default() };
/// let home = Home::from_environment(&environment)?;
/// let config = Config::parse(home, environment, "[site.hpc]\nhost = \"hpc-login\"\n")?;
/// assert_eq!(config.site("hpc")?.start_timeout.as_secs(), 90);
/// # Ok::<(), towline::config::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Where things live.
    pub home: Home,
    /// What the process's environment said.
    pub environment: Environment,
    /// Retention of finished runs.
    pub retention: Retention,
    /// `[provider.NAME]` tables.
    pub providers: BTreeMap<SiteName, RawTable>,
    /// `[pod.NAME]` tables.
    pub pods: BTreeMap<SiteName, RawTable>,
    sites: BTreeMap<SiteName, Site>,
}

impl Config {
    /// Reads the process's environment and the configuration that it leads to.
    ///
    /// # Errors
    /// Every variant of [`Error`]; nothing was written, so a retry is safe, but fails the same way.
    pub fn from_env() -> Result<Config, Error> {
        Config::load(Environment::capture())
    }

    /// Reads the configuration that an environment leads to; a missing `config.toml` is an empty one.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn load(environment: Environment) -> Result<Config, Error> {
        let home = Home::from_environment(&environment)?;
        let text = read_text(&home.config_file())?.unwrap_or_default();
        let config = Config::parse(home, environment, &text)?;
        let lines = config.sites.values().flat_map(|site| site.roles().map(|role| (&site.name, role)));
        config.home.check_distinct(lines)?;
        Ok(config)
    }

    /// Reads the text of a `config.toml`; touches no file.
    ///
    /// # Errors
    /// [`Error::Entry`] for the first mistake.
    pub fn parse(home: Home, environment: Environment, text: &str) -> Result<Config, Error> {
        let file = home.config_file();
        let source = Source { file: &file, text };
        let document = DeTable::parse(text).map_err(|error| {
            // A mistake at the very end has no place of its own: then the last line is it.
            let offset = error.span().map_or(text.len(), |span| span.start);
            source.mistake(
                offset,
                format!("the file is not valid TOML: {}", error.message().replace('\n', "; ")),
            )
        })?;
        let root = Section::root(source, document.get_ref());
        root.only(&["site", "retention", "provider", "pod"])?;
        let mut sites = BTreeMap::new();
        for (name, section) in named_tables(&root, source, "site")? {
            sites.insert(name.clone(), Site::read(name, &section, &home)?);
        }
        let retention = root.section("retention")?.as_ref().map(retention).transpose()?.unwrap_or_default();
        let raw = |kind: &str| raw_tables(&root, source, kind);
        let (providers, pods) = (raw("provider")?, raw("pod")?);
        Ok(Config { home, environment, retention, providers, pods, sites })
    }

    /// All sites, in the order of their names.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.values()
    }

    /// The site of a name.
    ///
    /// # Errors
    /// [`Error::UnknownSite`] with the nearest right name.
    pub fn site(&self, name: &str) -> Result<&Site, Error> {
        if let Some((_, site)) = self.sites.iter().find(|(known, _)| known.as_str() == name) {
            return Ok(site);
        }
        let near = nearest(name, self.sites.keys().map(SiteName::as_str));
        let near_site = self.sites.values().find(|site| Some(site.name.as_str()) == near);
        Err(Error::UnknownSite {
            name: name.to_owned(),
            file: self.home.config_file(),
            line: near_site.map(|site| site.place.line),
            nearest: near.map(str::to_owned),
            known: self.sites.keys().map(SiteName::to_string).collect(),
        })
    }
}

fn named_tables<'a>(
    root: &Section<'a>,
    source: Source<'_>,
    kind: &str,
) -> Result<Vec<(SiteName, Section<'a>)>, Error> {
    let Some(tables) = root.section(kind)? else { return Ok(Vec::new()) };
    tables
        .entries()
        .into_iter()
        .map(|entry| {
            let name = SiteName::parse(entry.key)
                .map_err(|error| source.mistake(entry.offset, format!("[{kind}.…]: {error}")))?;
            Ok((name, tables.subsection(&entry)?))
        })
        .collect()
}

fn raw_tables(
    root: &Section<'_>,
    source: Source<'_>,
    kind: &str,
) -> Result<BTreeMap<SiteName, RawTable>, Error> {
    let named = named_tables(root, source, kind)?;
    if named.is_empty() {
        return Ok(BTreeMap::new());
    }
    let lost = || source.mistake(0, format!("[{kind}] could not be read a second time"));
    let mut values: toml::Table = toml::from_str(source.text).map_err(|_parsed_before| lost())?;
    let Some(toml::Value::Table(mut tables)) = values.remove(kind) else { return Err(lost()) };
    named
        .into_iter()
        .map(|(name, section)| match tables.remove(name.as_str()) {
            Some(toml::Value::Table(table)) => Ok((name, RawTable { place: section.place(), table })),
            Some(_) | None => Err(lost()),
        })
        .collect()
}

fn retention(section: &Section<'_>) -> Result<Retention, Error> {
    section.only(&["succeeded_days", "failed_days"])?;
    let days = |key| section.count(key, 1..=36_500);
    Ok(Retention { succeeded_days: days("succeeded_days")?, failed_days: days("failed_days")? })
}

/// Reads the file when it is there, and only when nobody else can have written it.
fn read_text(path: &Path) -> Result<Option<String>, Error> {
    use std::io::Read as _;
    let failed = |doing: &'static str| move |source| Error::Io { doing, path: path.to_owned(), source };
    // Without O_NONBLOCK, a named pipe in the file's place would stop every command here.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("open")(source)),
    };
    let metadata = file.metadata().map_err(failed("look at"))?;
    let untrusted =
        |reason: String, mend: String| Err(Error::Untrusted { file: path.to_owned(), reason, mend });
    let (owner, caller) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if !metadata.is_file() {
        return untrusted(
            "is not a regular file".to_owned(),
            format!("put a regular file at {}", path.display()),
        );
    }
    if owner != caller && owner != 0 {
        let reason = format!("belongs to the user {owner}, who could decide where towline connects to");
        return untrusted(
            reason,
            format!("look what is inside, then take it over: `chown {caller} {}`", path.display()),
        );
    }
    if metadata.mode() & 0o002 != 0 {
        let reason = format!(
            "has mode {:04o}: anybody could decide where towline connects to",
            metadata.mode() & 0o7777
        );
        return untrusted(reason, format!("look what is inside, then `chmod go-w {}`", path.display()));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed("read"))?;
    let entry = |offset: usize, message: String| {
        let line = bytes.iter().take(offset).filter(|byte| **byte == b'\n').count() as u64 + 1;
        Error::Entry { place: Place { file: path.to_owned(), line }, message, nearest: None }
    };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(entry(0, format!("the file is larger than {FILE_BYTES_MAX} bytes, the limit")));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(error) => Err(entry(error.valid_up_to(), "the line is not UTF-8".to_owned())),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
