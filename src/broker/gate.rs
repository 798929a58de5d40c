//! The gate: each stream passes the policy and the audit log before it reaches the line.
//!
//! On a thread of its own, since the policy's mutex may be held by others: the line and its other streams go on
//! meanwhile. The act itself happens in the owner of the line while the mutex is held here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use towline_helper::wire::message::{Code, Program, Refusal, Request};

use super::relay::{ClientId, Pending, refusal};
use crate::audit::{Durability, Entry, What, Who};
use crate::policy::{self, FRESH, Store};

/// How long the owner of the line may take to act; it does nothing that blocks.
const ACT_WITHIN: Duration = Duration::from_millis(300);
/// How often a stream is tried whose act came too late: the process was stopped in between.
const TRIES_MAX: u32 = 3;

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const VOID: u8 = 2;

/// Which line the gate guards.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    pub(super) site: String,
    pub(super) role: String,
}

/// What the gate says of a stream.
pub(super) enum Verdict {
    /// It may be dispatched now, if the permission can still be taken.
    Admit { client: ClientId, stream: u32, permission: Permission },
    /// It may not.
    Deny { client: ClientId, stream: u32, refusal: Refusal },
}

/// A permission to act at once, while the policy's mutex is held for it.
#[derive(Clone)]
pub(super) struct Permission {
    state: Arc<AtomicU8>,
    since: Instant,
    done: mpsc::SyncSender<()>,
}

impl Permission {
    fn new() -> (Permission, mpsc::Receiver<()>) {
        let (done, is_done) = mpsc::sync_channel(1);
        (Permission { state: Arc::new(AtomicU8::new(OPEN)), since: Instant::now(), done }, is_done)
    }

    /// Takes it; false when it is too old, or the gate has taken it back.
    pub(super) fn take(&self) -> bool {
        // Whoever was stopped since the gate looked at the policy must not act on that look.
        self.since.elapsed() < FRESH && self.move_to(TAKEN)
    }

    /// Tells the gate that the act is done.
    pub(super) fn done(&self) {
        // The gate waits for it, and if not, it has nothing to do any more.
        self.done.try_send(()).ok();
    }

    fn void(&self) -> bool {
        self.move_to(VOID)
    }

    fn move_to(&self, state: u8) -> bool {
        self.state.compare_exchange(OPEN, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The gate's thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    asks: mpsc::Sender<(Pending, Who)>,
}

impl Gate {
    /// Starts the thread.
    pub(super) fn start(
        store: Store,
        guarded: Guarded,
        verdicts: UnboundedSender<Verdict>,
    ) -> std::io::Result<Gate> {
        let (asks, asked) = mpsc::channel::<(Pending, Who)>();
        let work = move || {
            for (pending, who) in asked {
                judge(&store, &guarded, &pending, who, &verdicts);
            }
        };
        std::thread::Builder::new().name("gate".to_owned()).stack_size(512 << 10).spawn(work)?;
        Ok(Gate { asks })
    }

    /// Has a stream judged; its verdict comes later.
    pub(super) fn ask(&self, pending: Pending, who: Who) {
        if self.asks.send((pending, who)).is_err() {
            tracing::error!("the gate's thread has gone, so nothing is let through any more");
        }
    }
}

fn judge(store: &Store, guarded: &Guarded, pending: &Pending, who: Who, verdicts: &UnboundedSender<Verdict>) {
    let (client, stream) = (pending.client, pending.stream);
    let entry = Entry {
        who,
        site: Some(guarded.site.clone()),
        role: Some(guarded.role.clone()),
        what: describe(&pending.request),
        outcome: "dispatched".to_owned(),
    };
    let mut written = false;
    for _ in 0..TRIES_MAX {
        let record = || {
            if !written {
                store.audit().append(&entry, Durability::Batched)?;
                written = true;
            }
            Ok::<_, policy::Error>(())
        };
        let act = || {
            let (permission, is_done) = Permission::new();
            // An owner that has gone needs no verdict.
            drop(verdicts.send(Verdict::Admit { client, stream, permission: permission.clone() }));
            is_done.recv_timeout(ACT_WITHIN).is_ok() || !permission.void()
        };
        match store.gate(record, act) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                let refusal = refuse(&error);
                drop(verdicts.send(Verdict::Deny { client, stream, refusal }));
                return;
            }
        }
    }
    let message = "this broker was held up between its look at the policy and its act; nothing was done";
    let refusal = refusal(Code::Busy, message.to_owned());
    drop(verdicts.send(Verdict::Deny { client, stream, refusal }));
}

fn refuse(error: &policy::Error) -> Refusal {
    let code = match error {
        policy::Error::Invalid { .. } | policy::Error::Disk(_) | policy::Error::Audit(_) => {
            Code::PolicyInvalid
        }
        policy::Error::Busy { .. } => Code::Busy,
        _ => Code::PolicyDenied,
    };
    refusal(code, error.to_string())
}

/// What the audit log says of a request: its kind, and words without secrets.
pub(super) fn describe(request: &Request) -> What {
    match request {
        Request::Exec(exec) => match &exec.command {
            Program::Shell(text) => What::shell("exec", &text.escaped()),
            Program::Argv(argv) => {
                let words: Vec<String> = argv.iter().map(|word| word.escaped()).collect();
                What::command("exec", words.iter().map(String::as_str))
            }
        },
        Request::Stat { path, .. } => What::new("stat", &path.escaped()),
        Request::List { path } => What::new("list", &path.escaped()),
        Request::Read { path, .. } => What::new("read", &path.escaped()),
        Request::Write(write) => What::new("write", &write.path.escaped()),
        Request::Hash { path, .. } => What::new("hash", &path.escaped()),
        Request::Mkdir { path, .. } => What::new("mkdir", &path.escaped()),
        Request::Rename { from, to, .. } => {
            What::new("rename", &format!("{} to {}", from.escaped(), to.escaped()))
        }
        Request::Remove { path, .. } => What::new("remove", &path.escaped()),
        Request::DiskUsage { path } => What::new("disk_usage", &path.escaped()),
        Request::Tail { path, .. } => What::new("tail", &path.escaped()),
        Request::Probe {} => What::new("probe", ""),
        Request::Pty {} => What::new("pty", ""),
        Request::Dial {} => What::new("dial", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_taken_once_and_never_after_it_was_taken_back() {
        let (permission, _done) = Permission::new();
        assert!(permission.take() && !permission.take() && !permission.void());
        let (permission, _done) = Permission::new();
        assert!(permission.void() && !permission.take());
    }

    #[test]
    fn a_permission_older_than_the_look_may_be_cannot_be_taken() {
        let (mut permission, _done) = Permission::new();
        permission.since = Instant::now().checked_sub(FRESH).unwrap();
        assert!(!permission.take());
    }
}
