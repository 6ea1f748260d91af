//! The progress of a run and its estimated end.
//!
//! ```text
//!  stored shards ─► Tally   (what they cover: exact counts, and a measure)   stateless
//!  tallies       ─► ProgressMeter (speed, remaining work, slowest shard)     stateful
//!                     └─► Progress: keys, total and its kind, fraction, ETA
//! ```
//!
//! **Monotone.** A tally measures the set of covered keys: counts from the runtime's tokens, and
//! sampled keys at or below the cursors. That set only grows: a pause, a split, a handoff or
//! an unparking moves no key out of it. A listing of many shards is not of one instant, so a meter
//! also never reports less than before.
//!
//! **Labelled.** [`ProgressKind`] says whether the total was counted, estimated, or is not known.
//!
//! **The remaining time** is working time: pauses do not count, neither past nor future ones. It is
//! never shorter than the time that the slowest leased shard needs by its own speed, and it comes
//! with its error. Shards of a dead worker, whose lease is no longer renewed, have no speed: they
//! count by the speed of the run. Where too little is known there is no number.
//!
//! Nothing here reads a clock or decides anything; it reads stored records.

mod cells;
mod eta;
mod meter;
mod slices;

#[cfg(test)]
mod progress_tests;

use std::fmt;

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::{
    GetRunError, RunManagement, RunStatus, ShardFilter, ShardStatus, ShardSummary,
};

pub use self::cells::{CELL_ROUNDING, cells_touched, spread};
pub use self::eta::Eta;
pub(crate) use self::eta::Speed;
pub use self::meter::ProgressMeter;
pub use self::slices::{Slice, SliceState};
use crate::density::Density;
use crate::token::RuntimeToken;

/// How a total is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "counted, estimated or not known: no fourth")]
pub enum ProgressKind {
    /// The source was counted.
    Exact,
    /// Estimated from a bounded sample of the source.
    Estimated,
    /// The source can neither be counted nor sampled: only the done keys are known.
    Unknown,
}

impl fmt::Display for ProgressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Estimated => "estimated",
            Self::Unknown => "unknown",
        })
    }
}

/// The progress of a run at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The time of the snapshot.
    pub at: LogicalTime,
    /// Done keys: checkpointed, and not skipped as unreadable. Always exact, never decreases.
    pub keys: u64,
    /// Keys that were skipped as unreadable; they are not done.
    pub unread: u64,
    /// All keys of the source; `None` exactly if the kind is unknown. Not below `keys`.
    pub total: Option<u64>,
    /// How the total and the fraction are known.
    pub kind: ProgressKind,
    /// The done fraction, from 0 to 1; 1 exactly when every key is done. Never decreases while work
    /// remains.
    pub fraction: Option<f64>,
    /// The same in percent, rounded down.
    pub percent: Option<u8>,
    /// Shards that are finished.
    pub shards_done: u64,
    /// Parked shards.
    pub shards_parked: u64,
    /// Shards whose record is damaged.
    pub shards_damaged: u64,
    /// Leased shards.
    pub shards_leased: u64,
    /// Shards that wait to be claimed.
    pub shards_waiting: u64,
    /// Whether the run is paused. The remaining time then counts from its resumption.
    pub paused: bool,
    /// Remaining working time; `None` if it is unknown: there is no speed yet, a leased shard has
    /// finished no key for long, or the total is unknown.
    pub eta: Option<Eta>,
}

/// One snapshot of a run's stored records.
#[derive(Clone, Debug)]
pub struct RunLook {
    /// The time of the snapshot.
    pub(crate) at: LogicalTime,
    /// The status of the run.
    pub status: RunStatus,
    /// Whether it is paused.
    pub paused: bool,
    /// All of its shards.
    pub(crate) shards: Vec<ShardSummary>,
}

impl RunLook {
    /// Reads a snapshot. The cost is proportional to the number of shards.
    ///
    /// # Errors
    ///
    /// Returns the coordinator's errors.
    pub fn take<B: RunManagement + ?Sized>(
        coordinator: &mut B,
        at: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, GetRunError> {
        // The run before its shards: a run that ends in between is then shown as active, never as
        // done with unfinished shards.
        let record = coordinator.get_run(tenant, run)?;
        let (status, paused) = (record.status(), record.is_paused());
        let mut shards = Vec::new();
        coordinator.list_shards_into(at, tenant, run, ShardFilter::all(), &mut shards)?;
        Ok(Self { at, status, paused, shards })
    }

    /// Returns the shards of the run.
    #[must_use]
    pub fn shards(&self) -> &[ShardSummary] {
        &self.shards
    }
}

/// The coverage of one snapshot, without history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Keys that the tokens count.
    pub(crate) keys: u64,
    /// How many of them are unread.
    pub(crate) unread: u64,
    /// The measure of the covered keys.
    pub(crate) covered: usize,
    /// Finished shards.
    pub(crate) done: u64,
    /// Parked shards.
    pub(crate) parked: u64,
    /// Shards whose record is damaged.
    pub(crate) damaged: u64,
    /// Leased shards.
    pub(crate) leased: u64,
    /// Shards that wait to be claimed.
    pub(crate) waiting: u64,
}

impl Tally {
    /// Adds up the shards of a snapshot.
    #[must_use]
    pub(crate) fn of(shards: &[ShardSummary], density: &Density) -> Self {
        let mut tally = Self::default();
        for shard in shards {
            tally.add(shard, density);
        }
        tally
    }

    fn add(&mut self, shard: &ShardSummary, density: &Density) {
        match shard.status {
            _ if shard.damage.is_some() => self.damaged += 1,
            ShardStatus::Done => self.done += 1,
            ShardStatus::Parked => self.parked += 1,
            ShardStatus::Active if shard.leased => self.leased += 1,
            ShardStatus::Active => self.waiting += 1,
            // Its children carry the keys that it had covered.
            ShardStatus::Split => return,
        }
        let (keys, unread) = counted(shard);
        self.keys += keys;
        self.unread += unread;
        self.covered += covered(shard, density);
    }
}

/// Returns what the token of a shard counts: keys, and those of them that are unread.
pub(crate) fn counted(shard: &ShardSummary) -> (u64, u64) {
    // Foreign tokens count nothing; the next lease holder parks the shard.
    let token = shard.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
    token.map_or((0, 0), |token| (token.accumulator.count(), token.unread))
}

/// Returns the measure of what a shard has covered; none if its record is damaged.
pub(crate) fn covered(shard: &ShardSummary, density: &Density) -> usize {
    if shard.damage.is_some() {
        return 0;
    }
    match (shard.status, shard.last_key.as_deref()) {
        // The whole range, not up to the cursor: behind the last key of a finished shard lies no
        // key.
        (ShardStatus::Done, _) => density.between(&shard.start, &shard.end),
        (ShardStatus::Active | ShardStatus::Parked, Some(last)) => {
            density.through(&shard.start, last)
        }
        (ShardStatus::Active | ShardStatus::Parked, None) | (ShardStatus::Split, _) => 0,
    }
}
