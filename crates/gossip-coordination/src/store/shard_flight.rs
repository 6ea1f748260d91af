//! An operation on one shard: load, decide, evolve, commit, and what to do when that goes wrong.
//!
//! - **Cache**: what the handle last wrote is decided about without a load. A refusal or a replay
//!   that comes of it is decided again on a fresh load before anybody hears of it.
//! - **Conflict**: it is decided again, within a budget, on the records that the conflict returned.
//!   If they are not a whole shard, everything is loaded. So it is if the transaction was sent
//!   without read-back, as a lease holder's is: a server would otherwise receive with every
//!   checkpoint what to read after a conflict. Conflicts are rare: an administrator, or a takeover,
//!   after which a load is needed anyway. Handles in a process share one record cache.
//! - **Unknown**: the commit stays unresolved until the next load. The record is the one we
//!   wrote, or holds our grant: it happened. The operation is in the log: it happened. Anything
//!   else that decides differently than before was itself a commit, and since everything that a
//!   decision looks at is compared, that commit shuts ours out for ever. What decides the same is
//!   committed again. Only if so much has happened since that the shard may have forgotten ours, or
//!   if a renewal is refused now and may stand, nobody can tell, and that is what the caller is
//!   told.
//!
//! # Why a decision from memory is as good as one from a load
//!
//! A decision is a function of the command, its time, and the values it looks at. Each of those is
//! compared in the commit at the revision it was remembered with, and a revision never comes back:
//! a commit that is applied was decided about what was stored at that very instant, however old the
//! memory was, and takes effect then. That goes for the run's head too, also where no rule asks for
//! the run: a run that is being deleted has no head, and from that instant its shards are not found
//! and cannot be changed, although they may still be there. The cold part is not compared: every
//! change of it rewrites the hot part in the same commit, so the hot revision stands for it.
//!
//! A refusal and a replay commit nothing, so nothing would show that they are out of date. They are
//! reported only if they come of a load that began after the operation did. What is there of other
//! shards is read after the shard itself, and what was made in between may be the operation's own:
//! a refusal because of it is reported only if the shard, loaded once more, says the same.
//!
//! A store that shows a lower revision of the shard, or of the head, than was known before has lost
//! what it acknowledged or answers from the past ([`Seen`]). It is asked again, as after a lost
//! race, and if it keeps to that it is told as corruption. What was remembered is forgotten by it,
//! so the next operation takes the store as it is.
//!
//! # Invariants
//! - Every revision that a decision looked at is compared in its commit: the hot part, which stands
//!   for the cold one too, the run's head, the quota, the absence of newborn ids.
//! - A shard is remembered only while its lease is held by whoever committed last by this handle,
//!   or by one that shares its memory.
//! - The claim index entry of a shard is exact: zero while it is free, its deadline while leased.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardId, ShardKey, TenantId};

use super::cache::CachedShard;
use super::capacity::CapacityProbe;
use super::codec::{HotPart, decode_cold, decode_hot, encode_cold, encode_hot, peek_indexed_at};
use super::core::{Core, Full, encoded};
use super::engine::Read;
use super::flight::{Answers, Io};
use super::index::{move_claim, move_parked, standing};
use super::key::Key;
use super::loaded::{Loaded, Origin, Seen};
use super::owner::{OwnerKeyState, OwnershipChange};
use super::quota::Quota;
use super::retry::Tries;
use super::txn::{CommitOutcome, Conflict, Txn, Versioned};
use crate::error::InfraError;
use crate::events::EventKind;
use crate::lease::{OP_LOG_CAP, OpLogEntry};
use crate::outcome::IdempotentOutcome;
use crate::protocol::{Decision, OwnerEvidence, ShardChange, ShardInputs, ShardTransition, evolve};
use crate::record::{ShardRecord, ShardView};
use crate::shard_limits::ShardQuota;

/// Runs `operation`, and shows the shard as it is from then on to `show`.
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

