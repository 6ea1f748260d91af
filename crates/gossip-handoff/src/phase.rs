//! The phases of a handoff, with numbers that are stored.

use std::fmt;

/// Where a handoff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a seventh phase would be another machine")]
#[repr(u8)]
pub enum Phase {
    /// The owner freezes the subject and takes no more input for it.
    Lock = 1,
    /// The owner has written the snapshot into the record.
    Serialize = 2,
    /// The destination was told, and loads the snapshot.
    Transfer = 3,
    /// The destination is live and takes input. The last phase from which there is a way back.
    Ack = 4,
    /// The owner drops its own copy.
    Unlock = 5,
    /// It is over, and went well.
    Complete = 6,
    /// It is over, and nothing moved. [`Record::error`](crate::Record::error) says why.
    RolledBack = 99,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 7] = [
        Self::Lock,
        Self::Serialize,
        Self::Transfer,
        Self::Ack,
        Self::Unlock,
        Self::Complete,
        Self::RolledBack,
    ];

    /// The phase with this number.
    ///
    /// # Errors
    ///
    /// [`UnknownPhase`] for any other number.
    pub fn from_u8(number: u8) -> Result<Self, UnknownPhase> {
        let known = Self::ALL.into_iter().find(|phase| phase.as_u8() == number);
        known.ok_or(UnknownPhase(number))
    }

    /// The number that is stored. It never changes.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The label for logs and audits.
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

    /// Whether nothing more can happen.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::RolledBack)
    }

    /// Whether there is a way back: up to Ack, because from Unlock on the only copy is the
    /// destination's.
    #[must_use]
    pub const fn is_reversible(self) -> bool {
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
#[error("{0} is not the number of a phase")]
pub struct UnknownPhase(pub u8);

// Stored by other versions of this program, so they are fixed for ever.
const _: () = {
    assert!(Phase::Lock as u8 == 1 && Phase::Serialize as u8 == 2 && Phase::Transfer as u8 == 3);
    assert!(Phase::Ack as u8 == 4 && Phase::Unlock as u8 == 5 && Phase::Complete as u8 == 6);
    assert!(Phase::RolledBack as u8 == 99);
};
