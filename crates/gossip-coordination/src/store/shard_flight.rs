//! An operation on one shard: load, decide, evolve, commit, and the handling of failures.
//!
//! - **Cache**: an operation on a cached shard is decided without a load. A refusal or a replay
//!   decided from the cache is decided again on a fresh load before the caller receives it.
//! - **Conflict**: the operation is decided again, within a budget, on the records that the
//!   conflict returned. If they do not form a whole shard, everything is loaded. The same happens
//!   if the transaction was sent without read-back, as a lease holder's is: otherwise every
//!   checkpoint request would carry the reads to perform after a conflict. Such conflicts are rare:
//!   an administrator's change, or a takeover, after which a load is needed anyway.
//! - **Unknown**: the commit stays unresolved until the next load. It was applied if the record is
//!   the one it wrote, holds its grant, or has its operation in the log. Any other record that
//!   leads to a different decision was itself written by a commit, and since every input of a
//!   decision is compared, that commit excludes ours for ever. If the decision is the same, it is
//!   committed again. In two cases the outcome cannot be determined, and the error says so: the
//!   shard has changed so often that its log may have dropped ours, or a renewal is refused now
//!   although it may have been applied.
//!
//! # Why a decision from the cache is as good as one from a load
//!
//! A decision is a function of the command, its time, and its input values. The commit compares
//! each value at its cached revision, and a key never has the same revision twice: a commit that is
//! applied was decided on the values stored at that instant, however old the cache entry was. After
//! a restore from a backup revisions do repeat. The run's head is therefore compared by value: its
//! fence floor is raised after a restore, so every commit decided before it conflicts (DESIGN Q32).
//! The head is compared even for operations that do not read the run: a run that is being
//! deleted has no head, and from then on its shards are not found and cannot be changed, although
//! their keys may still exist. The cold part is not compared: every change of it rewrites the hot
//! part in the same commit, so the hot revision covers it.
//!
//! A refusal and a replay commit nothing, so no compare would reveal stale inputs. They are
//! returned only if they were decided on a load that began after the operation did. Siblings are
//! read after the shard itself, and one created in between may be the operation's own: a refusal
//! because of it is returned only if a second load of the shard leads to the same decision.
//!
//! A store that returns a lower revision of the shard or of the head than was read before has lost
//! acknowledged writes or answers with stale data ([`RevisionFloor`]). The load is retried as after
//! a lost race; if the store persists, the operation fails with a corruption error. The cache entry
//! is dropped, so the next operation accepts the store as it is.
//!
//! # Invariants
//! - Every revision that a decision read is compared in its commit: the hot part, which covers the
//!   cold one, the run's head, the quota, the absence of new shard ids.
//! - A shard is cached only while its lease is held by the last committer through this handle or
//!   through one that shares its cache.
//! - The claim index entry of a shard is exact: zero while it is free, its deadline while leased.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardId, ShardKey, TenantId};

use super::cache::CachedShard;
use super::capacity::CapacityProbe;
use super::codec::{HotPart, decode_cold, decode_hot, encode_cold, encode_hot, peek_indexed_at};
use super::core::{Core, Full, encoded};
use super::engine::Read;
use super::event_ring::Announcement;
use super::flight::{Answers, Io};
use super::index::{indexed_time, move_claim, move_parked};
use super::key::Key;
use super::loaded::{Loaded, Origin, RevisionFloor};
use super::owner::{OwnerKeyState, OwnershipChange};
use super::quota::Quota;
use super::retry::Tries;
use super::side_records;
use super::txn::{CommitOutcome, Conflict, Txn, Versioned};
use crate::error::InfraError;
use crate::lease::{OP_LOG_CAP, OpLogEntry};
use crate::outcome::IdempotentOutcome;
use crate::protocol::{Decision, OwnerEvidence, ShardChange, ShardInputs, ShardTransition, evolve};
use crate::record::{ShardRecord, ShardView};
use crate::shard_limits::ShardQuota;
use crate::side_records::SideRecord;
use crate::stored_events::{EventWriter, Lifecycle};

