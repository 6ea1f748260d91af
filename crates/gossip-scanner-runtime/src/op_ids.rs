//! Operation ids: the one place that makes them.
//!
//! | operation | id |
//! |---|---|
//! | of a lease holder | derived from shard, fence, grant token and a sequence within the lease
//! (DESIGN 7) |
//! | on a run, by any process that opens it | derived from the operation and the run |
//! | a request of an idle worker to a lease holder | derived from worker, shard, number of the
//! request and time |
//! | the n-th automatic retry of a parked shard | derived from the shard and n |
//! | requested by a person | random |
//!
//! Two leases differ in the token, so a later one is never answered from the log of an earlier one.
//! Within a lease each operation has its own number, and a retry keeps it.

use gossip_contracts::identity::{
    CanonicalBytes as _, CanonicalHasher, Domain, FenceEpoch, LogicalTime, OpId, RunId, ShardKey,
    WorkerId,
};
use gossip_coordination::Lease;
use gossip_coordination::store::fresh_nonce;

/// The ids of one lease, in sequence.
#[derive(Debug)]
pub(crate) struct OpIds {
    /// Everything but the sequence.
    lease: Lease,
    /// How many ids were issued; the next one gets this number.
    given: u64,
}

impl OpIds {
    /// Returns the ids of `lease`, from the first.
    pub(crate) const fn of(lease: Lease) -> Self {
        Self { lease, given: 0 }
    }

    /// Returns an id that no other operation has.
    pub(crate) fn fresh(&mut self) -> OpId {
        let id = derive(&self.lease, self.given);
        self.given += 1;
        id
    }

    /// Returns the id of the one operation after a panic, when the sequence is unknown.
    pub(crate) fn after_panic(lease: &Lease) -> OpId {
        // The panic lost the counter. A number that the sequence never reaches cannot repeat an id
        // that was used.
        derive(lease, u64::MAX)
    }
}

fn derive(lease: &Lease, sequence: u64) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    lease.key().write_canonical(&mut hasher);
    lease.fence().write_canonical(&mut hasher);
    hasher.write_u64(lease.token().as_raw());
    hasher.write_u64(sequence);
    OpId::from_raw(hasher.finalize_64())
}

/// Returns the id of an operation on a run. Every process that performs it means the same
/// operation, so all of them use one id.
pub(crate) fn of_run(operation: &'static [u8], run: RunId) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(operation);
    run.write_canonical(&mut hasher);
    OpId::from_raw(hasher.finalize_64())
}

/// Returns the id of the revocation of the lease with this fence. Every process that sees the end
/// of the lease holder means the same operation.
pub(crate) fn of_revocation(shard: ShardKey, fence: FenceEpoch) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(b"revoke_lease");
    shard.write_canonical(&mut hasher);
    fence.write_canonical(&mut hasher);
    OpId::from_raw(hasher.finalize_64())
}

/// Returns the id of the request with this number of `worker` to the lease holder of `shard`. The
/// time distinguishes requests of processes that use one worker id after each other.
pub(crate) fn of_request(worker: WorkerId, shard: ShardKey, number: u64, now: LogicalTime) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(b"ask_split");
    worker.write_canonical(&mut hasher);
    shard.write_canonical(&mut hasher);
    hasher.write_u64(number);
    hasher.write_u64(now.as_raw());
    OpId::from_raw(hasher.finalize_64())
}

/// Returns the id of the retry with this number of a parked shard. Every process that makes it
/// means the same retry, so all of them use one id.
pub(crate) fn of_parked_retry(shard: ShardKey, number: u32) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(b"retry_parked");
    shard.write_canonical(&mut hasher);
    hasher.write_u64(u64::from(number));
    OpId::from_raw(hasher.finalize_64())
}

/// Returns an id for an operation that is requested once: each call is another request.
#[must_use]
pub fn fresh_op_id() -> OpId {
    OpId::from_raw(fresh_nonce())
}
