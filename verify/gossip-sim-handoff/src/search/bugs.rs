//! Mutants: planted bugs that the search must find.
//!
//! They change the replies that a state machine receives, so the product code is unchanged.

use gossip_coordination::{ShardSummary, WithdrawError};

use gossip_handoff::lease_handoff::{MoveTerms, SourceReply};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the list of mutants")]
pub enum Bug {
    /// The source continues after its offer has expired, without a withdrawal.
    ResumesWithoutWithdrawing,
    /// The source treats a stale fence as a successful withdrawal and continues without checking
    /// the fence.
    RollsBackAfterAccept,
    /// Recovery treats any higher fence as its own handoff.
    ForwardOnForeignId,
    /// Recovery ends a record whose shard is still at F, without a withdrawal.
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

    /// Describes the bug in a sentence.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ResumesWithoutWithdrawing => {
                "The source continues after its offer has expired, without a withdrawal."
            }
            Self::RollsBackAfterAccept => {
                "The source treats a stale fence as a successful withdrawal and continues."
            }
            Self::ForwardOnForeignId => "Recovery treats any higher fence as its own handoff.",
            Self::RollsBackWithoutWithdrawing => "Recovery ends a record without a withdrawal.",
        }
    }

    /// Returns whether the withdrawal is never sent.
    pub(super) fn skips_withdrawal(self) -> bool {
        self == Self::ResumesWithoutWithdrawing
    }

    /// Returns the reply that the source receives instead.
    pub(super) fn twist(self, reply: SourceReply, terms: &MoveTerms) -> SourceReply {
        match (self, reply) {
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
            (_, reply) => reply,
        }
    }
}
