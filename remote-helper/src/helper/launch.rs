//! Starts a process in a session of its own without ever waiting for it.
//!
//! The standard library's `spawn` waits until the new program is loaded, so a dead file system below the program or
//! its working directory would stop the line. Here the fork returns at once, and what became of it arrives on a pipe.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid, write};

use super::program::Image;

/// Exit code of a child that could not become its program; nobody sees it, since the pipe says why.
const EXIT_NOT_STARTED: i32 = 127;

/// The ends of a new process that are ours.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: Pid,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Ends without a byte when the program was loaded; else holds one [`Obstacle`].
    pub(crate) loading: OwnedFd,
}

/// Why a forked child did not become its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// What a child did when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Making its session and its standard streams.
    Prepare,
    /// Changing to the working directory.
    ChangeFolder,
    /// Loading the program.
    Load,
}

impl Obstacle {
    const BYTES: usize = 5;

    /// Reads what a child left on its pipe.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Obstacle> {
        let [step, a, b, c, d] = *<&[u8; Self::BYTES]>::try_from(bytes).ok()?;
        let step = match step {
            0 => Step::Prepare,
            1 => Step::ChangeFolder,
            _ => Step::Load,
        };
        Some(Obstacle { step, errno: Errno::from_raw(i32::from_ne_bytes([a, b, c, d])) })
    }

    fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = (self.errno as i32).to_ne_bytes();
        [self.step as u8, a, b, c, d]
    }
}

/// What every launch shares: opened and read once, before the first one.
#[derive(Debug)]
pub(crate) struct Launcher {
    null: File,
    /// The signal mask that the session gave to the helper.
    mask: SigSet,
}

impl Launcher {
    /// Makes a launcher whose children get `mask`.
    ///
    /// # Errors
    /// When `/dev/null` can't be opened.
    pub(crate) fn new(mask: SigSet) -> std::io::Result<Launcher> {
        Ok(Launcher { null: File::open("/dev/null")?, mask })
    }

    /// Forks a child that becomes `image`. Its stdin is at its end at once unless `with_stdin`.
    ///
    /// # Errors
    /// The system's number when a pipe or a process could not be made; nothing is left behind then.
    pub(crate) fn launch(&self, image: &Image, with_stdin: bool) -> Result<Launched, Errno> {
        let (stdout, stdout_child) = pipe2(OFlag::O_CLOEXEC)?;
        let (stderr, stderr_child) = pipe2(OFlag::O_CLOEXEC)?;
        let (loading, loading_child) = pipe2(OFlag::O_CLOEXEC)?;
        let (stdin_child, stdin) = match with_stdin.then(|| pipe2(OFlag::O_CLOEXEC)).transpose()? {
            Some((child, ours)) => (Some(child), Some(ours)),
            None => (None, None),
        };
        for ours in [Some(&stdout), Some(&stderr), Some(&loading), stdin.as_ref()].into_iter().flatten() {
            set_nonblocking(ours.as_fd())?;
        }
        let argvs: Vec<Vec<*const c_char>> = image.argvs.iter().map(|argv| pointers(argv)).collect();
        let environment = pointers(&image.environment);
        let child = Child {
            stdin: stdin_child.as_ref().map_or(self.null.as_fd(), |fd| fd.as_fd()),
            stdout: stdout_child.as_fd(),
            stderr: stderr_child.as_fd(),
            loading: loading_child.as_fd(),
            cwd: image.cwd.as_deref(),
            attempts: &image.attempts,
            argvs: &argvs,
            environment: &environment,
            mask: &self.mask,
        };
        #[expect(unsafe_code, reason = "no safe crate forks without waiting for exec")]
        // SAFETY: other threads may hold locks at this moment, so the child may only make async-signal-safe calls.
        // `Child::run` allocates nothing, takes no lock and never returns: all it needs is in `child`.
        match unsafe { fork() }? {
            ForkResult::Child => child.run(),
            ForkResult::Parent { child: pid } => Ok(Launched { pid, stdin, stdout, stderr, loading }),
        }
    }
}

/// What the child needs, prepared before the fork.
struct Child<'a> {
    stdin: BorrowedFd<'a>,
    stdout: BorrowedFd<'a>,
    stderr: BorrowedFd<'a>,
    loading: BorrowedFd<'a>,
    cwd: Option<&'a CStr>,
    attempts: &'a [(CString, usize)],
    /// NULL-terminated pointers to strings that outlive the child's use of them.
    argvs: &'a [Vec<*const c_char>],
    environment: &'a [*const c_char],
    mask: &'a SigSet,
}

impl Child<'_> {
    /// Becomes the program, or tells why not. Only system calls from here on.
    fn run(&self) -> ! {
        let (step, errno) = match self.prepare() {
            Ok(()) => match self.cwd.map_or(Ok(()), chdir) {
                Ok(()) => (Step::Load, self.load()),
                Err(errno) => (Step::ChangeFolder, errno),
            },
            Err(errno) => (Step::Prepare, errno),
        };
        let report = write(self.loading, &Obstacle { step, errno }.encode());
        debug_assert!(report.is_ok(), "the pipe is empty and its reader is there");
        #[expect(unsafe_code, reason = "exit handlers belong to the parent")]
        // SAFETY: `_exit` is async-signal-safe and takes any number.
        unsafe {
            libc::_exit(EXIT_NOT_STARTED)
        }
    }

    fn prepare(&self) -> Result<(), Errno> {
        // A session of its own: no terminal, and one group that holds the command and its children.
        setsid()?;
        dup2_stdin(self.stdin)?;
        dup2_stdout(self.stdout)?;
        dup2_stderr(self.stderr)?;
        #[expect(unsafe_code, reason = "the safe wrapper is unsafe too, since handlers may be")]
        // SAFETY: `signal` is async-signal-safe, and SIG_DFL is no function. Rust's runtime ignores SIGPIPE, and
        // what is ignored stays so in the program.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        self.mask.thread_set_mask()
    }

    /// Tries the files in turn as `execvp` does: one that may not be executed is remembered, and the next is tried.
    fn load(&self) -> Errno {
        let mut result = Errno::ENOENT;
        for (file, number) in self.attempts {
            let Some(argv) = self.argvs.get(*number) else { continue };
            #[expect(unsafe_code, reason = "the safe wrapper allocates")]
            // SAFETY: all strings end with NUL, both vectors with NULL, and all of them outlive the call.
            unsafe {
                libc::execve(file.as_ptr(), argv.as_ptr(), self.environment.as_ptr());
            }
            match Errno::last() {
                Errno::ENOENT | Errno::ENOTDIR => {}
                Errno::EACCES => result = Errno::EACCES,
                errno => return errno,
            }
        }
        result
    }
}

/// A NULL-terminated vector of pointers into `strings`.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Takes one ended child, ours or an orphan that came to us, without waiting.
pub(crate) fn reap() -> Option<(Pid, ExitStatus)> {
    let mut status = 0;
    #[expect(unsafe_code, reason = "the safe wrapper loses children that a real-time signal ended")]
    // SAFETY: `status` is a valid place for one number.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| (Pid::from_raw(pid), ExitStatus::from_raw(status)))
}

/// Makes reads and writes of a descriptor return at once.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

/// The number that the kernel gives to a pipe, as `/proc/PID/fd` shows it; both ends have the same.
pub(crate) fn pipe_number(fd: RawFd) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}

impl Launched {
    /// The kernel's numbers of the two output pipes.
    pub(crate) fn output_numbers(&self) -> Vec<u64> {
        [&self.stdout, &self.stderr].into_iter().filter_map(|fd| pipe_number(fd.as_raw_fd())).collect()
    }
}
