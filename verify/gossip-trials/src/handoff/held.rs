//! A shard that a process holds, with its progress.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::{AcquireResultView, Lease};
use gossip_handoff::lease_handoff::HandoffSource;

use crate::Failure;
use crate::handoff::world::{key_of, number_of};

/// A shard under a lease.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// Deadline of the lease, as known to the process.
    pub(crate) until: LogicalTime,
    /// The next key to work on.
    pub(crate) next: u64,
    /// The first key of the shard.
    start: u64,
    /// The first key after the shard.
    pub(crate) end: u64,
    /// Present while the shard is being handed off.
    pub(crate) source: Option<Box<HandoffSource>>,
    /// Whether processing is frozen, which starts right before the offer.
    pub(crate) is_frozen: bool,
    /// Handoff attempts of this lease.
    pub(crate) attempts: u32,
    ops: u64,
}

impl Held {
    pub(crate) fn new(got: &AcquireResultView<'_>) -> Result<Self, Failure> {
        let spec = got.snapshot.spec();
        let (start, end) = (number_of(spec.start)?, number_of(spec.end)?);
        let next = match got.snapshot.cursor().last_key() {
            Some(key) => number_of(key)? + 1,
            None => start,
        };
        let (lease, until) = (got.lease.clone(), got.lease.deadline());
        Ok(Self {
            lease,
            until,
            next,
            start,
            end,
            source: None,
            is_frozen: false,
            attempts: 0,
            ops: 0,
        })
    }

    pub(crate) fn shard(&self) -> u64 {
        self.lease.shard().as_raw()
    }

    pub(crate) fn fence(&self) -> u64 {
        self.lease.fence().as_raw()
    }

    /// Returns the number of processed keys.
    pub(crate) const fn done(&self) -> u64 {
        self.next - self.start
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.end
    }

    /// Returns the cursor after the last processed key.
    pub(crate) fn cursor(&self) -> Cursor {
        match self.next > self.start {
            true => Cursor::with_last_key(&key_of(self.next - 1)),
            false => Cursor::initial(),
        }
    }

    /// Returns an operation id that is unique over all leases and calls.
    pub(crate) fn fresh_op(&mut self) -> OpId {
        self.ops += 1;
        OpId::from_raw(self.lease.token().as_raw().wrapping_add(self.ops << 20))
    }
}
