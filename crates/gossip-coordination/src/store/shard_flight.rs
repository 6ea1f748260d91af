//! An operation on one shard: load, decide, evolve, commit, and what to do when that goes wrong.
//!
//! - **Conflict**: everything is loaded and decided again, within a budget.
//! - **Unknown**: the commit is remembered as a doubt. The next load settles it. The record is what
//!   we wrote, or holds our grant: it happened. The operation is in the log: it happened. Anything
//!   else that decides differently than before was itself a commit, and since everything that a
//!   decision looks at is compared, that commit shuts ours out for ever. What decides the same is
//!   committed again.
//!
//! # Invariants
//! - Every revision that a decision looked at is compared in its commit: the hot part, which stands
//!   for the cold one too, the run's head, the counters, the absence of newborn ids.
//! - The claim index entry of a shard is exact: zero while it is free, its deadline while leased.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey, TenantId};

use super::codec::{
    DecodeShardError, RunHeadPart, decode_cold, decode_hot, decode_run_head, decode_shard,
    encode_cold, encode_hot,
};
use super::core::{Core, Counters, Full, encoded};
use super::flight::Io;
use super::index::{move_claim, move_parked, standing};
use super::key::Key;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::events::EventKind;
use crate::lease::GrantToken;
use crate::outcome::IdempotentOutcome;
use crate::protocol::{Decision, OwnerEvidence, ShardChange, ShardSeen, ShardTransition, evolve};
use crate::record::{ShardRecord, ShardView};
use crate::shard_limits::ShardRoom;

/// Runs `operation`, and shows the shard as it is from then on to `show`.
pub(super) async fn fly<T>(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: &T,
    mut show: impl FnMut(ShardView<'_>) + Send,
) -> Result<IdempotentOutcome<T::Output>, T::Error>
where
    T: ShardTransition + Sync,
    T::Output: Send,
    T::Error: From<InfraError> + Send,
{
    let (tenant, key) = operation.subject();
    let mut tries = core.tries("shard.commit");
    let mut kin = Kin::new();
    let mut doubt: Option<Prepared<T>> = None;
    loop {
        let loaded = Loaded::take(io.load(Loaded::keys::<T>(tenant, key)).await?);
        if let Some(sure) = doubt.take_if(|doubt| doubt.landed(tenant, key, &loaded)) {
            core.emit(tenant, key.run(), now, sure.event);
            return sure.answer.map(IdempotentOutcome::Executed);
        }
        let verdict = loop {
            match judge(core, now, operation, &loaded, &kin, &mut show)? {
                Verdict::Asks(ids) => load_kin(io, tenant, key, &ids, &mut kin).await?,
                verdict @ (Verdict::Refused(_) | Verdict::Replayed(_) | Verdict::Commits(_)) => {
                    break verdict;
                }
            }
        };
        let (txn, prepared) = match verdict {
            Verdict::Refused(error) => return Err(error),
            Verdict::Replayed(output) => return Ok(replayed(core, now, operation, output, doubt)),
            Verdict::Commits(commit) => *commit,
            Verdict::Asks(_) => unreachable!("what was asked for was loaded"),
        };
        core.check_fits(&txn)?;
        let ticks = match io.commit(txn).await? {
            CommitOutcome::Applied { .. } => {
                core.emit(tenant, key.run(), now, prepared.event);
                return prepared.answer.map(IdempotentOutcome::Executed);
            }
            CommitOutcome::Conflict(conflict) => {
                kin.clear();
                let lost = conflict.key();
                tries.failed(Some(lost), !is_of_subject(&lost, key))?
            }
            CommitOutcome::Unknown => {
                doubt = Some(prepared);
                tries.failed(None, false)?
            }
        };
        io.pause(ticks).await;
    }
}

/// A replay is our own doing if the reply to our own commit was lost.
fn replayed<T: ShardTransition>(
    core: &mut Core,
    now: LogicalTime,
    operation: &T,
    output: T::Output,
    doubt: Option<Prepared<T>>,
) -> IdempotentOutcome<T::Output> {
    let Some(doubt) = doubt else { return IdempotentOutcome::Replayed(output) };
    let (tenant, key) = operation.subject();
    core.emit(tenant, key.run(), now, doubt.event);
    IdempotentOutcome::Executed(output)
}

/// Whether a conflict on `lost` is about the shard or its run, not about counters or newborns.
fn is_of_subject(lost: &Key, key: ShardKey) -> bool {
    match lost {
        Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. } => *shard == key,
        Key::TenantCounter { .. } | Key::TotalCounter => false,
        Key::RunHead { .. }
        | Key::RunRoots { .. }
        | Key::Owner { .. }
        | Key::ClaimIndex { .. }
        | Key::ParkedIndex { .. }
        | Key::Worker { .. }
        | Key::Handoff { .. }
        | Key::Tombstone { .. } => true,
    }
}

