//! Hints of shards that are split: each states the rows of its range.

use gossip_contracts::coordination::ShardSpecRef;
use gossip_coordination::{ShardAction, ShardStatus, SplitKey};
use gossip_frontier::{ShardHint, ShardSpecScratch, decode_hint, manifest_shard_ref};
use rstest::rstest;

use super::{Cut, TaskConfig, TaskOutcome};
use crate::connectors::{IntegerRange, parse_row_key, row_key};
use crate::processor::{Inline, ItemResult, Work};
use crate::test_support::{LASTS, World};

/// Enough for a split into four parts.
const ROWS: u64 = 300;

fn world() -> World {
    let mut scratch = ShardSpecScratch::new();
    let root = manifest_shard_ref(0, 0, ROWS, b"job", &mut scratch).unwrap();
    World::of_specs(LASTS, &[root])
}

/// Checks the hints of all shards, and returns the rows of those that were not split.
#[track_caller]
fn hinted_rows(world: &mut World) -> Vec<(u64, u64)> {
    let mut leaves = Vec::new();
    for shard in world.rows() {
        let row = |bound: &[u8]| parse_row_key(bound).expect("a bound on a row");
        let (start_row, end_row) = (row(&shard.start), row(&shard.end));
        let spec = ShardSpecRef::new(&shard.start, &shard.end, &shard.metadata);
        let expected = ShardHint::Manifest { manifest_id: 0, start_row, end_row };
        assert_eq!(decode_hint(spec), Ok(expected));
        assert!(shard.metadata.ends_with(b"job"));
        if shard.status != ShardStatus::Split {
            leaves.push((start_row, end_row));
        }
    }
    leaves.sort_unstable();
    assert!(leaves.windows(2).all(|pair| pair[0].1 == pair[1].0), "{leaves:?}");
    leaves
}

#[test]
fn the_children_of_a_replaced_shard_state_their_rows() {
    let (mut world, rows) = (world(), IntegerRange::new(0, ROWS));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    task.request(&ShardAction::Split(None));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &rows), TaskOutcome::Split);
    assert_eq!(hinted_rows(&mut world), [(0, 75), (75, 150), (150, 225), (225, 300)]);
}

/// An administrator may name any bytes, and a middle of bytes need not be a row.
#[rstest]
#[case::at_a_row(TaskConfig::default(), Some(row_key(40).to_vec()), 40)]
#[case::between_two_rows(TaskConfig::default(), Some([&row_key(40)[..], b"x"].concat()), 41)]
#[case::at_a_prefix(TaskConfig { cut: Cut::Bytes, ..TaskConfig::default() }, None, 150)]
fn both_parts_of_a_split_state_their_rows(
    #[case] config: TaskConfig,
    #[case] at: Option<Vec<u8>>,
    #[case] expected: u64,
) {
    let (mut world, rows) = (world(), IntegerRange::new(0, ROWS));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    let at = at.map(|key| SplitKey::try_new(&key).unwrap());
    task.request(&ShardAction::Split(at));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &rows), TaskOutcome::Completed);
    assert_eq!(hinted_rows(&mut world), [(0, expected), (expected, ROWS)]);
    world.work_everything(&rows);
    assert!((0..ROWS).all(|row| world.times_done(&row_key(row)) == 1));
}

/// The first, one in the middle and the last row: nothing follows the last.
#[rstest]
#[case(0, &[(0, 1), (1, ROWS)])]
#[case(7, &[(0, 8), (8, ROWS)])]
#[case(ROWS - 1, &[(0, ROWS)])]
fn a_failed_row_is_split_off_at_the_next_row(#[case] bad: u64, #[case] expected: &[(u64, u64)]) {
    let (mut world, rows) = (world(), IntegerRange::new(0, ROWS));
    let mut handle = world.handle();
    let config = TaskConfig { item_tries: 1, ..TaskConfig::default() };
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    let mut processor =
        Inline::new(|work: Work<'_>, _: &mut Vec<u8>| match parse_row_key(work.key()) {
            Some(row) if row == bad => ItemResult::Failed("refused".into()),
            _ => ItemResult::Done,
        });
    let outcome = world.drive(&mut task, &mut handle, &rows, &mut processor, &());
    assert!(matches!(outcome, TaskOutcome::Parked(_)), "{outcome:?}");
    assert_eq!(hinted_rows(&mut world), expected);
}
