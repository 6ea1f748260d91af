//! Checks the store against the calls and acknowledgements of all processes.

use std::collections::{BTreeMap, BTreeSet};

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, ShardId, ShardKey, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, GetRunError, GrantToken, IdempotentOutcome, Lease,
    RunManagement, ShardFilter, ShardSummary,
};
use gossip_coordination_sqlite::SqliteDatabase;

use crate::Failure;
use crate::run::{RUN, TENANT, now};
use crate::sqlite::journal::{Call, Line};
use crate::sqlite::keys::{key_of, number_of};
use crate::sqlite::world::{LEASE, ROOTS, SHARDS_MAX, coordinator};

/// What a store must have after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Every acknowledged call.
    EveryAcknowledged,
    /// A state it had at some time: the last calls may be missing.
    AnEarlierState,
}

/// Counts of comparisons after power cuts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    /// Images that were opened.
    pub(crate) images: u64,
    /// Acknowledged calls that they had to have.
    pub(crate) calls: u64,
    /// Leases that were granted, with a fence above all earlier ones.
    pub(crate) leases: u64,
}

impl Compared {
    pub(crate) const fn add(&mut self, other: Self) {
        self.images += other.images;
        self.calls += other.calls;
        self.leases += other.leases;
    }
}

/// The combined journals of one file.
#[derive(Debug, Default)]
pub(crate) struct HistoryCheck {
    shards: BTreeMap<u64, Account>,
    /// Acknowledged new shards with their parents.
    children: BTreeMap<u64, u64>,
    pub(crate) asked_count: u64,
    pub(crate) acknowledged_count: u64,
}

/// The journal entries of one shard.
#[derive(Debug, Default)]
struct Account {
    grants_asked: u64,
    /// Every acknowledged fence.
    fences: BTreeSet<u64>,
    keys_asked: BTreeSet<u128>,
    key_acknowledged: Option<u128>,
    splits_asked: u64,
    /// The last acknowledged operation with an id.
    last: Option<(u64, Call)>,
    /// Whether `last` is newer than the last check.
    is_fresh: bool,
}

impl HistoryCheck {
    /// Adds the journal of one thread.
    pub(crate) fn enter(&mut self, lines: &[Line]) -> Result<(), Failure> {
        for line in lines {
            self.asked_count += u64::from(!line.is_acknowledged);
            self.acknowledged_count += u64::from(line.is_acknowledged);
            let account = self.shards.entry(line.shard).or_default();
            if line.is_acknowledged {
                account.acknowledge(line.shard, line.call)?;
            } else {
                account.ask(line.call);
            }
            if let (true, Call::Split { child, .. }) = (line.is_acknowledged, line.call)
                && self.children.insert(child, line.shard).is_some()
            {
                return Err(format!("shard {child} was created twice").into());
            }
        }
        Ok(())
    }

    /// Checks that the store has everything acknowledged and nothing unrequested, and that the file
    /// is intact. Returns the number of shards.
    pub(crate) fn check(&mut self, database: &SqliteDatabase) -> Result<usize, Failure> {
        database.check_integrity()?;
        let mut backend = coordinator(database);
        let mut rows = Vec::new();
        backend.list_shards_into(now(), TENANT, RUN, ShardFilter::all(), &mut rows)?;
        let progress = backend.get_run_progress(now(), TENANT, RUN)?;
        if progress.total != rows.len() as u64 || rows.len() > SHARDS_MAX {
            let total = progress.total;
            return Err(format!("{} shards, counted {total}, max {SHARDS_MAX}", rows.len()).into());
        }
        let rows: BTreeMap<u64, ShardSummary> =
            rows.into_iter().map(|row| (row.shard.as_raw(), row)).collect();
        self.check_births(&rows)?;
        for (shard, account) in &mut self.shards {
            let row = rows.get(shard).ok_or_else(|| format!("shard {shard} is missing"))?;
            account.check(row)?;
            if std::mem::take(&mut account.is_fresh) {
                account.replay(&mut backend, row.shard)?;
            }
        }
        Ok(rows.len())
    }

    /// Checks a store after a power cut, and that leases granted now have fences that were never
    /// given.
    pub(crate) fn check_after_power_loss(
        mut self,
        database: &SqliteDatabase,
        expect: Expect,
    ) -> Result<Compared, Failure> {
        let mut compared = Compared { images: 1, ..Compared::default() };
        match expect {
            Expect::EveryAcknowledged => {
                self.check(database)?;
                compared.calls = self.acknowledged_count;
            }
            Expect::AnEarlierState => database.check_integrity()?,
        }
        let (mut backend, mut rows) = (coordinator(database), Vec::new());
        match backend.list_shards_into(now(), TENANT, RUN, ShardFilter::all(), &mut rows) {
            Err(GetRunError::RunNotFound) if expect == Expect::AnEarlierState => {
                return Ok(compared);
            }
            listed => listed?,
        }
        let unknown = Account::default();
        let mut scratch = Box::<AcquireScratch>::default();
        for row in &rows {
            let account = self.shards.get(&row.shard.as_raw()).unwrap_or(&unknown);
            account.check_cursor(row)?;
            let (later, worker) = (after_every_lease(), WorkerId::from_raw(u64::MAX));
            let key = ShardKey::new(RUN, row.shard);
            let view =
                backend.acquire_and_restore_into(later, TENANT, key, worker, &mut scratch)?;
            let fence = view.lease.fence().as_raw();
            if account.fences.last().is_some_and(|given| *given >= fence) {
                return Err(format!("fence {fence} of {key:?}, a later one was given").into());
            }
            compared.leases += 1;
        }
        Ok(compared)
    }

