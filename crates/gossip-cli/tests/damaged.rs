//! One flipped bit in the file of a store: the shard is named and skipped, everything else
//! finishes, and `gossip shard repair` rebuilds it.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::fs;

use support::Scratch;

/// Creates a run of 40 integers in four shards, and returns its id and the id of its second shard.
fn create(scratch: &Scratch) -> (String, String) {
    let made = scratch.run(&["run", "create", "range:0..40", "--shards", "4", "--", "true"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let run = made.stdout.trim().to_owned();
    let listed = scratch.run(&["shard", "list", &run, "-o", "jsonl"]);
    let shard = field(listed.stdout.lines().nth(1).unwrap(), "shard");
    (run, shard)
}

/// Returns a text field of a line of JSON.
fn field(line: &str, name: &str) -> String {
    let start = line.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
    line[start..].split('"').next().unwrap().to_owned()
}

/// Flips one bit of the stored part `kind` (`hot` or `cold`) of a shard, in the closed file.
fn flip(scratch: &Scratch, kind: &str, run: &str, shard: &str) {
    let mut bytes = fs::read(scratch.store()).unwrap();
    let name = format!("/{kind}/{run}/{shard}");
    let number = if kind == "hot" { 3 } else { 4 };
    let places: Vec<usize> = bytes
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| *window == name.as_bytes())
        .map(|(at, _)| at + name.len())
        .collect();
    assert!(!places.is_empty(), "the part is stored");
    for end in places {
        // The value follows the key and its revision: format 2, then the number of the kind.
        let value = bytes[end..end + 16].windows(2).position(|pair| pair == [2, number]);
        bytes[end + value.unwrap() + 8] ^= 0x04;
    }
    fs::write(scratch.store(), bytes).unwrap();
}

#[test]
fn worker_names_the_damaged_shard_and_finishes_the_others() {
    let scratch = Scratch::new();
    let (run, shard) = create(&scratch);
    flip(&scratch, "hot", &run, &shard);

    let worked = scratch.run(&["worker", &run, "-j", "2", "--no-split"]);
    assert_eq!(worked.code, Some(3), "{worked:?}");
    let repair = format!("gossip shard repair {run} {shard}");
    assert!(worked.stderr.contains(&format!("shard {shard}: its record is damaged")), "{worked:?}");
    assert!(worked.stderr.contains(&repair), "{worked:?}");
    assert!(worked.stderr.contains("incomplete: 30 done. 1 shard damaged"), "{worked:?}");

    let shown = scratch.run(&["run", "show", &run, "-o", "jsonl"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("\"status\":\"incomplete\""), "{shown:?}");
    assert!(shown.stdout.contains("\"damaged\":1"), "{shown:?}");
    assert!(shown.stdout.contains("\"done\":3"), "{shown:?}");
    assert!(shown.stderr.contains(&repair), "{shown:?}");
    let listed = scratch.run(&["run", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let shards = scratch.run(&["shard", "list", &run]);
    assert_eq!(shards.code, Some(0), "{shards:?}");
    let row = shards.stdout.lines().find(|line| line.contains(&shard)).unwrap();
    assert!(row.contains("damaged"), "{shards:?}");
    let only = scratch.run(&["shard", "list", &run, "--damaged", "-o", "jsonl"]);
    assert_eq!(only.stdout.lines().count(), 1, "{only:?}");
    assert!(only.stdout.contains("\"damage\":\"hot part\""), "{only:?}");

    // The advice of every command that meets the record leads to the repair.
    let unparked = scratch.run(&["shard", "unpark", &run, &shard]);
    assert_eq!(unparked.code, Some(5), "{unparked:?}");
    assert!(unparked.stderr.contains("gossip shard repair"), "{unparked:?}");
}

#[test]
fn certificate_states_the_range_of_a_damaged_shard_as_uncovered() {
    for kind in ["hot", "cold"] {
        let scratch = Scratch::new();
        let (run, shard) = create(&scratch);
        flip(&scratch, kind, &run, &shard);
        assert_eq!(scratch.run(&["worker", &run]).code, Some(3));
        let exported = scratch.run(&["run", "export", &run]);
        assert_eq!(exported.code, Some(3), "{exported:?}");
        let leaf = exported.stdout.lines().find(|line| line.contains("\"Damaged\"")).unwrap();
        assert!(leaf.contains("\"keys\":0") && leaf.contains("\"uncovered\""), "{leaf}");
        assert!(exported.stderr.contains("1 shard damaged"), "{exported:?}");
        assert!(exported.stdout.contains("\"verdict\":\"incomplete\""), "{exported:?}");
    }
}

#[test]
fn repaired_shard_is_processed_from_its_start_and_the_run_completes() {
    for kind in ["hot", "cold"] {
        let scratch = Scratch::new();
        let (run, shard) = create(&scratch);
        flip(&scratch, kind, &run, &shard);
        assert_eq!(scratch.run(&["worker", &run]).code, Some(3));

        let repaired = scratch.run(&["shard", "repair", &run, &shard, "-o", "jsonl"]);
        assert_eq!(repaired.code, Some(0), "{repaired:?}");
        assert!(repaired.stdout.contains("\"status\":\"waiting\""), "{repaired:?}");
        let again = scratch.run(&["shard", "repair", &run, &shard]);
        assert_eq!(again.code, Some(2), "{again:?}");
        assert!(again.stderr.contains("its record is intact"), "{again:?}");

        let worked = scratch.run(&["worker", &run]);
        assert_eq!(worked.code, Some(0), "{worked:?}");
        assert!(worked.stderr.contains("complete: 40 keys"), "{worked:?}");
        let verified = scratch.run(&["run", "verify", &run, "--source"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

#[test]
fn first_and_last_range_of_a_source_are_repaired() {
    for last in [false, true] {
        let scratch = Scratch::new();
        let (run, _) = create(&scratch);
        let listed = scratch.run(&["shard", "list", &run, "-o", "jsonl"]);
        let line = if last { listed.stdout.lines().last() } else { listed.stdout.lines().next() };
        let shard = field(line.unwrap(), "shard");
        flip(&scratch, "cold", &run, &shard);
        let repaired = scratch.run(&["shard", "repair", &run, &shard]);
        assert_eq!(repaired.code, Some(0), "{repaired:?}");
        assert_eq!(scratch.run(&["worker", &run]).code, Some(0));
        assert_eq!(scratch.run(&["run", "verify", &run, "--source"]).code, Some(0));
    }
}

#[test]
fn run_with_a_damaged_shard_is_deleted() {
    let scratch = Scratch::new();
    let (run, shard) = create(&scratch);
    flip(&scratch, "hot", &run, &shard);
    assert_eq!(scratch.run(&["run", "cancel", &run]).code, Some(0));
    let refused = scratch.run(&["shard", "repair", &run, &shard]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let removed = scratch.run(&["run", "rm", &run]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
}
