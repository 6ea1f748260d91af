//! The claim index of a run in memory: finds claimable shards without scanning all shards.
//!
//! Active shards are either free, in a list from which any can be picked, or leased, in a linked
//! list ordered by deadline. A renewal moves a shard to the end of the chain, because all leases of
//! a run have the same duration: constant time, and no allocation. If a clock stepped back and the
//! position lies further up, a bounded search finds it, or the shard goes into an ordered set.
//!
//! A shard that is acquired stays in the free list: its record is authoritative, so an acquire
//! touches neither the list nor another record, and a release finds the shard listed already. A
//! claim removes the entries it meets that are not free ([`ClaimIndex::strike_taken`]): each costs
//! one check, as much as removing it at once.

use std::collections::BTreeSet;

use gossip_contracts::identity::{LogicalTime, WorkerId};

use super::table::{Records, SLOT_MAX, Slot};
use crate::protocol::claim_offset;
use crate::record::{ShardRecord, ShardStatus};

/// Maximum steps of the search in the chain. Clocks of one process rarely step back; a longer
/// search goes to the ordered set, which unit tests reach with few shards.
const CHAIN_SEARCH_MAX: usize = if cfg!(test) { 4 } else { 64 };

/// The state of a shard with respect to claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Active without a lease.
    Free,
    /// Active with a lease until this deadline.
    Leased(LogicalTime),
    /// In a terminal status.
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

/// The position of a record in the chain of its run. Follows its [`Standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Not leased.
    None,
    /// In the chain, between these records.
    Chain { before: Slot, behind: Slot },
    /// In the ordered set.
    Apart,
}

/// A [`Link`], and whether the record is listed among the free, in eight bytes: an entry fills two
/// cache lines and no third.
///
/// The first word is the shard before in the chain, or else one of the marks below, and [`LISTED`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedLink(u32, u32);

/// Set in the first word if the record is in the list of the free.
const LISTED: u32 = 1 << 31;

/// Marks an end of the chain.
const END: Slot = Slot(LISTED - 1);
/// Instead of a shard before: in the ordered set.
const APART: u32 = LISTED - 2;
/// In place of the previous slot: not leased.
const UNCHAINED: u32 = LISTED - 3;

// No slot number equals a marker.
const _: () = assert!(SLOT_MAX < UNCHAINED);

impl PackedLink {
    /// Neither leased nor listed.
    pub(super) const NONE: Self = Self(UNCHAINED, 0);

    #[inline]
    pub(super) const fn link(self) -> Link {
        match self {
            Self(word, behind) => match word & !LISTED {
                APART => Link::Apart,
                UNCHAINED => Link::None,
                before => Link::Chain { before: Slot(before), behind: Slot(behind) },
            },
        }
    }

    #[inline]
    pub(super) const fn set_link(&mut self, link: Link) {
        match link {
            Link::None => self.set_first(UNCHAINED),
            Link::Apart => self.set_first(APART),
            Link::Chain { before, behind } => {
                self.set_before(before);
                self.set_behind(behind);
            }
        }
    }

    /// Sets the predecessor of a record in the chain.
    #[inline]
    pub(super) const fn set_before(&mut self, before: Slot) {
        self.set_first(before.0);
    }

    /// Sets the successor of a record in the chain.
    #[inline]
    pub(super) const fn set_behind(&mut self, behind: Slot) {
        self.1 = behind.0;
    }

    #[inline]
    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    #[inline]
    pub(super) const fn set_listed(&mut self, listed: bool) {
        self.0 = (self.0 & !LISTED) | if listed { LISTED } else { 0 };
    }

    #[inline]
    const fn set_first(&mut self, word: u32) {
        self.0 = (self.0 & LISTED) | word;
    }
}

impl Link {
    /// Returns predecessor and successor of a record in the chain.
    fn adjacent(self) -> (Slot, Slot) {
        match self {
            Self::Chain { before, behind } => (before, behind),
            Self::None | Self::Apart => unreachable!("the record is in the chain"),
        }
    }
}

/// The shards of one run, indexed for claims.
#[derive(Debug)]
pub(super) struct ClaimIndex {
    /// Every free shard, and some that were acquired since; each once. Exactly those whose link is
    /// marked as listed.
    free: Vec<Slot>,
    /// Number of free shards.
    free_count: usize,
    first: Slot,
    last: Slot,
    /// The first deadline in the chain, cached for the capacity hint.
    first_deadline: Option<LogicalTime>,
    /// Deadlines out of the chain's order; empty unless a clock stepped back.
    apart: BTreeSet<(LogicalTime, Slot)>,
    leased: u64,
    settled: [u64; ShardStatus::ALL.len()],
}

