//! Mutants: bugs of a worker that uses `lease_handoff`, which the simulation must find.
//!
//! They are in the simulated workers, so the product code is unchanged.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the list of mutants")]
pub enum Bug {
    /// The source confirms the freeze and continues processing.
    WorksWhileOffered,
    /// The source continues after its offer has expired, without waiting for the withdrawal.
    ResumesAtTheDeadline,
    /// The source continues although the shard was handed off.
    KeepsWhatMoved,
    /// The destination starts at the start of the shard.
    StartsOver,
    /// The destination skips one key.
    SkipsAKey,
    /// The source offers the last checkpoint instead of its final position.
    OffersTheStoredCursor,
    /// A drain does not receive the final positions of its shards.
    ReleasesUnsaved,
    /// A new process rolls back the records of its predecessor without checking the fence.
    RollsBackWithoutLooking,
    /// The destination reports "live" when it finds the record, and accepts later.
    AcksBeforeAccepting,
}

impl Bug {
    /// Every mutant.
    pub const ALL: [Self; 9] = [
        Self::WorksWhileOffered,
        Self::ResumesAtTheDeadline,
        Self::KeepsWhatMoved,
        Self::StartsOver,
        Self::SkipsAKey,
        Self::OffersTheStoredCursor,
        Self::ReleasesUnsaved,
        Self::RollsBackWithoutLooking,
        Self::AcksBeforeAccepting,
    ];

    /// Describes the bug in a sentence.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::WorksWhileOffered => "The source continues processing after a freeze.",
            Self::ResumesAtTheDeadline => {
                "The source continues after its offer has expired, without the withdrawal."
            }
            Self::KeepsWhatMoved => "The source continues although the shard was handed off.",
            Self::StartsOver => "The destination starts at the start of the shard.",
            Self::SkipsAKey => "The destination skips one key.",
            Self::OffersTheStoredCursor => {
                "The offer has the last checkpoint instead of the final position."
            }
            Self::ReleasesUnsaved => "A drain does not receive the final positions of its shards.",
            Self::RollsBackWithoutLooking => {
                "A new process rolls back records without checking the fence."
            }
            Self::AcksBeforeAccepting => "The destination reports \"live\" before it accepts.",
        }
    }
}