/// Runs `operation`, and passes the changed shard to `show`.
pub(super) fn fly<T>(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: &T,
    show: impl FnMut(ShardView<'_>) + Send,
) -> impl Future<Output = ShardReply<T>> + Send
where
    T: ShardTransition + Sync,
    T::Output: Send,
    T::Error: From<InfraError> + Send,
{
    fly_with(core, io, now, operation, show, None)
}

/// As [`fly`], with a capacity probe that shares the load.
pub(super) async fn fly_with<T>(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: &T,
    mut show: impl FnMut(ShardView<'_>) + Send,
    mut capacity_probe: Option<&mut CapacityProbe>,
) -> ShardReply<T>
where
    T: ShardTransition + Sync,
    T::Output: Send,
    T::Error: From<InfraError> + Send,
{
    let failures_admitted = match side_records::has_failures(operation.side_records()) {
        // Boxed, because few operations have any, and every checkpoint pays for the size of this
        // future.
        true => Box::pin(side_records::admit(core, io, operation)).await?,
        false => 0,
    };
    let mut op = ShardOp { failures_admitted, ..ShardOp::new(core, now, operation) };
    loop {
        // Matched as a result: with `?` this future would hold the request twice.
        match op.next(core, io.binding(), &mut show) {
            Err(error) => return Err(op.ended(error).into()),
            Ok(Next::Load(mut reads)) => {
                if let Some(capacity_probe) = &mut capacity_probe {
                    // The hint shares the load's round trip.
                    capacity_probe.ask(core, &mut reads);
                }
                let mut answers = io.read(reads).await.map_err(|error| op.ended(error))?;
                let ticks = op.loaded(core, &mut answers).map_err(|error| op.ended(error))?;
                if let Some(capacity_probe) = &mut capacity_probe {
                    capacity_probe.take(&mut answers, op.indexed_time());
                }
                io.pause(ticks).await;
            }
            Ok(Next::LoadSiblings(keys)) => {
                let values = io.load(keys.clone()).await.map_err(|error| op.ended(error))?;
                op.loaded_siblings(&keys, values).map_err(|error| op.ended(error))?;
            }
            Ok(Next::Commit(txn)) => {
                let outcome = io.commit(txn).await.map_err(|error| op.ended(error))?;
                match op.committed(core, outcome)? {
                    ControlFlow::Break(reply) => return reply,
                    ControlFlow::Continue(ticks) => io.pause(ticks).await,
                }
            }
            Ok(Next::Done(reply)) => return reply,
        }
    }
}

/// The result of an operation.
pub(super) type ShardReply<T> =
    Result<IdempotentOutcome<<T as ShardTransition>::Output>, <T as ShardTransition>::Error>;

/// The next request of an operation.
pub(super) enum Next<T: ShardTransition> {
    /// Answers are passed to [`ShardOp::loaded`].
    Load(Vec<Read>),
    /// Values are passed to [`ShardOp::loaded_siblings`].
    LoadSiblings(Vec<Key>),
    /// The outcome is passed to [`ShardOp::committed`].
    Commit(Txn),
    Done(ShardReply<T>),
}

/// An operation between two requests to the store.
pub(super) struct ShardOp<'o, T: ShardTransition> {
    operation: &'o T,
    now: LogicalTime,
    tries: Tries,
    /// Inputs of the next decision, unless they must be loaded.
    loaded: Option<Loaded>,
    floor: RevisionFloor,
    sibling_hashes: SiblingHashes,
    /// Whether some of `sibling_hashes` were read after `loaded`.
    siblings_are_newer: bool,
    owner_key_state: OwnerKeyState,
    /// How many failures among the side records are stored; the run has no room for more.
    failures_admitted: u8,
    /// The last transaction, until its outcome is known.
    sent: Option<Box<Prepared<T>>>,
    /// A transaction whose reply was lost.
    unresolved: Option<Box<Prepared<T>>>,
}

impl<'o, T: ShardTransition> ShardOp<'o, T> {
    pub(super) fn new(core: &Core, now: LogicalTime, operation: &'o T) -> Self {
        let (tenant, key) = operation.subject();
        core.assert_collector_serves(tenant);
        // Taken out, not copied: an operation that fails must not leave a stale entry behind.
        let (cached, head) = core.cache.take(tenant, key);
        let bound = cached.as_ref().and_then(|shard| shard.bound);
        Self {
            operation,
            now,
            tries: core.tries("shard.commit"),
            floor: RevisionFloor::of(cached.as_ref(), head.as_ref()),
            loaded: cached.and_then(|shard| Loaded::from_cache::<T>(shard, head)),
            sibling_hashes: SiblingHashes::new(),
            siblings_are_newer: false,
            owner_key_state: OwnerKeyState { binding: None, bound },
            failures_admitted: 0,
            sent: None,
            unresolved: None,
        }
    }

    /// Returns the next request, on a store with this binding.
    pub(super) fn next(
        &mut self,
        core: &mut Core,
        binding: Option<u64>,
        show: &mut impl FnMut(ShardView<'_>),
    ) -> Result<Next<T>, InfraError> {
        let (tenant, key) = self.operation.subject();
        // Set before each step: the store may have dropped the bound keys since the last one.
        self.owner_key_state.binding = binding;
        assert!(self.owner_key_state.is_consistent(), "a store binds keys always or never");
        assert!(self.sent.is_none(), "the outcome of a commit precedes the next request");
        let load = || Next::Load(Loaded::reads::<T>(tenant, key, binding.is_some()));
        let Some(loaded) = &self.loaded else { return Ok(load()) };
        // Resolve a lost commit first: deciding again would count its effect as a conflict or
        // replay.
        if let Some(applied) =
            self.unresolved.take_if(|unresolved| unresolved.is_applied(tenant, key, loaded))
        {
            return Ok(Next::Done(self.executed(core, *applied)));
        }
        if self
            .unresolved
            .as_ref()
            .is_some_and(|unresolved| unresolved.may_be_forgotten(tenant, key, loaded))
        {
            return Err(self.tries.ended(forgotten()));
        }
        let inputs = PlanInputs {
            loaded,
            sibling_hashes: &self.sibling_hashes,
            owner_key_state: self.owner_key_state,
            side_records: (self.operation.side_records(), self.failures_admitted),
        };
        let plan = plan_commit(core, self.now, self.operation, inputs, show)?;
        Ok(match plan {
            Plan::NeedsSiblings(ids) => Next::LoadSiblings(cold_keys(tenant, key, &ids)),
            // A stale cache entry may cause either, and no commit would reveal it: load and decide
            // again.
            Plan::Refused(_) | Plan::Replayed(_) if loaded.origin != Origin::Store => {
                self.loaded = None;
                load()
            }
            // The sibling may be this operation's own child, committed between the two loads.
            Plan::Refused(_) if self.siblings_are_newer => {
                self.tries.failed(Some(Key::ShardHot { tenant, shard: key }), true)?;
                self.loaded = None;
                load()
            }
            // The renewal may have been applied before the change that refuses it now.
            Plan::Refused(_)
                if self
                    .unresolved
                    .as_ref()
                    .is_some_and(|it| it.may_be_applied(tenant, key, loaded)) =>
            {
                return Err(self.tries.ended(forgotten()));
            }
            Plan::Refused(error) => {
                assert!(loaded.origin == Origin::Store, "a refusal follows a load");
                Next::Done(Err(error))
            }
            Plan::Replayed(output) => Next::Done(Ok(self.replayed(core, output))),
            Plan::Commits(txn, prepared) => {
                core.check_fits(&txn)?;
                assert!(!txn.writes().is_empty(), "a commit changes the shard");
                self.sent = Some(prepared);
                Next::Commit(txn)
            }
        })
    }

    /// Takes the answers of a load, and returns how many ticks to wait. A load older than an
    /// earlier one is repeated: a server that was suspended may return stale data for a moment.
    pub(super) fn loaded(&mut self, core: &Core, answers: &mut Answers) -> Result<u64, InfraError> {
        let (subject, binds) = (self.operation.subject(), self.owner_key_state.binding.is_some());
        assert!(self.loaded.is_none(), "a load does not replace values");
        assert!(self.sent.is_none(), "nothing is loaded while a commit is open");
        let loaded = Loaded::take::<T>(answers, subject, binds)?;
        assert!(loaded.origin == Origin::Store, "a load reads the store");
        self.siblings_are_newer = false;
        let (tenant, shard) = subject;
        match self.floor.note(&loaded) {
            Ok(()) => {
                self.loaded = Some(loaded);
                Ok(0)
            }
            Err(older) => {
                // Report damage as such: a damaged value says nothing about revisions.
                loaded.check(tenant, shard)?;
                let again = self.tries.failed(Some(Key::ShardHot { tenant, shard }), false);
                again.map_err(|_| {
                    // The operation took the shard out of the cache; only the head is left.
                    core.cache.forget_head(tenant, shard.run());
                    older
                })
            }
        }
    }

    /// Returns the time at which the loaded shard is in the claim index.
    fn indexed_time(&self) -> Option<LogicalTime> {
        let (tenant, key) = self.operation.subject();
        let hot = self.loaded.as_ref()?.hot.as_ref()?;
        peek_indexed_at(tenant, key, &hot.bytes)
    }

    /// Takes the cold parts of siblings.
    fn loaded_siblings(
        &mut self,
        keys: &[Key],
        values: Vec<Option<Versioned>>,
    ) -> Result<(), InfraError> {
        assert!(keys.len() == values.len(), "each sibling was read");
        assert!(self.loaded.is_some(), "siblings are read after their shard");
        assert!(T::MAKES_SHARDS, "only a split reads siblings");
        let known = self.sibling_hashes.len();
        for (key, value) in keys.iter().zip(values) {
            let Key::ShardCold { tenant, shard } = *key else {
                unreachable!("siblings are read by their cold parts")
            };
            assert!(shard.run() == self.operation.subject().1.run(), "siblings share a run");
            let made_by = match value {
                Some(value) => {
                    let cold = decode_cold(tenant, shard, &value.bytes)?;
                    Some(cold.lineage.map_or(0, |lineage| lineage.split_hash))
                }
                None => None,
            };
            // Zero for roots: they exist, but no split created them.
            self.sibling_hashes.insert(shard.shard(), made_by);
        }
        // Otherwise the operation would load the same ones for ever.
        assert!(self.sibling_hashes.len() > known, "each load finds new siblings");
        self.siblings_are_newer = true;
        Ok(())
    }

    /// Takes the outcome of the transaction, and returns the reply or how many ticks to wait before
    /// the next try.
    pub(super) fn committed(
        &mut self,
        core: &mut Core,
        outcome: CommitOutcome,
    ) -> Result<ControlFlow<ShardReply<T>, u64>, InfraError> {
        let mut sent = self.sent.take().expect("an outcome follows a commit");
        let loaded = self.loaded.take().expect("a commit was decided on loaded values");
        let decided_on = loaded.hot.as_ref().map(|hot| hot.revision);
        assert!(sent.base == decided_on, "the outcome belongs to the last decision");
        let ticks = match outcome {
            CommitOutcome::Applied { revision } => {
                assert!(sent.base.is_some_and(|base| base < revision), "revisions increase");
                sent.remember(core, self.operation.subject(), loaded, revision);
                return Ok(ControlFlow::Break(self.executed(core, *sent)));
            }
            CommitOutcome::Conflict(conflict) => self.lost(loaded, conflict)?,
            CommitOutcome::Unknown => {
                // Several replies in a row may be lost, and any of these commits may have been
                // applied: keep the revision that the first was decided on.
                sent.since = self.unresolved.as_ref().map_or(sent.base, |before| before.since);
                assert!(sent.since.is_some(), "an unresolved commit names its first base");
                assert!(self.loaded.is_none(), "a lost commit is resolved on a new load");
                sent.announcement.note_lost_reply();
                self.unresolved = Some(sent);
                self.tries.failed(None, false)?
            }
        };
        Ok(ControlFlow::Continue(ticks))
    }

    /// Handles a conflict, and returns how many ticks to wait before the next try.
    fn lost(&mut self, loaded: Loaded, conflict: Conflict) -> Result<u64, InfraError> {
        let (tenant, key) = self.operation.subject();
        let (lost, origin) = (conflict.key(), loaded.origin);
        assert!(self.loaded.is_none(), "lost values are not decided on again");
        assert!(self.sent.is_none(), "a commit has one outcome");
        // Ids that were free are compared in the commit, and ids that were taken stay taken. So
        // after a race for the quota alone the siblings need no reload.
        let found = conflict.found();
        if found.is_empty() || !found.iter().all(|(found, _)| Quota::has(found)) {
            self.sibling_hashes.clear();
        }
        self.siblings_are_newer = false;
        // The concurrent change may have written the owner key under another process's binding.
        let hot = Key::ShardHot { tenant, shard: key };
        if found.is_empty() || found.iter().any(|(found, _)| *found == hot) {
            self.owner_key_state.bound = None;
        }
        // A conflict does not return the owner key.
        let whole = !reads_owner_key::<T>(self.owner_key_state);
        let merged = whole.then(|| loaded.with_conflict(tenant, key, conflict)).flatten();
        // Load instead of deciding on values older than an earlier read.
        self.loaded = merged.filter(|merged| self.floor.note(merged).is_ok());
        assert!(
            self.loaded.as_ref().is_none_or(|it| it.origin == Origin::Conflict),
            "values of a conflict are marked as such"
        );
        match origin {
            // A stale cache entry is not a lost race, and happens once per operation.
            Origin::Cache => Ok(0),
            Origin::Store | Origin::Conflict => {
                self.tries.failed(Some(lost), !is_of_subject(&lost, key))
            }
        }
    }

    /// Converts `error` of the store, which ends the operation.
    pub(super) fn ended(&self, error: InfraError) -> InfraError {
        self.tries.ended(error)
    }

    fn executed(&self, core: &mut Core, prepared: Prepared<T>) -> ShardReply<T> {
        assert!(self.sent.is_none(), "an operation ends after the outcome of its commit");
        let (tenant, key) = self.operation.subject();
        core.announce(tenant, key.run(), self.now, prepared.announcement);
        prepared.answer.map(IdempotentOutcome::Executed)
    }

    /// Returns the replayed output; as executed if the reply to this operation's own commit was
    /// lost.
    fn replayed(&mut self, core: &mut Core, output: T::Output) -> IdempotentOutcome<T::Output> {
        let origin = self.loaded.as_ref().map(|loaded| loaded.origin);
        assert!(origin == Some(Origin::Store), "a replay follows a load");
        let Some(unresolved) = self.unresolved.take() else {
            return IdempotentOutcome::Replayed(output);
        };
        assert!(unresolved.answer.is_ok(), "a change whose answer is an error has no log entry");
        let (tenant, key) = self.operation.subject();
        core.announce(tenant, key.run(), self.now, unresolved.announcement);
        IdempotentOutcome::Executed(output)
    }
}

/// Returns the fields of which one changes with every operation that clears a request early.
fn fulfilling(part: &HotPart<'_>) -> (FenceEpoch, bool, bool, usize) {
    (part.fence, part.lease.is_some(), part.offer.is_some(), part.spawned_count)
}

fn forgotten() -> InfraError {
    let message = "more has happened to the shard since than it remembers".to_owned();
    InfraError::Transient { operation: "shard.commit", message }
}

/// Returns whether a conflict on `lost` concerns the shard or its run, not the quota or new shards.
fn is_of_subject(lost: &Key, key: ShardKey) -> bool {
    match lost {
        Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. } => *shard == key,
        Key::TenantCounter { .. } | Key::Allotment { .. } => false,
        Key::RunHead { .. }
        | Key::RunRoots { .. }
        | Key::Owner { .. }
        | Key::ClaimIndex { .. }
        | Key::ParkedIndex { .. }
        | Key::Worker { .. }
        | Key::Handoff { .. }
        | Key::Tombstone { .. }
        | Key::HandoffIndex { .. }
        | Key::FenceFloor { .. }
        | Key::Failure { .. }
        | Key::Event { .. }
        | Key::KeyLedger { .. }
        | Key::ResultBlock { .. }
        | Key::Budget { .. }
        | Key::TenantEntry { .. }
        | Key::SchemaVersion => true,
    }
}

/// Returns whether the conflict's values would not be used: a concurrent change of a cached shard
/// is rare, and a conflict does not return the owner key that must be read again.
const fn is_without_read_back<T: ShardTransition>(
    loaded: &Loaded,
    owner_key_state: OwnerKeyState,
) -> bool {
    matches!(loaded.origin, Origin::Cache) || reads_owner_key::<T>(owner_key_state)
}

/// Returns whether the operation reads the owner key and the store has one.
const fn reads_owner_key<T: ShardTransition>(owner_key_state: OwnerKeyState) -> bool {
    T::CONSULTS_OWNER && owner_key_state.binding.is_some()
}

/// Compares of most transactions: the hot part and the run's head.
const COMPARES: usize = 2;

/// Writes of most transactions: the hot part, or also a claim index entry at its old and new time.
const WRITES: usize = 3;

/// The result of a decision.
enum Plan<T: ShardTransition> {
    /// The decision treated siblings that are not loaded yet as absent, so it is void.
    NeedsSiblings(Vec<ShardId>),
    Refused(T::Error),
    Replayed(T::Output),
    Commits(Txn, Box<Prepared<T>>),
}

/// The result to return once a transaction is applied, and the means to recognize that.
struct Prepared<T: ShardTransition> {
    /// Revision of the hot part that the transaction was decided on.
    base: Option<u64>,
    /// The same, of the operation's first transaction whose reply was lost.
    since: Option<u64>,
    parts: Parts,
    ownership_change: OwnershipChange,
    /// The binding of the owner key after the commit, if the caller holds the shard.
    bound: Option<u64>,
    trace: Trace,
    answer: Result<T::Output, T::Error>,
    announcement: Announcement,
}

/// The field of a shard that shows whether a transaction was applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// The log, until it drops the entry.
    Log,
    /// The request, until it is fulfilled.
    Request,
    /// The deadline of the lease. Checked only if the renewal is refused now: otherwise it is
    /// committed again.
    Deadline,
    /// The list of spawned shards or the terminal status, which never change back; or nothing, for
    /// a grant: a lost grant that no longer holds needs no detection.
    Other,
}

