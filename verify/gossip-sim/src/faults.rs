//! What can go wrong, kind by kind: what it is, what it may cost, and how often it happened.
//!
//! A kind is *tolerated* if every promise holds although it happens. It is *detected only* if it
//! breaks a promise that was made to us: then it must be noticed, and the rules that rest on that
//! promise are suspended from then on. A read of an old version breaks it for one operation, which
//! is all that is excused. A kind that suspends rules happens only in the last quarter
//! of a world, so that the rest of it is held to every rule. The table in the documentation is
//! printed from here.

use super::oracle::Rule;

/// Declares the kinds with everything there is to say about them.
macro_rules! fault_kinds {
    ($($name:ident, $text:literal, $place:ident, $rate:literal, $class:expr, $suspends:expr,
        $what:literal;)+) => {
        /// One kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(clippy::exhaustive_enums, reason = "the list is what reports go through")]
        pub enum FaultKind {
            $(#[doc = $what] $name,)+
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What the command line calls it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What it is.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }

            /// What it may cost.
            #[must_use]
            pub const fn class(self) -> FaultClass {
                match self { $(Self::$name => $class,)+ }
            }

            /// The rules that rest on the promise it breaks.
            #[must_use]
            pub const fn suspends(self) -> &'static [Rule] {
                match self { $(Self::$name => &$suspends,)+ }
            }

            /// When it can happen.
            pub(super) const fn place(self) -> Place {
                match self { $(Self::$name => Place::$place,)+ }
            }

            /// How often, in 65,536 chances, in a world of usual roughness.
            pub(super) const fn rate(self) -> u64 {
                match self { $(Self::$name => $rate,)+ }
            }
        }
    };
}

impl FaultKind {
    /// Whether it misleads one operation, and nobody else: what that is told may be out of date,
    /// and is not judged.
    #[must_use]
    pub const fn misleads(self) -> bool {
        matches!(self, Self::OldVersionRead)
    }
}

/// What a fault may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 5: one or the other")]
pub enum FaultClass {
    /// Every promise holds.
    Tolerated,
    /// It is noticed, by whom the text says.
    Detected(&'static str),
}

/// When a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// With every message to the store.
    Message,
    /// With every commit that reaches the store.
    Commit,
    /// With every read that reaches the store.
    Read,
    /// With the birth of a process, or as a consequence of another fault.
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
        "a request arrives after its sender gave it up and sent others";
    MessageDelay, "delay", Message, 500, Tolerated, [], "a request takes long";
    CutRequests, "cut-requests", Message, 40, Tolerated, [],
        "for a while nothing of a process reaches the store";
    CutReplies, "cut-replies", Message, 40, Tolerated, [],
        "for a while nothing of the store reaches a process";
    CutBoth, "cut-both", Message, 40, Tolerated, [], "for a while neither hears the other";
    ReplyLost, "reply-lost", Commit, 700, Tolerated, [], "a commit happens and its reply is lost";
    PastLifeReply, "past-life", Message, 60, Tolerated, [],
        "a commit of a past life happens after its process lives again, and nobody hears of it";
    CrashBeforeStore, "crash-before", Message, 60, Tolerated, [],
        "a process dies with its request unsent";
    CrashAfterStore, "crash-after", Commit, 90, Tolerated, [],
        "a process dies between its commit and the reply";
    PauseShort, "pause-short", Message, 80, Tolerated, [], "a process stops for less than a lease";
    PauseLong, "pause-long", Message, 60, Tolerated, [],
        "a process stops for longer than its leases and goes on";
    SameName, "same-name", Life, 0, Tolerated, [], "a process comes back under its old name";
    Twin, "twin", Message, 40, Tolerated, [], "two processes go by one name";
    ClockSkew, "skew", Life, 0, Tolerated, [], "a clock is wrong by a constant";
    ClockDrift, "drift", Life, 0, Tolerated, [], "a clock runs too fast or too slow";
    ClockBack, "clock-back", Message, 60, Tolerated, [], "a clock steps back";
    ClockForward, "clock-forward", Message, 60, Tolerated, [], "a clock steps forward";
    TornWrite, "torn-write", Commit, 200, Detected("checksum"), [],
        "a value is half written, and found so until it is repaired";
    LostWrite, "lost-write", Commit, 2400,
        Detected("a revision that fell, parts of a shard that do not fit; the rest by nobody"),
        [StaleFence, Expired, TwoOwners, Handoff, FrozenSource, MoveRedoesNothing, Replay,
         OpIdReused, LostKey, DoneUncovered, SinkOrder, Tiling, FenceFell, ProgressFell,
         Acknowledged, RefusedHappened, OwnerShutOut, FreeShardWithheld, Attempts, RunOver,
         RunUnsettled, RunReborn, NeverFinishes, Limit, Unfounded],
        "the store forgets what it acknowledged: one write, or its last commits";
    FsyncError, "fsync-error", Commit, 300, Tolerated, [],
        "a sync fails, and nobody knows what is on the disk";
    BitFlip, "bit-flip", Read, 150, Detected("checksum"), [], "one bit of what is read is wrong";
    TruncatedRead, "truncated-read", Read, 150, Detected("checksum"), [],
        "what is read ends too early";
    OldVersionRead, "old-version", Read, 40,
        Detected("a revision that fell, the compares of the commit; others' refusals and listings \
                  may be out of date"), [],
        "a read shows one value, or everything, as it was some versions ago";
    WrongKeyRead, "wrong-key", Read, 150, Detected("checksum"), [],
        "a record is found under another's key";
    DiskFull, "disk-full", Commit, 200, Tolerated, [], "the store has no room and says so";
    LeaderChange, "leader-change", Message, 30, Tolerated, [],
        "for a while commits are in doubt and reads fail";
    EarlyRevoke, "early-revoke", Message, 100, Tolerated, [],
        "the owner keys of a live process vanish, and it may not notice";
    Compaction, "compaction", Read, 200, Tolerated, [],
        "a read fails because its revision was compacted";
    TxnTooLarge, "too-large", Commit, 100, Tolerated, [],
        "the server takes less in one transaction than it said";
}

