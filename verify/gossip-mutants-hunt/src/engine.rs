//! The layers that run in this process, one per process: model checker, simulators, scripts,
//! conformance suite.
//!
//! Only this file knows where they live.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_conformance::testscript::{ScriptBackend, WorldSettings, check_scripts};
use gossip_conformance::{Ability, ConformanceTarget, RaceJob, Settings, run_all};
use gossip_coordination::store::{Fault, MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{
    CollectEvents, CoordinatorRuntimeConfig, EventCollector, InMemoryCoordinator,
    StateTransitionEvent,
};
use gossip_sim::model::{Scale, Strictness, configuration, search};
use gossip_sim::{self as sim, FaultSet, Plan, Simulator};
use gossip_sim_handoff::search::{self as handoff, Budget, explore};
use gossip_sim_worker::sim as worker_sim;

/// Operations of a simulated world.
const OPERATIONS: u64 = 2_500;

/// Worlds of the worker's loop: small ones, of which `RetriesAnew` needs more than three hundred.
const WORKER_WORLDS: u64 = 1_000;

/// Enough states for the handoff search.
const HANDOFF_STATES_MAX: u64 = 20_000_000;

/// Limits of the handoff search.
const HANDOFF_BUDGET: Budget =
    Budget { faults: 0, crashes: 1, renewals: 0, takeovers: 1, ticks: 5 };

/// How a mutant was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule that was broken, or the check that failed.
    pub(crate) rule: String,
    /// The effort.
    pub(crate) after: String,
}

impl Finding {
    fn new(rule: impl Into<String>, after: impl Into<String>) -> Self {
        Self { rule: rule.into(), after: after.into() }
    }
}

/// Searches a configuration of the model twice: with the records compared with the acknowledged
/// operations, and by effects alone. Both must find the mutant; the rule is that of the second.
pub(crate) fn model(name: &str) -> Result<Option<Finding>, String> {
    let config =
        || configuration(name, Scale::Short).ok_or_else(|| format!("no configuration `{name}`"));
    let records = search(config()?, Strictness::Records, usize::MAX);
    let effects = search(config()?, Strictness::Effects, usize::MAX);
    Ok(records.finding.and(effects.finding).map(|finding| {
        let after = format!("{} states, {} steps", effects.states, finding.trace.len());
        Finding::new(format!("{:?}", finding.violation.rule), after)
    }))
}

/// Runs the simulated worlds of the first `seeds` seeds, with their usual faults or with the
/// faults of a list only.
pub(crate) fn simulator(list: Option<&str>, seeds: u64) -> Result<Option<Finding>, String> {
    let faults = match list {
        Some(list) => Some(FaultSet::parse(list).ok_or_else(|| format!("no faults `{list}`"))?),
        None => None,
    };
    let plan = |seed| {
        let usual = Plan::of_seed(seed, OPERATIONS, faults);
        Plan { binds: usual.binds || faults.is_some(), ..usual }
    };
    Ok(first_failure(seeds, plan))
}

fn first_failure(seeds: u64, plan: impl Fn(u64) -> Plan) -> Option<Finding> {
    let simulator = Simulator::new();
    (1..=seeds).find_map(|seed| {
        let failure = simulator.run(&plan(seed)).err()?;
        Some(Finding::new(format!("{:?}", failure.violation.rule), format!("{seed} worlds")))
    })
}

/// Runs worlds of the worker's loop.
pub(crate) fn worker_simulator() -> Option<Finding> {
    (0..WORKER_WORLDS).find_map(|seed| {
        let violation = worker_sim::run(worker_sim::Plan::of_seed(seed)).broken?;
        Some(Finding::new(format!("{:?}", violation.rule), format!("{} worlds", seed + 1)))
    })
}

/// Runs the golden scripts on both coordinators.
pub(crate) fn scripts() -> Result<Option<Finding>, String> {
    let in_memory = failed_scripts(|| check_scripts(&mut InMemory, false))?;
    let over_store = failed_scripts(|| check_scripts(&mut OverMap, false))?;
    let failed = in_memory + over_store;
    Ok((failed > 0).then(|| Finding::new("", format!("{failed} scripts"))))
}

fn failed_scripts(
    check: impl FnOnce() -> std::io::Result<gossip_conformance::testscript::Report>,
) -> Result<usize, String> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(report)) => Ok(report.failures.len()),
        Ok(Err(error)) => Err(format!("the scripts cannot be read: {error}")),
        // The script that panicked.
        Err(_) => Ok(1),
    }
}