impl Trace {
    const fn of<T: ShardTransition>(change: &ShardChange<'_>) -> Self {
        if matches!(change, ShardChange::Request { .. }) {
            Self::Request
        } else if matches!(change, ShardChange::Renew { .. }) {
            Self::Deadline
        } else if change.entry().is_some() && !T::MAKES_SHARDS {
            Self::Log
        } else {
            Self::Other
        }
    }
}

/// The parts of the shard that a transaction writes.
struct Parts {
    hot: Vec<u8>,
    cold: Option<Vec<u8>>,
    /// Whose ring has the event of the change, if it has one.
    event_of: Option<EventWriter>,
}

impl<T: ShardTransition> Prepared<T> {
    /// Returns whether the store shows that the transaction was applied.
    fn is_applied(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        // A transaction may write identical bytes, so equal bytes prove it only at a new revision.
        let moved = |stored: &&Versioned| Some(stored.revision) != self.base;
        let Some(stored) = loaded.hot.as_ref().filter(moved) else { return false };
        if stored.bytes == self.parts.hot {
            return true;
        }
        let part = |bytes| decode_hot(tenant, key, bytes).ok();
        let Some(now) = part(&stored.bytes) else { return false };
        // An earlier try of the same grant has the same token. The fence must be this try's too,
        // because the caller receives this try's lease: after stale reads the two tries can differ.
        let same_fence = || part(&self.parts.hot).is_some_and(|left| left.fence == now.fence);
        now.lease.is_some_and(|holder| {
            self.ownership_change == OwnershipChange::Granted(holder.token()) && same_fence()
        })
    }

