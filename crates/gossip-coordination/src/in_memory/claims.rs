//! Where to find work in a run, without looking at its shards.
//!
//! Active shards are either free, in a list that any of them can be picked from, or leased, in a
//! chain ordered by deadline. A renewal moves a shard to the end of the chain, because leases of
//! one run last equally long: constant time, and no allocation. When a clock stepped back and the
//! place lies further up, a bounded search finds it, or the shard is set apart in an ordered set.
//!
//! A shard that leaves the free list leaves a gap, so that an acquire touches no other record. The
//! next shard that becomes free fills it; whoever wants to pick from the list closes what is left
//! ([`ClaimIndex::close_gaps`]), which costs as much as was saved when the gaps were made.

use std::collections::BTreeSet;

use gossip_contracts::identity::LogicalTime;
use gossip_stdx::prefetch;

use super::table::{Records, SLOT_MAX, Slot};
use crate::record::{ShardRecord, ShardStatus};

/// How far up the chain a place is looked for. Clocks of one process hardly step back; what needs
/// more goes into the ordered set, which unit tests reach with few shards.
const CHAIN_SEARCH_MAX: usize = if cfg!(test) { 4 } else { 64 };

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

/// Where a record stands in the index of its run. Follows its [`Standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A [`Link`] in eight bytes, so that an entry fills two cache lines and no third.
///
/// The first word is the shard before in the chain, or else one of the marks below.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedLink(u32, u32);

/// Marks an end of the chain.
const END: Slot = Slot(u32::MAX);
/// Instead of a shard before: the second word is a position among the free.
const FREE: u32 = u32::MAX - 1;
/// Instead of a shard before: in the ordered set.
const APART: u32 = u32::MAX - 2;
/// Instead of a shard before: in no list.
const UNLISTED: u32 = u32::MAX - 3;

// No place is ever mistaken for a mark.
const _: () = assert!(SLOT_MAX < UNLISTED);

impl PackedLink {
    /// In no list.
    pub(super) const NONE: Self = Link::None.pack();

    #[inline]
    pub(super) const fn unpack(self) -> Link {
        match self {
            Self(FREE, position) => Link::Free(position),
            Self(APART, _) => Link::Apart,
            Self(UNLISTED, _) => Link::None,
            Self(before, behind) => Link::Chain { before: Slot(before), behind: Slot(behind) },
        }
    }
}

impl Link {
    #[inline]
    pub(super) const fn pack(self) -> PackedLink {
        match self {
            Self::None => PackedLink(UNLISTED, 0),
            Self::Free(position) => PackedLink(FREE, position),
            Self::Chain { before, behind } => PackedLink(before.0, behind.0),
            Self::Apart => PackedLink(APART, 0),
        }
    }

    /// The neighbours in the chain of a record that is in it.
    fn neighbours(self) -> (Slot, Slot) {
        match self {
            Self::Chain { before, behind } => (before, behind),
            Self::None | Self::Free(_) | Self::Apart => unreachable!("it is in the chain"),
        }
    }
}

/// A place in the list of the free: a shard, or a gap that names the gap made before it.
///
/// A gap has the high bit set, which no place of a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeEntry(u32);

/// Tells a gap from a shard.
const GAP: u32 = 1 << 31;
/// Instead of the position of a gap: there is none.
const NO_GAP: u32 = GAP - 1;

// No place is ever mistaken for a gap, and no position for the end of the gaps: a list is no longer
// than there are places.
const _: () = assert!(SLOT_MAX < NO_GAP);

impl FreeEntry {
    const fn shard(slot: Slot) -> Self {
        Self(slot.0)
    }

    const fn gap(earlier: u32) -> Self {
        Self(GAP | earlier)
    }

    const fn is_gap(self) -> bool {
        self.0 & GAP != 0
    }

    /// The gap made before this one.
    const fn earlier(self) -> u32 {
        self.0 & !GAP
    }
}

