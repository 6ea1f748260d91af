//! Checks the stored values and the processed keys against the guarantees of handoffs.
//!
//! The oracle receives every value that is written to the disk and every key that a worker
//! processes. It keeps its own state and uses no product code.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::Races;
use gossip_handoff::Phase;

/// An observed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the list of observed events")]
pub enum Event {
    /// The shard has the range `[start, end)`.
    Range {
        /// The shard.
        shard: u64,
        /// Its first key.
        start: u8,
        /// The first key after it.
        end: u8,
    },
    /// The shard was created.
    Born {
        /// The shard.
        shard: u64,
        /// Its first fence.
        fence: u64,
    },
    /// The fence was raised, by a handoff or by another grant.
    Granted {
        /// The shard.
        shard: u64,
        /// The new fence.
        fence: u64,
        /// The handoff, if it was one.
        by_move: Option<u64>,
    },
    /// An offer was stored.
    Offered {
        /// The shard.
        shard: u64,
        /// The handoff.
        handoff: u64,
    },
    /// The offer was withdrawn, and the fence is unchanged.
    Withdrawn {
        /// The shard.
        shard: u64,
    },
    /// The cursor covers all keys before `next`.
    Cursor {
        /// The shard.
        shard: u64,
        /// The first key that is not covered.
        next: u8,
    },
    /// The shard became terminal.
    Ended {
        /// The shard.
        shard: u64,
        /// The kind of end.
        how: Ended,
    },
    /// A parked shard was unparked.
    Unparked {
        /// The shard.
        shard: u64,
    },
    /// Its owner released it.
    Released {
        /// The shard.
        shard: u64,
    },
    /// The record of a handoff was saved.
    Record {
        /// The handoff.
        handoff: u64,
        /// The shard.
        shard: u64,
        /// The phase.
        phase: Phase,
    },
    /// The record of a handoff was deleted.
    Forgotten {
        /// The handoff.
        handoff: u64,
    },
    /// The run was cancelled.
    Cancelled,
    /// A worker processed a key.
    Did {
        /// The shard.
        shard: u64,
        /// The fence.
        fence: u64,
        /// The key.
        key: u8,
    },
}

/// How a shard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the kernel has exactly these")]
pub enum Ended {
    /// Every key is processed.
    Done,
    /// It was replaced by children.
    Split,
    /// It is parked.
    Parked,
}

/// A violated property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Broken {
    /// A key was processed under a fence that a handoff has raised since.
    TwoOwners,
    /// A key was processed under a stale fence although clocks agree.
    StaleEffect,
    /// A key was processed while an offer was open.
    WorkedWhileOffered,
    /// A key outside the shard was processed.
    OutOfRange,
    /// A key was processed again without a crash or a lost lease.
    KeyRedone,
    /// A cursor covers an unprocessed key.
    KeyLost,
    /// A shard was released with unsaved progress.
    ReleasedUnsaved,
    /// A shard was offered whose record is not in Transfer.
    OfferedUnrecorded,
    /// A fence did not rise.
    FenceFell,
    /// A record is rolled back although its handoff raised the shard's fence.
    RolledBackAfterAccept,
    /// A record is acknowledged although its handoff was not accepted.
    AcknowledgedBeforeAccept,
    /// A shard did not end.
    NotFinished,
    /// A record did not end.
    RecordLeftOver,
    /// A handoff did not end.
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
    /// The handoff that raised the fence last, if any. The shard stores only that one, so the
    /// record of an earlier handoff may be superseded.
    last_move: Option<u64>,
    /// Fences that a handoff has replaced.
    overtaken: Vec<u64>,
    /// Number of handoffs.
    moves: u32,
}

/// State of the oracle.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    shards: BTreeMap<u64, Shard>,
    records: BTreeMap<u64, (u64, Phase)>,
    accepted: BTreeSet<u64>,
    /// Processed keys, one bit each.
    done: u64,
    /// Processed keys that must not be processed again.
    settled: u64,
    /// Whether clocks differ, so that a lease can expire while its owner considers it live.
    is_skewed: bool,
    is_cancelled: bool,
    races: Races,
}

impl Oracle {
    /// Clocks differ from now on.
    pub const fn skew(&mut self) {
        self.is_skewed = true;
    }

    /// Returns the races with handoffs.
    #[must_use]
    pub const fn races(&self) -> Races {
        self.races
    }

    /// Records and checks an event.
    ///
    /// # Errors
    ///
    /// [`Broken`] if the event violates a property.
    pub fn observe(&mut self, event: Event) -> Result<(), Broken> {
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
                // Unsaved progress of an earlier owner is processed again in any case.
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

    /// Returns whether the run is cancelled.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Returns the shards that are not terminal.
    pub fn open(&self) -> impl Iterator<Item = u64> {
        let is_open = |shard: &Shard| !matches!(shard.ended, Some(Ended::Done | Ended::Split));
        self.shards.iter().filter(move |(_, shard)| is_open(shard)).map(|(id, _)| *id)
    }

    /// Returns the parked shards.
    pub fn parked(&self) -> impl Iterator<Item = u64> {
        let is_parked = |shard: &Shard| shard.ended == Some(Ended::Parked);
        self.shards.iter().filter(move |(_, shard)| is_parked(shard)).map(|(id, _)| *id)
    }

    /// Returns the records that have not ended, with their phases.
    pub fn moves(&self) -> impl Iterator<Item = Phase> {
        self.records.values().map(|(_, phase)| *phase).filter(|phase| !phase.is_terminal())
    }

    /// Checks the properties of a settled world. In a cancelled run no fence is raised, so a record
    /// whose source has ended may stay in Transfer.
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
            // The previous owner crashed or was late: its unsaved keys are processed again.
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
            // A sink refuses the key, so it does not count.
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

    /// Returns the processed keys of a shard that its cursor does not cover.
    fn unsaved(&mut self, id: u64) -> u64 {
        let shard = self.shard(id);
        let rest = keys(shard.next, shard.end);
        rest & self.done
    }

    fn shard(&mut self, id: u64) -> &mut Shard {
        self.shards.entry(id).or_default()
    }

    /// Returns whether a record of the shard, other than that of `but`, has not ended.
    fn is_moving(&self, shard: u64, but: Option<u64>) -> bool {
        let is_it = |(handoff, (of, phase)): (&u64, &(u64, Phase))| {
            *of == shard && Some(*handoff) != but && !phase.is_terminal()
        };
        self.records.iter().any(is_it)
    }

    /// Counts the events of a shard during a handoff.
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

/// Returns the bits of the keys in `[start, end)`.
fn keys(start: u8, end: u8) -> u64 {
    let below = |key: u8| 1_u64.checked_shl(key.into()).map_or(u64::MAX, |bit| bit - 1);
    below(end.max(start)) & !below(start)
}

const fn hold(holds: bool, broken: Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken) }
}