    /// Returns whether the transaction may have been applied and its trace dropped.
    fn may_be_forgotten(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        let part = |bytes| decode_hot(tenant, key, bytes).ok();
        let stored = loaded.hot.as_ref().and_then(|hot| part(&hot.bytes));
        let (Some(left), Some(stored)) = (part(&self.parts.hot), stored) else { return false };
        match self.trace {
            // The log is full, and every entry that the transaction left there has been dropped.
            Trace::Log => {
                let forgot = |entry: OpLogEntry| stored.op_log.find(entry.op_id()).is_none();
                stored.op_log.len() >= OP_LOG_CAP && left.op_log.iter().all(forgot)
            }
            // The request is not there, and an operation that could clear it has been applied.
            Trace::Request => {
                let asked = |part: &HotPart<'_>| part.request.as_ref().map(|asked| asked.op_id);
                asked(&stored) != asked(&left) && fulfilling(&stored) != fulfilling(&left)
            }
            Trace::Deadline | Trace::Other => false,
        }
    }

    /// Returns whether the transaction was a renewal that may have been applied: the lease has its
    /// deadline or a later one, although the shard was changed since.
    fn may_be_applied(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        let lease = |bytes| decode_hot(tenant, key, bytes).ok().and_then(|hot| hot.lease);
        // Compared with the first unresolved try, because any of them may have been applied.
        let stored = loaded.hot.as_ref().filter(|stored| Some(stored.revision) != self.since);
        let stored = stored.and_then(|stored| lease(&stored.bytes));
        let (Some(left), Some(stored)) = (lease(&self.parts.hot), stored) else { return false };
        let outlasts = stored.token() == left.token() && stored.deadline() >= left.deadline();
        self.trace == Trace::Deadline && outlasts
    }

