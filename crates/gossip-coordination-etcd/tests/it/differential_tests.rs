//! The same random operations on the coordinator in memory, on the model and on a real server.

use gossip_conformance::differential::{Plan, check_plan};
use gossip_testkit_etcd::sim_etcd_kv::{Fault, FaultRates, Target};

use crate::conformance_tests::OnBlocking;
use crate::real_servers::Servers;
use crate::sim_coordinator_tests::OnModel;

/// Operations on the model: 500 sequences of 200, as the issue asks.
const ON_MODEL: Plan = Plan { seeds: 0..500, steps: 200, list_every: 50 };

/// Operations on a real server: 50 sequences of 200.
const ON_REAL: Plan = Plan { seeds: 1_000..1_050, steps: 200, list_every: 50 };

#[test]
fn the_model_answers_a_hundred_thousand_operations_as_memory_does() {
    let target = OnModel::new(FaultRates::default());
    let played = check_plan(&target, &ON_MODEL, |_, _| ());
    println!("{played:?}");
    assert!(played.operations >= 100_000, "{played:?}");
}

/// One commit in four loses its reply, one in four its way, and now and then all leases end.
#[test]
fn the_model_with_faults_answers_as_memory_does() {
    let target = OnModel::new(FaultRates::default());
    let plan = Plan { seeds: 2_000..2_060, ..ON_MODEL };
    let played = check_plan(&target, &plan, |backend, drawn| {
        let kv = backend.store().store().kv();
        kv.clear_faults();
        match drawn % 8 {
            0 | 1 => kv.inject(0, Target::Write, Fault::LoseReply),
            2 | 3 => kv.inject(0, Target::Write, Fault::LoseRequest),
            4 => kv.inject(0, Target::Write, Fault::Refuse),
            5 => kv.expire_leases(),
            _ => {}
        }
    });
    println!("{played:?}");
}

#[test]
fn a_real_server_answers_ten_thousand_operations_as_memory_does() {
    let played = check_plan(&OnBlocking(Servers::Single), &ON_REAL, |_, _| ());
    println!("{played:?}");
    assert!(played.operations >= 10_000, "{played:?}");
}