/// What a decision came to.
enum Verdict<T: ShardTransition> {
    /// It asked for shards of the same run that were not loaded yet.
    Asks(Vec<ShardId>),
    Refused(T::Error),
    Replayed(T::Output),
    Commits(Box<(Txn, Prepared<T>)>),
}

/// What to say once a transaction is stored, and how to see that it is.
struct Prepared<T: ShardTransition> {
    /// The hot part that it writes.
    hot: Vec<u8>,
    /// The grant that it makes, if it makes one.
    grant: Option<GrantToken>,
    answer: Result<T::Output, T::Error>,
    event: Option<EventKind>,
}

impl<T: ShardTransition> Prepared<T> {
    /// Whether the store shows that the transaction was applied.
    fn landed(&self, tenant: TenantId, key: ShardKey, loaded: &Loaded) -> bool {
        let Some(stored) = &loaded.hot else { return false };
        if stored.bytes == self.hot {
            return true;
        }
        let holder = decode_hot(tenant, key, &stored.bytes).ok().and_then(|hot| hot.lease);
        self.grant.is_some() && holder.map(|holder| holder.token()) == self.grant
    }
}

/// Payload hashes of the splits that made shards of the same run; zero for roots, `None` for
/// shards that do not exist.
type Kin = BTreeMap<ShardId, Option<u64>>;

async fn load_kin(
    io: &Io,
    tenant: TenantId,
    key: ShardKey,
    ids: &[ShardId],
    kin: &mut Kin,
) -> Result<(), InfraError> {
    let shards = ids.iter().map(|id| ShardKey::new(key.run(), *id));
    let keys = shards.clone().map(|shard| Key::ShardCold { tenant, shard }).collect();
    let values = io.load(keys).await?;
    for (shard, value) in shards.zip(values) {
        let made_by = match value {
            Some(value) => {
                let cold = decode_cold(tenant, shard, &value.bytes)?;
                Some(cold.lineage.map_or(0, |lineage| lineage.split_hash))
            }
            None => None,
        };
        kin.insert(shard.shard(), made_by);
    }
    Ok(())
}

/// What an operation on a shard looks at.
struct Loaded {
    hot: Option<Versioned>,
    cold: Option<Versioned>,
    head: Option<Versioned>,
    counters: Counters,
}

impl Loaded {
    fn keys<T: ShardTransition>(tenant: TenantId, shard: ShardKey) -> Vec<Key> {
        let mut keys = vec![
            Key::ShardHot { tenant, shard },
            Key::ShardCold { tenant, shard },
            Key::RunHead { tenant, run: shard.run() },
        ];
        if T::MAKES_SHARDS {
            keys.extend(Counters::keys(tenant));
        }
        keys
    }

    fn take(values: Vec<Option<Versioned>>) -> Self {
        let mut values = values.into_iter();
        Self {
            hot: values.next().flatten(),
            cold: values.next().flatten(),
            head: values.next().flatten(),
            counters: Counters::take(&mut values),
        }
    }

    fn head(&self, tenant: TenantId, key: ShardKey) -> Result<Option<RunHeadPart>, InfraError> {
        let head = self.head.as_ref();
        head.map(|head| decode_run_head(tenant, key.run(), &head.bytes)).transpose()
    }

    /// The record, and where it stands in the claim index. The shards of a run that is not fully
    /// registered, or is being deleted, are not found.
    fn record(
        &self,
        tenant: &Arc<TenantId>,
        key: ShardKey,
        head: Option<&RunHeadPart>,
        core: &mut Core,
    ) -> Result<Option<(ShardRecord, Option<LogicalTime>)>, InfraError> {
        if !head.is_some_and(RunHeadPart::has_roots) {
            return Ok(None);
        }
        let (hot, cold) = match (&self.hot, &self.cold) {
            (None, None) => return Ok(None),
            (Some(hot), Some(cold)) => (hot, cold),
            (Some(_), None) | (None, Some(_)) => return Err(half_a_shard()),
        };
        match decode_shard(tenant, key, &hot.bytes, &cold.bytes, &mut core.pool) {
            Ok(found) => Ok(Some(found)),
            Err(DecodeShardError::Stored(error)) => Err(error),
            Err(DecodeShardError::PoolFull(full)) => {
                unreachable!("the pool is made for the largest shard: {full}")
            }
        }
    }
}

