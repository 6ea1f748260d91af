//! Correct histories are accepted, and each kind of wrong one is refused.

use super::*;
use crate::etcd_network::doctored::Doctoring;

const TERMS: Terms = Terms { initial_fence: 0, lease: 15_000, skew: 2_000 };

const fn at(call: Nanos, end: Nanos, effect: Effect) -> Operation {
    Operation { worker: 0, call, end: Some(end), effect }
}

const fn lost(call: Nanos, effect: Effect) -> Operation {
    Operation { worker: 0, call, end: None, effect }
}

const fn grant(fence: u64, cursor: u64, now: Millis) -> Effect {
    Effect::Grant { fence, cursor, deadline: now + 15_000, now }
}

const fn renew(fence: u64, now: Millis) -> Effect {
    Effect::Renew { fence, deadline: now + 15_000, now }
}

const fn write(fence: u64, op: u64, write: Write, answer: Answer) -> Effect {
    Effect::Write { fence, op, write, answer }
}

const fn checkpoint(fence: u64, op: u64, cursor: u64) -> Effect {
    write(fence, op, Write::Checkpoint { cursor }, Answer::Executed)
}

/// Two holders: the first loses its lease, the second completes the shard.
fn correct() -> Vec<Operation> {
    vec![
        at(10, 20, grant(1, 0, 1_000)),
        at(30, 40, checkpoint(1, 1, 5)),
        at(50, 60, renew(1, 6_000)),
        at(70, 80, checkpoint(1, 2, 9)),
        at(100, 110, grant(2, 9, 23_000)),
        at(120, 130, Effect::Stale { fence: 1 }),
        at(140, 150, checkpoint(2, 3, 12)),
        at(160, 170, write(2, 4, Write::Complete { cursor: 20 }, Answer::Executed)),
        at(900, 910, Effect::Final { fence: 2, cursor: 20, is_done: true }),
    ]
}

#[test]
fn correct_history_is_accepted() {
    assert_eq!(check(&correct(), TERMS), Ok(()));
    assert_eq!(check(&[], TERMS), Ok(()));
}

#[test]
fn every_kind_of_doctored_history_is_refused() {
    for kind in Doctoring::ALL {
        let wrong = kind.apply(&correct()).unwrap_or_else(|| panic!("{kind:?} does not apply"));
        let refused = check(&wrong, TERMS);
        assert!(matches!(refused, Err(Refusal::NotLinearizable { .. })), "{kind:?}: {refused:?}");
    }
}

#[test]
fn doctored_history_would_be_accepted_without_its_change() {
    // Otherwise a doctoring could be refused for a reason that is not its own.
    for kind in Doctoring::ALL {
        let wrong = kind.apply(&correct()).unwrap();
        let changed = wrong.iter().filter(|it| !correct().contains(it)).count();
        let most = if kind == Doctoring::LiveLeaseTaken { 3 } else { 1 };
        assert!((1..=most).contains(&changed), "{kind:?} changes {changed} operations");
    }
}

#[test]
fn lost_checkpoint_may_have_happened_or_not() {
    for found in [5, 9] {
        let lost_write = write(1, 2, Write::Checkpoint { cursor: 9 }, Answer::Lost);
        let history = [
            at(10, 20, grant(1, 0, 1_000)),
            at(30, 40, checkpoint(1, 1, 5)),
            lost(50, lost_write),
            at(100, 110, grant(2, found, 23_000)),
        ];
        assert_eq!(check(&history, TERMS), Ok(()), "{found}");
    }
    let history = [at(10, 20, grant(1, 0, 1_000)), at(100, 110, grant(2, 7, 23_000))];
    assert!(check(&history, TERMS).is_err());
}

#[test]
fn lost_checkpoint_does_not_happen_after_a_newer_grant() {
    let history = [
        at(10, 20, grant(1, 0, 1_000)),
        lost(30, write(1, 1, Write::Checkpoint { cursor: 5 }, Answer::Lost)),
        at(100, 110, grant(2, 0, 23_000)),
        at(200, 210, grant(3, 5, 46_000)),
    ];
    assert!(check(&history, TERMS).is_err());
}

