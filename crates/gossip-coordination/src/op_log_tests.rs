//! The operation log beside a queue that is too simple to be wrong.

use std::collections::VecDeque;

use gossip_contracts::identity::{LogicalTime, OpId};
use proptest::prelude::*;

use crate::{OP_LOG_CAP, OpKind, OpLog, OpLogEntry, OpSequence};

fn entry(id: u64, time: u64) -> OpLogEntry {
    OpLogEntry::new(OpId::from_raw(id), OpKind::Park, id + 1, LogicalTime::from_raw(time))
}

proptest! {
    /// Ids from a small range, many of them with the same low byte, so that tags mislead.
    #[test]
    fn a_log_remembers_the_last_operations_in_order(
        ids in prop::collection::vec((0_u64..40, 0_u64..3), 0..80),
        clear_at in 0_usize..160,
    ) {
        let (mut log, mut model) = (OpLog::new(), VecDeque::<OpLogEntry>::new());
        for (step, (low, high)) in ids.into_iter().enumerate() {
            if step == clear_at {
                log.clear();
                model.clear();
            }
            let id = low | high << 8;
            let known = model.iter().find(|entry| entry.op_id().as_raw() == id);
            prop_assert_eq!(log.find(OpId::from_raw(id)), known);
            if known.is_none() {
                let entry = entry(id, step as u64 / 2 + 1);
                log.push(entry);
                model.push_back(entry);
                if model.len() > OP_LOG_CAP {
                    model.pop_front();
                }
            }
            prop_assert!(log.iter().eq(&model));
            prop_assert!(log.iter().rev().eq(model.iter().rev()));
            prop_assert_eq!((log.len(), log.is_empty()), (model.len(), model.is_empty()));
            let last = model.back().map_or(LogicalTime::ZERO, OpLogEntry::executed_at);
            prop_assert_eq!(log.last_time(), last);
        }
    }
}

#[test]
fn logs_that_remember_the_same_are_equal_wherever_it_stands() {
    let (mut wrapped, mut straight) = (OpLog::new(), OpLog::new());
    for id in 0..20 {
        wrapped.push(entry(id, 1));
    }
    for id in 4..20 {
        straight.push(entry(id, 1));
    }
    assert_eq!(wrapped, straight);
    straight.push(entry(99, 1));
    assert_ne!(wrapped, straight);
}

#[test]
#[should_panic(expected = "an operation is logged once")]
fn an_id_that_is_there_is_not_pushed_again() {
    let mut log = OpLog::new();
    log.push(entry(7, 1));
    log.push(entry(7, 2));
}

#[test]
#[should_panic(expected = "times in the log never decrease")]
fn a_time_that_falls_is_not_pushed() {
    let mut log = OpLog::new();
    log.push(entry(7, 2));
    log.push(entry(8, 1));
}

fn sequence(raw: u64) -> OpSequence {
    OpSequence::try_from_raw(raw).unwrap()
}

#[test]
fn sequence_of_a_log_survives_in_six_bytes_and_none_changes_nothing() {
    let mut log = OpLog::new();
    assert_eq!(log.sequence(), OpSequence::NONE);
    for raw in [1, 255, 256, 1 << 31, 1 << 40, OpSequence::MAX.as_raw()] {
        log.advance_sequence(sequence(raw));
        log.advance_sequence(OpSequence::NONE);
        assert_eq!(log.sequence(), sequence(raw));
    }
    log.push(entry(7, 1));
    assert_eq!(log.sequence(), OpSequence::MAX, "an entry does not overwrite it");
    log.clear();
    assert_eq!(log.sequence(), OpSequence::NONE);
}

#[test]
fn sequence_above_six_bytes_does_not_exist_and_the_last_one_repeats() {
    assert_eq!(OpSequence::try_from_raw(OpSequence::MAX.as_raw() + 1), None);
    assert_eq!(OpSequence::MAX.next(), OpSequence::MAX);
    assert_eq!(OpSequence::NONE.next().as_raw(), 1);
}

#[test]
fn logs_with_different_sequences_differ() {
    let (mut one, other) = (OpLog::new(), OpLog::new());
    one.advance_sequence(sequence(1));
    assert_ne!(one, other);
}