impl Default for ClaimIndex {
    fn default() -> Self {
        Self {
            free: Vec::new(),
            free_count: 0,
            first: END,
            last: END,
            first_deadline: None,
            apart: BTreeSet::new(),
            leased: 0,
            settled: [0; ShardStatus::ALL.len()],
        }
    }
}

impl ClaimIndex {
    /// Reserves capacity for all `shards` of the run, so that no later move allocates.
    pub(super) fn reserve(&mut self, shards: usize) {
        let additional = shards.saturating_sub(self.free.len());
        match self.free.capacity() {
            // A registration; most runs never grow beyond it, so do not over-allocate.
            0 => self.free.reserve_exact(additional),
            1.. => self.free.reserve(additional),
        }
    }

    /// Prefetches the entries that moving the record at `slot` touches.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot, records: &Records) {
        match records.get(slot).link.link() {
            Link::Chain { before, behind } => {
                records.prefetch(before);
                records.prefetch(behind);
            }
            // A new lease usually has the latest deadline, so it is chained behind the last record.
            Link::None => records.prefetch(self.last),
            // Out of the chain there are no neighbours to prefetch.
            Link::Apart => {}
        }
    }

    /// Inserts a new record.
    pub(super) fn insert(&mut self, slot: Slot, records: &mut Records) {
        let standing = Standing::of(&records.get(slot).record);
        self.enter(slot, standing, records);
    }

    /// Moves a record after its state changed.
    // Out of line: inlined into every operation it would increase their register pressure.
    #[inline(never)]
    pub(super) fn moved(
        &mut self,
        slot: Slot,
        before: Standing,
        after: Standing,
        records: &mut Records,
    ) {
        // Leave first: both use the record's one link, and its neighbours must not point to it.
        self.leave(slot, before, records);
        self.enter(slot, after, records);
    }

    /// Returns the number of active shards.
    pub(super) fn active(&self) -> u64 {
        self.free_count as u64 + self.leased
    }

    /// Returns the number of shards in the terminal `status`.
    pub(super) const fn settled(&self, status: ShardStatus) -> u64 {
        self.settled[status as usize]
    }

    /// Returns the number of shards without a lease.
    #[inline]
    pub(super) const fn free_count(&self) -> usize {
        self.free_count
    }

    /// Removes listed shards that are not free from the first `limit` that `worker` would pick.
    ///
    /// Each iteration but the last removes one entry, which an earlier acquire left there.
    pub(super) fn strike_taken(&mut self, worker: WorkerId, limit: usize, records: &mut Records) {
        while let Some(position) = self.first_taken(worker, limit, records) {
            // The order of the list has no meaning, so the last entry may take the place.
            let slot = self.free.swap_remove(position);
            records.get_mut(slot).link.set_listed(false);
        }
    }

    /// Returns the listed shards from the offset of `worker` on, then those before it.
    pub(super) fn listed_for(&self, worker: WorkerId) -> impl Iterator<Item = Slot> + '_ {
        let (first, rest) = self.free.split_at(self.offset_of(worker));
        rest.iter().chain(first).copied()
    }

    /// Returns the number of shards with a lease, live or expired.
    pub(super) fn leased(&self) -> usize {
        usize::try_from(self.leased).expect("the number of shards fits in memory")
    }

    /// Returns the earliest deadline.
    #[inline]
    pub(super) fn soonest_deadline(&self) -> Option<LogicalTime> {
        // The set is empty unless a clock stepped back, and this runs with every grant and renewal.
        match self.apart.is_empty() {
            true => self.first_deadline,
            false => {
                self.first_deadline.into_iter().chain(self.apart.first().map(|one| one.0)).min()
            }
        }
    }

    /// Returns the leased shards with their deadlines, earliest first.
    pub(super) fn by_deadline<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = (LogicalTime, Slot)> + 'a {
        // Both are in order, so a merge needs no buffer.
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
        std::iter::successors(first, |slot| {
            let (_, behind) = records.get(*slot).link.link().adjacent();
            (behind != END).then_some(behind)
        })
        .map(|slot| (deadline_of(slot, records), slot))
    }

    #[inline(always)]
    fn enter(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        match standing {
            Standing::Free => {
                self.free_count += 1;
                self.enter_free(slot, records);
            }
            Standing::Leased(deadline) => {
                self.leased += 1;
                self.enter_chain(slot, deadline, records);
            }
            Standing::Settled(status) => {
                records.get_mut(slot).link.set_link(Link::None);
                self.settled[status as usize] += 1;
            }
        }
    }

    #[inline(always)]
    fn leave(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        match standing {
            // It stays listed; see the module documentation.
            Standing::Free => self.free_count -= 1,
            Standing::Leased(deadline) => {
                self.leased -= 1;
                match records.get(slot).link.link() {
                    Link::Chain { before, behind } => self.unlink(before, behind, records),
                    Link::Apart => assert!(
                        self.apart.remove(&(deadline, slot)),
                        "the shard was in the ordered set"
                    ),
                    Link::None => unreachable!("a leased shard is in the chain"),
                }
            }
            Standing::Settled(status) => self.settled[status as usize] -= 1,
        }
    }

    /// Adds a shard to the free list, unless it is still listed from before.
    #[inline]
    fn enter_free(&mut self, slot: Slot, records: &mut Records) {
        let link = &mut records.get_mut(slot).link;
        link.set_link(Link::None);
        // An acquire leaves the entry in the list; a second one would offer the shard twice.
        if !link.is_listed() {
            link.set_listed(true);
            self.free.push(slot);
        }
    }

    /// Appends to the chain in most cases, because all leases of a run have the same duration.
    #[inline(always)]
    fn enter_chain(&mut self, slot: Slot, deadline: LogicalTime, records: &mut Records) {
        let before = self.last;
        // An equal deadline goes last, which keeps the order of arrival.
        if before == END || deadline < deadline_of(before, records) {
            return self.enter_chain_further_up(slot, deadline, records);
        }
        records.get_mut(slot).link.set_link(Link::Chain { before, behind: END });
        records.get_mut(before).link.set_behind(slot);
        self.last = slot;
    }

    #[inline(never)]
    fn enter_chain_further_up(&mut self, slot: Slot, deadline: LogicalTime, records: &mut Records) {
        let mut before = self.last;
        for _ in 0..CHAIN_SEARCH_MAX {
            if before == END || deadline_of(before, records) <= deadline {
                return self.link_behind(before, slot, records);
            }
            (before, _) = records.get(before).link.link().adjacent();
        }
        // The position is far up: a set bounds the cost of a clock that stepped back.
        records.get_mut(slot).link.set_link(Link::Apart);
        self.apart.insert((deadline, slot));
    }

    /// Inserts `slot` after `before`, or first if that is the end.
    #[inline]
    fn link_behind(&mut self, before: Slot, slot: Slot, records: &mut Records) {
        let behind = match before {
            END => self.first,
            _ => records.get(before).link.link().adjacent().1,
        };
        records.get_mut(slot).link.set_link(Link::Chain { before, behind });
        self.set_behind(before, slot, records);
        self.set_before(behind, slot, records);
    }

    /// Makes the adjacent of a shard that leaves the chain each other's.
    #[inline]
    fn unlink(&mut self, before: Slot, behind: Slot, records: &mut Records) {
        self.set_behind(before, behind, records);
        self.set_before(behind, before, records);
    }

    /// Sets the successor of `slot`, or the first entry if that is the end.
    #[inline]
    fn set_behind(&mut self, slot: Slot, behind: Slot, records: &mut Records) {
        if slot == END {
            self.first = behind;
            self.first_deadline = (behind != END).then(|| deadline_of(behind, records));
        } else {
            records.get_mut(slot).link.set_behind(behind);
        }
    }

    /// Sets the predecessor of `slot`, or the last entry if that is the end.
    #[inline]
    fn set_before(&mut self, slot: Slot, before: Slot, records: &mut Records) {
        if slot == END {
            self.last = before;
        } else {
            records.get_mut(slot).link.set_before(before);
        }
    }

    /// Returns the position of the first entry that is not free among the `limit` for `worker`.
    fn first_taken(&self, worker: WorkerId, limit: usize, records: &Records) -> Option<usize> {
        let taken = |slot| Standing::of(&records.get(slot).record) != Standing::Free;
        // Only the entries that the next candidates come from: the others may stay outdated.
        let steps = self.listed_for(worker).take(limit).position(taken)?;
        Some((self.offset_of(worker) + steps) % self.free.len())
    }

    /// Returns the position in the list at which `worker` starts.
    fn offset_of(&self, worker: WorkerId) -> usize {
        claim_offset(worker, self.free.len())
    }
}

#[inline]
fn deadline_of(slot: Slot, records: &Records) -> LogicalTime {
    records.get(slot).record.lease_deadline().expect("a leased shard has a deadline")
}
