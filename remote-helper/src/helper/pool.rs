//! A bounded pool of threads for work that may hang: files on dead file systems above all.
//!
//! Work comes in steps. A step never waits for the client: it gets the input that is there and the room for output,
//! and gives its state back, so a thread is held by a file system only, never by a slow reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::libc;
use nix::sys::eventfd::EventFd;
use towline_helper::wire::message::{Outcome, Refusal};

use super::fault;
use super::pieces::Pieces;

/// How long a thread waits for more work before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of a thread; no step recurses.
const STACK_BYTES: usize = 512 << 10;

/// Work in steps.
pub(crate) trait Work: Send {
    /// Does some of it.
    fn step(&mut self, turn: &mut Turn) -> Next;
}

/// What a step gets and gives.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Input that has come since the last step.
    pub(crate) input: Pieces,
    /// Whether no more input comes.
    pub(crate) input_ended: bool,
    /// Bytes of output that there is room for.
    pub(crate) room: usize,
    /// Output, at most as much as there is room for.
    pub(crate) output: Pieces,
    flags: Arc<Flags>,
}

/// What both sides of a piece of work see at any time.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The work is of no use any more.
    pub(crate) is_cancelled: AtomicBool,
    /// A thread has taken it.
    pub(crate) has_begun: AtomicBool,
}

impl Turn {
    pub(crate) fn new(input: Pieces, input_ended: bool, room: usize, flags: Arc<Flags>) -> Turn {
        Turn { input, input_ended, room, output: Pieces::default(), flags }
    }

    /// Whether the work is of no use any more; long steps ask now and then.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flags.is_cancelled.load(Ordering::Relaxed)
    }

    /// Gives output away.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        self.room = self.room.saturating_sub(bytes.len());
        self.output.push(bytes);
    }
}

/// When the next step is due.
#[derive(Debug)]
pub(crate) enum Next {
    /// When there is room for output.
    Room,
    /// When there is input, or its end.
    Input,
    /// After a while.
    Later(Duration),
    /// Never: this is the answer.
    Done(Result<Outcome, Box<Refusal>>),
}

/// A piece of work on its way to a thread and back.
pub(crate) struct Job {
    pub(crate) stream: u32,
    pub(crate) work: Box<dyn Work>,
    pub(crate) turn: Turn,
    /// What the step said; set on the way back.
    pub(crate) next: Next,
}

/// The threads.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads_most: usize,
    /// Whether the threads give way to all others.
    is_polite: bool,
}

struct Shared {
    /// Protects the queue and the counts of threads, which must agree with each other.
    state: Mutex<State>,
    ready: Condvar,
    done: Sender<Job>,
    wake: Arc<EventFd>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The helper aborts on a panic, so no lock is ever found poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Makes a pool without any thread yet. Finished steps go to `done`, and `wake` is told.
    pub(crate) fn new(threads_most: usize, is_polite: bool, done: Sender<Job>, wake: Arc<EventFd>) -> Pool {
        let shared = Shared { state: Mutex::default(), ready: Condvar::new(), done, wake };
        Pool { shared: Arc::new(shared), threads_most, is_polite }
    }

    /// Hands a job to a thread.
    ///
    /// # Errors
    /// The job comes back when there is no thread and none can be started.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Box<Job>> {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
        if state.idle < state.queue.len() && state.threads < self.threads_most {
            state.threads += 1;
            let (shared, is_polite) = (Arc::clone(&self.shared), self.is_polite);
            let thread = std::thread::Builder::new().name("towline-file".to_owned()).stack_size(STACK_BYTES);
            if thread.spawn(move || run(&shared, is_polite)).is_err() {
                state.threads -= 1;
                if state.threads == 0
                    && let Some(job) = state.queue.pop_back()
                {
                    return Err(Box::new(job));
                }
            }
        }
        self.shared.ready.notify_one();
        Ok(())
    }
}

fn run(shared: &Shared, is_polite: bool) {
    if is_polite {
        be_polite();
    }
    let mut state = shared.lock();
    loop {
        if let Some(mut job) = state.queue.pop_front() {
            drop(state);
            job.turn.flags.has_begun.store(true, Ordering::Relaxed);
            job.next = match job.turn.is_cancelled() {
                true => Next::Done(Err(Box::new(fault::cancelled()))),
                false => job.work.step(&mut job.turn),
            };
            let finished = matches!(job.next, Next::Done(_));
            // Dropping may remove a file, which can hang too: that's for this thread, before the answer is known.
            if finished {
                job.work = Box::new(Finished);
            }
            // Nobody receives it, or reads the counter, only when the helper is ending.
            shared.done.send(job).unwrap_or_default();
            shared.wake.write(1).map(drop).unwrap_or_default();
            state = shared.lock();
            continue;
        }
        state.idle += 1;
        let (woken, wait) = shared.ready.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if wait.timed_out() && state.queue.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

/// What stands in the place of work that is done.
struct Finished;

impl Work for Finished {
    fn step(&mut self, _turn: &mut Turn) -> Next {
        Next::Done(Err(Box::new(fault::cancelled())))
    }
}

/// Lets this thread give way to everybody's work on a shared login node.
fn be_polite() {
    const NICE: i32 = 10;
    #[expect(unsafe_code, reason = "no safe crate sets a thread's priority")]
    // SAFETY: three numbers go in; on Linux, 0 names the calling thread alone. That it fails changes nothing else.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}
