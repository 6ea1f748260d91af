//! Checks of the records against the oracle's history, at every state.
//!
//! The first half checks effects alone: the leaves tile the roots, and every key below a cursor was
//! assigned to a worker. The second half compares every field of the records with the acknowledged
//! values, which finds a violation before it has an effect.

use gossip_coordination::ShardStatus;

use super::oracle::{OracleRun, Rule, Violation, require};
use super::state::{RunEntry, ShardEntry, State};
use super::vocabulary::KeyNo;
use super::world::World;

/// Which checks run at every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "effects alone, or the records too")]
pub enum Strictness {
    /// Effects and coverage only.
    Effects,
    /// Also the stored records.
    Records,
}

impl World {
    /// Checks the records of `state` against the oracle's history.
    ///
    /// # Errors
    ///
    /// Returns the rule that a record breaks.
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
        require(covered, Rule::LostKey, "a key below the cursor was not assigned to a worker")?;
        let finished = facts.status != ShardStatus::Done || run.is_covered(facts.range);
        require(finished, Rule::DoneUncovered, "a key of a completed shard was skipped")
    }

    fn check_tiling(&self, state: &State, entry: RunEntry, tenant: u8) -> Result<(), Violation> {
        let known = self.runs.get(entry.oracle);
        let facts = state.shards_of(tenant).map(|it| self.kernel.facts(it.record));
        let within = state.shards_of(tenant).count() <= self.config.shards_max;
        require(within, Rule::Limit, "the shard quota was exceeded")?;
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
            && facts.sequence == known.sequence
            && facts.done == known.done;
        require(same, Rule::Acknowledged, "a record differs from the acknowledged values")?;
        let asked = known.request.map(|it| (u64::from(it.op_id), it.what, it.expires));
        let same = facts.request == asked;
        require(same, Rule::Acknowledged, "the stored request is not the one that was sent")
    }

    fn check_run(&self, entry: RunEntry) -> Result<(), Violation> {
        let known = self.runs.get(entry.oracle);
        let stored = self.kernel.run_facts.get(entry.value as usize).and_then(|it| it.status());
        let same = stored == known.status;
        require(same, Rule::Acknowledged, "a run differs from the acknowledged values")
    }
}

/// Returns whether `parts`, in order, make up the ranges `roots`, which are ordered and disjoint.
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