/// As [`fly`], with a hint that rides along.
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
    let mut trip = ShardOp::new(core, now, operation);
    loop {
        let next = trip.next(core, io.binding(), &mut show);
        match next.map_err(|error| trip.ended(error))? {
            Next::Load(mut reads) => {
                if let Some(capacity_probe) = &mut capacity_probe {
                    capacity_probe.ask(core, &mut reads);
                }
                let mut answers = io.read(reads).await.map_err(|error| trip.ended(error))?;
                let ticks = trip.loaded(core, &mut answers).map_err(|error| trip.ended(error))?;
                if let Some(capacity_probe) = &mut capacity_probe {
                    capacity_probe.take(&mut answers, trip.standing());
                }
                io.pause(ticks).await;
            }
            Next::LoadKin(keys) => {
                let values = io.load(keys.clone()).await.map_err(|error| trip.ended(error))?;
                trip.loaded_kin(&keys, values).map_err(|error| trip.ended(error))?;
            }
            Next::Commit(txn) => {
                let outcome = io.commit(txn).await.map_err(|error| trip.ended(error))?;
                match trip.committed(core, outcome)? {
                    CommitStep::Done(told) => return told,
                    CommitStep::Again { ticks } => io.pause(ticks).await,
                }
            }
            Next::Done(told) => return told,
        }
    }
}

/// What the caller of an operation is told.
pub(super) type ShardReply<T> =
    Result<IdempotentOutcome<<T as ShardTransition>::Output>, <T as ShardTransition>::Error>;

/// What an operation needs next.
pub(super) enum Next<T: ShardTransition> {
    /// Answers for [`ShardOp::loaded`].
    Load(Vec<Read>),
    /// Values for [`ShardOp::loaded_kin`].
    LoadKin(Vec<Key>),
    /// An outcome for [`ShardOp::committed`].
    Commit(Txn),
    Done(ShardReply<T>),
}

/// What became of an operation by a commit.
pub(super) enum CommitStep<T: ShardTransition> {
    Done(ShardReply<T>),
    /// It goes on after a while.
    Again {
        ticks: u64,
    },
}

/// An operation between two questions to the store.
pub(super) struct ShardOp<'o, T: ShardTransition> {
    operation: &'o T,
    now: LogicalTime,
    tries: Tries,
    /// What the next decision looks at, unless it must be loaded.
    loaded: Option<Loaded>,
    seen: Seen,
    sibling_hashes: SiblingHashes,
    /// Whether some of `sibling_hashes` was read after `loaded`.
    kin_is_newer: bool,
    owner_key_state: OwnerKeyState,
    /// What the last transaction does. Present until its outcome is told.
    sent: Option<Box<Prepared<T>>>,
    /// A transaction whose reply was lost.
    unresolved: Option<Box<Prepared<T>>>,
}

impl<'o, T: ShardTransition> ShardOp<'o, T> {
    pub(super) fn new(core: &Core, now: LogicalTime, operation: &'o T) -> Self {
        let (tenant, key) = operation.subject();
        let (remembered, head) = core.cache.take(tenant, key);
        let bound = remembered.as_ref().and_then(|shard| shard.bound);
        Self {
            operation,
            now,
            tries: core.tries("shard.commit"),
            seen: Seen::of(remembered.as_ref(), head.as_ref()),
            loaded: remembered.and_then(|shard| Loaded::recall::<T>(shard, head)),
            sibling_hashes: SiblingHashes::new(),
            kin_is_newer: false,
            owner_key_state: OwnerKeyState { binding: None, bound },
            sent: None,
            unresolved: None,
        }
    }

