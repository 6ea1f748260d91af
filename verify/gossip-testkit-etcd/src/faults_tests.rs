//! Which request a fault meets: the planned ones by kind, the drawn ones by their rate.

use crate::sim_etcd_kv::faults::{Fault, FaultRates, Faults, Target};

#[test]
fn planned_faults_meet_the_requests_they_are_meant_for() {
    let mut faults = Faults::default();
    faults.plan(1, Target::Write, Fault::LoseReply);
    faults.plan(0, Target::Read, Fault::Refuse);
    assert_eq!(faults.next(Target::Lease), None);
    assert_eq!(faults.next(Target::Write), None);
    assert_eq!(faults.next(Target::Read), Some(Fault::Refuse));
    assert_eq!(faults.next(Target::Write), Some(Fault::LoseReply));
    assert_eq!(faults.next(Target::Write), None);
}

#[test]
fn drawn_faults_come_from_the_seed_and_at_their_rate() {
    let rates = FaultRates { lose_request: 100, lose_reply: 50, ..FaultRates::default() };
    let draw = |seed| {
        let mut faults = Faults::default();
        faults.set_random(seed, rates);
        (0..10_000).map(|_| faults.next(Target::Read)).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    let lost = draw(7).iter().filter(|it| **it == Some(Fault::LoseRequest)).count();
    assert!((900..1100).contains(&lost), "{lost}");
}
