//! Where to find work in a run, without looking at its shards.
//!
//! Active shards are either free, in a list that any of them can be picked from, or leased, in a
//! chain ordered by deadline. A renewal moves a shard to the end of the chain, because leases of
//! one run last equally long: constant time, and no allocation. When a clock stepped back and the
//! place lies further up, a bounded search finds it, or the shard is set apart in an ordered set.

use std::collections::BTreeSet;

use gossip_contracts::identity::LogicalTime;

use super::table::{Records, Slot};
use crate::record::{ShardRecord, ShardStatus};

/// How far up the chain a place is looked for. Clocks of one process hardly step back; what needs
/// more goes into the ordered set.
const CHAIN_SEARCH_MAX: usize = 64;

/// How a shard stands towards claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Active, and nobody holds it.
    Free,
    /// Active, and held until then.
    Leased(LogicalTime),
    /// No work left.
    Settled(ShardStatus),
}

impl Standing {
    pub(super) fn of(record: &ShardRecord) -> Self {
        match (record.status(), record.lease_deadline()) {
            (ShardStatus::Active, None) => Self::Free,
            (ShardStatus::Active, Some(deadline)) => Self::Leased(deadline),
            (status, _) => Self::Settled(status),
        }
    }
}

/// Where a record stands in the index of its run. The meaning follows from its [`Standing`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    /// In no list.
    None,
    /// At this position among the free.
    Free(u32),
    /// In the chain, between these.
    Chain { before: Slot, behind: Slot },
    /// In the ordered set.
    Apart,
}

/// Marks an end of the chain.
const END: Slot = Slot(u32::MAX);

/// Shards of one run by how they stand.
#[derive(Debug)]
pub(super) struct ClaimIndex {
    free: Vec<Slot>,
    first: Slot,
    last: Slot,
    /// Deadlines out of the chain's order; empty unless a clock stepped back.
    apart: BTreeSet<(LogicalTime, Slot)>,
    leased: u64,
    settled: [u64; ShardStatus::ALL.len()],
}

impl Default for ClaimIndex {
    fn default() -> Self {
        Self {
            free: Vec::new(),
            first: END,
            last: END,
            apart: BTreeSet::new(),
            leased: 0,
            settled: [0; ShardStatus::ALL.len()],
        }
    }
}

impl ClaimIndex {
    pub(super) fn reserve(&mut self, additional: usize) {
        self.free.reserve_exact(additional);
    }

    /// Puts a new record where it belongs.
    pub(super) fn insert(&mut self, slot: Slot, records: &mut Records) {
        let standing = Standing::of(&records.get(slot).record);
        self.enter(slot, standing, records);
    }

    /// Moves a record from where it stood to where it stands.
    pub(super) fn moved(&mut self, slot: Slot, before: Standing, records: &mut Records) {
        let after = Standing::of(&records.get(slot).record);
        if before != after {
            self.leave(slot, before, records);
            self.enter(slot, after, records);
        }
    }

    /// Active shards.
    pub(super) fn active(&self) -> u64 {
        self.free.len() as u64 + self.leased
    }

    /// Shards that ended as `status`.
    pub(super) const fn settled(&self, status: ShardStatus) -> u64 {
        self.settled[status as usize]
    }

    /// Shards that nobody holds, in no particular order.
    pub(super) fn free(&self) -> &[Slot] {
        &self.free
    }

    /// Held shards with their deadlines, soonest first.
    pub(super) fn by_deadline<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = (LogicalTime, Slot)> + 'a {
        let mut apart = self.apart.iter().copied().peekable();
        let mut chain = self.chain(records).peekable();
        std::iter::from_fn(move || match (chain.peek(), apart.peek()) {
            (Some(linked), Some(other)) if other < linked => apart.next(),
            (Some(_), _) => chain.next(),
            (None, _) => apart.next(),
        })
    }

    fn chain<'a>(
        &self,
        records: &'a Records,
    ) -> impl Iterator<Item = (LogicalTime, Slot)> + use<'a> {
        let first = (self.first != END).then_some(self.first);
        std::iter::successors(first, |slot| match records.get(*slot).link {
            Link::Chain { behind, .. } if behind != END => Some(behind),
            Link::Chain { .. } | Link::None | Link::Free(_) | Link::Apart => None,
        })
        .map(|slot| (deadline_of(slot, records), slot))
    }

    fn enter(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        match standing {
            Standing::Free => {
                let position = u32::try_from(self.free.len()).expect("places fit in u32");
                records.get_mut(slot).link = Link::Free(position);
                self.free.push(slot);
            }
            Standing::Leased(deadline) => {
                self.leased += 1;
                self.enter_chain(slot, deadline, records);
            }
            Standing::Settled(status) => {
                records.get_mut(slot).link = Link::None;
                self.settled[status as usize] += 1;
            }
        }
    }

    fn leave(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        let link = records.get(slot).link;
        match standing {
            Standing::Free => self.leave_free(link, records),
            Standing::Leased(deadline) => {
                self.leased -= 1;
                match link {
                    Link::Chain { before, behind } => self.unlink(before, behind, records),
                    Link::Apart => assert!(self.apart.remove(&(deadline, slot)), "it was apart"),
                    Link::None | Link::Free(_) => unreachable!("a held shard is in the chain"),
                }
            }
            Standing::Settled(status) => self.settled[status as usize] -= 1,
        }
    }

    /// The last of the free takes the place of the one that leaves.
    fn leave_free(&mut self, link: Link, records: &mut Records) {
        let Link::Free(position) = link else { unreachable!("a free shard is among the free") };
        self.free.swap_remove(position as usize);
        if let Some(moved) = self.free.get(position as usize) {
            records.get_mut(*moved).link = Link::Free(position);
        }
    }

    fn enter_chain(&mut self, slot: Slot, deadline: LogicalTime, records: &mut Records) {
        let mut before = self.last;
        for _ in 0..CHAIN_SEARCH_MAX {
            if before == END || deadline_of(before, records) <= deadline {
                return self.link_behind(before, slot, records);
            }
            before = match records.get(before).link {
                Link::Chain { before, .. } => before,
                Link::None | Link::Free(_) | Link::Apart => unreachable!("it is in the chain"),
            };
        }
        records.get_mut(slot).link = Link::Apart;
        self.apart.insert((deadline, slot));
    }

    /// Puts `slot` behind `before`, or first if that is the end.
    fn link_behind(&mut self, before: Slot, slot: Slot, records: &mut Records) {
        let behind = match before {
            END => std::mem::replace(&mut self.first, slot),
            _ => match &mut records.get_mut(before).link {
                Link::Chain { behind, .. } => std::mem::replace(behind, slot),
                Link::None | Link::Free(_) | Link::Apart => unreachable!("it is in the chain"),
            },
        };
        self.set_before(behind, slot, records);
        records.get_mut(slot).link = Link::Chain { before, behind };
    }

    fn unlink(&mut self, before: Slot, behind: Slot, records: &mut Records) {
        if before == END {
            self.first = behind;
        } else if let Link::Chain { behind: link, .. } = &mut records.get_mut(before).link {
            *link = behind;
        }
        self.set_before(behind, before, records);
    }

    fn set_before(&mut self, slot: Slot, new_before: Slot, records: &mut Records) {
        if slot == END {
            self.last = new_before;
        } else if let Link::Chain { before, .. } = &mut records.get_mut(slot).link {
            *before = new_before;
        }
    }
}

fn deadline_of(slot: Slot, records: &Records) -> LogicalTime {
    records.get(slot).record.lease_deadline().expect("a held shard has a deadline")
}