/// Shards of one run by how they stand.
#[derive(Debug)]
pub(super) struct ClaimIndex {
    /// Free shards, each at the position its link says, and gaps.
    free: Vec<FreeEntry>,
    /// The gap made last, from which all others are reached; [`NO_GAP`] if there is none.
    last_gap: u32,
    /// How many of `free` are shards.
    free_count: usize,
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
            last_gap: NO_GAP,
            free_count: 0,
            first: END,
            last: END,
            apart: BTreeSet::new(),
            leased: 0,
            settled: [0; ShardStatus::ALL.len()],
        }
    }
}

impl ClaimIndex {
    /// Makes room for all `shards` of the run being free at once, so that no later move allocates.
    pub(super) fn reserve(&mut self, shards: usize) {
        let additional = shards.saturating_sub(self.free.len());
        match self.free.capacity() {
            // A registration, which for most runs is all there ever is.
            0 => self.free.reserve_exact(additional),
            1.. => self.free.reserve(additional),
        }
    }

    /// Asks the processor for what moving the record at `slot` touches beside it.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot, records: &Records) {
        match records.get(slot).link() {
            Link::Chain { before, behind } => {
                records.prefetch(before);
                records.prefetch(behind);
            }
            Link::Free(position) => {
                self.free.get(position as usize).into_iter().for_each(prefetch);
                records.prefetch(self.last);
            }
            Link::None | Link::Apart => {}
        }
        records.prefetch(self.first);
    }

    /// Puts a new record where it belongs.
    pub(super) fn insert(&mut self, slot: Slot, records: &mut Records) {
        let standing = Standing::of(&records.get(slot).record);
        self.enter(slot, standing, records);
    }

    /// Moves a record from where it stood to where it stands.
    // Out of line: inside of every operation it would crowd out what those keep in registers.
    #[inline(never)]
    pub(super) fn moved(
        &mut self,
        slot: Slot,
        before: Standing,
        after: Standing,
        records: &mut Records,
    ) {
        self.leave(slot, before, records);
        self.enter(slot, after, records);
    }

    /// Active shards.
    pub(super) fn active(&self) -> u64 {
        self.free_count as u64 + self.leased
    }

    /// Shards that ended as `status`.
    pub(super) const fn settled(&self, status: ShardStatus) -> u64 {
        self.settled[status as usize]
    }

    /// How many shards nobody holds.
    #[inline]
    pub(super) const fn free_count(&self) -> usize {
        self.free_count
    }

    /// Shards that nobody holds, in no particular order, from the `offset`-th on and then those
    /// ahead of it. Without gaps, which are closed beforehand, `offset` is exact.
    pub(super) fn free_from(&self, offset: usize) -> impl Iterator<Item = Slot> + '_ {
        let (first, rest) = self.free.split_at(offset);
        let shards = rest.iter().chain(first).filter(|entry| !entry.is_gap());
        shards.map(|entry| Slot(entry.0))
    }

    /// Gaps in the list of the free.
    pub(super) const fn gaps(&self) -> usize {
        self.free.len() - self.free_count
    }

    /// Moves shards from the end of the free list into its gaps, until there are none.
    pub(super) fn close_gaps(&mut self, records: &mut Records) {
        let mut end = self.free.len();
        while self.last_gap != NO_GAP {
            let gap = self.last_gap as usize;
            self.last_gap = self.free[gap].earlier();
            while end > 0 && self.free[end - 1].is_gap() {
                end -= 1;
            }
            if gap < end {
                end -= 1;
                let moved = self.free[end];
                self.free[gap] = moved;
                records.get_mut(Slot(moved.0)).set_link(Link::Free(gap as u32));
            }
        }
        self.free.truncate(end);
        assert!(self.gaps() == 0, "a closed list holds shards only");
    }

    /// Shards that somebody holds, or held until the lease ran out.
    pub(super) fn leased(&self) -> usize {
        usize::try_from(self.leased).expect("shards are counted in memory")
    }

    /// The soonest deadline of all.
    #[inline]
    pub(super) fn soonest_deadline(&self, records: &Records) -> Option<LogicalTime> {
        let chained = (self.first != END).then(|| deadline_of(self.first, records));
        let apart = self.apart.first().map(|(deadline, _)| *deadline);
        match (chained, apart) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
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
        std::iter::successors(first, |slot| {
            let (_, behind) = records.get(*slot).link().neighbours();
            (behind != END).then_some(behind)
        })
        .map(|slot| (deadline_of(slot, records), slot))
    }

    #[inline]
    fn enter(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        match standing {
            Standing::Free => {
                let position = self.enter_free(slot);
                records.get_mut(slot).set_link(Link::Free(position));
            }
            Standing::Leased(deadline) => {
                self.leased += 1;
                self.enter_chain(slot, deadline, records);
            }
            Standing::Settled(status) => {
                records.get_mut(slot).set_link(Link::None);
                self.settled[status as usize] += 1;
            }
        }
    }

    #[inline]
    fn leave(&mut self, slot: Slot, standing: Standing, records: &mut Records) {
        let link = records.get(slot).link();
        match standing {
            Standing::Free => self.leave_free(link),
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

    /// Fills the gap made last, which is likely in a cache, or else makes the list longer.
    #[inline]
    fn enter_free(&mut self, slot: Slot) -> u32 {
        self.free_count += 1;
        let position = self.last_gap;
        if position == NO_GAP {
            self.free.push(FreeEntry::shard(slot));
            return u32::try_from(self.free.len() - 1).expect("places fit in u32");
        }
        let entry = &mut self.free[position as usize];
        self.last_gap = entry.earlier();
        *entry = FreeEntry::shard(slot);
        position
    }

    /// Leaves a gap: closing it here would touch another record.
    #[inline]
    fn leave_free(&mut self, link: Link) {
        let Link::Free(position) = link else { unreachable!("a free shard is among the free") };
        self.free[position as usize] = FreeEntry::gap(self.last_gap);
        self.last_gap = position;
        self.free_count -= 1;
    }

    #[inline]
    fn enter_chain(&mut self, slot: Slot, deadline: LogicalTime, records: &mut Records) {
        let mut before = self.last;
        for _ in 0..CHAIN_SEARCH_MAX {
            if before == END || deadline_of(before, records) <= deadline {
                return self.link_behind(before, slot, records);
            }
            (before, _) = records.get(before).link().neighbours();
        }
        records.get_mut(slot).set_link(Link::Apart);
        self.apart.insert((deadline, slot));
    }

    /// Puts `slot` behind `before`, or first if that is the end.
    #[inline]
    fn link_behind(&mut self, before: Slot, slot: Slot, records: &mut Records) {
        let behind = match before {
            END => self.first,
            _ => records.get(before).link().neighbours().1,
        };
        records.get_mut(slot).set_link(Link::Chain { before, behind });
        self.set_behind(before, slot, records);
        self.set_before(behind, slot, records);
    }

    /// Makes the neighbours of a shard that leaves the chain each other's.
    #[inline]
    fn unlink(&mut self, before: Slot, behind: Slot, records: &mut Records) {
        self.set_behind(before, behind, records);
        self.set_before(behind, before, records);
    }

    /// Says what follows `slot`, or comes first if that is the end.
    #[inline]
    fn set_behind(&mut self, slot: Slot, behind: Slot, records: &mut Records) {
        if slot == END {
            self.first = behind;
        } else {
            let entry = records.get_mut(slot);
            let (before, _) = entry.link().neighbours();
            entry.set_link(Link::Chain { before, behind });
        }
    }

    /// Says what precedes `slot`, or comes last if that is the end.
    #[inline]
    fn set_before(&mut self, slot: Slot, before: Slot, records: &mut Records) {
        if slot == END {
            self.last = before;
        } else {
            let entry = records.get_mut(slot);
            let (_, behind) = entry.link().neighbours();
            entry.set_link(Link::Chain { before, behind });
        }
    }
}

#[inline]
fn deadline_of(slot: Slot, records: &Records) -> LogicalTime {
    records.get(slot).record.lease_deadline().expect("a held shard has a deadline")
}
