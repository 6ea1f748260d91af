//! The same command finds the same run.
//!
//! A run's id is derived from the tenant, the source, the settings and a generation. The upper half
//! of its bits depends on tenant and source only, so the unfinished runs over one source stand
//! together in the order of ids: changed settings are noticed by looking at a few neighbours, and
//! nothing about names is stored anywhere.
//!
//! [`open_run`] takes the lowest generation that is neither deleted nor cancelled (nor over, if the
//! user wants to begin anew). The first shards are cut once; who comes in the middle of that goes
//! on with it if a fresh look gives the same cuts, and otherwise leaves it to whoever began. Only
//! if nobody finishes it within [`REGISTRATION_PATIENCE`] is it cancelled, and the next generation
//! begun.

use std::time::Duration;

use gossip_contracts::coordination::{CursorUpdate, InitialShardInput, ShardSpec};
use gossip_contracts::identity::{
    CanonicalBytes as _, CanonicalHasher, Domain, RunId, ShardId, TenantId,
};
use gossip_coordination::{
    CoordinationFacade, CreateRunError, GetRunError, InfraError, RegisterShardsError, RunConfig,
    RunStatus, RunTransitionError,
};
use thiserror::Error;

use crate::clock::Clock;
use crate::initial::InitialShardsError;
use crate::op_ids;

/// How long a registration of somebody else is waited for. It takes a fraction of a second, unless
/// its process was killed.
pub const REGISTRATION_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const REGISTRATION_LOOK: Duration = Duration::from_millis(100);

/// The most generations of one run; each was cancelled, deleted or repeated by somebody.
pub const MAX_GENERATIONS: u32 = 10_000;

/// What makes a run the run it is.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan<'a> {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is listed: [`Source::canonical`](crate::connectors::Source::canonical).
    pub source: &'a [u8],
    /// Everything else that makes it another run.
    pub settings: &'a [u8],
    /// Settings of the coordinator; they belong to the settings of the run.
    pub config: RunConfig,
    /// Whether a run that is over is left alone and the next one begun.
    pub again: bool,
}

/// A run that was found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedRun {
    /// Its id.
    pub run: RunId,
    /// Its generation.
    pub generation: u32,
    /// Where it stands.
    pub state: OpenedState,
}

/// Where a run stands when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each is told to the user in its own words")]
pub enum OpenedState {
    /// It was made now.
    New,
    /// It was there and is not over.
    Resumed,
    /// It was there and is over: done or failed.
    Over(RunStatus),
}

