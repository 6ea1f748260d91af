//! Corruption faults: torn and lost writes, and reads of values that were never stored or no longer
//! are.
//!
//! Any value of an answer may be damaged, alone or in a page. If every operation decodes the value
//! before it decides ([`World::is_decided_about`]), the operation must fail. Otherwise it may have
//! used only the key: then it must fail or return the result of an undamaged read.
//! `damaged_bytes_end_an_operation_or_change_nothing` checks this by running each simulation with
//! and without the fault.

use std::rc::Rc;

use gossip_contracts::identity::{RunId, ShardKey, TenantId};
use gossip_coordination::store::{
    Answer, Key, Read, Txn, Versioned, Write, decode_cold, decode_hot, decode_run_head,
};
use gossip_coordination::{ShardDamage, ShardStatus};

use super::audit::Torn;
use super::disk::looks_at;
use super::faults::FaultKind;
use super::op::{Op, Verb, shard_of};
use super::world::{Sender, World};

/// A shard of which the store has lost one of two parts that were written together.
#[derive(Debug)]
pub(super) struct Halves {
    tenant: TenantId,
    shard: ShardKey,
    /// The revisions of the parts since then.
    revisions: [Option<u64>; 2],
}

/// What a reply shows about damage. An operation learns it when the reply is delivered: a request
/// that was duplicated is served twice, and the second reply is dropped.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) reads: Vec<Read>,
    /// Damaged keys, and whether the operation must decode them.
    pub(super) damaged: Vec<(Key, bool)>,
    /// Whether it must decode one of them, and no older value explains the result.
    pub(super) must: bool,
}

impl Evidence {
    /// Notes the shards and run heads that `op` has read as damaged, and those that it has read
    /// again.
    pub(super) fn note(self, op: &Op) {
        let mut suspects = op.suspects.borrow_mut();
        suspects.retain(|(key, _)| !self.reads.iter().any(|read| looks_at(read, key)));
        suspects.extend(self.damaged);
        op.damaged.set(op.damaged.get() || self.must);
    }
}

/// Maximum number of commits that a store loses at a time: the contents of an unsynced log.
const LOST_COMMITS_MAX: u64 = 4;

