//! Derives a run's id from its description, so that the same command finds the same run.
//!
//! The id is derived from the tenant, the source, the settings and a generation. The upper half of
//! its bits depends on tenant and source only, so the unfinished runs of one source are neighbours
//! in the order of ids. Changed settings are detected by a short listing, and no name is stored.
//!
//! [`open_run`] takes the lowest generation that is neither deleted nor cancelled (nor finished, if
//! the user wants a restart). The initial shards are computed once. A process that finds an
//! incomplete registration continues it if it computes the same shards, and otherwise waits for the
//! process that began it. If the registration is not completed within [`REGISTRATION_PATIENCE`], it
//! is cancelled and the next generation is created.

use std::time::Duration;

use gossip_contracts::coordination::{InitialShardInput, ShardArena, ShardSpec};
use gossip_contracts::identity::{
    CanonicalBytes as _, CanonicalHasher, Domain, RunId, ShardId, TenantId,
};
use gossip_coordination::{
    CoordinationFacade, CreateRunError, GetRunError, InfraError, RegisterShardsError, RunConfig,
    RunStatus, RunTransitionError,
};
use gossip_frontier::builder::{MAX_BUILDER_CAP, PreallocShardBuilder, PreallocShardBuilderError};
use thiserror::Error;

use crate::clock::Clock;
use crate::initial::InitialShardsError;
use crate::op_ids;

/// How long to wait for a registration by another process. It takes a fraction of a second, unless
/// that process was killed.
pub(crate) const REGISTRATION_PATIENCE: Duration = Duration::from_secs(5);

/// The polling interval during that wait.
const REGISTRATION_LOOK: Duration = Duration::from_millis(100);

/// Maximum number of generations of one run; each earlier one was cancelled, deleted or restarted.
pub(crate) const MAX_GENERATIONS: u32 = 10_000;

/// The description from which a run's id is derived.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan<'a> {
    /// The tenant of the run.
    pub tenant: TenantId,
    /// The source: [`Source::canonical`](crate::connectors::Source::canonical).
    pub source: &'a [u8],
    /// All other settings that distinguish runs.
    pub settings: &'a [u8],
    /// The coordinator's settings of the run.
    pub config: RunConfig,
    /// Whether a finished run is skipped and the next generation created.
    pub restart: bool,
}

/// A run that was found or created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedRun {
    /// Its id.
    pub run: RunId,
    /// Its generation.
    pub generation: u32,
    /// Its state.
    pub state: OpenedState,
    /// Its settings, if it was found by them: its id is derived from all of them but the name.
    pub config: Option<RunConfig>,
}

/// The state of a run when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the CLI has a message for each")]
pub enum OpenedState {
    /// It was created by this call.
    New,
    /// It existed and is not finished.
    Resumed,
    /// It existed and is finished: done or failed.
    Over(RunStatus),
}

/// Why a run was neither found nor created.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenRunError {
    /// The store is unavailable or refused an operation.
    #[error("the store failed: {0}")]
    Store(#[from] InfraError),
    /// The source could not be examined.
    #[error(transparent)]
    Source(#[from] InitialShardsError),
    /// The shards could not be staged.
    #[error(transparent)]
    Staging(PreallocShardBuilderError),
    /// The shards could not be registered.
    #[error(transparent)]
    Register(RegisterShardsError),
    /// There are too many generations of this run.
    #[error("there were {MAX_GENERATIONS} runs of this kind; delete the store, or change settings")]
    TooManyGenerations,
}

impl RunPlan<'_> {
    /// Returns the id of a generation.
    #[must_use]
    pub(crate) fn run_id(&self, generation: u32) -> RunId {
        let mut hasher = CanonicalHasher::for_domain(Domain::RUN_ID_V1);
        hasher.write_raw(b"run");
        self.tenant.write_canonical(&mut hasher);
        hasher.write_bytes_prefixed(self.source);
        hasher.write_bytes_prefixed(self.settings);
        hasher.write_u8(self.config.cursor_semantics().as_u8());
        hasher.write_u64(self.config.lease_duration());
        // No bound is a setting of its own; a bound has at most 32 bits, so the two never meet.
        hasher.write_u64(self.config.max_shard_retries().map_or(u64::MAX, u64::from));
        hasher.write_u32(generation);
        RunId::from_raw(self.source_half() | hasher.finalize_64() & LOWER_HALF)
    }

    /// Returns whether a run belongs to this plan, in any generation.
    #[must_use]
    pub(crate) fn is_generation(&self, run: RunId) -> bool {
        (0..MAX_GENERATIONS).any(|generation| self.run_id(generation) == run)
    }

    /// Returns the id before the first one that a run of this source can have, and a check for such
    /// ids.
    pub(crate) fn ids_of_source(&self) -> (Option<RunId>, impl Fn(RunId) -> bool + use<>) {
        let half = self.source_half();
        // Listings start after a given id.
        let before = half.checked_sub(1).map(RunId::from_raw);
        (before, move |run: RunId| run.as_raw() & !LOWER_HALF == half)
    }

    fn source_half(&self) -> u64 {
        let mut hasher = CanonicalHasher::for_domain(Domain::RUN_ID_V1);
        hasher.write_raw(b"source");
        self.tenant.write_canonical(&mut hasher);
        hasher.write_bytes_prefixed(self.source);
        hasher.finalize_64() & !LOWER_HALF
    }
}

