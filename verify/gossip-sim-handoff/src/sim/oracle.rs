//! What was stored and what was done, held against what planned moves promise.
//!
//! The oracle hears of every value that the disk takes and of every key that a worker does. It
//! keeps its own account, and asks no part of the product.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::Races;
use gossip_handoff::Phase;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "everything the oracle hears of")]
pub enum Event {
    /// The shard has these keys: `start` and all before `end`.
    Range {
        /// Which shard.
        shard: u64,
        /// Its first key.
        start: u8,
        /// The first key behind it.
        end: u8,
    },
    /// The shard is there from now on.
    Born {
        /// Which shard.
        shard: u64,
        /// Its first fence.
        fence: u64,
    },
    /// The fence was raised: by a planned move, or by whoever took the shard.
    Granted {
        /// Which shard.
        shard: u64,
        /// The new fence.
        fence: u64,
        /// The move, if it was one.
        by_move: Option<u64>,
    },
    /// An offer stands from now on.
    Offered {
        /// Which shard.
        shard: u64,
        /// By which move.
        handoff: u64,
    },
    /// The offer stands no more, and the fence is as it was.
    Withdrawn {
        /// Which shard.
        shard: u64,
    },
    /// Everything before `next` is said to be done.
    Cursor {
        /// Which shard.
        shard: u64,
        /// The first key that is not.
        next: u8,
    },
    /// The shard is over, or set aside.
    Ended {
        /// Which shard.
        shard: u64,
        /// How.
        how: Ended,
    },
    /// A parked shard is back.
    Unparked {
        /// Which shard.
        shard: u64,
    },
    /// Its owner gave it back.
    Released {
        /// Which shard.
        shard: u64,
    },
    /// The record of a move was saved.
    Record {
        /// Which move.
        handoff: u64,
        /// Of which shard.
        shard: u64,
        /// How far it is.
        phase: Phase,
    },
    /// The record of a move is gone.
    Forgotten {
        /// Which move.
        handoff: u64,
    },
    /// The run was cancelled.
    Cancelled,
    /// A worker did a key.
    Did {
        /// Of which shard.
        shard: u64,
        /// Under which fence.
        fence: u64,
        /// Which key.
        key: u8,
    },
}

/// How a shard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the kernel has exactly these")]
pub enum Ended {
    /// Every key of it is done.
    Done,
    /// Its children have it.
    Split,
    /// It waits for an administrator.
    Parked,
}

/// What does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Broken {
    /// A key was done under a fence that a planned move has overtaken.
    TwoOwners,
    /// A key was done under a fence that is not the shard's, and no clock is to blame.
    StaleEffect,
    /// A key was done while an offer stood.
    WorkedWhileOffered,
    /// A key was done that is not of the shard.
    OutOfRange,
    /// A key was done again, and nobody had crashed or lost a lease.
    KeyRedone,
    /// A cursor covers a key that nobody did.
    KeyLost,
    /// A shard was given back with work that was not saved.
    ReleasedUnsaved,
    /// A shard was offered whose record is not in Transfer.
    OfferedUnrecorded,
    /// A fence did not rise.
    FenceFell,
    /// A record says "rolled back" of the move that the shard says has moved it.
    RolledBackAfterAccept,
    /// A record says "moved" of a move that was not accepted.
    AcknowledgedBeforeAccept,
    /// A shard did not come to its end.
    NotFinished,
    /// A record did not come to its end.
    RecordLeftOver,
    /// A move did not come to its end.
    MoveLeftOver,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    start: u8,
    end: u8,
    fence: u64,
    /// The first key that is not covered.
    next: u8,
    offer: Option<u64>,
    ended: Option<Ended>,
    /// The move behind the last raise of the fence, if it was one. Only that one is known to the
    /// shard, so a record of an earlier one may say that it was superseded.
    last_move: Option<u64>,
    /// Fences that planned moves have overtaken.
    overtaken: Vec<u64>,
    /// Moves so far.
    moves: u32,
}

/// The account.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    shards: BTreeMap<u64, Shard>,
    records: BTreeMap<u64, (u64, Phase)>,
    accepted: BTreeSet<u64>,
    /// Keys that were done, one bit each.
    done: u64,
    /// Of those, the ones that nobody has a reason to do again.
    settled: u64,
    /// Whether clocks differ, so that a lease can be taken from an owner who believes in it.
    is_skewed: bool,
    is_cancelled: bool,
    races: Races,
}

