//! Renews many leases in few round trips.
//!
//! Each renewal is an operation with its own transaction and result; only their requests to the
//! store are batched. Shards without a cached record are loaded, then all transactions are
//! committed in one call, and those that lost a race are retried together. Leases of cached shards
//! need no read, so they take one round trip.

use std::ops::ControlFlow;

use gossip_contracts::identity::{LogicalTime, TenantId};

use super::core::Core;
use super::engine::Read;
use super::flight::Io;
use super::shard_flight::{Next, ShardOp, ShardReply};
use super::txn::Txn;
use crate::error::{InfraError, RenewError};
use crate::lease::Lease;
use crate::outcome::IdempotentOutcome;
use crate::protocol::{Renew, Renewed};

/// Maximum number of leases renewed by one call to the store. It bounds memory; an engine with
/// smaller transactions divides the call.
pub(super) const RENEW_BATCH_MAX: usize = 1_024;

/// Renews `leases` and returns one result per lease, in their order.
pub(super) async fn renew_many(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    leases: &[Lease],
) -> Vec<Result<Renewed, RenewError>> {
    let mut answers = Vec::with_capacity(leases.len());
    // One chunk after the other, because each holds the records of its shards in memory.
    for leases in leases.chunks(RENEW_BATCH_MAX) {
        let operations: Vec<_> = leases.iter().map(|lease| Renew { tenant, lease }).collect();
        let mut batch: Vec<_> = operations.iter().map(|one| Renewal::new(core, now, one)).collect();
        loop {
            let (ready, wait) = prepare(core, io, &mut batch).await;
            // Nothing to commit and nothing to wait for: every renewal has its reply.
            if ready.is_empty() && wait == 0 {
                break;
            }
            let again = commit(core, io, &mut batch, ready).await;
            // One wait for the whole batch: separate waits would split it into single commits.
            io.pause(wait.max(again)).await;
        }
        answers.extend(batch.into_iter().map(Renewal::result));
    }
    assert!(answers.len() == leases.len(), "each lease has a result");
    answers
}

/// One renewal of a batch, until its reply is known.
struct Renewal<'o> {
    op: ShardOp<'o, Renew<'o>>,
    reply: Option<ShardReply<Renew<'o>>>,
}

impl<'o> Renewal<'o> {
    fn new(core: &mut Core, now: LogicalTime, operation: &'o Renew<'o>) -> Self {
        Self { op: ShardOp::new(core, now, operation), reply: None }
    }

    fn failed(&mut self, error: InfraError) {
        assert!(self.reply.is_none(), "a renewal ends once");
        self.reply = Some(Err(self.op.ended(error).into()));
    }

    fn result(self) -> Result<Renewed, RenewError> {
        let reply = self.reply.expect("a batch ends when every renewal has a reply");
        reply.map(IdempotentOutcome::into_inner)
    }
}

/// Requests by the index of their renewal in the batch.
type Indexed<A> = Vec<(usize, A)>;

/// Loads missing records and returns the transactions of all renewals without a reply. If some
/// must be loaded again after a wait, the others do not wait for them.
async fn prepare(core: &mut Core, io: &Io, batch: &mut [Renewal<'_>]) -> (Indexed<Txn>, u64) {
    let (mut ready, mut wait) = (Vec::new(), 0);
    let mut undecided: Vec<usize> = (0..batch.len()).collect();
    // Two passes at most: a renewal that was just loaded is decided without another load.
    while !undecided.is_empty() && wait == 0 {
        let mut loads = Vec::new();
        for index in undecided {
            let renewal = &mut batch[index];
            if renewal.reply.is_some() {
                continue;
            }
            match renewal.op.next(core, io.binding(), &mut |_| ()) {
                Ok(Next::Load(reads)) => loads.push((index, reads)),
                Ok(Next::Commit(txn)) => ready.push((index, txn)),
                Ok(Next::Done(reply)) => renewal.reply = Some(reply),
                Ok(Next::LoadSiblings(_)) => unreachable!("a renewal reads one shard"),
                Err(error) => renewal.failed(error),
            }
        }
        undecided = loads.iter().map(|(index, _)| *index).collect();
        wait = load(core, io, batch, loads).await;
    }
    // Restore the caller's order: loaded renewals were appended after cached ones.
    ready.sort_unstable_by_key(|(index, _)| *index);
    assert!(ready.is_sorted_by(|a, b| a.0 < b.0), "a renewal has one transaction at a time");
    (ready, wait)
}

/// Loads in chunks that fit one read, and returns how many ticks to wait before the next pass.
async fn load(
    core: &Core,
    io: &Io,
    batch: &mut [Renewal<'_>],
    mut loads: Indexed<Vec<Read>>,
) -> u64 {
    let mut wait = 0;
    while let Some((_, first)) = loads.first() {
        // All renewals read the same number of keys, so the first determines how many fit.
        let count = (core.limits.txn_ops / first.len()).clamp(1, loads.len());
        let (indexes, reads): (Vec<usize>, Vec<Vec<Read>>) = loads.drain(..count).unzip();
        assert!(reads.iter().all(|it| it.len() == reads[0].len()), "renewals read the same keys");
        match io.read(reads.into_iter().flatten().collect()).await {
            Ok(mut answers) => {
                for index in indexes {
                    match batch[index].op.loaded(core, &mut answers) {
                        Ok(ticks) => wait = ticks.max(wait),
                        Err(error) => batch[index].failed(error),
                    }
                }
                answers.assert_used();
            }
            Err(error) => {
                for index in indexes {
                    batch[index].failed(error.clone());
                }
            }
        }
    }
    wait
}

/// Commits and returns how many ticks to wait before the retry, if any is needed.
async fn commit(core: &mut Core, io: &Io, batch: &mut [Renewal<'_>], ready: Indexed<Txn>) -> u64 {
    assert!(ready.len() <= RENEW_BATCH_MAX, "a batch is bounded");
    let (indexes, txns): (Vec<usize>, Vec<Txn>) = ready.into_iter().unzip();
    let mut wait = 0;
    if txns.is_empty() {
        return wait;
    }
    for (index, outcome) in indexes.into_iter().zip(io.commit_each(txns).await) {
        let renewal = &mut batch[index];
        let outcome = outcome.map_err(|error| renewal.op.ended(error));
        match outcome.and_then(|outcome| renewal.op.committed(core, outcome)) {
            Ok(ControlFlow::Break(reply)) => renewal.reply = Some(reply),
            Ok(ControlFlow::Continue(ticks)) => wait = ticks.max(wait),
            Err(error) => renewal.failed(error),
        }
    }
    wait
}
