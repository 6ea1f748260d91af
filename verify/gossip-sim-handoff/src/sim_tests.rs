//! The short form of `cargo xtask sim-handoff`, and tests of the oracle on artificial histories.

use rstest::rstest;

use crate::sim::{Broken, Bug, Ended, Event, Oracle, Outcome, Plan, Races, Simulator};
use gossip_handoff::Phase;

/// Schedules of the tests; the campaign runs a thousand times as many.
const SCHEDULES: u64 = 1_500;
/// Every mutant is found within a tenth of this number.
const HUNT_MAX: u64 = 2_000;

fn run(simulator: &Simulator, seed: u64, bug: Option<Bug>) -> Outcome {
    simulator.run(Plan { seed, bug, is_traced: false })
}

#[test]
fn moves_that_race_with_everything_lose_nothing_and_have_one_owner() {
    let (simulator, mut races) = (Simulator::new(), Races::default());
    for seed in 0..SCHEDULES {
        let outcome = run(&simulator, seed, None);
        assert_eq!(outcome.broken, None, "cargo xtask sim-handoff --seed {seed}");
        races += outcome.races;
    }
    // Half of the campaign's floor, because the numbers are small here.
    for (name, times, per_thousand) in races.kinds() {
        assert!(2 * times >= SCHEDULES * per_thousand / 1_000, "{name}: {races:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule_and_another_does_not() {
    let simulator = Simulator::new();
    for seed in 0..20 {
        let [one, other] = [(); 2].map(|()| run(&simulator, seed, None));
        assert_eq!(one, other);
        assert_ne!(one.trace, run(&simulator, seed + 1_000, None).trace);
    }
}

#[rstest]
#[case(Bug::WorksWhileOffered, &[Broken::WorkedWhileOffered, Broken::TwoOwners, Broken::KeyRedone])]
#[case(Bug::ResumesAtTheDeadline, &[Broken::WorkedWhileOffered, Broken::TwoOwners])]
#[case(Bug::KeepsWhatMoved, &[Broken::TwoOwners])]
#[case(Bug::StartsOver, &[Broken::KeyRedone])]
#[case(Bug::SkipsAKey, &[Broken::KeyLost])]
#[case(Bug::OffersTheStoredCursor, &[Broken::KeyRedone])]
#[case(Bug::ReleasesUnsaved, &[Broken::ReleasedUnsaved, Broken::KeyRedone])]
#[case(Bug::RollsBackWithoutLooking, &[Broken::RolledBackAfterAccept, Broken::OfferedUnrecorded])]
#[case(Bug::AcksBeforeAccepting, &[Broken::AcknowledgedBeforeAccept])]
fn a_mutant_is_found(#[case] bug: Bug, #[case] as_one_of: &[Broken]) {
    let simulator = Simulator::new();
    let found = (0..HUNT_MAX).find_map(|seed| run(&simulator, seed, Some(bug)).broken);
    let found = found.expect("the mutant is found");
    assert!(as_one_of.contains(&found), "{found:?}");
}

/// An acquired shard with keys 0 to 7, and a recorded handoff of it.
const BEGUN: [Event; 4] = [
    Event::Range { shard: 0, start: 0, end: 8 },
    Event::Born { shard: 0, fence: 1 },
    Event::Granted { shard: 0, fence: 2, by_move: None },
    Event::Record { handoff: 9, shard: 0, phase: Phase::Transfer },
];
const OFFERED: Event = Event::Offered { shard: 0, handoff: 9 };
const MOVED: Event = Event::Granted { shard: 0, fence: 3, by_move: Some(9) };
const TAKEN: Event = Event::Granted { shard: 0, fence: 3, by_move: None };
const DONE: Event = Event::Ended { shard: 0, how: Ended::Done };

const fn did(fence: u64, key: u8) -> Event {
    Event::Did { shard: 0, fence, key }
}

const fn saved(next: u8) -> Event {
    Event::Cursor { shard: 0, next }
}

const fn record(phase: Phase) -> Event {
    Event::Record { handoff: 9, shard: 0, phase }
}

/// Returns the oracle's result for the last event; all earlier events are valid.
fn last(history: &[Event]) -> Result<(), Broken> {
    let mut oracle = Oracle::default();
    let (end, before) = history.split_last().expect("something happens");
    for event in BEGUN.iter().chain(before) {
        assert_eq!(oracle.observe(*event), Ok(()), "{event:?}");
    }
    oracle.observe(*end)
}

#[rstest]
#[case::a_move_goes_on_where_it_stopped(&[did(2, 0), saved(1), OFFERED, MOVED, did(3, 1)])]
#[case::a_takeover_redoes_what_was_not_saved(&[did(2, 0), TAKEN, did(3, 0)])]
#[case::a_withdrawn_offer_lets_work_go_on(&[OFFERED, Event::Withdrawn { shard: 0 }, did(2, 0)])]
#[case::what_was_saved_may_be_released(&[did(2, 0), saved(1), Event::Released { shard: 0 }])]
#[case::what_moved_is_acknowledged(&[OFFERED, MOVED, record(Phase::Ack)])]
#[case::what_was_taken_is_rolled_back(&[OFFERED, TAKEN, record(Phase::RolledBack)])]
fn a_valid_history_passes(#[case] history: &[Event]) {
    assert_eq!(last(history), Ok(()));
}

#[rstest]
#[case(Broken::TwoOwners, &[OFFERED, MOVED, did(2, 0)])]
#[case(Broken::StaleEffect, &[TAKEN, did(2, 0)])]
#[case(Broken::WorkedWhileOffered, &[OFFERED, did(2, 0)])]
#[case(Broken::OutOfRange, &[did(2, 8)])]
#[case(Broken::KeyRedone, &[did(2, 0), OFFERED, MOVED, did(3, 0)])]
#[case(Broken::KeyRedone, &[did(2, 0), did(2, 0)])]
#[case(Broken::KeyRedone, &[did(2, 0), saved(1), TAKEN, did(3, 0)])]
#[case(Broken::KeyLost, &[did(2, 0), saved(2)])]
#[case(Broken::KeyLost, &[did(2, 0), DONE])]
#[case(Broken::ReleasedUnsaved, &[did(2, 0), Event::Released { shard: 0 }])]
#[case(Broken::OfferedUnrecorded, &[Event::Offered { shard: 0, handoff: 8 }])]
#[case(Broken::OfferedUnrecorded, &[record(Phase::RolledBack), OFFERED])]
#[case(Broken::FenceFell, &[Event::Granted { shard: 0, fence: 2, by_move: None }])]
#[case(Broken::RolledBackAfterAccept, &[OFFERED, MOVED, record(Phase::RolledBack)])]
#[case(Broken::RolledBackAfterAccept, &[OFFERED, record(Phase::RolledBack), MOVED])]
#[case(Broken::AcknowledgedBeforeAccept, &[OFFERED, record(Phase::Ack)])]
fn an_altered_history_is_detected(#[case] broken: Broken, #[case] history: &[Event]) {
    assert_eq!(last(history), Err(broken));
}

#[test]
fn clocks_that_differ_excuse_a_late_owner_and_no_source() {
    let mut oracle = Oracle::default();
    oracle.skew();
    for event in BEGUN.iter().chain(&[TAKEN, did(2, 0), did(3, 0)]) {
        assert_eq!(oracle.observe(*event), Ok(()));
    }
    let again = Event::Granted { shard: 0, fence: 4, by_move: Some(9) };
    assert_eq!(oracle.observe(again), Ok(()));
    assert_eq!(oracle.observe(did(3, 1)), Err(Broken::TwoOwners));
}

#[test]
fn records_left_at_rest_are_noticed() {
    let mut oracle = Oracle::default();
    BEGUN.iter().for_each(|event| oracle.observe(*event).expect("a valid start"));
    assert_eq!(oracle.rest(false), Err(Broken::RecordLeftOver));
    assert_eq!(oracle.rest(true), Ok(()));
    oracle.observe(record(Phase::RolledBack)).expect("the handoff did not happen");
    assert_eq!(oracle.rest(false), Err(Broken::NotFinished));
    (0..8).for_each(|key| oracle.observe(did(2, key)).expect("the owner may process it"));
    oracle.observe(DONE).expect("all keys are processed");
    assert_eq!(oracle.rest(false), Ok(()));
}
