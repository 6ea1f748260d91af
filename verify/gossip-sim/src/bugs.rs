//! Mutants of the store: bugs of careless engines, stores, drivers and sinks.
//!
//! The production code has no switches. A mutant acts where the coordinator meets the simulated
//! store: it changes the values that an operation reads, the transaction that is stored, or the
//! commit outcome that is returned, so that both together behave like an implementation with that
//! bug. Records are changed by decoding and encoding them with the production codec.
//!
//! To add a mutant, add a variant to [`Bug`] with a description, and an arm to [`Mutated::show`]
//! (values that the kernel reads), [`Mutated::store`] (stored transaction and returned outcome) or
//! [`Mutated::sink_takes_anything`]. List a mutant that changes reads in [`Bug::shows`]: handles
//! then drop their record cache, so that every decision follows a read.

use std::sync::Arc;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{
    Answer, CommitOutcome, Compare, Conflict, HotPart, Key, Read, Txn, Write, decode_cold,
    decode_hot, encode_hot, join_shard,
};
use gossip_coordination::{GrantToken, LeaseHolder, RecordPool, ShardStatus, ShardView};

use super::disk::Disk;
use super::faults::FaultKind;
use super::op::{LeaseRef, Op, Verb};
use super::plan::Plan;

/// Bytes for one record and its changes.
const POOL_BYTES: usize = 1 << 16;

/// One mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "tests iterate over the list")]
pub enum Bug {
    /// The fence is not checked: every caller is taken for the current holder.
    FenceIgnored,
    /// A lease is still valid at its deadline.
    ExpiryInclusive,
    /// A lease is taken over before it expires.
    EarlyTakeover,
    /// A checkpoint is acknowledged but not stored.
    CheckpointLost,
    /// A renewal is acknowledged but not stored.
    RenewalLost,
    /// The last child of a replacing split is not stored.
    ChildLost,
    /// A new lease holder starts without a cursor.
    CursorReset,
    /// A revoked shard keeps its fence.
    FenceReusedAfterRevoke,
    /// The shard is not compared in the commit.
    ShardNotCompared,
    /// The run is not compared in the commit.
    RunNotCompared,
    /// The counters are not compared in the commit.
    CountersNotCompared,
    /// An applied commit is returned as a conflict.
    AppliedTakenForConflict,
    /// A commit that was not applied is returned as applied.
    ConflictTakenForApplied,
    /// The sink accepts every write.
    SinkIgnoresFence,
    /// No fence floor is raised after a restore.
    FloorsNotRaised,
}

impl Bug {
    /// Every mutant.
    pub const ALL: [Self; 15] = [
        Self::FenceIgnored,
        Self::ExpiryInclusive,
        Self::EarlyTakeover,
        Self::CheckpointLost,
        Self::RenewalLost,
        Self::ChildLost,
        Self::CursorReset,
        Self::FenceReusedAfterRevoke,
        Self::ShardNotCompared,
        Self::RunNotCompared,
        Self::CountersNotCompared,
        Self::AppliedTakenForConflict,
        Self::ConflictTakenForApplied,
        Self::SinkIgnoresFence,
        Self::FloorsNotRaised,
    ];

    /// Returns `plan` with this mutant, and with the fault without which it has no effect.
    #[must_use]
    pub fn in_plan(self, plan: Plan) -> Plan {
        let faults = match self {
            Self::FloorsNotRaised => plan.faults.with(FaultKind::Restore),
            _ => plan.faults,
        };
        Plan { bug: Some(self), faults, ..plan }
    }

    /// Returns whether the mutant changes reads, so that handles must not cache records.
    pub(super) const fn shows(self) -> bool {
        matches!(self, Self::FenceIgnored | Self::ExpiryInclusive | Self::EarlyTakeover)
    }
}

/// A transaction as changed by a mutant.
pub(super) struct Mutated {
    /// The transaction that is stored.
    pub(super) txn: Txn,
    /// The outcome to return instead of the true one, if the transaction would have been applied.
    pub(super) result: Option<CommitOutcome>,
}

