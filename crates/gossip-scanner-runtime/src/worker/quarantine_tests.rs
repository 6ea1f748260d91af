use gossip_contracts::identity::LogicalTime;

use super::quarantine::*;

fn at(time: u64) -> LogicalTime {
    LogicalTime::from_raw(time)
}

/// Threads 0 and 1 work on shards above suspicion; thread 2 has none.
fn two_at_work() -> Quarantine {
    let quarantine = Quarantine::new(3);
    for thread in [0, 1] {
        assert_eq!(quarantine.enter(thread, at(0)), Entry::Shared);
        quarantine.claimed(thread, Suspicion::None);
    }
    quarantine
}

/// A step of a thread that does what it is told, at once.
fn step(quarantine: &Quarantine, thread: usize) -> bool {
    let word = quarantine.signal(thread);
    quarantine.stepped(thread, word, word.pause, false);
    word.pause
}

#[test]
fn one_thread_is_always_alone() {
    let quarantine = Quarantine::new(1);
    for _ in 0..3 {
        assert_eq!(quarantine.enter(0, at(0)), Entry::Exclusive);
        quarantine.claimed(0, Suspicion::Suspect);
        quarantine.left(0);
    }
}

#[test]
fn a_suspect_is_claimed_when_all_others_rest_and_they_rest_until_it_has_come_forward() {
    let quarantine = two_at_work();
    assert_eq!(quarantine.enter(2, at(0)), Entry::Shared);
    assert!(quarantine.want(2, at(0)));
    assert_eq!(quarantine.enter(2, at(1)), Entry::Wait(at(1 + POLL_TICKS)));
    assert!(step(&quarantine, 0));
    assert_eq!(quarantine.enter(2, at(2)), Entry::Wait(at(2 + POLL_TICKS)), "thread 1 works");
    assert!(step(&quarantine, 1));
    assert_eq!(quarantine.enter(2, at(3)), Entry::Exclusive);
    assert!(!quarantine.claimed(2, Suspicion::Suspect));
    let word = quarantine.signal(2);
    assert!(!word.pause, "it does not rest for itself");
    quarantine.stepped(2, word, false, true);
    assert!(step(&quarantine, 0) && step(&quarantine, 1), "it is still suspected");
    assert!(quarantine.stepped(2, quarantine.signal(2), false, false), "the others hear of it");
    assert!(!step(&quarantine, 0) && !step(&quarantine, 1));
}

/// Rest that was seen for an earlier turn is none now: the thread has worked since.
#[test]
fn rest_of_an_earlier_turn_does_not_count() {
    let quarantine = two_at_work();
    quarantine.enter(2, at(0));
    assert!(quarantine.want(2, at(0)));
    assert!(step(&quarantine, 0));
    let late = quarantine.signal(1);
    assert!(quarantine.left(2), "it goes home, and the others go on");
    assert_eq!(quarantine.enter(2, at(1)), Entry::Shared);
    assert!(quarantine.want(2, at(1)));
    quarantine.stepped(1, late, true, false);
    assert_eq!(quarantine.enter(2, at(2)), Entry::Wait(at(2 + POLL_TICKS)));
    assert!(step(&quarantine, 0) && step(&quarantine, 1));
    assert_eq!(quarantine.enter(2, at(3)), Entry::Exclusive);
}

/// Whoever is in the middle of a claim may come out of it with a shard.
#[test]
fn a_thread_that_claims_is_waited_for() {
    let quarantine = two_at_work();
    quarantine.left(1);
    assert_eq!(quarantine.enter(1, at(0)), Entry::Shared);
    assert_eq!(quarantine.enter(2, at(0)), Entry::Shared);
    assert!(quarantine.want(2, at(0)));
    assert!(step(&quarantine, 0));
    assert_eq!(quarantine.enter(2, at(1)), Entry::Wait(at(1 + POLL_TICKS)));
    quarantine.left(1);
    assert_eq!(quarantine.enter(2, at(2)), Entry::Exclusive);
}

#[test]
fn one_wants_to_be_alone_at_a_time() {
    let quarantine = two_at_work();
    quarantine.left(0);
    quarantine.enter(0, at(0));
    quarantine.enter(2, at(0));
    assert!(quarantine.want(2, at(0)) && !quarantine.want(0, at(0)));
    quarantine.left(0);
    assert_eq!(quarantine.enter(0, at(1)), Entry::Wait(at(1 + POLL_TICKS)));
}

#[test]
fn who_does_not_come_to_rest_is_not_waited_for_for_ever() {
    let quarantine = two_at_work();
    let (mut now, mut patience) = (0, PATIENCE_FIRST);
    for _ in 0..16 {
        assert_eq!(quarantine.enter(2, at(now)), Entry::Shared);
        assert!(quarantine.want(2, at(now)));
        assert_eq!(
            quarantine.enter(2, at(now + patience - 1)),
            Entry::Wait(at(now + patience - 1 + POLL_TICKS))
        );
        now += patience;
        assert_eq!(quarantine.enter(2, at(now)), Entry::Shared, "the others go on");
        assert!(!step(&quarantine, 0));
        assert!(!quarantine.want(2, at(now + CONTINUE_FACTOR * patience - 1)));
        quarantine.left(2);
        now += CONTINUE_FACTOR * patience;
        patience = (2 * patience).min(PATIENCE_LONGEST);
    }
    assert_eq!(patience, PATIENCE_LONGEST);
}
