//! Samples, ratios and what the kernel says of time and memory.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Measurements of one thing.
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Begins without any.
    pub fn new() -> Self {
        Samples(Vec::new())
    }

    /// Adds one.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// The middle one.
    pub fn median(&self) -> Duration {
        self.quantile(50)
    }

    /// The value below which `share` (in percent) of the samples lie.
    fn quantile(&self, share: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted
            .get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

/// What is printed at the end: a Markdown table.
pub struct Table {
    lines: Vec<String>,
}

impl Table {
    /// Begins a table; a smoke run says that it measures nothing.
    pub fn new(smoke: bool) -> Self {
        let mut lines = Vec::new();
        if smoke {
            lines.push("smoke run: the figures mean nothing".to_owned());
        }
        lines.push(format!(
            "{} processors, seedless, sizes as stated",
            std::thread::available_parallelism().map_or(0, usize::from)
        ));
        lines.push(String::new());
        lines.push(
            "| what | rival | ours, median (p95) | rival, median (p95) | ratio of medians | samples |"
                .to_owned(),
        );
        lines.push("|---|---|---|---|---|---|".to_owned());
        Table { lines }
    }

    /// Adds a row with the ratio of the medians, ours over theirs.
    pub fn row(&mut self, what: &str, rival: &str, ours: &Samples, theirs: &Samples) {
        self.add(what, rival, ours, theirs, 50);
    }

    /// Adds a row with the ratio of the 95th percentiles.
    pub fn row_p95(&mut self, what: &str, rival: &str, ours: &Samples, theirs: &Samples) {
        self.add(what, rival, ours, theirs, 95);
    }

    fn add(&mut self, what: &str, rival: &str, ours: &Samples, theirs: &Samples, share: usize) {
        let ratio = ours.quantile(share).as_secs_f64() / theirs.quantile(share).as_secs_f64();
        self.lines.push(format!(
            "| {what} | {rival} | {} ({}) | {} ({}) | {ratio:.2} | {} / {} |",
            milliseconds(ours.quantile(50)),
            milliseconds(ours.quantile(95)),
            milliseconds(theirs.quantile(50)),
            milliseconds(theirs.quantile(95)),
            ours.0.len(),
            theirs.0.len(),
        ));
    }

    /// Adds a line below the table.
    pub fn note(&mut self, text: &str) {
        self.lines.push(String::new());
        self.lines.push(text.to_owned());
    }

    /// Prints it all.
    pub fn print(&self) {
        println!("{}", self.lines.join("\n"));
    }
}

fn milliseconds(duration: Duration) -> String {
    let value = duration.as_secs_f64() * 1e3;
    if value < 100.0 { format!("{value:.2} ms") } else { format!("{value:.0} ms") }
}

/// A size for people.
pub fn size(bytes: u64) -> String {
    if bytes >= 1 << 30 {
        format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
    } else {
        format!("{:.1} MiB", bytes as f64 / (1_u64 << 20) as f64)
    }
}

/// Processor time of this process so far.
pub fn own_cpu() -> Duration {
    cpu(UsageWho::RUSAGE_SELF)
}

/// Processor time of the ended children of this process so far.
pub fn children_cpu() -> Duration {
    cpu(UsageWho::RUSAGE_CHILDREN)
}

fn cpu(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("the kernel tells the time used");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}

/// Peak resident memory of a process of this machine, in bytes.
pub fn peak_memory(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells the peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
