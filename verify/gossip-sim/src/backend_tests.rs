//! The simulator's stores pass the conformance suite of every backend.

use gossip_conformance::{check_sequences, run_all};

use super::backend::{OnSimulation, SimDisk, SimulationBackend};
use super::faulty_store::FaultyStore;

fn conforms<B: SimulationBackend>() {
    let ran = run_all(&OnSimulation::<B>::new(), &mut |_| ());
    println!("{}: {ran} cases", B::NAME);
}

#[test]
fn the_simulated_disk_conforms() {
    conforms::<SimDisk>();
}

#[test]
fn a_faulty_store_without_faults_conforms() {
    conforms::<FaultyStore>();
}

#[test]
fn sequences_on_the_simulated_stores_agree_with_the_model() {
    check_sequences(&OnSimulation::<SimDisk>::new(), 2_000..2_050, 100);
    check_sequences(&OnSimulation::<FaultyStore>::new(), 2_050..2_070, 100);
}
