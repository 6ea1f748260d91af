//! The simulator's stores are held to the suite that every backend is held to.

use gossip_conformance::{check_sequences, run_all};

use super::backend::{OnSimulation, SimDisk, SimulationBackend};
use super::rough::RoughStore;

fn conforms<B: SimulationBackend>() {
    let ran = run_all(&OnSimulation::<B>::new(), &mut |_| ());
    println!("{}: {ran} cases", B::NAME);
}

#[test]
fn the_simulated_disk_conforms() {
    conforms::<SimDisk>();
}

#[test]
fn the_rough_store_conforms_where_nothing_happens_to_it() {
    conforms::<RoughStore>();
}

#[test]
fn sequences_on_the_simulated_stores_are_answered_as_the_model_answers() {
    check_sequences(&OnSimulation::<SimDisk>::new(), 2_000..2_050, 100);
    check_sequences(&OnSimulation::<RoughStore>::new(), 2_050..2_070, 100);
}
