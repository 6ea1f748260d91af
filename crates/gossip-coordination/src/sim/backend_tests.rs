//! The simulated store is held to the suite that every backend is held to.

use super::backend::{SimDisk, SimulationBackend};
use crate::conformance::{ConformanceTarget, Settings, check_sequences, run_all};
use crate::store::StoreConfig;
use crate::{EventCollector, StateTransitionEvent};

struct OnSimulation;

fn config(settings: Settings, nonce: u64) -> StoreConfig {
    settings.limit(StoreConfig::new(nonce))
}

impl ConformanceTarget for OnSimulation {
    type Backend = SimulationBackend;

    fn name(&self) -> &str {
        "the simulated store"
    }

    fn fresh(&self, settings: Settings) -> SimulationBackend {
        SimDisk::new().coordinator(config(settings, 1))
    }

    fn with_events<R>(
        &self,
        backend: &mut SimulationBackend,
        call: impl FnOnce(&mut SimulationBackend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &SimulationBackend) -> Option<SimulationBackend> {
        let nonce = backend.config().nonce + 1;
        let config = StoreConfig { nonce, ..backend.config() };
        Some(backend.store().another_handle().coordinator(config))
    }

    fn lose_next_reply(&self, backend: &mut SimulationBackend) -> bool {
        backend.store_mut().lose_next_reply();
        true
    }
}

#[test]
fn the_simulated_store_conforms() {
    let ran = run_all(&OnSimulation, &mut |case| println!("{}::{}", case.topic, case.name));
    println!("{ran} cases");
}

#[test]
fn sequences_on_the_simulated_store_are_answered_as_the_model_answers() {
    check_sequences(&OnSimulation, 2_000..2_050, 100);
}
