//! Deadlines that stand still while a human is being asked.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long people have been asked so far, and whether one is being asked right now.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    asking_since: Option<Instant>,
    total: Duration,
}

/// Human time of one connection's opening: it never counts against a deadline.
#[derive(Debug)]
pub(super) struct HumanTime(watch::Sender<Spent>);

/// Lives as long as a question stands; the clock runs again when it is dropped.
pub(super) struct Asking<'a>(&'a HumanTime);

impl HumanTime {
    pub(super) fn new() -> Self {
        HumanTime(watch::Sender::new(Spent::default()))
    }

    /// Stops all deadlines until the guard is dropped.
    pub(super) fn asking(&self) -> Asking<'_> {
        self.0.send_modify(|spent| {
            spent.asking_since.get_or_insert_with(Instant::now);
        });
        Asking(self)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|spent| {
            if let Some(since) = spent.asking_since.take() {
                spent.total += since.elapsed();
            }
        });
    }
}

/// Runs `work` for at most `limit` of machine time; `None` when the limit was reached.
///
/// Cancel safe when `work` is: dropping the future drops `work`.
pub(super) async fn within<T>(
    limit: Duration,
    human: &HumanTime,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut watching = human.0.subscribe();
    let start = Instant::now();
    let before = watching.borrow_and_update().total;
    tokio::pin!(work);
    loop {
        let spent = *watching.borrow_and_update();
        let due = start + limit + spent.total.saturating_sub(before);
        let running = spent.asking_since.is_none();
        // Dropping the sleep or the change notice loses nothing: both are recomputed above.
        tokio::select! {
            biased;
            out = &mut work => return Some(out),
            () = sleep_until(due), if running => return None,
            // The sender is borrowed for the whole call, so this cannot fail.
            _ = watching.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_stands_still_while_a_human_is_asked() {
        let human = HumanTime::new();
        let work = async {
            let asking = human.asking();
            tokio::time::sleep(Duration::from_secs(3600)).await;
            drop(asking);
            tokio::time::sleep(Duration::from_secs(9)).await;
        };
        assert!(within(Duration::from_secs(10), &human, work).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_counts_the_time_around_a_question() {
        let human = HumanTime::new();
        let start = Instant::now();
        let work = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            let asking = human.asking();
            tokio::time::sleep(Duration::from_secs(100)).await;
            drop(asking);
            tokio::time::sleep(Duration::from_secs(6)).await;
        };
        assert!(within(Duration::from_secs(10), &human, work).await.is_none());
        assert_eq!(start.elapsed(), Duration::from_secs(110));
    }
}
