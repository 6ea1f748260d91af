//! A shard that a worker holds, and where it is.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::{AcquireResultView, Lease};

use super::disk::{key_of, number_of};
use gossip_handoff::lease_handoff::HandoffSource;

/// A shard under a lease.
pub(super) struct Held {
    pub(super) lease: Lease,
    /// Until when it is good, as far as the worker knows.
    pub(super) until: LogicalTime,
    pub(super) start: u8,
    pub(super) end: u8,
    /// The next key to do.
    pub(super) next: u8,
    /// The first key that is not known to be saved.
    pub(super) saved: u8,
    pub(super) is_frozen: bool,
    /// Present while the shard is given away by itself.
    pub(super) source: Option<Box<HandoffSource>>,
    /// Moves of this lease so far.
    pub(super) attempts: u32,
    ops: u64,
}

impl Held {
    /// What was acquired or accepted.
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

    /// Behind the last key that was done.
    pub(super) fn cursor(&self) -> Cursor {
        match self.next > self.start {
            true => Cursor::with_last_key(&key_of(self.next - 1)),
            false => Cursor::initial(),
        }
    }

    /// An operation id that no other lease and no other call of this one has.
    pub(super) fn fresh_op(&mut self) -> OpId {
        self.ops += 1;
        OpId::from_raw(self.lease.token().as_raw().wrapping_add(self.ops << 20))
    }
}