/// Which kinds may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSet(u64);

const _: () = assert!(FaultKind::ALL.len() <= 64);

impl FaultSet {
    /// No faults.
    pub const NONE: Self = Self(0);

    /// Every kind that leaves all rules in force.
    #[must_use]
    pub fn usual() -> Self {
        let strict = |kind: &&FaultKind| kind.suspends().is_empty();
        FaultKind::ALL.iter().filter(strict).fold(Self::NONE, |set, kind| set.with(*kind))
    }

    /// The same and `kind`.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// The same without `kind`.
    #[must_use]
    pub const fn without(self, kind: FaultKind) -> Self {
        Self(self.0 & !(1 << kind as u32))
    }

    /// Whether `kind` may happen.
    #[must_use]
    pub const fn has(self, kind: FaultKind) -> bool {
        self.0 >> kind as u32 & 1 == 1
    }

    /// The kinds, in their order.
    pub fn kinds(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.iter().copied().filter(move |kind| self.has(*kind))
    }

    /// Reads `all`, `none`, `usual` or a list of names.
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

    /// What [`FaultSet::parse`] reads back.
    #[must_use]
    pub fn list(self) -> String {
        if self == Self::NONE {
            return "none".to_owned();
        }
        self.kinds().map(FaultKind::name).collect::<Vec<_>>().join(",")
    }
}

/// The dice of one place: each kind has its own span of a draw, whether it is switched on or not,
/// so switching one off changes nothing for the others.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    /// Ends of the spans, with their kinds; `None` for those that are off.
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

    /// What happens, if anything does.
    pub(super) fn roll(&self, draw: u64) -> Option<FaultKind> {
        let point = draw & 0xFFFF;
        if point >= self.total {
            return None;
        }
        self.spans.iter().find(|(end, _)| point < *end).and_then(|(_, kind)| *kind)
    }
}

/// How often each kind happened.
#[derive(Clone, Debug)]
pub struct FaultTally(Vec<u64>);

impl Default for FaultTally {
    fn default() -> Self {
        Self(vec![0; FaultKind::ALL.len()])
    }
}

impl FaultTally {
    /// The tally of these numbers, in the order of [`FaultKind::ALL`].
    pub(super) fn of_counts(counts: Vec<u64>) -> Self {
        debug_assert_eq!(counts.len(), FaultKind::ALL.len(), "one number for each kind");
        Self(counts)
    }

    pub(super) fn count(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How often `kind` happened.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }
}