    /// Caches the parts that the transaction wrote at `revision`, if the caller holds the shard.
    fn remember(
        &mut self,
        core: &mut Core,
        (tenant, key): (TenantId, ShardKey),
        loaded: Loaded,
        revision: u64,
    ) {
        assert!(self.parts.cold.is_some() == T::MAKES_SHARDS, "only a split writes the cold part");
        assert!(!self.parts.hot.is_empty(), "every commit writes the hot part");
        let written = |bytes: Vec<u8>| Versioned { revision, bytes };
        // An operation that is no split did not write the cold part: the loaded one is current.
        let cold = self.parts.cold.take().map(written).or(loaded.cold);
        if let (true, Some(cold), Some(head)) = (self.ownership_change.is_held(), cold, loaded.head)
        {
            let (hot, bound) = (written(std::mem::take(&mut self.parts.hot)), self.bound);
            let cached = CachedShard { hot, cold, bound };
            core.cache.put(tenant, key, cached, head);
        }
    }
}

/// Payload hashes of the splits that created shards of the same run; zero for roots, `None` for
/// shards that do not exist.
type SiblingHashes = BTreeMap<ShardId, Option<u64>>;

fn cold_keys(tenant: TenantId, key: ShardKey, ids: &[ShardId]) -> Vec<Key> {
    assert!(!ids.is_empty(), "a plan names the siblings it lacks");
    let shards = ids.iter().map(|id| ShardKey::new(key.run(), *id));
    shards.map(|shard| Key::ShardCold { tenant, shard }).collect()
}

