//! Where to find work in a run, without looking at its shards.
//!
//! Active shards are either free, in a list that any of them can be picked from, or leased, in a
//! chain ordered by deadline. A renewal moves a shard to the end of the chain, because leases of
//! one run last equally long: constant time, and no allocation. When a clock stepped back and the
//! place lies further up, a bounded search finds it, or the shard is set apart in an ordered set.
//!
//! A shard that is taken stays listed among the free: its record says better, and taking touches
//! neither the list nor another record. Given back, it is where it should be. Whoever wants to pick
//! from the list strikes out those that it meets and that are not free
//! ([`ClaimIndex::strike_taken`]): each costs a look once, as much as striking it out at once.

use std::collections::BTreeSet;

use gossip_contracts::identity::{LogicalTime, WorkerId};

use super::table::{Records, SLOT_MAX, Slot};
use crate::protocol::claim_offset;
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

/// Where a record stands in the chain of its run. Follows its [`Standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nobody holds it.
    None,
    /// In the chain, between these.
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
/// Instead of a shard before: nobody holds it.
const UNCHAINED: u32 = LISTED - 3;

// No place is ever mistaken for a mark.
const _: () = assert!(SLOT_MAX < UNCHAINED);

impl PackedLink {
    /// Neither held nor listed.
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

    /// Says what precedes a record that is in the chain.
    #[inline]
    pub(super) const fn set_before(&mut self, before: Slot) {
        self.set_first(before.0);
    }

    /// Says what follows a record that is in the chain.
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
    /// The neighbours in the chain of a record that is in it.
    fn neighbours(self) -> (Slot, Slot) {
        match self {
            Self::Chain { before, behind } => (before, behind),
            Self::None | Self::Apart => unreachable!("it is in the chain"),
        }
    }
}

/// Shards of one run by how they stand.
#[derive(Debug)]
pub(super) struct ClaimIndex {
    /// Every free shard, and some that were free and have been taken; none twice. Exactly those
    /// whose link says that they are listed.
    free: Vec<Slot>,
    /// How many shards are free.
    free_count: usize,
    first: Slot,
    last: Slot,
    /// The deadline of the first in the chain, at hand for the capacity hint.
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
    /// Makes quota for listing all `shards` of the run at once, so that no later move allocates.
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
        match records.get(slot).link.link() {
            Link::Chain { before, behind } => {
                records.prefetch(before);
                records.prefetch(behind);
            }
            Link::None => records.prefetch(self.last),
            Link::Apart => {}
        }
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

    /// Strikes out of the list what is not free among the `limit` that `worker` would pick.
    ///
    /// Every turn but the last one strikes one out, which an earlier acquire left there.
    pub(super) fn strike_taken(&mut self, worker: WorkerId, limit: usize, records: &mut Records) {
        while let Some(position) = self.first_taken(worker, limit, records) {
            let slot = self.free.swap_remove(position);
            records.get_mut(slot).link.set_listed(false);
        }
    }

    /// Listed shards, from the offset of `worker` on and then those ahead of it.
    pub(super) fn listed_for(&self, worker: WorkerId) -> impl Iterator<Item = Slot> + '_ {
        let (first, rest) = self.free.split_at(self.offset_of(worker));
        rest.iter().chain(first).copied()
    }

    /// Shards that somebody holds, or held until the lease ran out.
    pub(super) fn leased(&self) -> usize {
        usize::try_from(self.leased).expect("shards are counted in memory")
    }

    /// The soonest deadline of all.
    #[inline]
    pub(super) fn soonest_deadline(&self) -> Option<LogicalTime> {
        match self.apart.is_empty() {
            true => self.first_deadline,
            false => {
                self.first_deadline.into_iter().chain(self.apart.first().map(|one| one.0)).min()
            }
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
            let (_, behind) = records.get(*slot).link.link().neighbours();
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
            // It stays listed: see the top.
            Standing::Free => self.free_count -= 1,
            Standing::Leased(deadline) => {
                self.leased -= 1;
                match records.get(slot).link.link() {
                    Link::Chain { before, behind } => self.unlink(before, behind, records),
                    Link::Apart => assert!(self.apart.remove(&(deadline, slot)), "it was apart"),
                    Link::None => unreachable!("a held shard is in the chain"),
                }
            }
            Standing::Settled(status) => self.settled[status as usize] -= 1,
        }
    }

    /// Lists a shard, unless it still is since it was free the last time.
    #[inline]
    fn enter_free(&mut self, slot: Slot, records: &mut Records) {
        let link = &mut records.get_mut(slot).link;
        link.set_link(Link::None);
        if !link.is_listed() {
            link.set_listed(true);
            self.free.push(slot);
        }
    }

    /// Mostly behind the last, because leases of one run last equally long.
    #[inline(always)]
    fn enter_chain(&mut self, slot: Slot, deadline: LogicalTime, records: &mut Records) {
        let before = self.last;
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
            (before, _) = records.get(before).link.link().neighbours();
        }
        records.get_mut(slot).link.set_link(Link::Apart);
        self.apart.insert((deadline, slot));
    }

    /// Puts `slot` behind `before`, or first if that is the end.
    #[inline]
    fn link_behind(&mut self, before: Slot, slot: Slot, records: &mut Records) {
        let behind = match before {
            END => self.first,
            _ => records.get(before).link.link().neighbours().1,
        };
        records.get_mut(slot).link.set_link(Link::Chain { before, behind });
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
            self.first_deadline = (behind != END).then(|| deadline_of(behind, records));
        } else {
            records.get_mut(slot).link.set_behind(behind);
        }
    }

    /// Says what precedes `slot`, or comes last if that is the end.
    #[inline]
    fn set_before(&mut self, slot: Slot, before: Slot, records: &mut Records) {
        if slot == END {
            self.last = before;
        } else {
            records.get_mut(slot).link.set_before(before);
        }
    }

    /// The position of the first that is not free among the `limit` that `worker` would pick.
    fn first_taken(&self, worker: WorkerId, limit: usize, records: &Records) -> Option<usize> {
        let taken = |slot| Standing::of(&records.get(slot).record) != Standing::Free;
        let steps = self.listed_for(worker).take(limit).position(taken)?;
        Some((self.offset_of(worker) + steps) % self.free.len())
    }

    /// Where `worker` starts to look in the list.
    fn offset_of(&self, worker: WorkerId) -> usize {
        claim_offset(worker, self.free.len())
    }
}

#[inline]
fn deadline_of(slot: Slot, records: &Records) -> LogicalTime {
    records.get(slot).record.lease_deadline().expect("a held shard has a deadline")
}