/// Runs the conformance suite on both coordinators.
pub(crate) fn conformance() -> Option<Finding> {
    let failures = [
        catch_unwind(|| run_all(&InMemory, &mut |_| ())),
        catch_unwind(|| run_all(&OverMap, &mut |_| ())),
    ];
    let failed: u64 = failures.iter().filter_map(|it| it.as_ref().err()).map(failed_cases).sum();
    (failed > 0).then(|| Finding::new("", format!("{failed} cases")))
}

/// The number at the start of the suite's message.
fn failed_cases(payload: &Box<dyn std::any::Any + Send>) -> u64 {
    let message = payload.downcast_ref::<String>().map_or("", String::as_str);
    message.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// A mutant of the simulated store, which needs no switch: `(name, what, story)`.
pub(crate) fn store_mutants() -> Vec<(String, &'static str, &'static str)> {
    sim::Bug::ALL.iter().map(|bug| (format!("{bug:?}"), what(*bug), story(*bug))).collect()
}

/// Searches for a mutant of the simulated store.
pub(crate) fn store_mutant(name: &str, seeds: u64) -> Result<Option<Finding>, String> {
    let known = sim::Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
    let bug = Some(*known.ok_or_else(|| format!("no mutant `{name}` of the store"))?);
    Ok(first_failure(seeds, |seed| Plan { bug, ..Plan::of_seed(seed, OPERATIONS, None) }))
}

/// A mutant of a handoff participant, which needs no switch: `(name, what, story)`.
pub(crate) fn handoff_mutants() -> Vec<(String, &'static str, &'static str)> {
    let row = |bug: &handoff::Bug| (format!("{bug:?}"), bug.what(), handoff_story(*bug));
    handoff::Bug::ALL.iter().map(row).collect()
}

/// Searches for a mutant of a handoff participant.
pub(crate) fn handoff_mutant(name: &str) -> Result<Option<Finding>, String> {
    let known = handoff::Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
    let bug = *known.ok_or_else(|| format!("no mutant `{name}` of a handoff"))?;
    let report = explore(HANDOFF_BUDGET, Some(bug), HANDOFF_STATES_MAX);
    Ok(report.finding.map(|finding| {
        let after = format!("{} states, {} steps", report.states, finding.way.len());
        Finding::new(format!("{:?}", finding.broken), after)
    }))
}

const fn what(bug: sim::Bug) -> &'static str {
    use sim::Bug;
    match bug {
        Bug::FenceIgnored => "Every caller is shown as the lease holder.",
        Bug::ExpiryInclusive => "A lease is shown to last one tick longer.",
        Bug::EarlyTakeover => "A lease is shown to end before it does.",
        Bug::CheckpointLost => "A checkpoint is acknowledged and not stored.",
        Bug::RenewalLost => "A renewal is acknowledged and not stored.",
        Bug::ChildLost => "The last child of a replacing split is not stored.",
        Bug::CursorReset => "A grant is stored without the cursor.",
        Bug::FenceReusedAfterRevoke => "A revocation is stored with the old fence.",
        Bug::ShardNotCompared => "The store does not compare the shard.",
        Bug::RunNotCompared => "The store does not compare the run.",
        Bug::CountersNotCompared => "The store does not compare the counters.",
        Bug::AppliedTakenForConflict => "The store reports a conflict for an applied commit.",
        Bug::ConflictTakenForApplied => "The store reports a refused commit as applied.",
        Bug::SinkIgnoresFence => "The sink accepts every write.",
        Bug::FloorsNotRaised => "No fence floor is raised after a restore.",
    }
}

const fn story(bug: sim::Bug) -> &'static str {
    use sim::Bug;
    match bug {
        Bug::EarlyTakeover => {
            "leader election by clocks that are assumed to agree (a warning in client-go's \
             documentation)"
        }
        Bug::AppliedTakenForConflict => {
            "a driver that retries after a timeout and conflicts with its own write"
        }
        Bug::ConflictTakenForApplied => "a proxy or driver that loses the outcome of a write",
        Bug::SinkIgnoresFence => "fences that are counted and passed on, but never checked",
        Bug::FloorsNotRaised => "a restored backup that issues the numbers of its lost days again",
        Bug::FenceIgnored
        | Bug::ExpiryInclusive
        | Bug::CheckpointLost
        | Bug::RenewalLost
        | Bug::ChildLost
        | Bug::CursorReset
        | Bug::FenceReusedAfterRevoke
        | Bug::ShardNotCompared
        | Bug::RunNotCompared
        | Bug::CountersNotCompared => "as in the engine, behind the real flights with every fault",
    }
}