impl World {
    /// Damages one of `answers` and counts the fault if a value changed. Returns its key, and
    /// whether a checksum must detect it.
    pub(super) fn damage(
        &mut self,
        kind: FaultKind,
        process: u32,
        reads: &[Read],
        answers: &mut [Answer],
    ) -> Option<(Key, bool)> {
        if kind == FaultKind::OldVersionRead {
            self.show_older(process, reads, answers);
            return None;
        }
        let mut found: Vec<(Key, bool, &mut Versioned)> = Vec::new();
        for (read, answer) in reads.iter().zip(answers.iter_mut()) {
            match (read, answer) {
                (Read::Get(key), Answer::Value(Some(value))) => found.push((*key, true, value)),
                (_, Answer::Page(page)) => {
                    found.extend(page.iter_mut().map(|(key, value)| (*key, false, value)));
                }
                (_, Answer::Value(_) | Answer::Count(_)) => {}
            }
        }
        if found.is_empty() {
            return None;
        }
        let place = self.luck(process, found.len() as u64) as usize;
        let (key, alone, value) = &mut found[place];
        let looked_at = *alone && self.is_looked_at(process, key);
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
                let others = || self.disk.all_of(key.kind()).filter(|other| other != key);
                let place = luck.below(others().count().max(1) as u64) as usize;
                let other = others().nth(place).and_then(|other| self.disk.get(&other));
                let other = other.filter(|it| it.bytes != value.bytes);
                other.inspect(|it| value.bytes.clone_from(&it.bytes)).is_some()
            }
            other => unreachable!("{} does not damage a read", other.name()),
        };
        let key = *key;
        if damaged {
            let (key, shared) = (key.kind(), &mut *self.shared.borrow_mut());
            shared.add_trace(|| format!("p{process} reads a damaged {key:?}"));
        }
        self.count_fault_if(damaged, Some(kind));
        damaged.then_some((key, looked_at))
    }

    /// Returns an older version of one value, or of all `answers`, as a lagging server does.
    /// Deleted keys may reappear, and new keys may be missing.
    fn show_older(&mut self, process: u32, reads: &[Read], answers: &mut [Answer]) {
        let writes = self.disk.past_of(reads);
        if writes.is_empty() {
            return;
        }
        let write = writes[self.luck(process, writes.len() as u64) as usize];
        let all = self.luck(process, 2) == 0;
        let older = if all {
            let page = self.plan.store_limits().page;
            self.disk.read_before(&write, reads, page)
        } else {
            let older = self.disk.replaced_by(&write);
            let answers = reads.iter().zip(answers.iter());
            answers.map(|(read, answer)| with_older(read, answer, &write.key, older)).collect()
        };
        if older == *answers {
            return;
        }
        answers.iter_mut().zip(older).for_each(|(answer, older)| *answer = older);
        let (key, what) = (write.key.kind(), if all { "all keys" } else { "one key" });
        let shared = &mut *self.shared.borrow_mut();
        shared.add_trace(|| format!("p{process} reads {what} before a write of {key:?}"));
        if let Some(op) = &shared.current[process as usize] {
            op.misled.set(true);
        }
        self.tally.count(FaultKind::OldVersionRead);
    }

    /// Returns whether the operation of the process decodes the value before it decides.
    fn is_looked_at(&self, process: u32, key: &Key) -> bool {
        let own = matches!(key, Key::ShardCold { .. }) && self.sees_its_own(process, key);
        self.is_decided_about(key) && !own
    }

    /// Returns whether the process may only check that its commit was applied, for which it reads
    /// only the hot part. An acquire that parks a shard writes the same bytes as any other.
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

    /// Adds the torn values in `answers` to `damaged`, and whether they must be detected. A torn
    /// value is counted when it is first returned. An answer may contain an older value instead,
    /// which is intact.
    pub(super) fn shows_torn(
        &mut self,
        asked_by: Sender,
        reads: &[Read],
        answers: &[Answer],
        damaged: &mut Vec<(Key, bool)>,
    ) {
        let waiting = self.awaits_reply(asked_by);
        for place in 0..self.torn.len() {
            let Torn { key, revision, shown, .. } = self.torn[place];
            let (mut alone, mut in_page) = (false, false);
            for (read, answer) in reads.iter().zip(answers) {
                match answer {
                    Answer::Value(Some(value)) => {
                        alone |= *read == Read::Get(key) && value.revision == revision;
                    }
                    Answer::Page(page) => {
                        let is_it = |(it, value): &(Key, Versioned)| {
                            *it == key && value.revision == revision
                        };
                        in_page |= page.iter().any(is_it);
                    }
                    Answer::Value(None) | Answer::Count(_) => {}
                }
            }
            if alone || in_page {
                damaged.push((key, alone && self.is_looked_at(asked_by.process, &key)));
            }
            if (alone || in_page) && waiting && !shown {
                self.torn[place].shown = true;
                self.count_fault(FaultKind::TornWrite);
            }
        }
    }

    /// Adds the shards of which `reads` return two parts that do not belong together to `damaged`,
    /// and whether they must be detected.
    pub(super) fn shows_halves(
        &self,
        asked_by: Sender,
        reads: &[Read],
        damaged: &mut Vec<(Key, bool)>,
    ) {
        for Halves { tenant, shard, revisions } in &self.halves {
            let (tenant, shard) = (*tenant, *shard);
            let keys = [Key::ShardHot { tenant, shard }, Key::ShardCold { tenant, shard }];
            let is_read = |key: &Key| reads.iter().any(|read| looks_at(read, key));
            // A write of one part from a cache may make them fit, and then nothing is to be seen.
            if self.revisions_of(tenant, shard) == *revisions && keys.iter().all(is_read) {
                let alone = keys.iter().all(|key| reads.contains(&Read::Get(*key)));
                damaged.push((keys[0], alone && self.is_looked_at(asked_by.process, &keys[1])));
            }
        }
    }

    fn revisions_of(&self, tenant: TenantId, shard: ShardKey) -> [Option<u64>; 2] {
        let keys = [Key::ShardHot { tenant, shard }, Key::ShardCold { tenant, shard }];
        keys.map(|key| self.disk.get(&key).map(|value| value.revision))
    }

    /// Returns what an operation of the process learns from a reply to `reads` in which `damaged`
    /// keys are; `None` if it changes nothing.
    pub(super) fn evidence(
        &self,
        process: u32,
        reads: &[Read],
        mut damaged: Vec<(Key, bool)>,
        is_older: bool,
    ) -> Option<Box<Evidence>> {
        let must = damaged.iter().any(|(_, must)| *must) && !is_older;
        let is_listed = |key: &Key| shard_of(key).is_some() && self.is_decided_about(key);
        damaged.retain(|(key, must)| *must || is_listed(key));
        let shared = self.shared.borrow();
        let has_suspects =
            |op: &Option<Rc<Op>>| op.as_ref().is_some_and(|op| !op.suspects.borrow().is_empty());
        let matters = !damaged.is_empty() || has_suspects(&shared.current[process as usize]);
        matters.then(|| Box::new(Evidence { reads: reads.to_vec(), damaged, must }))
    }

    /// Returns the part of a shard's stored record that cannot be decoded.
    pub(super) fn damage_of(&self, tenant: TenantId, shard: ShardKey) -> Option<ShardDamage> {
        let bytes = |key: Key| self.disk.get(&key).map(|value| &*value.bytes);
        let hot = bytes(Key::ShardHot { tenant, shard });
        let cold = bytes(Key::ShardCold { tenant, shard });
        let hot = hot.is_some_and(|it| decode_hot(tenant, shard, it).is_ok());
        let cold = cold.is_some_and(|it| decode_cold(tenant, shard, it).is_ok());
        match (hot, cold) {
            (true, true) => None,
            (false, true) => Some(ShardDamage::Hot),
            (true, false) => Some(ShardDamage::Cold),
            (false, false) => Some(ShardDamage::Both),
        }
    }

    /// Tears one of the values that were just written.
    pub(super) fn tear(&mut self, process: u32, txn: &Txn, revision: u64) {
        let Some((key, good)) = self.any_written(process, txn) else { return };
        let before = self.disk.before(&key).map(|before| before.bytes.clone());
        let (old, half) = (before.unwrap_or_default(), good.len() / 2);
        let mut is_torn = false;
        self.disk.overwrite(&key, |stored| {
            stored.truncate(half);
            stored.extend(old.get(half..).unwrap_or_default());
            is_torn = *stored != good && *stored != old;
            // If the two halves do not differ, nothing was torn, or nothing was written, which is
            // another fault.
            if !is_torn {
                stored.clone_from(&good);
            }
        });
        if is_torn {
            self.torn.push(Torn { key, revision, shown: false, good });
        }
    }

    /// Loses one write of the last commit, or the last commits, as a store does that acknowledges
    /// before it syncs its log.
    pub(super) fn forget_write(&mut self, process: u32, op: &Op, txn: &Txn) {
        if self.luck(process, 2) > 0 {
            return self.forget_one(process, op, txn);
        }
        let count = 1 + self.luck(process, LOST_COMMITS_MAX);
        let from = self.disk.lose_last_commits(count);
        self.drop_damage_from(from);
        let mut shared = self.shared.borrow_mut();
        shared.add_trace(|| format!("the store loses everything from revision {from} on"));
        drop(shared);
        self.count_fault(FaultKind::LostWrite);
    }

    /// Drops the damage of lost revisions, which are assigned again to other values.
    pub(super) fn drop_damage_from(&mut self, from: u64) {
        self.torn.retain(|torn| torn.revision < from);
        self.halves.retain(|it| it.revisions.iter().flatten().all(|revision| *revision < from));
    }

    fn forget_one(&mut self, process: u32, op: &Op, txn: &Txn) {
        let writes = txn.writes();
        let Some(write) = writes.get(self.luck(process, writes.len() as u64) as usize) else {
            return;
        };
        let key = *write.key();
        let lost = self.disk.lose_last_write(&key);
        let other = match key {
            Key::ShardHot { tenant, shard } => Some(Key::ShardCold { tenant, shard }),
            Key::ShardCold { tenant, shard } => Some(Key::ShardHot { tenant, shard }),
            _ => None,
        };
        let is_put = |write: &Write| !matches!(write, Write::Delete(_));
        let half = is_put(write)
            && writes.iter().any(|write| Some(*write.key()) == other && is_put(write));
        // A repair keeps the intact part, so each of its parts fits the old other one.
        let half = half && op.verb != Verb::RepairShard;
        if let Key::ShardHot { tenant, shard } | Key::ShardCold { tenant, shard } = key
            && half
        {
            let revisions = self.revisions_of(tenant, shard);
            self.halves.push(Halves { tenant, shard, revisions });
        }
        self.shared.borrow_mut().add_trace(|| {
            let what = if half { "half of a shard" } else { "a value" };
            format!("the store loses {what}: {lost}")
        });
        self.count_fault_if(lost, Some(FaultKind::LostWrite));
    }

    fn any_written(&mut self, process: u32, txn: &Txn) -> Option<(Key, Vec<u8>)> {
        let written = |write: &Write| match write {
            Write::Put(key, bytes) | Write::Bind(key, bytes) => Some((*key, bytes.clone())),
            Write::Delete(_) => None,
        };
        let count = txn.writes().iter().filter(|it| !matches!(it, Write::Delete(_))).count();
        if count == 0 {
            return None;
        }
        let place = self.luck(process, count as u64) as usize;
        txn.writes().iter().filter_map(written).nth(place)
    }

    /// Returns whether only damage keeps a tenant from finishing: each of its unfinished runs has a
    /// damaged value of its own, or one that all runs of the tenant share is damaged.
    pub(super) fn is_blocked(&self, tenant: u32) -> bool {
        if self.torn.is_empty() {
            return false;
        }
        let shared = self.shared.borrow();
        let id = shared.tenants[tenant as usize];
        let is_left = |torn: &&Torn| {
            self.disk.get(&torn.key).is_some_and(|value| value.revision == torn.revision)
        };
        let damaged: Vec<Concerns> =
            self.torn.iter().filter(is_left).filter_map(|torn| concerns(&torn.key, id)).collect();
        let runs = &shared.directory[tenant as usize];
        let of_run = |run: &u32| {
            let run = shared.oracle.runs[*run as usize].id;
            damaged.contains(&Concerns::Run(run))
        };
        !damaged.is_empty() && runs.iter().all(of_run) || damaged.contains(&Concerns::Tenant)
    }

    /// Restores the torn values once the simulation is over, so that the audit can compare the
    /// written bytes. No process reads them any more.
    pub(super) fn restore_for_audit(&mut self) {
        for Torn { key, revision, good, .. } in std::mem::take(&mut self.torn) {
            self.disk.repair_version(&key, revision, good);
        }
    }

    /// Returns whether every operation that reads the value decodes it before it decides. Shards of
    /// a run that is deleted or not completely registered are not read.
    fn is_decided_about(&self, key: &Key) -> bool {
        match *key {
            Key::RunHead { .. } => true,
            Key::ShardHot { tenant, shard } | Key::ShardCold { tenant, shard } => {
                let oracle = &self.shared.borrow().oracle;
                let run = oracle.find_shard(tenant, shard).map(|it| oracle.shards[it as usize].run);
                let is_whole = run.is_some_and(|run| {
                    let run = &oracle.runs[run as usize];
                    !run.deleted && run.roots_born as usize > run.cuts.len()
                });
                is_whole && self.has_roots(tenant, shard.run())
            }
            Key::RunRoots { .. }
            | Key::Owner { .. }
            | Key::ClaimIndex { .. }
            | Key::ParkedIndex { .. }
            | Key::TenantCounter { .. }
            | Key::Allotment { .. }
            | Key::Worker { .. }
            | Key::Handoff { .. }
            | Key::Tombstone { .. }
            | Key::HandoffIndex { .. }
            | Key::FenceFloor { .. }
            | Key::Failure { .. }
            | Key::Event { .. }
            | Key::KeyLedger { .. }
            | Key::ResultBlock { .. }
            | Key::Budget { .. }
            | Key::TenantEntry { .. }
            | Key::SchemaVersion => false,
        }
    }

    /// Returns whether the stored run head says that the registration is complete. This may differ
    /// from the oracle's history if the store lost that write.
    fn has_roots(&self, tenant: TenantId, run: RunId) -> bool {
        let Some(head) = self.disk.get(&Key::RunHead { tenant, run }) else { return false };
        decode_run_head(tenant, run, &head.bytes).is_ok_and(|head| head.has_roots())
    }
}