/// The bits that depend on settings and generation, too.
const LOWER_HALF: u64 = u32::MAX as u64;

/// Finds the run of a plan, or creates it from the shards that `cut` returns for it.
///
/// `pause` waits; it is called only while another process registers the same run.
///
/// # Errors
///
/// Returns [`OpenRunError`]. The next call continues an interrupted registration.
pub fn open_run<B: CoordinationFacade>(
    coordinator: &mut B,
    clock: &dyn Clock,
    pause: &dyn Fn(Duration),
    plan: &RunPlan<'_>,
    cut: &dyn Fn(RunId) -> Result<Vec<ShardSpec>, InitialShardsError>,
) -> Result<OpenedRun, OpenRunError> {
    let mut opening = Opening { coordinator, clock, pause, plan, cut };
    // From the first on: ids are derived, and nothing stores the current generation.
    for generation in 0..MAX_GENERATIONS {
        if let Some(state) = opening.generation(plan.run_id(generation))? {
            let (run, config) = (plan.run_id(generation), Some(plan.config));
            return Ok(OpenedRun { run, generation, state, config });
        }
    }
    Err(OpenRunError::TooManyGenerations)
}

struct Opening<'a, B> {
    coordinator: &'a mut B,
    clock: &'a dyn Clock,
    pause: &'a dyn Fn(Duration),
    plan: &'a RunPlan<'a>,
    cut: &'a dyn Fn(RunId) -> Result<Vec<ShardSpec>, InitialShardsError>,
}

impl<B: CoordinationFacade> Opening<'_, B> {
    /// Opens the run with this id, unless it must be skipped.
    fn generation(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        match self.status(run)? {
            None => self.create(run),
            // Continues the registration, with the same operation id as the process that began it.
            Some(RunStatus::Initializing) => self.register(run, OpenedState::Resumed),
            Some(RunStatus::Active) => Ok(Some(OpenedState::Resumed)),
            Some(RunStatus::Cancelled) => Ok(None),
            Some(RunStatus::Done | RunStatus::Failed) if self.plan.restart => Ok(None),
            Some(over @ (RunStatus::Done | RunStatus::Failed)) => Ok(Some(OpenedState::Over(over))),
        }
    }

    fn create(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        let (now, plan) = (self.clock.wall(), self.plan);
        match self.coordinator.create_run(now, plan.tenant, run, plan.config) {
            Ok(()) => self.register(run, OpenedState::New),
            // Another process created it concurrently, or a deleted run has used the id.
            Err(CreateRunError::RunAlreadyExists { .. }) => match self.status(run)? {
                Some(_) => self.generation(run),
                None => Ok(None),
            },
            Err(CreateRunError::BackendError(error)) => Err(error.into()),
            Err(other) => Err(unexpected("create_run", &other)),
        }
    }

    /// Registers the initial shards, or waits for the process that began the registration.
    fn register(
        &mut self,
        run: RunId,
        state: OpenedState,
    ) -> Result<Option<OpenedState>, OpenRunError> {
        // Only now: examining the source is expensive, and an active run does not need it.
        let shards = (self.cut)(run)?;
        let (now, op_id) = (self.clock.wall(), op_ids::of_run(b"register_shards", run));
        let registered = with_staged(&shards, |inputs| {
            self.coordinator.register_shards(now, self.plan.tenant, run, inputs, op_id)
        })?;
        match registered {
            Ok(_) => Ok(Some(state)),
            // Other shards: the source has changed since the registration began.
            Err(RegisterShardsError::OpIdConflict(_) | RegisterShardsError::WrongStatus { .. }) => {
                self.await_registration(run)
            }
            Err(RegisterShardsError::BackendError(error)) => Err(error.into()),
            Err(other) => Err(OpenRunError::Register(other)),
        }
    }

    fn await_registration(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        let mut waited = Duration::ZERO;
        loop {
            match self.status(run)? {
                Some(RunStatus::Initializing) if waited < REGISTRATION_PATIENCE => {
                    (self.pause)(REGISTRATION_LOOK);
                    waited += REGISTRATION_LOOK;
                }
                // Its process was killed, and its shards do not fit the source any more.
                Some(RunStatus::Initializing) => return self.cancel(run),
                None => return Ok(None),
                Some(_) => return self.generation(run),
            }
        }
    }

    /// Cancels an abandoned registration: its shards are those of a source that has changed.
    fn cancel(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        let (now, op_id) = (self.clock.wall(), op_ids::of_run(b"cancel_run", run));
        match self.coordinator.cancel_run(now, self.plan.tenant, run, op_id) {
            // Another process may have cancelled it first; both take the next generation.
            Ok(_) | Err(RunTransitionError::RunTerminal { .. }) => Ok(None),
            Err(RunTransitionError::BackendError(error)) => Err(error.into()),
            Err(other) => Err(unexpected("cancel_run", &other)),
        }
    }

    fn status(&mut self, run: RunId) -> Result<Option<RunStatus>, OpenRunError> {
        match self.coordinator.get_run(self.plan.tenant, run) {
            Ok(record) => Ok(Some(record.status())),
            Err(GetRunError::RunNotFound) => Ok(None),
            Err(GetRunError::BackendError(error)) => Err(error.into()),
            Err(other) => Err(unexpected("get_run", &other)),
        }
    }
}

