//! Where the shards of a run lie in its source, for a map of the key space.

use gossip_contracts::identity::{LogicalTime, ShardId, WorkerId};
use gossip_coordination::{ShardStatus, ShardSummary};

use super::{RunLook, covered};
use crate::density::Density;

/// The range of one shard, as a part of the source.
///
/// Positions are fractions of the source from 0 to 1, measured in keys as far as the
/// [`Density`] knows them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Slice {
    /// The shard.
    pub shard: ShardId,
    /// Where it begins.
    pub from: f64,
    /// How far it is processed.
    pub covered: f64,
    /// Where it ends. Equal to `from` if no sampled key lies in it, as for a single failed item.
    pub to: f64,
    /// Its state.
    pub state: SliceState,
    /// The lease holder, if a lease is live.
    pub holder: Option<WorkerId>,
    /// When that lease ends.
    pub lease_ends: Option<LogicalTime>,
}

/// The state of a [`Slice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a map shows each of them")]
pub enum SliceState {
    /// Every key is processed.
    Done,
    /// A worker holds its lease.
    Leased,
    /// It waits to be claimed.
    Waiting,
    /// It is parked: its item failed, or its range cannot be processed.
    Parked,
    /// Its record is damaged.
    Damaged,
}

impl RunLook {
    /// Returns the shards that make up the source, in the order of their ranges. Split shards are
    /// left out, because their parts are shards of their own.
    ///
    /// Without a sample of the source all shards have the same width.
    pub(crate) fn slices(&self, density: &Density) -> Vec<Slice> {
        let is_part = |shard: &&ShardSummary| match shard.damage {
            Some(damage) => damage.has_range(),
            None => shard.status != ShardStatus::Split,
        };
        let mut parts: Vec<&ShardSummary> = self.shards.iter().filter(is_part).collect();
        parts.sort_by(|one, other| one.start.cmp(&other.start));
        let count = parts.len();
        let place = |(index, shard): (usize, &ShardSummary)| match density.len() {
            0 => (index as f64 / count as f64, (index + 1) as f64 / count as f64, None),
            keys => {
                let from = density.below(&shard.start);
                let part = |len: usize| (from + len) as f64 / keys as f64;
                let covered = part(covered(shard, density));
                (part(0), part(density.between(&shard.start, &shard.end)), Some(covered))
            }
        };
        parts
            .into_iter()
            .enumerate()
            .map(|(index, shard)| {
                let ((from, to, covered), state) = (place((index, shard)), state_of(shard));
                let covered = match state {
                    SliceState::Done => to,
                    SliceState::Leased
                    | SliceState::Waiting
                    | SliceState::Parked
                    | SliceState::Damaged => covered.unwrap_or(from).clamp(from, to),
                };
                let (holder, lease_ends) = (shard.owner, shard.lease_deadline);
                Slice { shard: shard.shard, from, covered, to, state, holder, lease_ends }
            })
            .collect()
    }
}

const fn state_of(shard: &ShardSummary) -> SliceState {
    match shard.status {
        _ if shard.damage.is_some() => SliceState::Damaged,
        ShardStatus::Done | ShardStatus::Split => SliceState::Done,
        ShardStatus::Parked => SliceState::Parked,
        ShardStatus::Active if shard.leased => SliceState::Leased,
        ShardStatus::Active => SliceState::Waiting,
    }
}
