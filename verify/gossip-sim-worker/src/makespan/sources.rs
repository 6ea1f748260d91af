//! Sources that are hard to divide: the distribution of keys and their costs.

use gossip_testkit::{GOLDEN_STEP, mix};

/// The mean cost of a key, in ticks, before the dearest are made cheaper.
const MEAN_TICKS: u64 = 2_500;

/// Maximum cost of a key, as a fraction of the unbounded total: a key cannot be divided, so a more
/// expensive one alone would determine the makespan of 64 workers.
const DEAREST: u64 = 64 * 40;

/// Distribution of the keys and their costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Evenly spread keys; the cost of the k-th dearest is a k-th, and they come in any order.
    Zipf,
    /// Twenty prefixes, the k-th with a k-th of the keys; equal costs.
    Clustered,
    /// Random identifiers; equal costs.
    Uuids,
    /// Directories of a few to some hundred files with costs over three orders of magnitude. A
    /// sample contains directories, not files.
    Paths,
    /// Two hundred directories, half of all files in one of them; equal costs. A sample contains
    /// directories, not files.
    HotDirectory,
    /// Evenly spread keys, of which a twentieth in a row takes more than a third of all work.
    SlowStretch,
}

impl Shape {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Zipf,
        Self::Clustered,
        Self::Uuids,
        Self::Paths,
        Self::HotDirectory,
        Self::SlowStretch,
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zipf => "Zipf weights",
            Self::Clustered => "clustered prefixes",
            Self::Uuids => "UUIDs",
            Self::Paths => "paths",
            Self::HotDirectory => "one hot directory",
            Self::SlowStretch => "one slow stretch",
        }
    }

    /// Returns whether a sample contains directories instead of keys.
    pub(super) const fn looks_at_directories(self) -> bool {
        matches!(self, Self::Paths | Self::HotDirectory)
    }

    /// `count` keys in order, each with its cost in ticks.
    pub(super) fn items(self, count: usize) -> Vec<(Vec<u8>, u64)> {
        let mut items = self.keys_and_weights(count);
        items.sort_by(|a, b| a.0.cmp(&b.0));
        items.dedup_by(|a, b| a.0 == b.0);
        let all: f64 = items.iter().map(|(_, weight)| weight).sum();
        let work = items.len() as f64 * MEAN_TICKS as f64;
        let dearest = work / DEAREST as f64;
        let ticks = |weight: f64| (weight * work / all).min(dearest).max(1.0) as u64;
        items.into_iter().map(|(key, weight)| (key, ticks(weight))).collect()
    }

    fn keys_and_weights(self, count: usize) -> Vec<(Vec<u8>, f64)> {
        let numbers = 0..count as u64;
        let even = |number: u64| format!("k{number:08}").into_bytes();
        match self {
            Self::Zipf => {
                let mut ranks: Vec<(u64, u64)> =
                    numbers.map(|number| (scatter(number, 1), number)).collect();
                ranks.sort_unstable();
                let ranked = ranks.into_iter().zip(1..);
                ranked.map(|((_, number), rank)| (even(number), 1.0 / rank as f64)).collect()
            }
            Self::Clustered => numbers.map(|number| (clustered(number, count), 1.0)).collect(),
            Self::Uuids => numbers.map(|number| (identifier(number), 1.0)).collect(),
            Self::Paths => numbers.map(|number| (path(number), heavy_tailed(number))).collect(),
            Self::HotDirectory => numbers.map(|number| (hot_path(number), 1.0)).collect(),
            Self::SlowStretch => {
                let slow = (count as u64 / 2)..(count as u64 / 2 + count as u64 / 20);
                let weight = |number| if slow.contains(&number) { 19.0 } else { 1.0 };
                numbers.map(|number| (even(number), weight(number))).collect()
            }
        }
    }
}

/// The k-th prefix has a k-th of the keys.
fn clustered(number: u64, count: usize) -> Vec<u8> {
    const PREFIXES: u32 = 20;
    let harmonic: f64 = (1..=PREFIXES).map(|k| f64::from(k).recip()).sum();
    let place = number as f64 / count as f64 * harmonic;
    let mut sum = 0.0;
    let mut prefix = 1;
    while prefix < PREFIXES && sum + f64::from(prefix).recip() <= place {
        sum += f64::from(prefix).recip();
        prefix += 1;
    }
    // Prefixes far apart in the alphabet, and not in the order of their size.
    let letter = char::from(b'a' + (prefix * 7 % 26) as u8);
    format!("{letter}{letter}{prefix:02}/{:012x}", scatter(number, 2) >> 16).into_bytes()
}

fn identifier(number: u64) -> Vec<u8> {
    format!("{:016x}{:016x}", scatter(number, 3), scatter(number, 4)).into_bytes()
}

/// Directories of uneven size below a few others.
fn path(number: u64) -> Vec<u8> {
    let directory = scatter(number, 5) % 400;
    // The square makes some directories a hundred times as large as others.
    let directory = directory * directory / 400;
    let (top, file) = (scatter(directory, 6) % 12, scatter(number, 7) >> 20);
    format!("top{top:02}/dir{directory:03}/file-{file:011x}.dat").into_bytes()
}

/// Costs over three orders of magnitude, most of them small.
fn heavy_tailed(number: u64) -> f64 {
    let uniform = (scatter(number, 8) >> 11) as f64 / (1_u64 << 53) as f64;
    (1.0 - uniform).max(1e-3).recip()
}

fn hot_path(number: u64) -> Vec<u8> {
    let is_hot = scatter(number, 9).is_multiple_of(2);
    let directory = if is_hot { 77 } else { scatter(number, 10) % 200 };
    format!("dir{directory:03}/{:012x}", scatter(number, 11) >> 16).into_bytes()
}

/// Returns a hash of a number, the same on every machine.
const fn scatter(number: u64, salt: u64) -> u64 {
    mix(number.wrapping_add(salt << 48).wrapping_mul(GOLDEN_STEP))
}
