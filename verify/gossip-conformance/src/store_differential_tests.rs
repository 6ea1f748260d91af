//! The coordinator over the model store must answer like the in-memory coordinator, also under
//! commit faults.

use gossip_coordination::store::Fault;

use super::store_coordinator_tests::PLAIN;
use crate::differential::{Plan, Totals, check_plan};

fn plan(seeds: std::ops::Range<u64>) -> Plan {
    Plan { seeds, steps: 150, list_every: 1 }
}

fn check(seeds: std::ops::Range<u64>, fault: impl Fn(u64) -> Fault) -> Totals {
    check_plan(&PLAIN, &plan(seeds), |backend, number| {
        backend.store_mut().forget_faults();
        (0..3).for_each(|nth| backend.store_mut().inject(fault(number >> (8 * nth))));
    })
}

#[test]
fn a_store_answers_as_memory_answers() {
    let played = check(0..60, |_| Fault::None);
    assert!(played.granted > 300, "{played:?}");
}

#[test]
fn a_store_that_loses_replies_answers_as_memory_answers() {
    check(100..140, |_| Fault::LoseReply);
}

#[test]
fn a_store_that_loses_requests_answers_as_memory_answers() {
    check(200..240, |_| Fault::LoseRequest);
}

#[test]
fn a_store_with_any_faults_answers_as_memory_answers() {
    let faults = [Fault::None, Fault::LoseReply, Fault::LoseRequest, Fault::Conflict];
    check(300..360, |number| faults[usize::try_from(number % 4).unwrap()]);
}
