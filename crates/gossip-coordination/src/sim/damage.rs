//! Reads that show what was never stored, or no longer is.

use super::audit::Torn;
use super::faults::FaultKind;
use super::op::Verb;
use super::world::{Sender, World};
use crate::record::ShardStatus;
use crate::store::{Answer, Key, KeyRange, Read, Versioned};

impl World {
    /// Damages one of `answers` and counts that if it did; whether a checksum must notice.
    pub(super) fn damage(
        &mut self,
        kind: FaultKind,
        process: u32,
        reads: &[Read],
        answers: &mut [Answer],
    ) -> bool {
        let mut found: Vec<(Key, &mut Versioned)> = reads
            .iter()
            .zip(answers.iter_mut())
            .filter_map(|(read, answer)| {
                let (Read::Get(key), Answer::Value(Some(value))) = (read, answer) else {
                    return None;
                };
                Some((*key, value))
            })
            .filter(|(key, _)| self.is_decided_about(key))
            .collect();
        if found.is_empty() {
            return false;
        }
        let place = self.luck(process, found.len() as u64) as usize;
        let (key, value) = &mut found[place];
        let looked_at = !matches!(key, Key::ShardCold { .. }) || !self.sees_its_own(process, key);
        let luck = &mut self.processes[process as usize].luck;
        let damaged = match kind {
            FaultKind::BitFlip => {
                let bit = luck.below(8 * value.bytes.len() as u64);
                value.bytes[bit as usize / 8] ^= 1 << (bit % 8);
                true
            }
            FaultKind::TruncatedRead => {
                let length = luck.below(value.bytes.len() as u64);
                value.bytes.truncate(length as usize);
                true
            }
            FaultKind::WrongKeyRead => {
                let alike = KeyRange::all_of(key.kind());
                let other = self.disk.range(&alike).find(|other| other != key);
                let other = other.and_then(|other| self.disk.get(&other));
                other.inspect(|it| value.bytes.clone_from(&it.bytes)).is_some()
            }
            FaultKind::OldVersionRead => {
                let before = self.disk.before(key);
                before.inspect(|before| value.clone_from(before)).is_some()
            }
            other => unreachable!("{} does not damage a read", other.name()),
        };
        self.felt_if(damaged, Some(kind));
        damaged && looked_at && kind != FaultKind::OldVersionRead
    }

    /// Whether the process may only have to see that its commit is there: it looks at the hot part
    /// alone then. An acquire that parks a shard writes what any other would have written.
    fn sees_its_own(&self, process: u32, key: &Key) -> bool {
        let shared = self.shared.borrow();
        let Some(op) = &shared.current[process as usize] else { return false };
        let is_parked = || {
            let Key::ShardCold { tenant, shard } = *key else { return false };
            let number = shared.oracle.find_shard(tenant, shard);
            number.is_some_and(|it| shared.oracle.shards[it as usize].status == ShardStatus::Parked)
        };
        let acquires = matches!(op.verb, Verb::Claim | Verb::Acquire);
        op.applied.get() > 0 || acquires && is_parked()
    }

    /// Whether `answers` show a value that was torn; each such value is counted when it is met
    /// first. An answer may show an older value instead, which is whole.
    pub(super) fn shows_torn(
        &mut self,
        asked_by: Sender,
        reads: &[Read],
        answers: &[Answer],
    ) -> bool {
        if !reads.iter().zip(answers).any(|(read, answer)| self.is_damaged(read, answer)) {
            return false;
        }
        let hears = self.hears(asked_by);
        let (disk, mut met) = (&self.disk, 0);
        for torn in self.torn.iter_mut().filter(|torn| hears && !torn.shown) {
            let is_there = disk.get(&torn.key).is_some_and(|it| it.revision == torn.revision);
            if is_there && reads.contains(&Read::Get(torn.key)) {
                torn.shown = true;
                met += 1;
            }
        }
        (0..met).for_each(|_| self.felt(FaultKind::TornWrite));
        true
    }

    /// Whether an answer shows a value that was torn and not repaired yet.
    fn is_damaged(&self, read: &Read, answer: &Answer) -> bool {
        let (Read::Get(key), Answer::Value(Some(shown))) = (read, answer) else { return false };
        let still = |torn: &Torn| torn.key == *key && shown.revision == torn.revision;
        self.torn.iter().any(still) && self.is_decided_about(key)
    }

    /// Whether every operation that reads the value decodes it before it decides. Of a run that is
    /// not registered to its end, or is deleted, nobody looks at the shards.
    fn is_decided_about(&self, key: &Key) -> bool {
        match *key {
            Key::RunHead { .. } => true,
            Key::ShardHot { tenant, shard } | Key::ShardCold { tenant, shard } => {
                let oracle = &self.shared.borrow().oracle;
                let run = oracle.find_shard(tenant, shard).map(|it| oracle.shards[it as usize].run);
                run.is_some_and(|run| {
                    let run = &oracle.runs[run as usize];
                    !run.deleted && run.roots_born as usize > run.cuts.len()
                })
            }
            Key::RunRoots { .. }
            | Key::Owner { .. }
            | Key::ClaimIndex { .. }
            | Key::ParkedIndex { .. }
            | Key::TenantCounter { .. }
            | Key::TotalCounter
            | Key::Worker { .. }
            | Key::Handoff { .. }
            | Key::Tombstone { .. }
            | Key::HandoffIndex { .. } => false,
        }
    }
}
