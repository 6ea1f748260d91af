//! Mutants: mistakes that others have made, to show that the search finds them.
//!
//! They are made between a machine and what it is told, so the product has no trace of them.

use gossip_coordination::{ShardSummary, WithdrawError};

use gossip_handoff::lease_handoff::{MoveTerms, SourceReply};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the list of mutants")]
pub enum Bug {
    /// The source goes on when its offer has ended, and does not withdraw it first.
    ResumesWithoutWithdrawing,
    /// The source takes "your fence is stale" for an answer to its withdrawal, and goes on without
    /// a look at the fence.
    RollsBackAfterAccept,
    /// Recovery takes any higher fence for its own move.
    ForwardOnForeignId,
    /// Recovery ends a record whose shard is still at F, and nobody has withdrawn.
    RollsBackWithoutWithdrawing,
}

impl Bug {
    /// Every mutant.
    pub const ALL: [Self; 4] = [
        Self::ResumesWithoutWithdrawing,
        Self::RollsBackAfterAccept,
        Self::ForwardOnForeignId,
        Self::RollsBackWithoutWithdrawing,
    ];

    /// What is wrong, in a sentence.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ResumesWithoutWithdrawing => {
                "The source goes on when its offer has ended, and does not withdraw it."
            }
            Self::RollsBackAfterAccept => {
                "The source takes a stale fence for an answer to its withdrawal, and goes on."
            }
            Self::ForwardOnForeignId => "Recovery takes any higher fence for its own move.",
            Self::RollsBackWithoutWithdrawing => {
                "Recovery ends a record whose shard nobody has withdrawn."
            }
        }
    }

    /// Whether the withdrawal is never sent.
    pub(super) fn skips_withdrawal(self) -> bool {
        self == Self::ResumesWithoutWithdrawing
    }

    /// What the source believes it was told.
    pub(super) fn twist(self, told: SourceReply, terms: &MoveTerms) -> SourceReply {
        match (self, told) {
            (
                Self::RollsBackAfterAccept,
                SourceReply::Withdrawn(Err(WithdrawError::StaleFence { .. })),
            ) => SourceReply::Withdrawn(Ok(())),
            (Self::RollsBackAfterAccept, SourceReply::Shard(Some(Some(shard)))) => {
                let fence_epoch = terms.fence;
                SourceReply::Shard(Some(Some(Box::new(ShardSummary { fence_epoch, ..*shard }))))
            }
            (Self::ForwardOnForeignId, SourceReply::Shard(Some(Some(shard)))) => {
                let last_handoff = Some(terms.handoff());
                SourceReply::Shard(Some(Some(Box::new(ShardSummary { last_handoff, ..*shard }))))
            }
            (Self::RollsBackWithoutWithdrawing, SourceReply::Shard(_)) => {
                SourceReply::Shard(Some(None))
            }
            (_, told) => told,
        }
    }
}