    /// What the operation needs next, on a store of this binding.
    pub(super) fn next(
        &mut self,
        core: &mut Core,
        binding: Option<u64>,
        show: &mut impl FnMut(ShardView<'_>),
    ) -> Result<Next<T>, InfraError> {
        let (tenant, key) = self.operation.subject();
        self.owner_key_state.binding = binding;
        let load = || Next::Load(Loaded::reads::<T>(tenant, key, binding.is_some()));
        let Some(loaded) = &self.loaded else { return Ok(load()) };
        if let Some(sure) =
            self.unresolved.take_if(|unresolved| unresolved.landed(tenant, key, loaded))
        {
            return Ok(Next::Done(self.executed(core, *sure)));
        }
        if self
            .unresolved
            .as_ref()
            .is_some_and(|unresolved| unresolved.may_be_forgotten(tenant, key, loaded))
        {
            return Err(self.tries.ended(forgotten()));
        }
        let looked_at = LookedAt {
            loaded,
            sibling_hashes: &self.sibling_hashes,
            owner_key_state: self.owner_key_state,
        };
        let verdict = plan_commit(core, self.now, self.operation, looked_at, show)?;
        Ok(match verdict {
            Verdict::Asks(ids) => Next::LoadKin(cold_keys(tenant, key, &ids)),
            Verdict::Refused(_) | Verdict::Replayed(_) if loaded.origin != Origin::Store => {
                self.loaded = None;
                load()
            }
            Verdict::Refused(_) if self.kin_is_newer => {
                self.tries.failed(Some(Key::ShardHot { tenant, shard: key }), true)?;
                self.loaded = None;
                load()
            }
            Verdict::Refused(_)
                if self.unresolved.as_ref().is_some_and(|it| it.may_stand(tenant, key, loaded)) =>
            {
                return Err(self.tries.ended(forgotten()));
            }
            Verdict::Refused(error) => Next::Done(Err(error)),
            Verdict::Replayed(output) => Next::Done(Ok(self.replayed(core, output))),
            Verdict::Commits(txn, prepared) => {
                core.check_fits(&txn)?;
                self.sent = Some(prepared);
                Next::Commit(txn)
            }
        })
    }

    /// Takes what was read, and answers how long to wait before anything else. What is older than
    /// was known is asked for again: a server that slept may answer from the past for a moment.
    pub(super) fn loaded(&mut self, core: &Core, answers: &mut Answers) -> Result<u64, InfraError> {
        let (subject, binds) = (self.operation.subject(), self.owner_key_state.binding.is_some());
        let loaded = Loaded::take::<T>(answers, subject, binds)?;
        self.kin_is_newer = false;
        let (tenant, shard) = subject;
        match self.seen.note(&loaded) {
            Ok(()) => {
                self.loaded = Some(loaded);
                Ok(0)
            }
            Err(older) => {
                // Damage is told as that, however old it is.
                loaded.check(tenant, shard)?;
                let again = self.tries.failed(Some(Key::ShardHot { tenant, shard }), false);
                again.map_err(|_| {
                    // The shard was taken out of the memory when the trip began.
                    core.cache.forget_head(tenant, shard.run());
                    older
                })
            }
        }
    }

    /// Where the shard that was loaded stands in the claim index.
    fn standing(&self) -> Option<LogicalTime> {
        let (tenant, key) = self.operation.subject();
        let hot = self.loaded.as_ref()?.hot.as_ref()?;
        peek_indexed_at(tenant, key, &hot.bytes)
    }

    /// Takes the cold parts of shards of the same run.
    fn loaded_kin(
        &mut self,
        keys: &[Key],
        values: Vec<Option<Versioned>>,
    ) -> Result<(), InfraError> {
        for (key, value) in keys.iter().zip(values) {
            let Key::ShardCold { tenant, shard } = *key else { continue };
            let made_by = match value {
                Some(value) => {
                    let cold = decode_cold(tenant, shard, &value.bytes)?;
                    Some(cold.lineage.map_or(0, |lineage| lineage.split_hash))
                }
                None => None,
            };
            self.sibling_hashes.insert(shard.shard(), made_by);
        }
        self.kin_is_newer = true;
        Ok(())
    }

    /// Takes what became of the transaction.
    pub(super) fn committed(
        &mut self,
        core: &mut Core,
        outcome: CommitOutcome,
    ) -> Result<CommitStep<T>, InfraError> {
        let mut sent = self.sent.take().expect("an outcome is told of what was sent");
        let loaded = self.loaded.take().expect("what was sent was decided about what was loaded");
        let ticks = match outcome {
            CommitOutcome::Applied { revision } => {
                sent.remember(core, self.operation.subject(), loaded, revision);
                return Ok(CommitStep::Done(self.executed(core, *sent)));
            }
            CommitOutcome::Conflict(conflict) => self.lost(loaded, conflict)?,
            CommitOutcome::Unknown => {
                sent.since = self.unresolved.as_ref().map_or(sent.base, |before| before.since);
                self.unresolved = Some(sent);
                self.tries.failed(None, false)?
            }
        };
        Ok(CommitStep::Again { ticks })
    }

    /// Looks at what is there now, and answers how long to wait before.
    fn lost(&mut self, loaded: Loaded, conflict: Conflict) -> Result<u64, InfraError> {
        let (tenant, key) = self.operation.subject();
        let (lost, origin) = (conflict.key(), loaded.origin);
        // Ids that were free are compared in the commit, and those that were taken stay so: whoever
        // only lost a race for the quota need not look for them again.
        let found = conflict.found();
        if found.is_empty() || !found.iter().all(|(found, _)| Quota::has(found)) {
            self.sibling_hashes.clear();
        }
        self.kin_is_newer = false;
        // Whoever changed the shard may have written its owner key, and tied it to itself.
        let hot = Key::ShardHot { tenant, shard: key };
        if found.is_empty() || found.iter().any(|(found, _)| *found == hot) {
            self.owner_key_state.bound = None;
        }
        // A conflict tells nothing of the owner key.
        let whole = !looks_at_owner::<T>(self.owner_key_state);
        let healed = whole.then(|| loaded.heal(tenant, key, conflict)).flatten();
        // What is older than was known is loaded instead.
        self.loaded = healed.filter(|healed| self.seen.note(healed).is_ok());
        match origin {
            // Cache that is out of date is no race, and an operation begins with it once.
            Origin::Cache => Ok(0),
            Origin::Store | Origin::Conflict => {
                self.tries.failed(Some(lost), !is_of_subject(&lost, key))
            }
        }
    }

    /// What to tell if `error` of the store ends the operation.
    pub(super) fn ended(&self, error: InfraError) -> InfraError {
        self.tries.ended(error)
    }

    fn executed(&self, core: &mut Core, prepared: Prepared<T>) -> ShardReply<T> {
        let (tenant, key) = self.operation.subject();
        core.emit(tenant, key.run(), self.now, prepared.event);
        prepared.answer.map(IdempotentOutcome::Executed)
    }

    /// A replay is our own doing if the reply to our own commit was lost.
    fn replayed(&mut self, core: &mut Core, output: T::Output) -> IdempotentOutcome<T::Output> {
        let Some(unresolved) = self.unresolved.take() else {
            return IdempotentOutcome::Replayed(output);
        };
        let (tenant, key) = self.operation.subject();
        core.emit(tenant, key.run(), self.now, unresolved.event);
        IdempotentOutcome::Executed(output)
    }
}

/// What changes with every operation that fulfils a request, or drops one before its time.
fn fulfilling(part: &HotPart<'_>) -> (FenceEpoch, bool, bool, usize) {
    (part.fence, part.lease.is_some(), part.offer.is_some(), part.spawned_count)
}

fn forgotten() -> InfraError {
    let message = "more has happened to the shard since than it remembers".to_owned();
    InfraError::Transient { operation: "shard.commit", message }
}

/// Whether a conflict on `lost` is about the shard or its run, not about the quota or newborns.
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

/// Whether a conflict would not be healed by what it tells: nobody is expected to change a shard
/// that its holder remembers, and a conflict tells nothing of an owner key that must be looked at.
const fn is_without_read_back<T: ShardTransition>(
    loaded: &Loaded,
    owner_key_state: OwnerKeyState,
) -> bool {
    matches!(loaded.origin, Origin::Cache) || looks_at_owner::<T>(owner_key_state)
}

/// Whether the operation looks at the owner key, and there is one.
const fn looks_at_owner<T: ShardTransition>(owner_key_state: OwnerKeyState) -> bool {
    T::CONSULTS_OWNER && owner_key_state.binding.is_some()
}

/// What nearly every transaction compares: the hot part and the run's head.
const COMPARES: usize = 2;

/// What most write: the hot part, or with it an entry of the claim index at two times.
const WRITES: usize = 3;

/// What a decision came to.
enum Verdict<T: ShardTransition> {
    /// It asked for shards of the same run that were not loaded yet.
    Asks(Vec<ShardId>),
    Refused(T::Error),
    Replayed(T::Output),
    Commits(Txn, Box<Prepared<T>>),
}

/// What to say once a transaction is stored, and how to see that it is.
struct Prepared<T: ShardTransition> {
    /// Revision of the hot part that it was decided about.
    base: Option<u64>,
    /// The same of the first transaction of the operation whose reply was lost.
    since: Option<u64>,
    parts: Parts,
    ownership_change: OwnershipChange,
    /// The binding of the owner key from then on, if the caller holds the shard.
    bound: Option<u64>,
    trace: Trace,
    answer: Result<T::Output, T::Error>,
    event: Option<EventKind>,
}

/// What of a shard remembers a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// The log, until it has turned over.
    Log,
    /// The request, until it is fulfilled.
    Request,
    /// The deadline of the lease, for as long as it lasts. Whether a renewal happened is asked only
    /// if it is refused now: otherwise it is made again.
    Deadline,
    /// The list of spawned shards, the end of the shard, or nothing, where nothing is needed: a
    /// grant that is gone is gone.
    Else,
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
            Self::Else
        }
    }
}

