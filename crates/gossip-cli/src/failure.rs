//! Exit codes, and failures that say what happened, why, and what to type next.

use std::fmt;
use std::process::ExitCode;

use gossip::coordination::{InfraError, StoreRefusal};

/// How the program ends (DESIGN 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Everything was done.
    Complete = 0,
    /// Something of ours or of the handler's is broken.
    Internal = 1,
    /// What was typed makes no sense.
    Usage = 2,
    /// Something is set aside or unread.
    Incomplete = 3,
    /// The run was failed or cancelled.
    RunOver = 4,
    /// The store cannot be reached.
    Store = 5,
    /// Everything was done, something was found, and that is to be told.
    Findings = 10,
    /// Interrupted; progress is saved.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// What the user is told when something did not work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What happened.
    pub(crate) what: String,
    /// Why, if more is known.
    pub(crate) why: Option<String>,
    /// What to type next, if that is known.
    pub(crate) next: Option<String>,
    /// What cannot be read, if that is what happened.
    pub(crate) unreadable: Option<Unreadable>,
}

/// Something that is stored, and damaged or newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A record of ours: the store is well, and whoever deletes its run is rid of it.
    Record,
    /// The store itself: to delete what it says is damaged would mend nothing.
    Store,
}

impl Failure {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), why: None, next: None, unreadable: None }
    }

    pub(crate) fn why(self, why: impl fmt::Display) -> Self {
        Self { why: Some(why.to_string()), ..self }
    }

    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// The store does not answer, or says no.
    pub(crate) fn store(error: &InfraError) -> Self {
        let failure = Self::new(Code::Store, "the store failed").why(error);
        match error {
            InfraError::Transient { .. } => {
                failure.next("try the same command again; nothing that was recorded is lost")
            }
            InfraError::Refused { why: StoreRefusal::NewerFormat, .. } => failure.of_record(),
            InfraError::Corruption { .. } if error.is_of_record() => failure.of_record(),
            // What the engine says is damaged, and what to do about it, stands in its message.
            InfraError::Corruption { .. } => {
                Self { unreadable: Some(Unreadable::Store), ..failure }
            }
            // What it says no to, and what to do about it, stands in the message.
            _ => failure,
        }
    }

    fn of_record(self) -> Self {
        let list = "gossip run list tells which run cannot be read, if one cannot, and what to do \
                    about it";
        Self { unreadable: Some(Unreadable::Record), ..self }.next(list)
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
