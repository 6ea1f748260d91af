//! Mutants: mistakes that a worker can make who uses the join, to show that they are found.
//!
//! They are in the workers of the simulation, so the product has no trace of them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the list of mutants")]
pub enum Bug {
    /// The source is asked to stop, says that it has, and goes on.
    WorksWhileOffered,
    /// The source goes on when its offer has ended, and does not wait for the withdrawal.
    ResumesAtTheDeadline,
    /// The source goes on although the shard has moved.
    KeepsWhatMoved,
    /// The destination begins where the shard begins.
    StartsOver,
    /// The destination begins one key too late.
    SkipsAKey,
    /// The source offers the shard where it last checkpointed, and not where it stopped.
    OffersTheStoredCursor,
    /// A drain is not told where its shards stopped.
    ReleasesUnsaved,
    /// A process that starts rolls back whatever its predecessor left, and looks at no fence.
    RollsBackWithoutLooking,
    /// The destination says "live" when it has found the record, and accepts later.
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

    /// What is wrong, in a sentence.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::WorksWhileOffered => "It goes on working when it was asked to stop.",
            Self::ResumesAtTheDeadline => {
                "It goes on when its offer has ended, without the withdrawal."
            }
            Self::KeepsWhatMoved => "It goes on although the shard has moved.",
            Self::StartsOver => "The destination begins where the shard begins.",
            Self::SkipsAKey => "The destination begins one key too late.",
            Self::OffersTheStoredCursor => {
                "The offer tells the last checkpoint and not where it stopped."
            }
            Self::ReleasesUnsaved => "A drain is not told where its shards stopped.",
            Self::RollsBackWithoutLooking => "A process that starts rolls back whatever it finds.",
            Self::AcksBeforeAccepting => "The destination says \"live\" before it accepts.",
        }
    }
}
