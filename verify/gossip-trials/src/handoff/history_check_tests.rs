//! The history check detects each violation.

use std::collections::BTreeMap;

use crate::handoff::history_check::{HistoryCheck, Reached};
use crate::handoff::journal::{Line, What};

fn line(at: u64, fence: u64, what: What) -> Line {
    Line { at, shard: 0, fence, what }
}

/// A valid handoff from fence 1 to fence 2.
fn good() -> Vec<Line> {
    vec![
        line(1, 1, What::Claimed),
        line(2, 1, What::Did(0)),
        line(3, 1, What::Did(1)),
        line(4, 1, What::Froze),
        line(6, 2, What::Accepted),
        line(7, 2, What::Did(2)),
    ]
}

/// All three keys are in the store.
const WHOLE: Reached = Reached { first: 0, last: Some(2), is_done: false };

fn verdict(lines: &[Line]) -> Result<u64, String> {
    verdict_of(lines, WHOLE, None)
}

fn verdict_of(lines: &[Line], reached: Reached, alive_at: Option<u64>) -> Result<u64, String> {
    let mut history = HistoryCheck::default();
    history.enter(lines);
    let checked = history.check(&BTreeMap::from([(0, reached)]), alive_at);
    checked.map(|sum| sum.redone).map_err(|error| error.to_string())
}

#[test]
fn a_valid_handoff_passes() {
    assert_eq!(verdict(&good()), Ok(0));
    let mut history = HistoryCheck::default();
    history.enter(&good());
    let sum = history.check(&BTreeMap::from([(0, WHOLE)]), None).unwrap();
    assert_eq!((sum.moves, sum.keys, sum.gaps.percentile(50)), (1, 3, 3));
    let sum = history.check(&BTreeMap::from([(0, WHOLE)]), Some(5)).unwrap();
    assert_eq!((sum.moves, sum.keys), (0, 3), "a move at the end of the trial is not measured");
}

#[test]
fn a_lost_key_is_detected() {
    let mut lines = good();
    lines.remove(2);
    assert!(verdict(&lines).unwrap_err().contains("lost"));
}

#[test]
fn a_key_that_a_move_redoes_is_detected_and_one_after_a_takeover_is_counted() {
    let mut lines = good();
    lines.push(line(8, 2, What::Did(1)));
    assert!(verdict(&lines).unwrap_err().contains("redone"));
    lines[4].what = What::Claimed;
    assert_eq!(verdict(&lines), Ok(1));
}

#[test]
fn a_key_that_is_done_twice_under_one_fence_is_detected() {
    let mut lines = good();
    lines.push(line(8, 2, What::Did(2)));
    assert!(verdict(&lines).unwrap_err().contains("twice"));
}

#[test]
fn an_owner_that_works_after_the_next_has_it_is_detected() {
    let mut lines = good();
    lines.push(line(7, 1, What::Did(9)));
    assert!(verdict(&lines).unwrap_err().contains("after"));
}

/// A store that loses acknowledged progress when an owner dies.
#[test]
fn acknowledged_progress_that_a_takeover_redoes_is_detected() {
    let takeover = |saved: u64, began: u64| {
        let mut lines = vec![line(1, 1, What::Claimed)];
        lines.extend((0..3).map(|key| line(2, 1, What::Did(key))));
        lines.push(line(3, 1, What::Saved(saved)));
        lines.push(line(9, 3, What::Claimed));
        lines.extend((began..3).map(|key| line(10, 3, What::Did(key))));
        verdict(&lines)
    };
    assert_eq!(takeover(1, 2), Ok(1), "unacknowledged keys are processed again");
    assert!(takeover(1, 1).unwrap_err().contains("acknowledged and lost"));
    assert!(takeover(2, 0).unwrap_err().contains("acknowledged and lost"));
}

#[test]
fn a_store_that_has_forgotten_what_it_acknowledged_is_detected() {
    let mut lines = good();
    lines.push(line(8, 2, What::Saved(2)));
    assert_eq!(verdict(&lines), Ok(0));
    for last in [None, Some(1)] {
        let error = verdict_of(&lines, Reached { last, ..WHOLE }, None).unwrap_err();
        assert!(error.contains("forgot"), "{error}");
    }
}

#[test]
fn a_stranded_shard_is_detected_unless_it_is_done() {
    assert_eq!(verdict_of(&good(), WHOLE, Some(7)), Ok(0));
    assert!(verdict_of(&good(), WHOLE, Some(8)).unwrap_err().contains("stranded"));
    assert_eq!(verdict_of(&good(), Reached { is_done: true, ..WHOLE }, Some(8)), Ok(0));
    let untouched = Reached { last: None, ..WHOLE };
    assert!(verdict_of(&[], untouched, None).unwrap_err().contains("stranded"));
    assert!(verdict_of(&[], WHOLE, None).unwrap_err().contains("lost"));
}