    /// Checks that acknowledged shards exist and that the others were requested.
    fn check_births(&self, rows: &BTreeMap<u64, ShardSummary>) -> Result<(), Failure> {
        if let Some(lost) = self.children.keys().find(|child| !rows.contains_key(child)) {
            return Err(format!("shard {lost} was acknowledged and is missing").into());
        }
        for (id, row) in rows {
            let known = match row.parent {
                None => *id < ROOTS,
                Some(parent) => {
                    let acknowledged = self.children.get(id);
                    let asked = self.shards.get(&parent.as_raw());
                    let asked = asked.is_some_and(|it| it.splits_asked >= row_count(rows, parent));
                    acknowledged.is_none_or(|by| *by == parent.as_raw()) && asked
                }
            };
            if !known {
                return Err(format!("shard {id} exists without a request").into());
            }
        }
        Ok(())
    }
}

fn row_count(rows: &BTreeMap<u64, ShardSummary>, parent: ShardId) -> u64 {
    rows.values().filter(|row| row.parent == Some(parent)).count() as u64
}

/// Returns a time at which every lease of the record is over.
fn after_every_lease() -> LogicalTime {
    LogicalTime::from_raw(now().as_raw() + 2 * LEASE)
}

impl Account {
    fn ask(&mut self, call: Call) {
        match call {
            Call::Grant { .. } => self.grants_asked += 1,
            Call::Checkpoint { key, .. } => {
                self.keys_asked.insert(key);
            }
            Call::Split { .. } => self.splits_asked += 1,
            Call::Release { .. } => {}
        }
    }

    fn acknowledge(&mut self, shard: u64, call: Call) -> Result<(), Failure> {
        let fence = match call {
            Call::Grant { fence } => {
                if !self.fences.insert(fence) {
                    return Err(format!("fence {fence} of shard {shard} was given twice").into());
                }
                return Ok(());
            }
            Call::Checkpoint { fence, key, .. } => {
                self.key_acknowledged = self.key_acknowledged.max(Some(key));
                fence
            }
            Call::Split { .. } => return Ok(()),
            Call::Release { fence, .. } => fence,
        };
        // Journals are added one after another. A higher fence is later, and the lines of one fence
        // are from one journal, in order.
        if self.last.is_none_or(|(newest, _)| fence >= newest) {
            self.last = Some((fence, call));
            self.is_fresh = true;
        }
        Ok(())
    }

    fn check(&self, row: &ShardSummary) -> Result<(), Failure> {
        let shard = row.shard.as_raw();
        let fence = row.fence_epoch.as_raw();
        if self.fences.last().is_some_and(|given| *given > fence) {
            return Err(format!("shard {shard} is at fence {fence}, a later one was given").into());
        }
        let grants = u64::from(row.acquire_count);
        if grants < self.fences.len() as u64 || grants > self.grants_asked {
            let (given, asked) = (self.fences.len(), self.grants_asked);
            let what = format!("shard {shard}: {grants} grants, {given} given, {asked} asked for");
            return Err(what.into());
        }
        let reached = row.last_key.as_deref().map(number_of);
        if reached < self.key_acknowledged {
            return Err(format!("shard {shard} lost an acknowledged checkpoint").into());
        }
        self.check_cursor(row)
    }

    /// Checks that the cursor is at a requested key, if it has moved.
    fn check_cursor(&self, row: &ShardSummary) -> Result<(), Failure> {
        let reached = row.last_key.as_deref().map(number_of);
        if reached.is_some_and(|key| !self.keys_asked.contains(&key)) {
            let shard = row.shard.as_raw();
            return Err(format!("shard {shard} is at a key without a request").into());
        }
        Ok(())
    }

    /// Checks that the last acknowledged operation is in the shard's log: a retry is replayed.
    fn replay(
        &self,
        backend: &mut impl CoordinationBackend,
        shard: ShardId,
    ) -> Result<(), Failure> {
        let Some((fence, call)) = self.last else { return Ok(()) };
        let key = ShardKey::new(RUN, shard);
        let (owner, token) = (WorkerId::from_raw(1), GrantToken::from_raw(1));
        let deadline = LogicalTime::from_raw(1);
        let fence = FenceEpoch::from_raw(fence);
        let lease = Lease::new(TENANT, key, owner, fence, deadline, token);
        let replayed = match call {
            Call::Checkpoint { op, key, .. } => {
                let bytes = key_of(key);
                let cursor = CursorUpdate::try_from_parts(Some(&bytes), None)?;
                let again = backend.checkpoint(now(), TENANT, &lease, cursor, OpId::from_raw(op));
                matches!(again, Ok(IdempotentOutcome::Replayed(_)))
            }
            Call::Release { op, .. } => {
                let (mode, op) = (ReleaseMode::Clean, OpId::from_raw(op));
                let again = backend.release(now(), TENANT, &lease, mode, op);
                matches!(again, Ok(IdempotentOutcome::Replayed(())))
            }
            Call::Grant { .. } | Call::Split { .. } => true,
        };
        if replayed { Ok(()) } else { Err(format!("shard {shard:?} forgot {call:?}").into()) }
    }
}