/// At least the smallest block of an arena.
const ARENA_BLOCK_MIN: usize = 16;

/// The id of the first initial shard. A builder counts from 0.
const FIRST_SHARD_ID: u64 = 1;

/// Stages the shards and passes the rows of all of them to `register`.
///
/// A builder holds [`MAX_BUILDER_CAP`] shards, so there is one for each such batch, and its ids are
/// shifted to follow those of the batch before.
fn with_staged<R>(
    shards: &[ShardSpec],
    register: impl FnOnce(&[InitialShardInput<'_>]) -> R,
) -> Result<R, OpenRunError> {
    // All arenas before the first builder: a builder borrows its arena until the rows are
    // registered.
    let mut arenas: Vec<_> = shards.chunks(MAX_BUILDER_CAP).map(arena_for).collect();
    let mut builders = Vec::with_capacity(arenas.len());
    for (arena, batch) in arenas.iter_mut().zip(shards.chunks(MAX_BUILDER_CAP)) {
        // Boxed, because a builder holds its entries inline.
        let builder = PreallocShardBuilder::<MAX_BUILDER_CAP>::new(arena, batch.len());
        let mut builder = Box::new(builder.map_err(OpenRunError::Staging)?);
        for shard in batch {
            builder.add_spec_ref(shard.as_spec_ref()).map_err(OpenRunError::Staging)?;
        }
        builders.push(builder);
    }
    let mut inputs = Vec::with_capacity(shards.len());
    for builder in &builders {
        let shift = FIRST_SHARD_ID + inputs.len() as u64;
        let batch = builder.build_inputs().map_err(OpenRunError::Staging)?;
        inputs.extend(batch.into_iter().map(|input| {
            let shard_id = ShardId::from_raw(shift + input.shard_id.as_raw());
            InitialShardInput { shard_id, ..input }
        }));
    }
    Ok(register(&inputs))
}

/// Returns an arena for these shards. It rounds the size of each up to a power of two.
fn arena_for(batch: &[ShardSpec]) -> ShardArena {
    let size = |shard: &ShardSpec| {
        shard.start().len() + shard.end().len() + shard.metadata().len() + ARENA_BLOCK_MIN
    };
    ShardArena::with_capacity(batch.len(), 2 * batch.iter().map(size).sum::<usize>())
}

/// Returns an error for an answer that this operation cannot give today.
fn unexpected(operation: &'static str, error: &dyn std::error::Error) -> OpenRunError {
    let message = error.to_string();
    OpenRunError::Store(InfraError::Corruption { operation, message })
}
