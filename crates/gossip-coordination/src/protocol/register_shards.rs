//! `register_shards`: adds the root shards of a new run and activates it.
//!
//! The registration is a field of the run and is never dropped, so it can be replayed at any time:
//! by the same operation, or by another operation with the same shards.

use gossip_contracts::coordination::{
    CursorSemantics, InitialShardInput, MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE,
    MAX_TOKEN_SIZE, ManifestValidationError, ShardSpecInputError, validate_manifest,
};
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, RunId, ShardId, TenantId};
use gossip_stdx::SlabFull;

use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::record::NewShard;
use crate::refusal::OpIdReused;
use crate::run::{Registration, RunOpResult, RunRecord, RunStatus};
use crate::run_errors::{RegisterShardsError, RunOpIdConflict};
use crate::split_execution::hash_register_shards;

/// Registers the root shards of a run.
#[derive(Clone, Copy, Debug)]
pub struct RegisterShards<'a> {
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// The root shards.
    pub shards: &'a [InitialShardInput<'a>],
    /// The idempotency key.
    pub op_id: OpId,
}

impl RunTransitionRules for RegisterShards<'_> {
    type Output = RunOpResult;
    type Error = RegisterShardsError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, RunOpResult, RegisterShardsError>, RegisterShardsError>
    {
        assert_clock(now);
        // Before hashing: the size check bounds the work that an invalid request can cause.
        check_sizes(self.shards).map_err(RegisterShardsError::ManifestInvalid)?;
        let run = seen.run.ok_or(RegisterShardsError::RunNotFound)?;
        if run.tenant() != self.tenant {
            return Err(RegisterShardsError::TenantMismatch { expected: self.tenant });
        }
        let registration =
            Registration { op_id: self.op_id, payload_hash: hash_register_shards(self.shards) };
        if is_replay(run, registration)? {
            return Ok(Decision::Replay(registered(run.root_shards().iter().copied())));
        }
        // After the replay check: a retry arrives when the run is already active.
        if run.status() != RunStatus::Initializing {
            return Err(RegisterShardsError::WrongStatus { status: run.status() });
        }
        validate_manifest(self.shards).map_err(RegisterShardsError::ManifestInvalid)?;
        // The first chunk reserved the quota and fixed the operation id of the registration.
        let registration = match run.registration() {
            Some(begun) => begun,
            None => {
                seen.quota.check(self.shards.len())?;
                registration
            }
        };

        assert!(run.root_shards().is_empty(), "a run's root shards are registered once");
        assert!(!self.shards.is_empty(), "a valid manifest is not empty");
        assert!(registration.payload_hash != 0, "a payload hash is never zero");
        let cursor_semantics = run.config().cursor_semantics();
        let roots = Roots { shards: self.shards, cursor_semantics };
        let answer = registered(self.shards.iter().map(|shard| shard.shard_id));
        Ok(Decision::commit(RunChange::Activate { registration, roots }, answer))
    }

    fn exhausted(_full: SlabFull) -> RegisterShardsError {
        RegisterShardsError::ResourceExhausted { resource: "byte slab" }
    }
}

/// The root shards to create.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'c> {
    shards: &'c [InitialShardInput<'c>],
    cursor_semantics: CursorSemantics,
}

impl<'c> Roots<'c> {
    /// Returns the number of root shards.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.shards.len()
    }

    /// Returns the root shards in the caller's order.
    pub fn new_shards(&self) -> impl Iterator<Item = NewShard<'c>> + use<'c> {
        let cursor_semantics = self.cursor_semantics;
        self.shards.iter().map(move |shard| NewShard {
            shard: shard.shard_id,
            spec: shard.spec,
            cursor: shard.cursor,
            fence: FenceEpoch::INITIAL,
            attempts: 0,
            cursor_semantics,
            lineage: None,
        })
    }
}

fn registered(ids: impl Iterator<Item = ShardId>) -> RunOpResult {
    RunOpResult::RegisteredShards { ids: ids.collect() }
}

/// Returns whether the registration was applied.
///
/// The same operation is replayed for ever; the same shards under another operation while the run
/// is active. The same operation with other shards is a caller's error. A partly stored, chunked
/// registration continues only with the same shards (DESIGN Q16).
fn is_replay(run: &RunRecord, requested: Registration) -> Result<bool, RegisterShardsError> {
    let conflict = |expected_hash| {
        let (op_id, actual_hash) = (requested.op_id, requested.payload_hash);
        let reused = OpIdReused { op_id, expected_hash, actual_hash };
        RegisterShardsError::OpIdConflict(RunOpIdConflict::new(reused))
    };
    // The id belongs to another operation of the run, whatever its parameters.
    if let Some(other) = run.op_log().find(|entry| entry.op_id() == requested.op_id) {
        return Err(conflict(other.payload_hash()));
    }
    let Some(known) = run.registration() else {
        return Ok(false);
    };
    if known.op_id == requested.op_id && known.payload_hash != requested.payload_hash {
        return Err(conflict(known.payload_hash));
    }
    // The record names its roots only after the last chunk.
    let begun_only = run.root_shards().is_empty();
    if begun_only && known.payload_hash != requested.payload_hash {
        return Err(RegisterShardsError::WrongStatus { status: run.status() });
    }
    let known_by_shards =
        known.payload_hash == requested.payload_hash && run.status() == RunStatus::Active;
    Ok(!begun_only && (known == requested || known_by_shards))
}

/// Bounds the input before it is hashed. The manifest's own checks come later.
fn check_sizes(shards: &[InitialShardInput<'_>]) -> Result<(), ManifestValidationError> {
    if shards.len() > MAX_INITIAL_SHARDS {
        let count = shards.len();
        return Err(ManifestValidationError::TooManyShards { count, max: MAX_INITIAL_SHARDS });
    }
    shards.iter().try_for_each(check_shard_size)
}

fn check_shard_size(shard: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    let shard_id = shard.shard_id;
    let (spec, cursor) = (shard.spec, shard.cursor);
    // Sizes only: the manifest's rules compare shards with each other and need bounded input.
    let longest_bound = spec.start.len().max(spec.end.len());
    if longest_bound > MAX_KEY_SIZE {
        let reason = ShardSpecInputError::KeyTooLarge { size: longest_bound, max: MAX_KEY_SIZE };
        return Err(ManifestValidationError::InvalidSpec { shard_id, reason });
    }
    if spec.metadata.len() > MAX_METADATA_SIZE {
        let (size, max) = (spec.metadata.len(), MAX_METADATA_SIZE);
        let reason = ShardSpecInputError::MetadataTooLarge { size, max };
        return Err(ManifestValidationError::InvalidSpec { shard_id, reason });
    }
    if let Some(size) = cursor.last_key().map(<[u8]>::len).filter(|len| *len > MAX_KEY_SIZE) {
        let max = MAX_KEY_SIZE;
        return Err(ManifestValidationError::CursorKeyTooLarge { shard_id, size, max });
    }
    if let Some(size) = cursor.token().map(<[u8]>::len).filter(|len| *len > MAX_TOKEN_SIZE) {
        let max = MAX_TOKEN_SIZE;
        return Err(ManifestValidationError::CursorTokenTooLarge { shard_id, size, max });
    }
    Ok(())
}