impl Mutated {
    /// Changes the values that an operation reads.
    pub(super) fn show(bug: Bug, op: &Op, reads: &[Read], answers: &mut [Answer], disk: &Disk) {
        for (read, answer) in reads.iter().zip(answers) {
            let (Read::Get(Key::ShardHot { tenant, shard }), Answer::Value(Some(value))) =
                (read, answer)
            else {
                continue;
            };
            let altered = alter(&value.bytes, *tenant, *shard, disk, |record| match bug {
                Bug::FenceIgnored => {
                    if let Some(lease) = op.lease.filter(|lease| lease.key == *shard) {
                        forge(record, op, lease);
                    }
                }
                Bug::ExpiryInclusive => move_deadline(record, |deadline| {
                    if op.verb.is_leased() && deadline == op.now { 1 } else { 0 }
                }),
                Bug::EarlyTakeover => move_deadline(record, |deadline| {
                    let near = deadline.as_raw() <= op.now.as_raw() + 20;
                    if matches!(op.verb, Verb::Acquire | Verb::Claim) && near { -20 } else { 0 }
                }),
                _ => {}
            });
            if let Some(bytes) = altered {
                value.bytes = bytes;
            }
        }
    }

    /// Changes a transaction or its outcome.
    pub(super) fn store(bug: Option<Bug>, op: &Op, txn: Txn, disk: &Disk) -> Self {
        let Some(bug) = bug else { return Self { txn, result: None } };
        let applied = disk.conflict(&txn).is_none();
        match bug {
            Bug::FenceIgnored if op.verb.is_leased() => {
                Self::rewritten(&txn, disk, |record, real| {
                    record.fence = real.fence;
                    if record.lease.is_some() {
                        record.lease = real.lease;
                    }
                })
            }
            Bug::CheckpointLost if op.verb == Verb::Checkpoint => Self::unwritten(&txn),
            Bug::RenewalLost if op.verb == Verb::Renew => Self::unwritten(&txn),
            Bug::ChildLost if op.verb == Verb::SplitReplace => Self::without_last_child(&txn),
            Bug::CursorReset if matches!(op.verb, Verb::Claim | Verb::Acquire) => {
                Self::reset(&txn, disk)
            }
            Bug::FenceReusedAfterRevoke if op.verb == Verb::RevokeLease => {
                Self::rewritten(&txn, disk, |record, real| record.fence = real.fence)
            }
            Bug::ShardNotCompared => {
                Self::uncompared(&txn, |key| matches!(key, Key::ShardHot { .. }))
            }
            Bug::RunNotCompared => Self::uncompared(&txn, |key| matches!(key, Key::RunHead { .. })),
            Bug::CountersNotCompared => Self::uncompared(&txn, |key| {
                matches!(key, Key::TenantCounter { .. } | Key::Allotment { .. })
            }),
            Bug::AppliedTakenForConflict if applied && op.verb == Verb::Claim => {
                let found = txn.writes().first().map(|write| *write.key());
                let conflict = found.map(|key| vec![(key, disk.get(&key).cloned())]);
                let result = conflict.and_then(Conflict::new).map(CommitOutcome::Conflict);
                Self { txn, result }
            }
            Bug::ConflictTakenForApplied if !applied && op.verb == Verb::Checkpoint => {
                let result = Some(CommitOutcome::Applied { revision: 1 });
                Self { txn: Txn::new(), result }
            }
            _ => Self { txn, result: None },
        }
    }

    /// Returns whether the sink does not compare fences.
    pub(super) fn sink_takes_anything(bug: Option<Bug>) -> bool {
        bug == Some(Bug::SinkIgnoresFence)
    }

    /// Returns the transaction without its writes: it is acknowledged but not stored.
    fn unwritten(txn: &Txn) -> Self {
        Self { txn: rebuilt(txn, |_| true, |_| None), result: None }
    }

    fn uncompared(txn: &Txn, forgets: impl Fn(&Key) -> bool) -> Self {
        let subject = txn.writes().first().map(|write| *write.key());
        // New keys are still compared, and so are keys other than the subject.
        let keeps = |compare: &Compare| match compare {
            Compare::At { key, .. } | Compare::Value { key, .. } => {
                !(forgets(key) && (subject == Some(*key) || !matches!(key, Key::ShardHot { .. })))
            }
            Compare::Absent(_) | Compare::Empty(_) => true,
        };
        Self { txn: rebuilt(txn, keeps, |write| Some(write.clone())), result: None }
    }

