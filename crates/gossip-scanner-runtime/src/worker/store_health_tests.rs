use gossip_contracts::identity::LogicalTime;

use super::store_health::{Lasting, StoreHealth};
use crate::task::StoreAccess;
use crate::test_support::at;

/// Fails at `now` as part 0, in no time.
fn fail(health: &StoreHealth, now: u64) -> Lasting {
    health.failed(0, at(now), at(now))
}

/// When the store is used again.
fn retry_at(health: &StoreHealth, now: u64) -> Option<LogicalTime> {
    match health.access(at(now), false) {
        StoreAccess::Wait(until) => Some(until),
        StoreAccess::Usable | StoreAccess::Retry | StoreAccess::Last => None,
    }
}

#[test]
fn store_is_usable_until_it_fails_and_again_when_it_answers() {
    let health = StoreHealth::new(1);
    assert_eq!(health.access(at(1), false), StoreAccess::Usable);
    assert_eq!(health.answered(0, at(1)), None);
    fail(&health, 10);
    let until = retry_at(&health, 10).unwrap();
    assert!(at(10) < until && until <= at(110), "{until}");
    assert_eq!(health.access(until, false), StoreAccess::Retry);
    let ended = health.answered(0, until).unwrap();
    assert_eq!(ended, Lasting { ticks: until.as_raw() - 10, is_news: false });
    assert_eq!(health.access(until, false), StoreAccess::Usable);
}

#[test]
fn waits_grow_to_five_seconds_and_start_again_after_an_outage() {
    let (health, mut now) = (StoreHealth::new(1), 1_000);
    let mut waits = Vec::new();
    for _ in 0..20 {
        fail(&health, now);
        let until = retry_at(&health, now).unwrap().as_raw();
        waits.push(until - now);
        now = until;
    }
    assert!(waits[0] <= 100 && waits[19] >= 2_500, "{waits:?}");
    assert!(waits.iter().all(|wait| (50..=5_000).contains(wait)), "{waits:?}");
    health.answered(0, at(now)).unwrap();
    fail(&health, now);
    assert!(retry_at(&health, now).unwrap() <= at(now + 100));
}

/// All threads of a worker retry at one time; that they fail is one failure.
#[test]
fn parts_that_fail_together_count_once() {
    let (one, many) = (StoreHealth::new(1), StoreHealth::new(1));
    fail(&one, 10);
    for part in 0..8 {
        many.failed(part, at(10), at(10));
    }
    assert_eq!(retry_at(&one, 10), retry_at(&many, 10));
}

/// A full disk may have room for a small commit of one part and not for that of another.
#[test]
fn an_outage_lasts_until_every_failing_part_is_answered() {
    let health = StoreHealth::new(1);
    health.failed(0, at(10), at(10));
    health.failed(3, at(20), at(20));
    assert_eq!(health.answered(3, at(500)), None);
    assert_eq!(health.answered(5, at(500)), None, "this part did not fail");
    assert!(health.is_unusable());
    assert_eq!(health.answered(0, at(600)), Some(Lasting { ticks: 590, is_news: false }));
    assert!(!health.is_unusable());
}

#[test]
fn an_outage_is_announced_once_after_a_second() {
    let health = StoreHealth::new(1);
    assert_eq!(fail(&health, 10), Lasting { ticks: 0, is_news: false });
    assert_eq!(fail(&health, 900), Lasting { ticks: 890, is_news: false });
    assert_eq!(fail(&health, 1_010), Lasting { ticks: 1_000, is_news: true });
    assert_eq!(fail(&health, 3_000), Lasting { ticks: 2_990, is_news: false });
    assert_eq!(health.answered(0, at(4_010)), Some(Lasting { ticks: 4_000, is_news: true }));
}

/// A request of five seconds without a reply is an outage of five seconds.
#[test]
fn an_outage_begins_with_the_step_that_fails() {
    let health = StoreHealth::new(1);
    assert_eq!(health.failed(0, at(10), at(5_010)), Lasting { ticks: 5_000, is_news: true });
    assert!(retry_at(&health, 5_010).unwrap() > at(5_010), "it is not retried at once");
}

#[test]
fn a_drain_retries_for_two_seconds_and_then_tries_once() {
    let health = StoreHealth::new(1);
    fail(&health, 10);
    assert!(matches!(health.access(at(20), true), StoreAccess::Wait(_)));
    assert_eq!(health.access(at(1_000), true), StoreAccess::Retry);
    assert_eq!(health.access(at(2_010), true), StoreAccess::Last);
    assert_ne!(health.access(at(2_010), false), StoreAccess::Last);
}

/// A part may lose what it wanted to retry. An outage must not last for ever because of that, and
/// does not end without an answer.
#[test]
fn an_outage_without_a_failing_part_is_probed() {
    let health = StoreHealth::new(1);
    assert!(!health.gave_up(0) && !health.needs_probe());
    health.failed(0, at(10), at(10));
    health.failed(1, at(10), at(10));
    assert!(!health.gave_up(0) && !health.needs_probe());
    assert!(health.gave_up(1) && health.needs_probe() && health.is_unusable());
    assert!(!health.gave_up(1), "once is enough");
    health.failed(2, at(20), at(20));
    assert!(!health.needs_probe());
    assert!(health.answered(2, at(30)).is_some() && !health.needs_probe());
}
