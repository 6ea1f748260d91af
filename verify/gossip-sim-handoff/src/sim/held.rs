//! A shard that a worker holds, with its position.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::{AcquireResultView, Lease};

use super::disk::{key_of, number_of};
use gossip_handoff::lease_handoff::HandoffSource;

/// A shard under a lease.
pub(super) struct Held {
    pub(super) lease: Lease,
    /// Deadline of the lease, as known to the worker.
    pub(super) until: LogicalTime,
    pub(super) start: u8,
    pub(super) end: u8,
    /// The next key to process.
    pub(super) next: u8,
    /// The first key that is not known to be saved.
    pub(super) saved: u8,
    pub(super) is_frozen: bool,
    /// Present while the shard is handed off outside a drain.
    pub(super) source: Option<Box<HandoffSource>>,
    /// Handoff attempts of this lease.
    pub(super) attempts: u32,
    ops: u64,
}

impl Held {
    /// Creates the state of an acquired or accepted shard.
    pub(super) fn new(view: &AcquireResultView<'_>) -> Self {
        let spec = view.snapshot.spec();
        let (start, end) = (number_of(spec.start), number_of(spec.end));
        let next = view.snapshot.cursor().last_key().map_or(start, |key| number_of(key) + 1);
        Self::at(view.lease.clone(), start, end, next)
    }

    pub(super) fn at(lease: Lease, start: u8, end: u8, next: u8) -> Self {
        Self {
            until: lease.deadline(),
            lease,
            start,
            end,
            next,
            saved: next,
            is_frozen: false,
            source: None,
            attempts: 0,
            ops: 0,
        }
    }

    pub(super) fn shard(&self) -> u64 {
        self.lease.shard().as_raw()
    }

    pub(super) fn is_live(&self, now: LogicalTime) -> bool {
        now < self.until
    }

    /// Returns the cursor after the last processed key.
    pub(super) fn cursor(&self) -> Cursor {
        match self.next > self.start {
            true => Cursor::with_last_key(&key_of(self.next - 1)),
            false => Cursor::initial(),
        }
    }

    /// Returns an operation id that is unique over all leases and calls.
    pub(super) fn fresh_op(&mut self) -> OpId {
        self.ops += 1;
        OpId::from_raw(self.lease.token().as_raw().wrapping_add(self.ops << 20))
    }
}