/// The parts of the shard that a transaction writes.
struct Parts {
    hot: Vec<u8>,
    cold: Option<Vec<u8>>,
}

impl<T: ShardTransition> Prepared<T> {
    /// Whether the store shows that the transaction was applied.
    fn landed(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        // Some write what was there before: the same bytes are a sign of them only if newer.
        let moved = |stored: &&Versioned| Some(stored.revision) != self.base;
        let Some(stored) = loaded.hot.as_ref().filter(moved) else { return false };
        if stored.bytes == self.parts.hot {
            return true;
        }
        let part = |bytes| decode_hot(tenant, key, bytes).ok();
        let Some(now) = part(&stored.bytes) else { return false };
        // An earlier try of the same grant has its token too. What the caller is told is of this
        // one, so the fence must be: a store that has shown an old version made it another.
        let same_fence = || part(&self.parts.hot).is_some_and(|left| left.fence == now.fence);
        now.lease.is_some_and(|holder| {
            self.ownership_change == OwnershipChange::Granted(holder.token()) && same_fence()
        })
    }

    /// Whether the transaction may have been applied and forgotten.
    fn may_be_forgotten(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        let part = |bytes| decode_hot(tenant, key, bytes).ok();
        let stored = loaded.hot.as_ref().and_then(|hot| part(&hot.bytes));
        let (Some(left), Some(stored)) = (part(&self.parts.hot), stored) else { return false };
        match self.trace {
            // It is full, and nothing is in it that the transaction left there.
            Trace::Log => {
                let forgot = |entry: OpLogEntry| stored.op_log.find(entry.op_id()).is_none();
                stored.op_log.len() >= OP_LOG_CAP && left.op_log.iter().all(forgot)
            }
            // It is not there, and what could fulfil one has happened.
            Trace::Request => {
                let asked = |part: &HotPart<'_>| part.request.as_ref().map(|asked| asked.op_id);
                asked(&stored) != asked(&left) && fulfilling(&stored) != fulfilling(&left)
            }
            Trace::Deadline | Trace::Else => false,
        }
    }