    fn without_last_child(txn: &Txn) -> Self {
        let last = txn.compares().iter().rev().find_map(|compare| match compare {
            Compare::Absent(Key::ShardHot { shard, .. }) => Some(*shard),
            Compare::Absent(_) | Compare::At { .. } | Compare::Value { .. } | Compare::Empty(_) => {
                None
            }
        });
        let is_lost = |key: &Key| match key {
            Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. } => Some(*shard) == last,
            Key::ClaimIndex { shard, .. } => Some(*shard) == last,
            _ => false,
        };
        let keep = |write: &Write| (!is_lost(write.key())).then(|| write.clone());
        Self { txn: rebuilt(txn, |_| true, keep), result: None }
    }

    fn reset(txn: &Txn, disk: &Disk) -> Self {
        Self::rewritten(txn, disk, |record, _| record.cursor = CursorUpdate::initial())
    }

    /// Changes the record of the subject in `txn`, given the stored one.
    fn rewritten(txn: &Txn, disk: &Disk, change: impl Fn(&mut HotPart<'_>, &HotPart<'_>)) -> Self {
        let rewrite = |write: &Write| {
            let Write::Put(key @ Key::ShardHot { tenant, shard }, bytes) = write else {
                return Some(write.clone());
            };
            let stored = disk.get(key);
            let altered = alter(bytes, *tenant, *shard, disk, |record| {
                let real = stored.and_then(|it| decode_hot(*tenant, *shard, &it.bytes).ok());
                if let Some(real) = real {
                    change(record, &real);
                }
            });
            Some(Write::Put(*key, altered.unwrap_or_else(|| bytes.clone())))
        };
        Self { txn: rebuilt(txn, |_| true, rewrite), result: None }
    }
}

/// Returns a transaction with other compares and writes.
fn rebuilt(
    txn: &Txn,
    keeps: impl Fn(&Compare) -> bool,
    rewrite: impl Fn(&Write) -> Option<Write>,
) -> Txn {
    let mut new = Txn::new();
    for compare in txn.compares().iter().filter(|compare| keeps(compare)) {
        match compare {
            Compare::At { key, revision } => new.expect_revision(*key, Some(*revision)),
            Compare::Value { key, value } => new.expect_value(*key, Arc::clone(value)),
            Compare::Absent(key) => new.expect_revision(*key, None),
            Compare::Empty(range) => new.expect_empty(*range),
        }
    }
    for write in txn.writes().iter().filter_map(rewrite) {
        match write {
            Write::Put(key, bytes) => new.put(key, bytes),
            Write::Bind(key, bytes) => new.bind(key, bytes),
            Write::Delete(key) => new.delete(key),
        }
    }
    new
}

/// Decodes a hot part, changes it and encodes it as the store layer does. Returns `None` if it
/// cannot be decoded or does not belong to the stored cold part.
pub(super) fn alter<'a>(
    hot: &'a [u8],
    tenant: TenantId,
    shard: ShardKey,
    disk: &Disk,
    change: impl FnOnce(&mut HotPart<'a>),
) -> Option<Vec<u8>> {
    let cold = disk.get(&Key::ShardCold { tenant, shard })?;
    let cold = decode_cold(tenant, shard, &cold.bytes).ok()?;
    let mut hot = decode_hot(tenant, shard, hot).ok()?;
    change(&mut hot);
    let mut pool = RecordPool::new(POOL_BYTES);
    let record = join_shard(&Arc::new(tenant), shard, &hot, &cold, &mut pool).ok()?;
    let free_from = record.lease_deadline().unwrap_or(LogicalTime::ZERO);
    let at = (record.status() == ShardStatus::Active).then_some(free_from);
    let mut bytes = Vec::new();
    encode_hot(ShardView::new(&record, &pool), at, &mut bytes);
    record.free(&mut pool);
    Some(bytes)
}

/// Makes the caller of a lease operation the holder.
fn forge(record: &mut HotPart<'_>, op: &Op, lease: LeaseRef) {
    let Some(real) = record.lease else { return };
    let deadline = real.deadline();
    let token = GrantToken::from_raw(lease.token);
    record.fence = FenceEpoch::from_raw(lease.fence);
    record.lease = Some(LeaseHolder::new(WorkerId::from_raw(op.worker), deadline, token));
}

fn move_deadline(record: &mut HotPart<'_>, by: impl FnOnce(LogicalTime) -> i64) {
    let Some(holder) = record.lease else { return };
    let moved = holder.deadline().as_raw().saturating_add_signed(by(holder.deadline()));
    let deadline = LogicalTime::from_raw(moved.max(1));
    record.lease = Some(LeaseHolder::new(holder.owner(), deadline, holder.token()));
}
