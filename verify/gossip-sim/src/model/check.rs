//! Records held against the oracle, at every state.
//!
//! The first half asks what a user would ask, of effects alone: do the leaves tile the roots, was
//! every key below a cursor handed to somebody. The second half asks whether the records are what
//! was acknowledged, field by field, which finds a broken promise before it does harm.

use gossip_coordination::ShardStatus;

use super::oracle::{OracleRun, Rule, Violation, require};
use super::state::{RunEntry, ShardEntry, State};
use super::vocabulary::KeyNo;
use super::world::World;

/// How much is asked at every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "effects alone, or the records too")]
pub enum Strictness {
    /// Effects and coverage only.
    Effects,
    /// Also that the records are what was acknowledged.
    Records,
}

impl World {
    /// Holds the records of `state` against the oracle.
    ///
    /// # Errors
    ///
    /// The rule that a record breaks.
    pub(super) fn check(&self, state: &State, strictness: Strictness) -> Result<(), Violation> {
        for entry in &state.shards {
            let run = self.runs.get(state.runs[usize::from(entry.tenant)].oracle);
            self.check_coverage(*entry, run)?;
            if strictness == Strictness::Records {
                self.check_record(*entry)?;
            }
        }
        for (entry, tenant) in state.runs.iter().zip(0..) {
            self.check_tiling(state, *entry, tenant)?;
            if strictness == Strictness::Records {
                self.check_run(*entry)?;
            }
        }
        Ok(())
    }

    fn check_coverage(&self, entry: ShardEntry, run: &OracleRun) -> Result<(), Violation> {
        let facts = self.kernel.facts(entry.record);
        let (start, done) = (facts.range.0, facts.done);
        let covered = run.is_covered((start, done.max(start)));
        require(covered, Rule::LostKey, "a key below the cursor was handed to nobody")?;
        let finished = facts.status != ShardStatus::Done || run.is_covered(facts.range);
        require(finished, Rule::DoneUncovered, "a key of a shard that is done was left out")
    }

    fn check_tiling(&self, state: &State, entry: RunEntry, tenant: u8) -> Result<(), Violation> {
        let known = self.runs.get(entry.oracle);
        let facts = state.shards_of(tenant).map(|it| self.kernel.facts(it.record));
        let within = state.shards_of(tenant).count() <= self.config.shards_max;
        require(within, Rule::Limit, "there are more shards than there may be")?;
        let leaves = facts.filter(|facts| facts.status != ShardStatus::Split);
        let mut ranges: Vec<(KeyNo, KeyNo)> = leaves.map(|facts| facts.range).collect();
        ranges.sort_unstable();
        require(tiles(&ranges, &known.roots), Rule::Tiling, "the leaves do not tile the roots")
    }

    fn check_record(&self, entry: ShardEntry) -> Result<(), Violation> {
        let facts = self.kernel.facts(entry.record);
        let known = self.shards.get(entry.oracle);
        require(facts.fence >= known.fence, Rule::FenceFell, "a stored fence is too low")?;
        require(facts.done >= known.done, Rule::ProgressFell, "stored progress is too low")?;
        let held = known.holder.map(|holder| (holder.worker, holder.deadline));
        let same = facts.status == known.status
            && facts.range == known.range
            && facts.lease == held
            && facts.fence == known.fence
            && facts.done == known.done;
        require(same, Rule::Acknowledged, "a record is not what was acknowledged")?;
        let asked = known.request.map(|it| (u64::from(it.op_id), it.what, it.expires));
        let same = facts.request == asked;
        require(same, Rule::Acknowledged, "another request is stored than was made")
    }

    fn check_run(&self, entry: RunEntry) -> Result<(), Violation> {
        let known = self.runs.get(entry.oracle);
        let stored = self.kernel.run_facts.get(entry.value as usize).and_then(|it| it.status());
        let same = stored == known.status;
        require(same, Rule::Acknowledged, "a run is not what was acknowledged")
    }
}

/// Whether `parts`, in order, make up the ranges `roots`, which are in order and apart.
pub(super) fn tiles(parts: &[(KeyNo, KeyNo)], roots: &[(KeyNo, KeyNo)]) -> bool {
    let mut parts = parts.iter();
    let all = roots.iter().all(|(start, end)| {
        let mut at = *start;
        while at < *end {
            match parts.next() {
                Some((from, to)) if *from == at && *to > at => at = *to,
                Some(_) | None => return false,
            }
        }
        at == *end
    });
    all && parts.next().is_none()
}