    /// Whether the transaction was a renewal that may stand: the lease is the one that it left, or
    /// lasts longer still, although somebody has changed the shard since.
    fn may_stand(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        let lease = |bytes| decode_hot(tenant, key, bytes).ok().and_then(|hot| hot.lease);
        // Since the first try in unresolved: it may be the one that stands.
        let stored = loaded.hot.as_ref().filter(|stored| Some(stored.revision) != self.since);
        let stored = stored.and_then(|stored| lease(&stored.bytes));
        let (Some(left), Some(stored)) = (lease(&self.parts.hot), stored) else { return false };
        let outlasts = stored.token() == left.token() && stored.deadline() >= left.deadline();
        self.trace == Trace::Deadline && outlasts
    }

    /// Remembers what the transaction left at `revision`, if the caller holds the shard.
    fn remember(
        &mut self,
        core: &mut Core,
        (tenant, key): (TenantId, ShardKey),
        loaded: Loaded,
        revision: u64,
    ) {
        let written = |bytes: Vec<u8>| Versioned { revision, bytes };
        let cold = self.parts.cold.take().map(written).or(loaded.cold);
        if let (true, Some(cold), Some(head)) = (self.ownership_change.is_held(), cold, loaded.head)
        {
            let (hot, bound) = (written(std::mem::take(&mut self.parts.hot)), self.bound);
            let remembered = CachedShard { hot, cold, bound };
            core.cache.put(tenant, key, remembered, head);
        }
    }
}

/// Payload hashes of the splits that made shards of the same run; zero for roots, `None` for
/// shards that do not exist.
type SiblingHashes = BTreeMap<ShardId, Option<u64>>;

fn cold_keys(tenant: TenantId, key: ShardKey, ids: &[ShardId]) -> Vec<Key> {
    let shards = ids.iter().map(|id| ShardKey::new(key.run(), *id));
    shards.map(|shard| Key::ShardCold { tenant, shard }).collect()
}

/// What a decision and its transaction are made of.
#[derive(Clone, Copy)]
struct LookedAt<'l> {
    loaded: &'l Loaded,
    sibling_hashes: &'l SiblingHashes,
    owner_key_state: OwnerKeyState,
}

