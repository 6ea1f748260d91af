//! The side records of all runs.

use std::collections::BTreeMap;
use std::ops::Bound;

use gossip_contracts::identity::{RunId, ShardKey, TenantId};

use crate::side_records::{
    FAILURE_RECORDS_MAX, SideRecord, SideRecordId, SideRecordKind, StoredSideRecord,
};

/// Side records by run, kind and id.
#[derive(Debug, Default)]
pub(super) struct StoredRecords(BTreeMap<(TenantId, RunId), BTreeMap<Place, SideRecord>>);

type Place = (SideRecordKind, SideRecordId);

impl StoredRecords {
    /// Stores the records of an operation on `shard` that was executed.
    #[inline]
    pub(super) fn store(&mut self, tenant: TenantId, shard: ShardKey, records: &[SideRecord]) {
        // Most operations have none, and must not pay for a lookup.
        if !records.is_empty() {
            self.store_some(tenant, shard, records);
        }
    }

    #[cold]
    fn store_some(&mut self, tenant: TenantId, shard: ShardKey, records: &[SideRecord]) {
        let stored = self.0.entry((tenant, shard.run())).or_default();
        let is_failure = |(kind, _): &&Place| *kind == SideRecordKind::Failure;
        let mut failures = stored.keys().filter(is_failure).count() as u64;
        for record in records {
            let place = (record.kind(), record.id(shard.shard()));
            // A failure that replaces its own record takes no further place.
            if is_failure(&&place) && !stored.contains_key(&place) {
                if failures >= FAILURE_RECORDS_MAX {
                    continue;
                }
                failures += 1;
            }
            stored.insert(place, record.clone());
        }
    }

    /// Returns the records of one kind behind `after`.
    pub(super) fn list(
        &self,
        tenant: TenantId,
        run: RunId,
        kind: SideRecordKind,
        after: Option<SideRecordId>,
    ) -> impl Iterator<Item = StoredSideRecord> {
        let first = SideRecordId { group: 0, number: 0 };
        let from = match after {
            Some(after) => Bound::Excluded((kind, after)),
            None => Bound::Included((kind, first)),
        };
        let stored = self.0.get(&(tenant, run)).into_iter();
        let behind = stored.flat_map(move |it| it.range((from, Bound::Unbounded)));
        behind
            // The range has no end, and the records of the next kind follow.
            .take_while(move |((stored, _), _)| *stored == kind)
            .map(|((_, id), record)| StoredSideRecord { id: *id, record: record.clone() })
    }

    /// Drops the records of a deleted run.
    pub(super) fn purge(&mut self, tenant: TenantId, run: RunId) {
        self.0.remove(&(tenant, run));
    }
}
