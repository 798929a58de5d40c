//! What the host is: asked from the kernel and the environment, without starting any program.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::utsname::uname;
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{Outcome, Probe};

use super::environment::Recipe;
use super::pool::{Next, Turn, Work};
use super::session::bytes_of;

/// Shells that are looked for.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "zsh", "csh", "tcsh", "fish", "ksh", "mksh", "busybox"];
/// Commands that are looked for: schedulers, environments, containers, tools.
const COMMANDS: [&str; 52] = [
    "sbatch",
    "squeue",
    "scancel",
    "scontrol",
    "sacct",
    "sinfo",
    "srun",
    "salloc",
    "seff",
    "qsub",
    "qstat",
    "qdel",
    "qalter",
    "qhold",
    "qrls",
    "qacct",
    "qhost",
    "qconf",
    "qmgr",
    "pbsnodes",
    "tracejob",
    "showq",
    "bsub",
    "bjobs",
    "bkill",
    "bhist",
    "bqueues",
    "bhosts",
    "modulecmd",
    "lmod",
    "conda",
    "mamba",
    "micromamba",
    "spack",
    "python3",
    "perl",
    "git",
    "rsync",
    "tar",
    "zstd",
    "apptainer",
    "singularity",
    "podman",
    "docker",
    "bwrap",
    "nvidia-smi",
    "rocm-smi",
    "lfs",
    "quota",
    "tmux",
    "screen",
    "R",
];
/// Soft limits that are told.
const LIMITS: [(&str, Resource); 9] = [
    ("as", Resource::RLIMIT_AS),
    ("core", Resource::RLIMIT_CORE),
    ("cpu", Resource::RLIMIT_CPU),
    ("data", Resource::RLIMIT_DATA),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("memlock", Resource::RLIMIT_MEMLOCK),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("nproc", Resource::RLIMIT_NPROC),
    ("stack", Resource::RLIMIT_STACK),
];

/// A `probe` request.
pub(crate) struct Probing {
    recipe: Recipe,
}

impl Probing {
    pub(crate) fn new(recipe: Recipe) -> Probing {
        Probing { recipe }
    }

    fn variable(&self, name: &str) -> Option<&OsString> {
        self.recipe.variables.get(OsStr::new(name)).filter(|value| !value.is_empty())
    }

    fn probe(&self) -> Probe {
        let system = uname();
        let system = system.as_ref().map(|system| [system.sysname(), system.release(), system.machine()]);
        let system = system.map(|words| words.map(OsStr::to_string_lossy).join(" "));
        let user = self.variable("USER").or_else(|| self.variable("LOGNAME"));
        Probe {
            system: system.unwrap_or_default(),
            distribution: distribution(),
            host: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned(),
            user: user.map(|user| user.to_string_lossy().into_owned()),
            shell: self.variable("SHELL").map(|shell| bytes_of(Path::new(shell))),
            cpus: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(1)),
            mem_bytes: memory(),
            shells: self.find(&SHELLS),
            commands: self.find(&COMMANDS),
            gpus: gpus(),
            limits: LIMITS
                .iter()
                .filter_map(|(name, limit)| Some(((*name).to_owned(), soft_limit(*limit)?)))
                .collect(),
            environment: self.recipe.name.to_owned(),
            environment_note: self.recipe.note.clone(),
        }
    }

    /// The names that are executable files on the PATH that commands will have.
    fn find(&self, names: &[&str]) -> Vec<(String, ByteText)> {
        let path = self.variable("PATH").map_or(b"/bin:/usr/bin".as_slice(), |path| path.as_bytes());
        let folders: Vec<&Path> = path
            .split(|byte| *byte == b':')
            .map(|folder| Path::new(OsStr::from_bytes(folder)))
            .filter(|folder| folder.is_absolute())
            .collect();
        let found = names.iter().filter_map(|name| {
            let file = folders.iter().map(|folder| folder.join(name)).find(is_executable)?;
            Some(((*name).to_owned(), bytes_of(&file)))
        });
        found.collect()
    }
}

impl Work for Probing {
    fn step(&mut self, _turn: &mut Turn) -> Next {
        Next::Done(Ok(Outcome::Probe(Box::new(self.probe()))))
    }
}

fn is_executable(file: &PathBuf) -> bool {
    fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// The soft value of a limit as text.
pub(crate) fn soft_limit(limit: Resource) -> Option<String> {
    let (soft, _hard) = getrlimit(limit).ok()?;
    Some(if soft == RLIM_INFINITY { "unlimited".to_owned() } else { soft.to_string() })
}

fn distribution() -> Option<String> {
    let text =
        fs::read_to_string("/etc/os-release").or_else(|_| fs::read_to_string("/usr/lib/os-release")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// GPUs as the kernel's drivers name them.
fn gpus() -> Vec<String> {
    let names = |folder: &str, file: &str, key: &str| -> Vec<String> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join(file)).collect();
        paths.sort();
        let texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
        texts
            .filter_map(|text| Some(text.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned()))
            .collect()
    };
    let nvidia = names("/proc/driver/nvidia/gpus", "information", "Model:");
    let amd = names("/sys/class/kfd/kfd/topology/nodes", "name", "");
    nvidia.into_iter().chain(amd.into_iter().filter(|name| !name.is_empty())).collect()
}