/// Lets the protocol decide about what was loaded.
fn plan_commit<T: ShardTransition>(
    core: &mut Core,
    now: LogicalTime,
    operation: &T,
    looked_at: LookedAt<'_>,
    show: &mut impl FnMut(ShardView<'_>),
) -> Result<Verdict<T>, InfraError> {
    let (tenant, key) = operation.subject();
    let LookedAt { loaded, sibling_hashes, owner_key_state } = looked_at;
    let owner = core.shared(tenant);
    let quota = match T::MAKES_SHARDS {
        true => loaded.quota.quota(tenant, 0)?,
        false => ShardQuota::UNLIMITED,
    };
    let owner_key = loaded.owner(tenant, key);
    // From here on nothing may fail before the record is freed.
    let subject = loaded.record(&owner, key, core)?;
    let unknown = RefCell::new(Vec::new());
    let split_hash_of = |shard| {
        sibling_hashes.get(&shard).copied().unwrap_or_else(|| {
            unknown.borrow_mut().push(shard);
            None
        })
    };
    let seen = ShardInputs {
        shard: subject.as_ref().map(|(record, _)| ShardView::new(record, &core.pool)),
        run: loaded.head.filter(|_| T::CONSULTS_RUN).map(|head| head.run),
        quota,
        owner: subject.as_ref().map_or(OwnerEvidence::Gone, |(record, _)| {
            owner_key.evidence(record, core.config.max_clock_skew)
        }),
        split_hash_of: &split_hash_of,
    };
    let decision = operation.decide(now, &seen);
    let unknown = unknown.into_inner();
    let Some((mut record, indexed_at)) = subject else {
        let refusal = decision.err().expect("an operation on a missing shard is refused");
        return Ok(Verdict::Refused(refusal));
    };
    let verdict = match decision {
        _ if !unknown.is_empty() => Ok(Verdict::Asks(unknown)),
        Err(error) => Ok(Verdict::Refused(error)),
        Ok(Decision::Replay(output)) => Ok(Verdict::Replayed(output)),
        Ok(Decision::Commit { change, answer }) => {
            match prepare::<T>(core, &owner, looked_at, &mut record, indexed_at, &change) {
                Err(Full::Pool(full)) => Ok(Verdict::Refused(T::exhausted(full))),
                Err(Full::Stored(error)) => Err(error),
                Ok((txn, parts)) => {
                    show(ShardView::new(&record, &core.pool));
                    let event = core.events.is_some().then(|| change.event(key.shard()));
                    let (bound, trace) = (owner_key_state.binding, Trace::of::<T>(&change));
                    let base = loaded.hot.as_ref().map(|hot| hot.revision);
                    let prepared = Prepared {
                        base,
                        since: base,
                        parts,
                        ownership_change: OwnershipChange::after(&change),
                        bound,
                        trace,
                        answer,
                        event,
                    };
                    Ok(Verdict::Commits(txn, Box::new(prepared)))
                }
            }
        }
    };
    record.free(&mut core.pool);
    verdict
}

/// Applies `change` to `record` and makes the transaction that stores the result. Answers it with
/// the parts of the shard in it.
fn prepare<T: ShardTransition>(
    core: &mut Core,
    owner: &Arc<TenantId>,
    LookedAt { loaded, owner_key_state, .. }: LookedAt<'_>,
    record: &mut ShardRecord,
    indexed_at: Option<LogicalTime>,
    change: &ShardChange<'_>,
) -> Result<(Txn, Parts), Full> {
    let (tenant, shard) = (**owner, record.key());
    let before = record.status();
    evolve(record, &mut core.pool, change)?;

    let mut txn = Txn::with_room(COMPARES, WRITES);
    if is_without_read_back::<T>(loaded, owner_key_state) {
        txn.skip_read_back();
    }
    txn.expect(Key::ShardHot { tenant, shard }, loaded.hot.as_ref());
    let head = loaded.head.map(|head| head.revision);
    txn.expect_revision(Key::RunHead { tenant, run: shard.run() }, head);
    let at = standing(record);
    let view = ShardView::new(record, &core.pool);
    // Mostly about as long as before, with one more operation in the log.
    let mut hot = Vec::with_capacity(loaded.hot.as_ref().map_or(0, |hot| hot.bytes.len() + 64));
    encode_hot(view, at, &mut hot);
    txn.put(Key::ShardHot { tenant, shard }, hot.clone());
    move_claim(&mut txn, tenant, shard, indexed_at, at);
    move_parked(&mut txn, tenant, shard, before, record.status());
    owner_key_state.write(&mut txn, record, OwnershipChange::after(change));
    let mut cold = None;
    if T::MAKES_SHARDS {
        let bytes = cold.insert(encoded(|out| encode_cold(view, out)));
        txn.put(Key::ShardCold { tenant, shard }, bytes.clone());
        let mut born = 0;
        for birth in change.births() {
            core.add_birth(&mut txn, owner, shard.run(), &birth)?;
            born += 1;
        }
        loaded.quota.change(&mut txn, tenant, born, 0)?;
    }
    Ok((txn, Parts { hot, cold }))
}
