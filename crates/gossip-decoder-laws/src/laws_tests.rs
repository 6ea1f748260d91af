//! Every law, on its seeds and on what is near them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Inputs that are kept for a law, and their bytes together: every checkout has them.
const KEPT_MAX: usize = 110;
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Inputs made of each law's seeds. All laws together take a few seconds.
const NEAR_SEEDS: u64 = 8_000;

/// Inputs of a law that runs a whole coordinator.
const NEAR_SLOW_SEEDS: u64 = 40;

#[test]
fn every_law_holds_of_its_seeds_and_of_what_is_near_them() {
    for law in LAWS {
        let seeds = (law.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", law.name);
        (law.check)(&[]);
        seeds.iter().for_each(|seed| (law.check)(seed));
        let count = if law.name == "operation_sequences" { NEAR_SLOW_SEEDS } else { NEAR_SEEDS };
        let mut draw = Draw(1);
        for _ in 0..count {
            let mut input = seeds[draw.below(seeds.len())].clone();
            for _ in 0..=draw.below(3) {
                draw.change(&mut input, &seeds);
            }
            (law.check)(&input);
        }
    }
}

/// What libFuzzer found worth keeping, and what once failed: a directory for each law, and none
/// without a law.
#[test]
fn every_law_holds_of_the_inputs_that_were_kept() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/kept");
    let names: BTreeSet<String> = entries(&place).iter().map(|path| name(path)).collect();
    let laws: BTreeSet<String> = LAWS.iter().map(|law| law.name.to_owned()).collect();
    assert_eq!(names, laws);
    for law in LAWS {
        let kept: Vec<Vec<u8>> =
            entries(&place.join(law.name)).iter().map(|path| fs::read(path).unwrap()).collect();
        let bytes: usize = kept.iter().map(Vec::len).sum();
        assert!((1..=KEPT_MAX).contains(&kept.len()), "{}: {} inputs", law.name, kept.len());
        assert!(bytes <= KEPT_BYTES_MAX, "{}: {bytes} bytes", law.name);
        kept.iter().for_each(|input| (law.check)(input));
    }
}

fn entries(place: &Path) -> Vec<PathBuf> {
    fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn laws_have_different_names_in_order() {
    let names: Vec<&str> = LAWS.iter().map(|law| law.name).collect();
    let ordered: BTreeSet<&str> = names.iter().copied().collect();
    assert!(ordered.into_iter().eq(names));
}

/// Seeds of stored values are real payloads: the decoders take them.
#[test]
fn seeds_of_shards_get_past_the_decoder() {
    use gossip_coordination::store::{Key, decode_cold, decode_hot};

    use crate::seal::{TENANT, seal, shard};

    let mut sealed = Vec::new();
    for seed in seeds::hot_shards() {
        let (tenant, shard) = (TENANT, shard(seed[0] == 1));
        seal(Key::ShardHot { tenant, shard }, &seed[1..], &mut sealed);
        assert!(decode_hot(tenant, shard, &sealed).is_ok());
    }
    for seed in seeds::cold_shards() {
        let (tenant, shard) = (TENANT, shard(seed[0] == 1));
        seal(Key::ShardCold { tenant, shard }, &seed[1..], &mut sealed);
        assert!(decode_cold(tenant, shard, &sealed).is_ok());
    }
}

/// A law that cannot fail would be no law: what is not canonical is noticed.
#[test]
#[should_panic(expected = "not canonical")]
fn a_decoder_that_is_not_canonical_breaks_the_law() {
    let key = gossip_coordination::store::Key::TotalCounter;
    seal::same_again(key, b"x", |value, again| {
        again.clear();
        again.extend_from_slice(&value[1..]);
        true
    });
}

/// Numbers that look random and are the same every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }

    /// One small change: a byte, a bit, a cut, something repeated, a piece of another seed.
    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(6) {
            0 if at < input.len() => input[at] = self.byte(),
            1 if at < input.len() => input[at] ^= 1 << self.below(8),
            2 => input.truncate(at),
            3 => input.insert(at, self.byte()),
            4 if at < input.len() => drop(input.remove(at)),
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let piece = &other[self.below(other.len() + 1)..];
                input.splice(at..at, piece.iter().take(16).copied());
            }
        }
    }
}
