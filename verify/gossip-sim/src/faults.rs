//! Kinds of faults: description, consequence and rate.
//!
//! A kind is *tolerated* if all guarantees hold in spite of it. It is *detected only* if it
//! violates a guarantee that the coordinator relies on: then it must be detected, and the rules
//! that rest on that guarantee are suspended from then on. A read of an old version violates it for
//! one operation, which alone is excused. A kind that suspends rules is injected only in the last
//! quarter of a simulation, so that the rest is checked against every rule. The table in the
//! documentation is printed from this list.

use super::oracle::Rule;

/// Declares the kinds and their properties.
macro_rules! fault_kinds {
    ($($name:ident, $text:literal, $place:ident, $rate:literal, $class:expr, $suspends:expr,
        $what:literal;)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(clippy::exhaustive_enums, reason = "reports iterate over the list")]
        pub enum FaultKind {
            $(#[doc = $what] $name,)+
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Returns a description.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }

            /// Returns the consequence.
            #[must_use]
            pub const fn class(self) -> FaultClass {
                match self { $(Self::$name => $class,)+ }
            }

            /// Returns the rules that rest on the guarantee it violates.
            #[must_use]
            pub const fn suspends(self) -> &'static [Rule] {
                match self { $(Self::$name => &$suspends,)+ }
            }

            /// Returns where it is injected.
            pub(super) const fn place(self) -> Place {
                match self { $(Self::$name => Place::$place,)+ }
            }

            /// Returns the rate in 65,536 opportunities at roughness 1.
            pub(super) const fn rate(self) -> u64 {
                match self { $(Self::$name => $rate,)+ }
            }
        }
    };
}

impl FaultKind {
    /// Returns whether its damage stays: nothing but a write of the same value ends it.
    #[must_use]
    pub const fn lasts(self) -> bool {
        matches!(self, Self::TornWrite | Self::LostWrite | Self::Restore)
    }

    /// Returns whether it misleads a single operation, whose result may be outdated and is not
    /// checked.
    #[must_use]
    pub const fn misleads(self) -> bool {
        matches!(self, Self::OldVersionRead)
    }
}

/// The consequence of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 5: one or the other")]
pub enum FaultClass {
    /// All guarantees hold.
    Tolerated,
    /// It is detected, as the text says.
    Detected(&'static str),
}

impl FaultClass {
    /// Returns its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tolerated => "tolerated",
            Self::Detected(_) => "detected only",
        }
    }
}

/// Where a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At every message to the store.
    Message,
    /// At every commit that reaches the store.
    Commit,
    /// At every read that reaches the store.
    Read,
    /// At the start of a process, or as a consequence of another fault.
    Life,
}

use FaultClass::{Detected, Tolerated};
use Rule::{
    Acknowledged, Attempts, DoneUncovered, Expired, FenceFell, FreeShardWithheld, FrozenSource,
    Handoff, Limit, LostKey, MoveRedoesNothing, NeverFinishes, OpIdReused, OwnerShutOut,
    ProgressFell, RefusedHappened, Replay, RunOver, RunReborn, RunUnsettled, SinkOrder, StaleFence,
    Tiling, TwoOwners, Unfounded,
};

