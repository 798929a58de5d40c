//! Randomness from one seed, and the seed in every failure.

use std::time::Duration;

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// A number up to `most` of any magnitude: small ones are as likely as large ones.
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = self.within(0, 64 - u64::from(most.leading_zeros()));
        if bits == 0 { 0 } else { (self.next() >> (64 - bits)).min(most) }
    }

    pub fn happens(&mut self, percent: u64) -> bool {
        self.within(1, 100) <= percent
    }

    pub fn time(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.within(0, most.as_nanos() as u64))
    }
}

/// Prints the seed when the test that holds it panics.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this world's seed: TOWLINE_WORLD_SEED={}", self.0);
        }
    }
}

/// Runs a promise in `count` worlds, or in the one of `TOWLINE_WORLD_SEED`.
pub fn in_worlds(count: u64, promise: impl Fn(u64)) {
    let only = std::env::var("TOWLINE_WORLD_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in only.map_or(0..count, |seed: u64| seed..seed + 1) {
        let _replay = Replay(seed);
        promise(seed);
    }
}