impl Oracle {
    /// Clocks differ from now on.
    pub const fn skew(&mut self) {
        self.is_skewed = true;
    }

    /// How often what raced with a move.
    #[must_use]
    pub const fn races(&self) -> Races {
        self.races
    }

    /// Takes in what happened.
    ///
    /// # Errors
    ///
    /// [`Broken`] if it must not have.
    pub fn hear(&mut self, event: Event) -> Result<(), Broken> {
        self.count(event);
        match event {
            Event::Range { shard, start, end } => {
                let shard = self.shard(shard);
                shard.next = shard.next.max(start);
                (shard.start, shard.end) = (start, end);
            }
            Event::Born { shard, fence } => self.shard(shard).fence = fence,
            Event::Granted { shard, fence, by_move } => return self.granted(shard, fence, by_move),
            Event::Offered { shard, handoff } => {
                self.shard(shard).offer = Some(handoff);
                let is_recorded = self.records.get(&handoff) == Some(&(shard, Phase::Transfer));
                return hold(is_recorded, Broken::OfferedUnrecorded);
            }
            Event::Withdrawn { shard } => self.shard(shard).offer = None,
            Event::Cursor { shard, next } => {
                let shard = self.shard(shard);
                shard.next = next;
                let covered = keys(shard.start, next);
                return hold(covered & !self.done == 0, Broken::KeyLost);
            }
            Event::Ended { shard, how } => return self.ended(shard, how),
            Event::Unparked { shard } => self.shard(shard).ended = None,
            Event::Released { shard } => {
                // What an earlier owner left unsaved is done again in any case.
                let unsaved = self.unsaved(shard) & self.settled;
                return hold(unsaved == 0, Broken::ReleasedUnsaved);
            }
            Event::Record { handoff, shard, phase } => return self.saved(handoff, shard, phase),
            Event::Forgotten { handoff } => drop(self.records.remove(&handoff)),
            Event::Cancelled => self.is_cancelled = true,
            Event::Did { shard, fence, key } => return self.did(shard, fence, key),
        }
        Ok(())
    }

    /// Whether it was heard that the run is cancelled.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Shards that are not over.
    pub fn open(&self) -> impl Iterator<Item = u64> {
        let is_open = |shard: &Shard| !matches!(shard.ended, Some(Ended::Done | Ended::Split));
        self.shards.iter().filter(move |(_, shard)| is_open(shard)).map(|(id, _)| *id)
    }

    /// Shards that wait for an administrator.
    pub fn parked(&self) -> impl Iterator<Item = u64> {
        let is_parked = |shard: &Shard| shard.ended == Some(Ended::Parked);
        self.shards.iter().filter(move |(_, shard)| is_parked(shard)).map(|(id, _)| *id)
    }

    /// Records that are not over, and how far they are.
    pub fn moves(&self) -> impl Iterator<Item = Phase> {
        self.records.values().map(|(_, phase)| *phase).filter(|phase| !phase.is_terminal())
    }

