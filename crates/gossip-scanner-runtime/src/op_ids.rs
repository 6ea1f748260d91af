//! Operation ids of one lease.
//!
//! An id is derived from the lease's fence, its grant token and a sequence within the lease
//! (DESIGN 7). Two leases differ in the token, so a later one is never answered from the log of an
//! earlier one; within a lease every operation has its own number, and a retry keeps it.

use gossip_contracts::identity::{CanonicalBytes as _, CanonicalHasher, Domain, OpId};
use gossip_coordination::Lease;

/// The ids of one lease, in order.
#[derive(Debug)]
pub(crate) struct OpIds {
    /// Everything but the sequence.
    lease: Lease,
    /// How many ids were given; the next one gets this number.
    given: u64,
}

impl OpIds {
    /// The ids of `lease`, from the first.
    pub(crate) const fn of(lease: Lease) -> Self {
        Self { lease, given: 0 }
    }

    /// An id that no other operation has.
    pub(crate) fn fresh(&mut self) -> OpId {
        let id = derive(&self.lease, self.given);
        self.given += 1;
        id
    }

    /// The id of the one operation after a panic, when nobody knows how many were given.
    pub(crate) fn after_panic(lease: &Lease) -> OpId {
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