/// Returns `answer` with an older version of `key`, if it contains that key. A page keeps its keys,
/// because a missing key would be taken for the end of the page.
fn with_older(read: &Read, answer: &Answer, key: &Key, older: Option<&Versioned>) -> Answer {
    match answer {
        Answer::Value(_) if looks_at(read, key) => Answer::Value(older.cloned()),
        Answer::Page(page) => {
            let mut page = page.clone();
            let found = page.iter_mut().find(|(other, _)| other == key);
            if let (Some((_, value)), Some(older)) = (found, older) {
                value.clone_from(older);
            }
            Answer::Page(page)
        }
        Answer::Value(_) | Answer::Count(_) => answer.clone(),
    }
}

/// The part of a tenant that a damaged value keeps from finishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concerns {
    Run(RunId),
    Tenant,
}

/// Returns the part of `tenant` that depends on the value of `key`.
fn concerns(key: &Key, tenant: TenantId) -> Option<Concerns> {
    let (of, concerned) = match *key {
        Key::RunHead { tenant, run } | Key::RunRoots { tenant, run, .. } => {
            (tenant, Concerns::Run(run))
        }
        Key::ShardHot { tenant, shard }
        | Key::ShardCold { tenant, shard }
        | Key::Owner { tenant, shard }
        | Key::ClaimIndex { tenant, shard, .. }
        | Key::ParkedIndex { tenant, shard, .. } => (tenant, Concerns::Run(shard.run())),
        Key::TenantCounter { tenant } => (tenant, Concerns::Tenant),
        _ => return None,
    };
    (of == tenant).then_some(concerned)
}