fault_kinds! {
    MessageDrop, "drop", Message, 500, Tolerated, [], "a request never arrives";
    MessageDuplicate, "duplicate", Message, 400, Tolerated, [], "a request arrives twice";
    MessageReorder, "reorder", Message, 400, Tolerated, [],
        "a request arrives after its sender timed out and sent others";
    MessageDelay, "delay", Message, 500, Tolerated, [], "a request is delayed";
    CutRequests, "cut-requests", Message, 40, Tolerated, [],
        "for a while requests of a process are lost";
    CutReplies, "cut-replies", Message, 40, Tolerated, [],
        "for a while replies to a process are lost";
    CutBoth, "cut-both", Message, 40, Tolerated, [], "for a while requests and replies are lost";
    Throttle, "throttle", Message, 40, Tolerated, [],
        "for a while the store rejects the requests of a process as too many";
    ReplyLost, "reply-lost", Commit, 700, Tolerated, [],
        "a commit is applied and its reply is lost";
    PastLifeReply, "past-life", Message, 60, Tolerated, [],
        "a commit is applied after its process was restarted, without a reply";
    CrashBeforeStore, "crash-before", Message, 60, Tolerated, [],
        "a process dies before it sends its request";
    CrashAfterStore, "crash-after", Commit, 90, Tolerated, [],
        "a process dies between its commit and the reply";
    PauseShort, "pause-short", Message, 80, Tolerated, [], "a process stops for less than a lease";
    PauseLong, "pause-long", Message, 60, Tolerated, [],
        "a process stops for longer than its leases and resumes";
    SameName, "same-name", Life, 0, Tolerated, [], "a process restarts with its old worker id";
    Twin, "twin", Message, 40, Tolerated, [], "two processes use one worker id";
    ClockSkew, "skew", Life, 0, Tolerated, [], "a clock is wrong by a constant";
    ClockDrift, "drift", Life, 0, Tolerated, [], "a clock runs too fast or too slow";
    ClockBack, "clock-back", Message, 60, Tolerated, [], "a clock steps back";
    ClockForward, "clock-forward", Message, 60, Tolerated, [], "a clock steps forward";
    TornWrite, "torn-write", Commit, 60, Detected("checksum"), [],
        "a value is half written, and stays so until it is written again";
    LostWrite, "lost-write", Commit, 2400,
        Detected("a decreased revision, or shard parts that do not match; else undetected"),
        [StaleFence, Expired, TwoOwners, Handoff, FrozenSource, MoveRedoesNothing, Replay,
         OpIdReused, LostKey, DoneUncovered, SinkOrder, Tiling, FenceFell, ProgressFell,
         Acknowledged, RefusedHappened, OwnerShutOut, FreeShardWithheld, Attempts, RunOver,
         RunUnsettled, RunReborn, NeverFinishes, Limit, Unfounded],
        "the store loses acknowledged data: one write, or its last commits";
    FsyncError, "fsync-error", Commit, 300, Tolerated, [],
        "a sync fails, and the commit may or may not be durable";
    BitFlip, "bit-flip", Read, 150, Detected("checksum"), [], "one bit of a read value is wrong";
    TruncatedRead, "truncated-read", Read, 150, Detected("checksum"), [],
        "a read value is truncated";
    OldVersionRead, "old-version", Read, 40,
        Detected("a revision that fell, the compares of the commit; others' refusals and listings \
                  may be out of date"), [],
        "a read returns an old version of one value, or of all values";
    WrongKeyRead, "wrong-key", Read, 150, Detected("checksum"), [],
        "a read returns the value of another key";
    DiskFull, "disk-full", Commit, 200, Tolerated, [],
        "the store rejects a commit because the disk is full";
    LeaderChange, "leader-change", Message, 30, Tolerated, [],
        "for a while commits have unknown outcomes and reads fail";
    EarlyRevoke, "early-revoke", Message, 100, Tolerated, [],
        "the owner keys of a live process expire, with or without its knowledge";
    Compaction, "compaction", Read, 200, Tolerated, [],
        "a read fails because its revision was compacted";
    TxnTooLarge, "too-large", Commit, 100, Tolerated, [],
        "the server rejects a transaction within its stated limit";
    Restore, "restore", Commit, 1200,
        Detected("leases of before it, by the fence floors that an operator raises; the work since \
                  the backup is repeated"),
        [TwoOwners, Handoff, FrozenSource, MoveRedoesNothing, Replay, OpIdReused, Tiling,
         ProgressFell, Acknowledged, RefusedHappened, OwnerShutOut, FreeShardWithheld, Attempts,
         RunOver, RunUnsettled, RunReborn, NeverFinishes, Limit, Unfounded],
        "the store is set back to a backup while its processes run";
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSet(u64);

const _: () = assert!(FaultKind::ALL.len() <= 64);

impl FaultSet {
    /// No faults.
    pub const NONE: Self = Self(0);

    /// Returns every kind that suspends no rule.
    #[must_use]
    pub fn usual() -> Self {
        let strict = |kind: &&FaultKind| kind.suspends().is_empty();
        FaultKind::ALL.iter().filter(strict).fold(Self::NONE, |set, kind| set.with(*kind))
    }

    /// Returns the set with `kind`.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// Returns the set without `kind`.
    #[must_use]
    pub const fn without(self, kind: FaultKind) -> Self {
        Self(self.0 & !(1 << kind as u32))
    }

    /// Returns whether `kind` is in the set.
    #[must_use]
    pub const fn has(self, kind: FaultKind) -> bool {
        self.0 >> kind as u32 & 1 == 1
    }

    /// Returns the kinds in order.
    pub fn kinds(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.iter().copied().filter(move |kind| self.has(*kind))
    }

    /// Parses `all`, `none`, `usual` or a comma-separated list of names.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => return Some(Self::NONE),
            "usual" => return Some(Self::usual()),
            "all" => {
                return Some(FaultKind::ALL.iter().fold(Self::NONE, |it, kind| it.with(*kind)));
            }
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |set, name| {
            FaultKind::ALL.iter().find(|kind| kind.name() == name).map(|kind| set.with(*kind))
        })
    }

    /// Returns the text that [`FaultSet::parse`] reads.
    #[must_use]
    pub fn list(self) -> String {
        if self == Self::NONE {
            return "none".to_owned();
        }
        self.kinds().map(FaultKind::name).collect::<Vec<_>>().join(",")
    }
}

/// The dice of one place. Each kind has its own interval of a draw, whether it is enabled or not,
/// so that disabling one does not change the others.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    /// Ends of the intervals with their kinds; `None` for disabled kinds.
    spans: Vec<(u64, Option<FaultKind>)>,
    total: u64,
}

impl Dice {
    pub(super) fn new(place: Place, set: FaultSet, roughness: u64) -> Self {
        let (mut spans, mut total) = (Vec::new(), 0);
        for kind in FaultKind::ALL.iter().copied().filter(|kind| kind.place() == place) {
            total += kind.rate() * roughness;
            spans.push((total, set.has(kind).then_some(kind)));
        }
        Self { spans, total }
    }

    /// Returns the fault of a draw, if any.
    pub(super) fn roll(&self, draw: u64) -> Option<FaultKind> {
        let point = draw & 0xFFFF;
        if point >= self.total {
            return None;
        }
        self.spans.iter().find(|(end, _)| point < *end).and_then(|(_, kind)| *kind)
    }
}

/// Number of injected faults of each kind.
#[derive(Clone, Debug)]
pub struct FaultTally(Vec<u64>);

impl Default for FaultTally {
    fn default() -> Self {
        Self(vec![0; FaultKind::ALL.len()])
    }
}

impl FaultTally {
    /// Returns the tally of these counts, in the order of [`FaultKind::ALL`].
    pub(super) fn of_counts(counts: Vec<u64>) -> Self {
        debug_assert_eq!(counts.len(), FaultKind::ALL.len(), "one number for each kind");
        Self(counts)
    }

    pub(super) fn count(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// Returns the count of `kind`.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }
}