#[test]
fn retry_of_a_lost_write_is_executed_or_replayed_and_not_both() {
    let first = write(1, 7, Write::Checkpoint { cursor: 5 }, Answer::Lost);
    let retry = |answer| write(1, 7, Write::Checkpoint { cursor: 5 }, answer);
    for answer in [Answer::Executed, Answer::Replayed] {
        let history =
            [at(10, 20, grant(1, 0, 1_000)), lost(30, first.clone()), at(60, 70, retry(answer))];
        assert_eq!(check(&history, TERMS), Ok(()), "{answer:?}");
    }
    let twice = [
        at(10, 20, grant(1, 0, 1_000)),
        at(30, 40, retry(Answer::Executed)),
        at(60, 70, retry(Answer::Executed)),
    ];
    assert!(check(&twice, TERMS).is_err());
}

#[test]
fn lost_grant_explains_a_skipped_fence_and_no_more() {
    let gap = |fence| {
        [
            at(10, 20, grant(1, 0, 1_000)),
            lost(50, Effect::LostGrant),
            at(90, 99, grant(fence, 0, 99_000)),
        ]
    };
    assert_eq!(check(&gap(2), TERMS), Ok(()));
    assert_eq!(check(&gap(3), TERMS), Ok(()));
    assert!(check(&gap(4), TERMS).is_err());
    // It cannot have happened before it was called.
    let late = [
        at(10, 20, grant(1, 0, 1_000)),
        at(90, 99, grant(3, 0, 99_000)),
        lost(100, Effect::LostGrant),
    ];
    assert!(check(&late, TERMS).is_err());
}

#[test]
fn concurrent_operations_are_ordered_as_their_results_require() {
    // The checkpoint returned after the takeover was called: it may still come first.
    let history = [
        at(10, 20, grant(1, 0, 1_000)),
        at(90, 130, checkpoint(1, 1, 5)),
        at(100, 120, grant(2, 5, 23_000)),
    ];
    assert_eq!(check(&history, TERMS), Ok(()));
    // Not if the new holder did not see it.
    let history = [
        at(10, 20, grant(1, 0, 1_000)),
        at(90, 130, checkpoint(1, 1, 5)),
        at(100, 120, grant(2, 0, 23_000)),
    ];
    assert!(check(&history, TERMS).is_err());
}

#[test]
fn deadline_far_ahead_of_the_clock_may_be_void() {
    let grant_far = Effect::Grant { fence: 1, cursor: 0, deadline: 900_000, now: 1_000 };
    let taken = |now| [at(10, 20, grant_far.clone()), at(90, 99, grant(2, 0, now))];
    assert_eq!(check(&taken(1_000), TERMS), Ok(()));
    assert!(check(&taken(890_000), TERMS).is_err());
}

/// Operations whose order does not matter would need every subset of them without memoization.
#[test]
fn search_ends_although_many_operations_are_concurrent() {
    let mut history = vec![at(10, 20, grant(1, 0, 1_000))];
    history.extend((0..40).map(|nth| at(30 + nth, 500, Effect::Stale { fence: 9 + nth })));
    history.extend((0..20).map(|nth| lost(30 + nth, Effect::LostGrant)));
    history.push(at(600, 610, checkpoint(1, 1, 5)));
    assert_eq!(check(&history, TERMS), Ok(()));
}

#[test]
fn history_that_exceeds_the_bound_is_not_accepted() {
    // Each of many lost checkpoints may or may not have happened, and the end fits none of them.
    let mut history = vec![at(10, 20, grant(1, 0, 1_000))];
    let write = |nth| write(1, nth, Write::Checkpoint { cursor: 1 }, Answer::Lost);
    history.extend((0..40).map(|nth| lost(30 + nth, write(nth))));
    history.push(at(600, 610, grant(2, 7, 99_000)));
    assert_eq!(check(&history, TERMS), Err(Refusal::Undecided));
}