/// Why a run could neither be found nor made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenRunError {
    /// The store does not answer, or says no.
    #[error("the store failed: {0}")]
    Store(#[from] InfraError),
    /// The source could not be looked at.
    #[error(transparent)]
    Source(#[from] InitialShardsError),
    /// The shards could not be registered.
    #[error(transparent)]
    Register(RegisterShardsError),
    /// There are too many generations of this run.
    #[error("there were {MAX_GENERATIONS} runs of this kind; delete the store, or change settings")]
    TooManyGenerations,
}

impl RunPlan<'_> {
    /// The id of a generation.
    #[must_use]
    pub fn run_id(&self, generation: u32) -> RunId {
        let mut hasher = CanonicalHasher::for_domain(Domain::RUN_ID_V1);
        hasher.write_raw(b"run");
        self.tenant.write_canonical(&mut hasher);
        hasher.write_bytes_prefixed(self.source);
        hasher.write_bytes_prefixed(self.settings);
        hasher.write_u8(self.config.cursor_semantics().as_u8());
        hasher.write_u64(self.config.lease_duration());
        hasher.write_u64(self.config.max_shard_retries().map_or(u64::MAX, u64::from));
        hasher.write_u32(generation);
        RunId::from_raw(self.source_half() | hasher.finalize_64() & LOWER_HALF)
    }

    /// Whether a run is one of this plan, of whatever generation.
    #[must_use]
    pub fn is_generation(&self, run: RunId) -> bool {
        (0..MAX_GENERATIONS).any(|generation| self.run_id(generation) == run)
    }

    /// The id before the first that a run over this source can have, and whether an id is one.
    pub fn ids_of_source(&self) -> (Option<RunId>, impl Fn(RunId) -> bool + use<>) {
        let half = self.source_half();
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

/// The bits that depend on settings and generation too.
const LOWER_HALF: u64 = u32::MAX as u64;

/// Finds the run of a plan, or makes it from the shards that `cut` gives.
///
/// `pause` waits; it is called only while somebody else is registering the same run.
///
/// # Errors
///
/// [`OpenRunError`]. Nothing half done stays in the way: the next call goes on.
pub fn open_run<B: CoordinationFacade>(
    coordinator: &mut B,
    clock: &dyn Clock,
    pause: &dyn Fn(Duration),
    plan: &RunPlan<'_>,
    cut: &dyn Fn() -> Result<Vec<ShardSpec>, InitialShardsError>,
) -> Result<OpenedRun, OpenRunError> {
    let mut opening = Opening { coordinator, clock, pause, plan, cut };
    for generation in 0..MAX_GENERATIONS {
        if let Some(state) = opening.generation(plan.run_id(generation))? {
            return Ok(OpenedRun { run: plan.run_id(generation), generation, state });
        }
    }
    Err(OpenRunError::TooManyGenerations)
}

struct Opening<'a, B> {
    coordinator: &'a mut B,
    clock: &'a dyn Clock,
    pause: &'a dyn Fn(Duration),
    plan: &'a RunPlan<'a>,
    cut: &'a dyn Fn() -> Result<Vec<ShardSpec>, InitialShardsError>,
}

impl<B: CoordinationFacade> Opening<'_, B> {
    /// Opens the run with this id, unless it is to be passed over.
    fn generation(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        match self.status(run)? {
            None => self.create(run),
            Some(RunStatus::Initializing) => self.register(run, OpenedState::Resumed),
            Some(RunStatus::Active) => Ok(Some(OpenedState::Resumed)),
            Some(RunStatus::Cancelled) => Ok(None),
            Some(RunStatus::Done | RunStatus::Failed) if self.plan.again => Ok(None),
            Some(over @ (RunStatus::Done | RunStatus::Failed)) => Ok(Some(OpenedState::Over(over))),
        }
    }

    fn create(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        let (now, plan) = (self.clock.now(), self.plan);
        match self.coordinator.create_run(now, plan.tenant, run, plan.config) {
            Ok(()) => self.register(run, OpenedState::New),
            // Somebody else was faster, or a deleted run has used the id up.
            Err(CreateRunError::RunAlreadyExists { .. }) => match self.status(run)? {
                Some(_) => self.generation(run),
                None => Ok(None),
            },
            Err(CreateRunError::BackendError(error)) => Err(error.into()),
            Err(other) => Err(unexpected("create_run", &other)),
        }
    }

    /// Registers the first shards, or lets whoever began do so.
    fn register(
        &mut self,
        run: RunId,
        state: OpenedState,
    ) -> Result<Option<OpenedState>, OpenRunError> {
        let shards = (self.cut)()?;
        let inputs: Vec<_> = shards.iter().zip(1..).map(|(spec, id)| input(spec, id)).collect();
        let (now, op_id) = (self.clock.now(), op_ids::of_run(b"register_shards", run));
        match self.coordinator.register_shards(now, self.plan.tenant, run, &inputs, op_id) {
            Ok(_) => Ok(Some(state)),
            // Other cuts: the source has changed since somebody began.
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
                Some(RunStatus::Initializing) => return self.cancel(run),
                None => return Ok(None),
                Some(_) => return self.generation(run),
            }
        }
    }

    /// Nobody goes on with this registration: its cuts are those of a source that has changed.
    fn cancel(&mut self, run: RunId) -> Result<Option<OpenedState>, OpenRunError> {
        let (now, op_id) = (self.clock.now(), op_ids::of_run(b"cancel_run", run));
        match self.coordinator.cancel_run(now, self.plan.tenant, run, op_id) {
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

fn input(spec: &ShardSpec, id: u64) -> InitialShardInput<'_> {
    InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: spec.as_spec_ref(),
        cursor: CursorUpdate::initial(),
    }
}

/// An answer that this operation does not give, unless the coordinator has grown.
fn unexpected(operation: &'static str, error: &dyn std::error::Error) -> OpenRunError {
    let message = error.to_string();
    OpenRunError::Store(InfraError::Corruption { operation, message })
}
