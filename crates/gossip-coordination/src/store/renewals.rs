//! Renewing many leases in few round trips.
//!
//! Each renewal is an operation of its own, with its own transaction and its own answer; only what
//! they ask of the store travels together. Everything is loaded that must be, then all commits go
//! in one call, and those that lost a race go again together. Leases of remembered shards need no
//! read, so they are one round trip.

use gossip_contracts::identity::{LogicalTime, TenantId};

use super::core::Core;
use super::engine::Read;
use super::flight::Io;
use super::shard_flight::{CommitStep, Next, ShardOp, ShardReply};
use super::txn::Txn;
use crate::error::{InfraError, RenewError};
use crate::lease::Lease;
use crate::outcome::IdempotentOutcome;
use crate::protocol::{Renew, Renewed};

/// Leases renewed by one call to the store. It bounds what is in memory for them; an engine with
/// smaller transactions cuts a call up by itself.
pub(super) const RENEW_BATCH_MAX: usize = 1_024;

/// Renews `leases`, and answers for each of them, in their order.
pub(super) async fn renew_many(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    leases: &[Lease],
) -> Vec<Result<Renewed, RenewError>> {
    let mut answers = Vec::with_capacity(leases.len());
    for leases in leases.chunks(RENEW_BATCH_MAX) {
        let operations: Vec<_> = leases.iter().map(|lease| Renew { tenant, lease }).collect();
        let mut party: Vec<_> = operations.iter().map(|one| Member::new(core, now, one)).collect();
        loop {
            let (ready, wait) = get_ready(core, io, &mut party).await;
            if ready.is_empty() && wait == 0 {
                break;
            }
            let again = commit(core, io, &mut party, ready).await;
            io.pause(wait.max(again)).await;
        }
        answers.extend(party.into_iter().map(Member::answer));
    }
    answers
}

/// A renewal that travels with others, until it is told.
struct Member<'o> {
    trip: ShardOp<'o, Renew<'o>>,
    told: Option<ShardReply<Renew<'o>>>,
}

impl<'o> Member<'o> {
    fn new(core: &mut Core, now: LogicalTime, operation: &'o Renew<'o>) -> Self {
        Self { trip: ShardOp::new(core, now, operation), told: None }
    }

    fn failed(&mut self, error: InfraError) {
        self.told = Some(Err(self.trip.ended(error).into()));
    }

    fn answer(self) -> Result<Renewed, RenewError> {
        let told = self.told.expect("a party travels until everybody was told");
        told.map(IdempotentOutcome::into_inner)
    }
}

/// Members by their places, with what they ask for.
type Asking<A> = Vec<(usize, A)>;

/// Loads what must be loaded, and answers the transactions of all who were not told yet. If some
/// have to be loaded once more after a while, the others do not wait for them.
async fn get_ready(core: &mut Core, io: &Io, party: &mut [Member<'_>]) -> (Asking<Txn>, u64) {
    let (mut ready, mut wait) = (Vec::new(), 0);
    let mut undecided: Vec<usize> = (0..party.len()).collect();
    // Twice at most: what was decided about a load needs no other.
    while !undecided.is_empty() && wait == 0 {
        let mut loads = Vec::new();
        for place in undecided {
            let member = &mut party[place];
            if member.told.is_some() {
                continue;
            }
            match member.trip.next(core, io.binding(), &mut |_| ()) {
                Ok(Next::Load(reads)) => loads.push((place, reads)),
                Ok(Next::Commit(txn)) => ready.push((place, txn)),
                Ok(Next::Done(told)) => member.told = Some(told),
                Ok(Next::LoadKin(_)) => unreachable!("a renewal looks at one shard"),
                Err(error) => member.failed(error),
            }
        }
        undecided = loads.iter().map(|(place, _)| *place).collect();
        wait = load(core, io, party, loads).await;
    }
    // In the caller's order, whoever had to be loaded.
    ready.sort_unstable_by_key(|(place, _)| *place);
    (ready, wait)
}

/// Loads, as much at a time as the store answers at once, and answers how long to wait then.
async fn load(core: &Core, io: &Io, party: &mut [Member<'_>], mut loads: Asking<Vec<Read>>) -> u64 {
    let mut wait = 0;
    while let Some((_, first)) = loads.first() {
        let count = (core.limits.txn_ops / first.len()).clamp(1, loads.len());
        let (places, reads): (Vec<usize>, Vec<_>) = loads.drain(..count).unzip();
        match io.read(reads.into_iter().flatten().collect()).await {
            Ok(mut answers) => {
                for place in places {
                    match party[place].trip.loaded(core, &mut answers) {
                        Ok(ticks) => wait = ticks.max(wait),
                        Err(error) => party[place].failed(error),
                    }
                }
            }
            Err(error) => {
                for place in places {
                    party[place].failed(error.clone());
                }
            }
        }
    }
    wait
}

/// Commits, and answers how long to wait if some have to go again.
async fn commit(core: &mut Core, io: &Io, party: &mut [Member<'_>], ready: Asking<Txn>) -> u64 {
    let (places, txns): (Vec<usize>, Vec<Txn>) = ready.into_iter().unzip();
    let mut wait = 0;
    if txns.is_empty() {
        return wait;
    }
    for (place, outcome) in places.into_iter().zip(io.commit_each(txns).await) {
        let member = &mut party[place];
        let outcome = outcome.map_err(|error| member.trip.ended(error));
        match outcome.and_then(|outcome| member.trip.committed(core, outcome)) {
            Ok(CommitStep::Done(told)) => member.told = Some(told),
            Ok(CommitStep::Again { ticks }) => wait = ticks.max(wait),
            Err(error) => member.failed(error),
        }
    }
    wait
}
