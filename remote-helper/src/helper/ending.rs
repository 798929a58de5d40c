//! Ends the descendants of commands: TERM, a grace time, KILL.
//!
//! A [`Campaign`] is a small state machine over the process table. Looking through `/proc` takes milliseconds on a
//! busy login node and could hang with the kernel, so campaigns of single commands run on a thread of their own
//! ([`Ender`]); only the one that ends everything runs on the line's thread, which has nothing else left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::processes::{
    Owner, Root, Table, attribute, holds_pipe, read_environment, read_process, read_table,
};
use super::session::Marker;

/// Between TERM and KILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// The same for background processes that hold a pipe, whose command has an answer waiting.
pub(crate) const GRACE_OF_HOLDERS: Duration = Duration::from_millis(500);
/// How long after KILL the survivors are looked for: those are in the kernel's hands.
const KILLING: Duration = Duration::from_secs(2);
/// Between two looks at the table.
const PAUSE: Duration = Duration::from_millis(50);
/// Stack of the thread; it reads small files only.
const STACK_BYTES: usize = 256 << 10;

/// Who is ended.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// All descendants of one command.
    Command(u32),
    /// Those descendants of one command that hold one of these pipes.
    Holders(u32, Vec<u64>),
    /// Everything that was not detached.
    Line {
        /// Whether anything was, so that what can't be told apart is left alone.
        some_detached: bool,
    },
}

/// One ending under way.
#[derive(Debug)]
pub(crate) struct Campaign {
    scope: Scope,
    roots: Vec<Root>,
    grace: Duration,
    began: Instant,
    /// Processes that got TERM: once each, since some take a second one for impatience.
    termed: BTreeSet<(i32, u64)>,
    /// Groups that got it as a whole.
    groups: BTreeSet<i32>,
    /// When the main processes began that were there at the first look.
    mains: BTreeMap<i32, u64>,
}

impl Campaign {
    /// Plans the end of `scope`; the process groups of `groups` have had their TERM.
    pub(crate) fn new(scope: Scope, roots: Vec<Root>, groups: BTreeSet<i32>) -> Campaign {
        let grace = if matches!(scope, Scope::Holders(..)) { GRACE_OF_HOLDERS } else { GRACE };
        Campaign {
            scope,
            roots,
            grace,
            began: Instant::now(),
            termed: BTreeSet::new(),
            groups,
            mains: BTreeMap::new(),
        }
    }

    /// Looks once and signals who is there. Returns whether nobody is left to be ended, or no time to do it.
    pub(crate) fn step(&mut self, marker: &Marker) -> bool {
        let elapsed = self.began.elapsed();
        let table = read_table();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        self.forget_reused(&table);
        let owners = attribute(&table, own, &self.roots, marker, &mut read_environment);
        let mut left = false;
        for (pid, owner) in owners {
            let Some(process) = table.get(&pid).filter(|process| !process.is_dead) else { continue };
            if !self.is_meant(pid, owner) {
                continue;
            }
            left = true;
            if elapsed >= self.grace {
                signal(pid, process.began, Signal::SIGKILL);
            } else if self.termed.insert((pid, process.began)) && !self.groups.contains(&process.group) {
                signal(pid, process.began, Signal::SIGTERM);
            }
        }
        !left || elapsed >= self.grace + KILLING
    }

    /// Forgets main processes whose number another process has by now.
    fn forget_reused(&mut self, table: &Table) {
        let mains = &mut self.mains;
        self.roots.retain(|root| match table.get(&root.pid) {
            Some(process) if root.is_alive => {
                *mains.entry(root.pid).or_insert(process.began) == process.began
            }
            // It was reaped before the campaign began.
            Some(_another) => false,
            None => true,
        });
    }

    fn is_meant(&self, pid: i32, owner: Owner) -> bool {
        match (&self.scope, owner) {
            (Scope::Command(wanted), Owner::Command { stream, .. }) => stream == *wanted,
            (Scope::Holders(wanted, pipes), Owner::Command { stream, .. }) => {
                stream == *wanted && holds_pipe(pid, pipes)
            }
            (Scope::Command(_) | Scope::Holders(..), Owner::Unknown) => false,
            (Scope::Line { .. }, Owner::Command { detach, .. }) => !detach,
            (Scope::Line { some_detached }, Owner::Unknown) => !some_detached,
        }
    }
}

/// Signals a process if it's still the one that was seen.
pub(crate) fn signal(pid: i32, began: u64, signal: Signal) {
    // Ids come from the table, where 0 and 1 are no descendants of ours; a negative one would be a whole group.
    if pid > 1 && read_process(pid).is_some_and(|process| process.began == began) {
        // It may end between the look and the signal, which is what is wanted.
        kill(Pid::from_raw(pid), signal).unwrap_or_default();
    }
}

/// Runs the campaigns of single commands.
#[derive(Debug)]
pub(crate) struct Ender {
    orders: Option<Sender<Campaign>>,
}

impl Ender {
    /// Starts the thread. Without one (a limit on processes) there are no campaigns: a command's own group still
    /// gets its signals from the line's thread, and all others theirs at the end of the line.
    pub(crate) fn start(marker: Marker) -> Ender {
        let (orders, received) = channel();
        let thread = std::thread::Builder::new().name("towline-ending".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || run(&received, &marker));
        Ender { orders: thread.is_ok().then_some(orders) }
    }

    /// Begins a campaign.
    pub(crate) fn begin(&self, campaign: Campaign) {
        if let Some(orders) = &self.orders {
            // The thread lives as long as this sender, so somebody receives it.
            orders.send(campaign).unwrap_or_default();
        }
    }
}

fn run(received: &Receiver<Campaign>, marker: &Marker) {
    let mut campaigns: Vec<Campaign> = Vec::new();
    loop {
        let order = if campaigns.is_empty() {
            received.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            received.recv_timeout(PAUSE)
        };
        match order {
            Ok(campaign) => campaigns.push(campaign),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        campaigns.retain_mut(|campaign| !campaign.step(marker));
    }
}