const fn handoff_story(bug: handoff::Bug) -> &'static str {
    use handoff::Bug;
    match bug {
        Bug::ResumesWithoutWithdrawing => {
            "a timeout taken for a refusal: the other side may still accept"
        }
        Bug::RollsBackAfterAccept => "rollback after the acknowledgement leaves two owners",
        Bug::ForwardOnForeignId => "recovery that compares a counter and not whose counter it is",
        Bug::RollsBackWithoutWithdrawing => {
            "a handoff stranded between two phases, and cleaned up too early"
        }
    }
}

/// The in-memory coordinator.
struct InMemory;

/// The bytes that its records may use, unless a script sets them.
const SLAB_BYTES: usize = 4 << 20;

impl InMemory {
    fn start(config: CoordinatorRuntimeConfig) -> InMemoryCoordinator {
        InMemoryCoordinator::new(config)
    }

    fn observe<R>(
        coordinator: &mut InMemoryCoordinator,
        call: impl FnOnce(&mut InMemoryCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

impl ConformanceTarget for InMemory {
    type Backend = InMemoryCoordinator;

    fn name(&self) -> &str {
        "the in-memory coordinator"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::Handles, Ability::Siblings, Ability::LostReplies]
    }

    fn fresh(&self, settings: Settings) -> InMemoryCoordinator {
        Self::start(CoordinatorRuntimeConfig {
            max_shards_per_tenant: settings.max_shards_per_tenant,
            max_total_shards: settings.max_total_shards,
            claim_cooldown_interval: settings.claim_cooldown_interval,
            slab_capacity: SLAB_BYTES,
        })
    }

    fn with_events<R>(
        &self,
        backend: &mut InMemoryCoordinator,
        call: impl FnOnce(&mut InMemoryCoordinator) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let (result, events) = Self::observe(backend, call);
        (result, Some(events))
    }
}

impl ScriptBackend for InMemory {
    type Coordinator = InMemoryCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<InMemoryCoordinator> {
        let usual = CoordinatorRuntimeConfig::default();
        let (of_tenant, total) = (settings.max_shards_per_tenant, settings.max_total_shards);
        Some(Self::start(CoordinatorRuntimeConfig {
            max_shards_per_tenant: of_tenant.unwrap_or(usual.max_shards_per_tenant),
            max_total_shards: total.unwrap_or(usual.max_total_shards),
            claim_cooldown_interval: settings.claim_cooldown.unwrap_or(0),
            slab_capacity: settings.slab_bytes.unwrap_or(SLAB_BYTES),
        }))
    }

    fn observe<R>(
        coordinator: &mut InMemoryCoordinator,
        call: impl FnOnce(&mut InMemoryCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        Self::observe(coordinator, call)
    }
}

/// The store coordinator over a map that binds owner keys.
struct OverMap;

type StoreBackend = StoreCoordinator<MapStore>;

impl OverMap {
    /// Returns a different number for each handle.
    fn next_nonce() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed) << 32
    }

    fn observe<R>(
        coordinator: &mut StoreBackend,
        call: impl FnOnce(&mut StoreBackend) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

impl ConformanceTarget for OverMap {
    type Backend = StoreBackend;

    fn name(&self) -> &str {
        "the store coordinator over a map"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> StoreBackend {
        let config = settings.limit(StoreConfig::new(Self::next_nonce()));
        let mut store = MapStore::new().with_bindings();
        settings.allot(&mut store);
        StoreCoordinator::new(store, config)
    }

    fn with_events<R>(
        &self,
        backend: &mut StoreBackend,
        call: impl FnOnce(&mut StoreBackend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let (result, events) = Self::observe(backend, call);
        (result, Some(events))
    }

    fn another_handle(&self, backend: &StoreBackend) -> Option<StoreBackend> {
        let config = StoreConfig { nonce: Self::next_nonce(), ..backend.config() };
        Some(StoreCoordinator::new(backend.store().another_handle(), config))
    }

    fn sibling_handle(&self, backend: &StoreBackend) -> Option<StoreBackend> {
        let config = StoreConfig { nonce: Self::next_nonce(), ..backend.config() };
        let (store, process) = (backend.store().another_handle(), backend.process_state());
        Some(StoreCoordinator::sharing(store, config, &process))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut StoreBackend) -> bool {
        backend.store_mut().inject(Fault::LoseReply);
        true
    }
}

impl ScriptBackend for OverMap {
    type Coordinator = StoreBackend;

    fn start(&mut self, settings: WorldSettings) -> Option<StoreBackend> {
        if !settings.fit_a_store() {
            return None;
        }
        let config = settings.limit(StoreConfig::new(Self::next_nonce()));
        let mut store = MapStore::new();
        settings.allot(&mut store);
        Some(StoreCoordinator::new(store, config))
    }

    fn observe<R>(
        coordinator: &mut StoreBackend,
        call: impl FnOnce(&mut StoreBackend) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        Self::observe(coordinator, call)
    }
}
