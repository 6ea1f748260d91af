//! An operation of a lease holder that carries side records.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use super::{Decision, ShardChange, ShardInputs, ShardTransition};
use crate::side_records::{SideRecord, SideRecords};

/// An operation, and the side records that its commit writes.
///
/// The decision is that of the operation alone: no rule reads the records.
#[derive(Clone, Copy, Debug)]
pub struct WithRecords<'a, T> {
    /// The operation.
    pub operation: T,
    /// The records.
    pub records: SideRecords<'a>,
}

impl<T: ShardTransition> ShardTransition for WithRecords<'_, T> {
    type Output = T::Output;
    type Error = T::Error;

    const MAKES_SHARDS: bool = T::MAKES_SHARDS;
    const CONSULTS_OWNER: bool = T::CONSULTS_OWNER;

    fn subject(&self) -> (TenantId, ShardKey) {
        self.operation.subject()
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Self::Output, Self::Error>, Self::Error> {
        self.operation.decide(now, seen)
    }

    fn side_records(&self) -> &[SideRecord] {
        self.records.as_slice()
    }

    fn exhausted(full: SlabFull) -> Self::Error {
        T::exhausted(full)
    }
}
