//! Checks every law on its seeds and on inputs near them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_TOKEN_SIZE};
use gossip_coordination::OP_LOG_CAP;
use gossip_coordination::store::{Key, decode_hot};
use gossip_testkit::Rng;

use super::*;

/// Inputs that are kept for a law, and their bytes together: every checkout has them.
const KEPT_MAX: usize = 110;
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Inputs made of each law's seeds. All laws together take a few seconds.
const NEAR_SEEDS: u64 = 8_000;

/// Inputs of a law that runs a whole coordinator.
const NEAR_SLOW_SEEDS: u64 = 40;

#[test]
fn every_law_holds_of_its_seeds_and_of_inputs_near_them() {
    for law in LAWS {
        let seeds = (law.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", law.name);
        (law.check)(&[]);
        // If a decoder refused all seeds, its law would check nothing.
        let taken = seeds.iter().filter(|seed| (law.check)(seed)).count();
        assert!(taken > 0, "{}: no seed is taken", law.name);
        let count = if law.name == "operation_sequences" { NEAR_SLOW_SEEDS } else { NEAR_SEEDS };
        let mut draw = Draw(Rng::seeded(1));
        for _ in 0..count {
            let mut input = seeds[draw.below(seeds.len())].clone();
            for _ in 0..=draw.below(3) {
                draw.change(&mut input, &seeds);
            }
            (law.check)(&input);
        }
    }
}

/// A target that does not compile would be noticed by the next campaign only, and to compile them
/// here takes the whole product once more. So each is held to the one form that does: one line on
/// the function that `laws!` makes of its law.
#[test]
fn every_fuzz_target_is_one_line_on_its_law() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let names: BTreeSet<String> =
        entries(&fuzz.join("fuzz_targets")).iter().map(|path| name(path)).collect();
    let laws: BTreeSet<String> = LAWS.iter().map(|law| format!("{}.rs", law.name)).collect();
    assert_eq!(names, laws);
    for Law { name, .. } in LAWS {
        let text = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        let code = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//!"));
        let call = format!("gossip_decoder_laws::{name}(data)");
        let line = format!("libfuzzer_sys::fuzz_target!(|data: &[u8]| {call});");
        assert_eq!(code.collect::<Vec<_>>(), ["#![no_main]", &line], "{name}");
        let entry = format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&entry), "{name} is not declared");
    }
}

/// Kept inputs of libFuzzer and former failures: a directory for each law, and none without a law.
#[test]
fn every_law_holds_of_the_inputs_that_were_kept() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/kept");
    let names: BTreeSet<String> = entries(&place).iter().map(|path| name(path)).collect();
    let laws: BTreeSet<String> = LAWS.iter().map(|law| law.name.to_owned()).collect();
    assert_eq!(names, laws);
    for law in LAWS {
        let kept: Vec<Vec<u8>> =
            entries(&place.join(law.name)).iter().map(|path| fs::read(path).unwrap()).collect();
        let bytes: usize = kept.iter().map(Vec::len).sum();
        assert!((1..=KEPT_MAX).contains(&kept.len()), "{}: {} inputs", law.name, kept.len());
        assert!(bytes <= KEPT_BYTES_MAX, "{}: {bytes} bytes", law.name);
        kept.iter().for_each(|input| {
            (law.check)(input);
        });
    }
}

fn entries(place: &Path) -> Vec<PathBuf> {
    fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Fuzzing stays near the seeds, so a full log occurs only if some of them have one.
#[test]
fn some_seeds_have_full_operation_logs() {
    let logs = |seeds: Vec<Vec<u8>>| -> Vec<usize> {
        let mut value = Vec::new();
        let len = |seed: &Vec<u8>| {
            let (tenant, shard) = (seal::TENANT, seal::shard(seed[0] & 1 == 1));
            seal::seal(Key::ShardHot { tenant, shard }, &seed[1..], &mut value);
            decode_hot(tenant, shard, &value).unwrap().op_log.len()
        };
        seeds.iter().map(len).collect()
    };
    let seeds = seeds::hot_shards();
    let largest = seeds.iter().map(Vec::len).max();
    assert!(largest > Some(MAX_KEY_SIZE + MAX_TOKEN_SIZE), "{largest:?}");
    let full = logs(seeds).iter().filter(|len| **len == OP_LOG_CAP).count();
    assert!(full >= 2, "{full}");
    // An operation that a full log dropped was repeated.
    let dropped = seeds::sequences().iter().any(|seed| {
        operations::answers(seed).keys().any(|(_, answer)| answer.contains("OperationTooOld"))
    });
    assert!(dropped, "no sequence repeats an operation that its log has dropped");
}

#[test]
fn laws_have_different_names_in_order() {
    let names: Vec<&str> = LAWS.iter().map(|law| law.name).collect();
    let ordered: BTreeSet<&str> = names.iter().copied().collect();
    assert!(ordered.into_iter().eq(names));
}

/// Seeds of stored values are real payloads: the decoders take all of them.
#[test]
fn every_seed_of_a_stored_value_is_taken() {
    let stored = [
        "counter",
        "event",
        "move_record",
        "owner",
        "record_decode",
        "run_head",
        "run_roots",
        "shard_cold",
        "shard_hot",
        "side_record",
        "store_key",
        "tombstone",
        "worker",
    ];
    for law in LAWS.iter().filter(|law| stored.contains(&law.name)) {
        for (number, seed) in (law.seeds)().iter().enumerate() {
            assert!((law.check)(seed), "{}: seed {number} is not taken", law.name);
        }
    }
}

/// A job that could not be written again is not read: the longest, and one byte more.
#[test]
fn a_job_is_read_up_to_the_length_that_is_written() {
    use gossip_scanner_runtime::MAX_JOB_SIZE;

    let of_size = |size: usize| {
        // Version and flags, the source behind its length, and a command of no words.
        let len = size - (2 + 4 + 4);
        let mut job = seeds::jobs()[0][..2].to_vec();
        job.extend_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
        job.resize(job.len() + len, b'x');
        job.extend_from_slice(&[0; 4]);
        job
    };
    assert!(runtime::job(&of_size(MAX_JOB_SIZE)));
    assert!(!runtime::job(&of_size(MAX_JOB_SIZE + 1)));
}

/// The laws can fail: a non-canonical encoding is detected.
#[test]
#[should_panic(expected = "not canonical")]
fn a_decoder_that_is_not_canonical_breaks_the_law() {
    let key = Key::SchemaVersion;
    seal::same_again(key, b"x", |value, again| {
        again.clear();
        again.extend_from_slice(&value[1..]);
        true
    });
}

/// Draws changes of inputs.
struct Draw(Rng);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
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
