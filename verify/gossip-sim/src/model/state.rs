//! One state of the model: time, records, leases and messages of workers, and the oracle's history.
//! All values are numbers; `world` resolves them.

use super::vocabulary::{LeaseRef, ShardNo, Tick};

/// A state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) now: Tick,
    /// One for each tenant.
    pub(super) runs: Vec<RunEntry>,
    /// In the order of tenant and number.
    pub(super) shards: Vec<ShardEntry>,
    /// In the order of tenant, shard and fence.
    pub(super) held: Vec<Held>,
}

/// A run: its value and its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunEntry {
    pub(super) value: u32,
    pub(super) oracle: u32,
}

/// A shard: its record and its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardEntry {
    pub(super) tenant: u8,
    pub(super) shard: ShardNo,
    pub(super) record: u32,
    pub(super) oracle: u32,
}

/// A lease that a worker believes to hold, and the lines it sent under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) lease: LeaseRef,
    /// One bit for each line of the menu.
    pub(super) sent: u32,
    /// The handoff whose offer was sent and not known to be withdrawn; zero for none.
    pub(super) frozen: u8,
}

impl Held {
    pub(super) const fn has_sent(&self, line: u8) -> bool {
        self.sent >> line & 1 == 1
    }
}

/// A possible move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Time passes.
    Tick,
    /// A worker sends line `line` of the menu under its `held`-th lease.
    Send { held: u8, line: u8 },
    /// A message arrives on a machine whose clock shows `at`. For a message of a lease holder,
    /// `from` is its lease and line.
    Deliver { command: u32, at: Tick, from: Option<(u8, u8)> },
}

impl State {
    pub(super) fn find(&self, tenant: u8, shard: ShardNo) -> Option<usize> {
        self.shards.iter().position(|entry| entry.tenant == tenant && entry.shard == shard)
    }

    pub(super) fn shards_of(&self, tenant: u8) -> impl Iterator<Item = &ShardEntry> {
        self.shards.iter().filter(move |entry| entry.tenant == tenant)
    }

    /// Returns the number of different messages that `worker` has sent.
    pub(super) fn sent_by(&self, worker: u8) -> u32 {
        let of_worker = self.held.iter().filter(|held| held.lease.worker == worker);
        of_worker.map(|held| held.sent.count_ones()).sum()
    }

    pub(super) fn add_lease(&mut self, lease: LeaseRef) {
        self.held.push(Held { lease, sent: 0, frozen: 0 });
        self.held.sort_unstable_by_key(|it| (it.lease.tenant, it.lease.shard, it.lease.fence));
    }

    pub(super) fn add_shard(&mut self, entry: ShardEntry) {
        self.shards.push(entry);
        self.shards.sort_unstable_by_key(|it| (it.tenant, it.shard));
    }

    /// Writes the canonical bytes, which are equal exactly for equal states of one configuration.
    /// Every field must be written; otherwise different states would count as one.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let shard_count = u8::try_from(self.shards.len()).expect("a configuration has few shards");
        out.extend([self.now, shard_count]);
        for RunEntry { value, oracle } in &self.runs {
            out.extend(value.to_le_bytes());
            out.extend(oracle.to_le_bytes());
        }
        for ShardEntry { tenant, shard, record, oracle } in &self.shards {
            out.extend([*tenant, *shard]);
            out.extend(record.to_le_bytes());
            out.extend(oracle.to_le_bytes());
        }
        for Held { lease, sent, frozen } in &self.held {
            let LeaseRef { tenant, shard, worker, fence, from } = *lease;
            out.extend([tenant, shard, worker, fence, from, *frozen]);
            out.extend(sent.to_le_bytes());
        }
    }
}