fn half_a_shard() -> InfraError {
    let message = "one of the two parts is missing".to_owned();
    InfraError::Corruption { operation: "shard.load", message }
}

/// Lets the protocol decide about what was loaded.
fn judge<T: ShardTransition>(
    core: &mut Core,
    now: LogicalTime,
    operation: &T,
    loaded: &Loaded,
    kin: &Kin,
    show: &mut impl FnMut(ShardView<'_>),
) -> Result<Verdict<T>, InfraError> {
    let (tenant, key) = operation.subject();
    let owner = Arc::new(tenant);
    let head = loaded.head(tenant, key)?;
    let room = match T::MAKES_SHARDS {
        true => loaded.counters.room(tenant, &core.config, 0)?,
        false => ShardRoom::UNLIMITED,
    };
    let subject = loaded.record(&owner, key, head.as_ref(), core)?;
    let unknown = RefCell::new(Vec::new());
    let split_hash_of = |shard| {
        kin.get(&shard).copied().unwrap_or_else(|| {
            unknown.borrow_mut().push(shard);
            None
        })
    };
    let seen = ShardSeen {
        shard: subject.as_ref().map(|(record, _)| ShardView::new(record, &core.pool)),
        run: head.filter(|_| T::CONSULTS_RUN).map(|head| head.head()),
        room,
        owner: OwnerEvidence::Gone,
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
            match prepare::<T>(core, &owner, loaded, &mut record, indexed_at, &change) {
                Err(Full::Pool(full)) => Ok(Verdict::Refused(T::exhausted(full))),
                Err(Full::Stored(error)) => Err(error),
                Ok((txn, hot)) => {
                    show(ShardView::new(&record, &core.pool));
                    let event = core.events.is_some().then(|| change.event(key.shard()));
                    let prepared = Prepared { hot, grant: grant_of(&change), answer, event };
                    Ok(Verdict::Commits(Box::new((txn, prepared))))
                }
            }
        }
    };
    record.free(&mut core.pool);
    verdict
}

const fn grant_of(change: &ShardChange<'_>) -> Option<GrantToken> {
    match change {
        ShardChange::Grant { holder, .. } => Some(holder.token()),
        ShardChange::Renew { .. }
        | ShardChange::Advance { .. }
        | ShardChange::Complete { .. }
        | ShardChange::Park { .. }
        | ShardChange::Replace { .. }
        | ShardChange::Shrink { .. }
        | ShardChange::Unpark { .. }
        | ShardChange::Release { .. }
        | ShardChange::Offer { .. }
        | ShardChange::Withdraw { .. }
        | ShardChange::Request(_)
        | ShardChange::Revoke { .. } => None,
    }
}

/// Applies `change` to `record` and makes the transaction that stores the result. Answers it with
/// the hot part in it.
fn prepare<T: ShardTransition>(
    core: &mut Core,
    owner: &Arc<TenantId>,
    loaded: &Loaded,
    record: &mut ShardRecord,
    indexed_at: Option<LogicalTime>,
    change: &ShardChange<'_>,
) -> Result<(Txn, Vec<u8>), Full> {
    let (tenant, shard) = (**owner, record.key());
    let before = record.status();
    evolve(record, &mut core.pool, change)?;

    let mut txn = Txn::new();
    txn.expect(Key::ShardHot { tenant, shard }, loaded.hot.as_ref());
    if T::CONSULTS_RUN {
        txn.expect(Key::RunHead { tenant, run: shard.run() }, loaded.head.as_ref());
    }
    let at = standing(record);
    let view = ShardView::new(record, &core.pool);
    let hot = encoded(|out| encode_hot(view, at, out));
    txn.put(Key::ShardHot { tenant, shard }, hot.clone());
    move_claim(&mut txn, tenant, shard, indexed_at, at);
    move_parked(&mut txn, tenant, shard, before, record.status());
    if T::MAKES_SHARDS {
        let cold = encoded(|out| encode_cold(view, out));
        txn.put(Key::ShardCold { tenant, shard }, cold);
        let mut born = 0;
        for birth in change.births() {
            core.add_birth(&mut txn, owner, shard.run(), &birth)?;
            born += 1;
        }
        loaded.counters.change(&mut txn, tenant, born, 0)?;
    }
    Ok((txn, hot))
}