    /// What must hold when everything has come to rest. Nobody raises a fence of a cancelled run,
    /// so there a record whose source is gone may stay in Transfer.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn rest(&self, is_cancelled: bool) -> Result<(), Broken> {
        let may_stay = |phase: Phase| is_cancelled && phase == Phase::Transfer;
        hold(self.moves().all(may_stay), Broken::RecordLeftOver)?;
        hold(is_cancelled || self.open().next().is_none(), Broken::NotFinished)
    }

    fn granted(&mut self, id: u64, fence: u64, by_move: Option<u64>) -> Result<(), Broken> {
        let unsaved = self.unsaved(id);
        let shard = self.shard(id);
        let before = shard.fence;
        (shard.fence, shard.offer, shard.last_move) = (fence, None, by_move);
        hold(fence > before, Broken::FenceFell)?;
        let Some(handoff) = by_move else {
            // Whoever had it before crashed or was late: what it did not save is done again.
            self.settled &= !unsaved;
            return Ok(());
        };
        shard.overtaken.push(before);
        shard.moves += 1;
        self.accepted.insert(handoff);
        let is_back = self.records.get(&handoff).is_some_and(|it| it.1 == Phase::RolledBack);
        hold(!is_back, Broken::RolledBackAfterAccept)
    }

    fn ended(&mut self, id: u64, how: Ended) -> Result<(), Broken> {
        let shard = self.shard(id);
        shard.ended = Some(how);
        shard.offer = None;
        let all = keys(shard.start, shard.end);
        hold(how != Ended::Done || all & !self.done == 0, Broken::KeyLost)
    }

    fn saved(&mut self, handoff: u64, shard: u64, phase: Phase) -> Result<(), Broken> {
        self.records.insert(handoff, (shard, phase));
        let was_accepted = self.accepted.contains(&handoff);
        match phase {
            Phase::Lock | Phase::Serialize | Phase::Transfer => Ok(()),
            Phase::Ack | Phase::Unlock | Phase::Complete => {
                hold(was_accepted, Broken::AcknowledgedBeforeAccept)
            }
            Phase::RolledBack => {
                let is_moved = self.shard(shard).last_move == Some(handoff);
                hold(!is_moved, Broken::RolledBackAfterAccept)
            }
        }
    }

    fn did(&mut self, id: u64, fence: u64, key: u8) -> Result<(), Broken> {
        let is_skewed = self.is_skewed;
        let shard = self.shard(id);
        if fence != shard.fence {
            hold(!shard.overtaken.contains(&fence), Broken::TwoOwners)?;
            // A sink refuses it, so it counts for nothing.
            return hold(is_skewed, Broken::StaleEffect);
        }
        hold(shard.offer.is_none(), Broken::WorkedWhileOffered)?;
        hold((shard.start..shard.end).contains(&key), Broken::OutOfRange)?;
        let bit = keys(key, key + 1);
        hold(self.settled & bit == 0, Broken::KeyRedone)?;
        self.done |= bit;
        self.settled |= bit;
        Ok(())
    }

    /// Keys of a shard that were done and are not covered.
    fn unsaved(&mut self, id: u64) -> u64 {
        let shard = self.shard(id);
        let rest = keys(shard.next, shard.end);
        rest & self.done
    }

    fn shard(&mut self, id: u64) -> &mut Shard {
        self.shards.entry(id).or_default()
    }

    /// Whether a record of the shard, other than that of `but`, is not over.
    fn is_moving(&self, shard: u64, but: Option<u64>) -> bool {
        let is_it = |(handoff, (of, phase)): (&u64, &(u64, Phase))| {
            *of == shard && Some(*handoff) != but && !phase.is_terminal()
        };
        self.records.iter().any(is_it)
    }

    /// Counts what happens to a shard while a move of it is under way.
    fn count(&mut self, event: Event) {
        match event {
            Event::Granted { shard, by_move: None, .. } if self.is_moving(shard, None) => {
                self.races.expiry += 1;
            }
            Event::Granted { by_move: Some(_), .. } => self.races.moves += 1,
            Event::Ended { shard, how: Ended::Parked } if self.is_moving(shard, None) => {
                self.races.park += 1;
            }
            Event::Ended { shard, how: Ended::Split } if self.is_moving(shard, None) => {
                self.races.split += 1;
            }
            Event::Range { shard, .. }
                if self.shards.contains_key(&shard) && self.is_moving(shard, None) =>
            {
                self.races.split += 1;
            }
            Event::Offered { shard, handoff } => {
                let is_second = self.shard(shard).moves > 0;
                if is_second || self.is_moving(shard, Some(handoff)) {
                    self.races.second += 1;
                }
                self.races.offers += 1;
            }
            Event::Withdrawn { .. } => self.races.withdrawn += 1,
            Event::Cancelled if self.moves().next().is_some() => self.races.cancel += 1,
            Event::Granted { .. }
            | Event::Ended { .. }
            | Event::Range { .. }
            | Event::Cancelled
            | Event::Born { .. }
            | Event::Cursor { .. }
            | Event::Unparked { .. }
            | Event::Released { .. }
            | Event::Record { .. }
            | Event::Forgotten { .. }
            | Event::Did { .. } => {}
        }
    }
}

/// The bits of the keys from `start` to before `end`.
fn keys(start: u8, end: u8) -> u64 {
    let below = |key: u8| 1_u64.checked_shl(key.into()).map_or(u64::MAX, |bit| bit - 1);
    below(end.max(start)) & !below(start)
}

const fn hold(holds: bool, broken: Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken) }
}