/// The inputs of a decision and its transaction.
#[derive(Clone, Copy)]
struct PlanInputs<'l> {
    loaded: &'l Loaded,
    sibling_hashes: &'l SiblingHashes,
    owner_key_state: OwnerKeyState,
    /// The records to store, and how many failures among them.
    side_records: (&'l [SideRecord], u8),
}

/// Decides the operation on the loaded inputs and builds its transaction.
fn plan_commit<T: ShardTransition>(
    core: &mut Core,
    now: LogicalTime,
    operation: &T,
    inputs: PlanInputs<'_>,
    show: &mut impl FnMut(ShardView<'_>),
) -> Result<Plan<T>, InfraError> {
    let (tenant, key) = operation.subject();
    let PlanInputs { loaded, sibling_hashes, owner_key_state, .. } = inputs;
    let owner = core.shared(tenant);
    let quota = match T::MAKES_SHARDS {
        true => loaded.quota.quota(tenant, 0)?,
        false => ShardQuota::UNLIMITED,
    };
    let owner_key = loaded.owner(tenant, key);
    let subject = loaded.record(&owner, key, core)?;
    // The pool must be empty between decisions: no `?` from here until `pool.end`.
    let unknown = RefCell::new(Vec::new());
    let split_hash_of = |shard| {
        sibling_hashes.get(&shard).copied().unwrap_or_else(|| {
            unknown.borrow_mut().push(shard);
            None
        })
    };
    let (found, skew) = (subject.as_ref().map(|(record, _)| record), core.config.max_clock_skew);
    let seen = ShardInputs {
        shard: found.map(|record| ShardView::new(record, &core.pool)),
        run: loaded.head.as_ref().map(|head| head.run),
        quota,
        owner: found.map_or(OwnerEvidence::Gone, |record| owner_key.evidence(record, skew)),
        watch: core.watch(now, found.filter(|_| T::CONSULTS_OWNER), loaded),
        split_hash_of: &split_hash_of,
    };
    let decision = operation.decide(now, &seen);
    let unknown = unknown.into_inner();
    let Some((mut record, indexed_at)) = subject else {
        let refusal = decision.err().expect("an operation on a missing shard is refused");
        return Ok(Plan::Refused(refusal));
    };
    let plan = match decision {
        _ if !unknown.is_empty() => Ok(Plan::NeedsSiblings(unknown)),
        Err(error) => Ok(Plan::Refused(error)),
        Ok(Decision::Replay(output)) => Ok(Plan::Replayed(output)),
        Ok(Decision::Commit { change, answer }) => {
            match prepare::<T>(core, (now, &owner), inputs, &mut record, indexed_at, &change) {
                Err(Full::Pool(full)) => Ok(Plan::Refused(T::exhausted(full))),
                Err(Full::Stored(error)) => Err(error),
                Ok((txn, parts)) => {
                    show(ShardView::new(&record, &core.pool));
                    let event = core.events.as_ref().and_then(|_| change.event(key.shard()));
                    let (bound, trace) = (owner_key_state.binding, Trace::of::<T>(&change));
                    let base = loaded.hot.as_ref().map(|hot| hot.revision);
                    let prepared = Prepared {
                        base,
                        since: base,
                        announcement: Announcement::new(event, parts.event_of),
                        parts,
                        ownership_change: OwnershipChange::after(&change),
                        bound,
                        trace,
                        answer,
                    };
                    Ok(Plan::Commits(txn, Box::new(prepared)))
                }
            }
        }
    };
    core.pool.end(record);
    plan
}

/// Applies `change` to `record`, and returns the transaction that stores the result with the parts
/// of the shard in it.
fn prepare<T: ShardTransition>(
    core: &mut Core,
    (now, owner): (LogicalTime, &Arc<TenantId>),
    PlanInputs { loaded, owner_key_state, side_records: (records, failures), .. }: PlanInputs<'_>,
    record: &mut ShardRecord,
    indexed_at: Option<LogicalTime>,
    change: &ShardChange<'_>,
) -> Result<(Txn, Parts), Full> {
    let (tenant, shard) = (**owner, record.key());
    assert!(loaded.hot.is_some() && loaded.cold.is_some(), "a change needs a whole shard");
    assert!(loaded.head.is_some(), "a shard of a run without a head is not found");
    assert!(record.tenant() == tenant, "a shard is written under its own tenant");
    let (before, holder) = (record.status(), record.lease_owner());
    let fence = record.fence_epoch();
    evolve(record, &mut core.pool, change)?;
    assert!(record.fence_epoch() >= fence, "a fence never falls");
    assert!(record.key() == shard, "a change does not move a shard");

    let mut txn = Txn::with_room(COMPARES, WRITES);
    if is_without_read_back::<T>(loaded, owner_key_state) {
        txn.skip_read_back();
    }
    // The head is compared even if the rules do not read the run: it fences out a deletion.
    txn.expect(Key::ShardHot { tenant, shard }, loaded.hot.as_ref());
    let head = Key::RunHead { tenant, run: shard.run() };
    match &loaded.head {
        Some(stored) => txn.expect_value(head, Arc::clone(&stored.value)),
        None => txn.expect_revision(head, None),
    }
    let at = indexed_time(record);
    let view = ShardView::new(record, &core.pool);
    // One allocation: usually the value is as long as before plus one log entry.
    let mut hot = Vec::with_capacity(loaded.hot.as_ref().map_or(0, |hot| hot.bytes.len() + 64));
    encode_hot(view, at, &mut hot);
    txn.put(Key::ShardHot { tenant, shard }, hot.clone());
    move_claim(&mut txn, tenant, shard, indexed_at, at);
    move_parked(&mut txn, tenant, before, record);
    owner_key_state.write(&mut txn, record, OwnershipChange::after(change));
    let mut cold = None;
    if T::MAKES_SHARDS {
        let bytes = cold.insert(encoded(|out| encode_cold(view, out)));
        txn.put(Key::ShardCold { tenant, shard }, bytes.clone());
        let mut added = 0;
        for new in change.new_shards() {
            assert!(new.shard != shard.shard(), "a split does not overwrite its parent");
            core.add_shard(&mut txn, owner, shard.run(), &new)?;
            added += 1;
        }
        assert!(added > 0, "a split creates shards");
        loaded.quota.change(&mut txn, tenant, added, 0)?;
    }
    side_records::put(&mut txn, tenant, shard, records, failures);
    let event = Lifecycle::of_shard(change, shard.shard(), holder);
    let event_of = event.map(|it| core.put_event(&mut txn, (tenant, shard.run()), now, it));
    assert!(txn.compares().len() >= COMPARES, "a commit compares the shard and its run");
    Ok((txn, Parts { hot, cold, event_of }))
}
