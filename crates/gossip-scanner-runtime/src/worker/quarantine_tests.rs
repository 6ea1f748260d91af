use gossip_contracts::identity::LogicalTime;

use super::quarantine::*;

fn at(time: u64) -> LogicalTime {
    LogicalTime::from_raw(time)
}

/// Threads 0 and 1 process shards that are not suspects; thread 2 has none.
fn two_at_work() -> Quarantine {
    let quarantine = Quarantine::new(3);
    for thread in [0, 1] {
        assert_eq!(quarantine.enter(thread, at(0)), Entry::Shared);
        quarantine.claimed(thread, Suspicion::None);
    }
    quarantine
}

/// A step of a thread that follows the signal at once.
fn step(quarantine: &Quarantine, thread: usize) -> bool {
    let signal = quarantine.signal(thread);
    quarantine.stepped(thread, signal, signal.pause, false);
    signal.pause
}

#[test]
fn a_single_thread_is_always_exclusive() {
    let quarantine = Quarantine::new(1);
    for _ in 0..3 {
        assert_eq!(quarantine.enter(0, at(0)), Entry::Exclusive);
        quarantine.claimed(0, Suspicion::Suspect);
        quarantine.left(0);
    }
}

#[test]
fn a_suspect_is_claimed_when_all_others_pause_until_it_has_progressed() {
    let quarantine = two_at_work();
    assert_eq!(quarantine.enter(2, at(0)), Entry::Shared);
    assert!(quarantine.want(2, at(0)));
    assert_eq!(quarantine.enter(2, at(1)), Entry::Wait(at(1 + POLL_TICKS)));
    assert!(step(&quarantine, 0));
    assert_eq!(quarantine.enter(2, at(2)), Entry::Wait(at(2 + POLL_TICKS)), "thread 1 is busy");
    assert!(step(&quarantine, 1));
    assert_eq!(quarantine.enter(2, at(3)), Entry::Exclusive);
    assert!(!quarantine.claimed(2, Suspicion::Suspect));
    let signal = quarantine.signal(2);
    assert!(!signal.pause, "it does not pause for itself");
    quarantine.stepped(2, signal, false, true);
    assert!(step(&quarantine, 0) && step(&quarantine, 1), "it is still a suspect");
    assert!(quarantine.stepped(2, quarantine.signal(2), false, false), "the others are woken");
    assert!(!step(&quarantine, 0) && !step(&quarantine, 1));
}

/// A pause for an earlier exclusive phase does not count: the thread has worked since.
#[test]
fn a_pause_for_an_earlier_phase_does_not_count() {
    let quarantine = two_at_work();
    quarantine.enter(2, at(0));
    assert!(quarantine.want(2, at(0)));
    assert!(step(&quarantine, 0));
    let late = quarantine.signal(1);
    assert!(quarantine.left(2), "it stops, and the others are woken");
    assert_eq!(quarantine.enter(2, at(1)), Entry::Shared);
    assert!(quarantine.want(2, at(1)));
    quarantine.stepped(1, late, true, false);
    assert_eq!(quarantine.enter(2, at(2)), Entry::Wait(at(2 + POLL_TICKS)));
    assert!(step(&quarantine, 0) && step(&quarantine, 1));
    assert_eq!(quarantine.enter(2, at(3)), Entry::Exclusive);
}

/// A thread in the middle of a claim may end it with a shard.
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
fn one_thread_is_exclusive_at_a_time() {
    let quarantine = two_at_work();
    quarantine.left(0);
    quarantine.enter(0, at(0));
    quarantine.enter(2, at(0));
    assert!(quarantine.want(2, at(0)) && !quarantine.want(0, at(0)));
    quarantine.left(0);
    assert_eq!(quarantine.enter(0, at(1)), Entry::Wait(at(1 + POLL_TICKS)));
}

#[test]
fn a_thread_that_does_not_pause_is_not_waited_for_for_ever() {
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
        assert_eq!(quarantine.enter(2, at(now)), Entry::Shared, "the others continue");
        assert!(!step(&quarantine, 0));
        assert!(!quarantine.want(2, at(now + CONTINUE_FACTOR * patience - 1)));
        quarantine.left(2);
        now += CONTINUE_FACTOR * patience;
        patience = (2 * patience).min(PATIENCE_LONGEST);
    }
    assert_eq!(patience, PATIENCE_LONGEST);
}
