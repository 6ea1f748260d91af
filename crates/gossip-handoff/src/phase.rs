//! The phases of a handoff and their stored numbers.

use std::fmt;

/// The progress of a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a seventh phase would be another machine")]
#[repr(u8)]
pub enum Phase {
    /// The owner freezes the subject and accepts no more input for it.
    Lock = 1,
    /// The owner has written the snapshot into the record.
    Serialize = 2,
    /// The destination may load the snapshot.
    Transfer = 3,
    /// The destination is live and accepts input. The last phase that can be rolled back.
    Ack = 4,
    /// The owner drops its own copy.
    Unlock = 5,
    /// The handoff has succeeded.
    Complete = 6,
    /// The handoff was rolled back. [`Record::error`](crate::Record::error) has the reason.
    RolledBack = 99,
}

impl Phase {
    /// Every phase, in order.
    pub(crate) const ALL: [Self; 7] = [
        Self::Lock,
        Self::Serialize,
        Self::Transfer,
        Self::Ack,
        Self::Unlock,
        Self::Complete,
        Self::RolledBack,
    ];

    /// Returns the phase with this number.
    ///
    /// # Errors
    ///
    /// [`UnknownPhase`] for any other number.
    pub(crate) fn from_u8(number: u8) -> Result<Self, UnknownPhase> {
        let known = Self::ALL.into_iter().find(|phase| phase.as_u8() == number);
        known.ok_or(UnknownPhase(number))
    }

    /// Returns the stored number. It never changes.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Returns the label for logs and audits.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Serialize => "serialize",
            Self::Transfer => "transfer",
            Self::Ack => "ack",
            Self::Unlock => "unlock",
            Self::Complete => "complete",
            Self::RolledBack => "rolled_back",
        }
    }

    /// Returns whether no further transition is possible.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::RolledBack)
    }

    /// Returns whether a rollback is possible: up to Ack, because from Unlock on the destination
    /// has the only copy.
    #[must_use]
    pub(crate) const fn is_reversible(self) -> bool {
        match self {
            Self::Lock | Self::Serialize | Self::Transfer | Self::Ack => true,
            Self::Unlock | Self::Complete | Self::RolledBack => false,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A number that no phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown phase number {0}")]
pub struct UnknownPhase(pub u8);

// Records of other versions contain these numbers, so they must not change.
const _: () = {
    assert!(Phase::Lock as u8 == 1 && Phase::Serialize as u8 == 2 && Phase::Transfer as u8 == 3);
    assert!(Phase::Ack as u8 == 4 && Phase::Unlock as u8 == 5 && Phase::Complete as u8 == 6);
    assert!(Phase::RolledBack as u8 == 99);
};
