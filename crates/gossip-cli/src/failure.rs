//! Exit codes, and errors with three parts: what happened, the cause, the command to run next.

use std::fmt;
use std::process::ExitCode;

use gossip::coordination::store::FORMAT_VERSION;
use gossip::coordination::{InfraError, StoreRefusal};

/// Exit codes (DESIGN 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Every item was processed.
    Complete = 0,
    /// An internal error, or a handler that never replies.
    Internal = 1,
    /// Invalid arguments, a command that cannot be executed, or arguments that do not fit the
    /// stored state.
    Usage = 2,
    /// Items failed or could not be read.
    Incomplete = 3,
    /// The run failed or was cancelled.
    RunOver = 4,
    /// The store cannot be reached or read.
    Store = 5,
    /// A newer gossip has upgraded the store; progress is saved.
    Upgrade = 6,
    /// Every item was processed, and `--fail-on findings` found some.
    Findings = 10,
    /// Interrupted, or the output was closed; progress is saved.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error as it is printed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What happened.
    pub(crate) what: String,
    /// The cause, if it is known.
    pub(crate) why: Option<String>,
    /// What to do next, with the command to run.
    pub(crate) next: Option<String>,
    /// The stored data that cannot be read, if that is the error.
    pub(crate) unreadable: Option<Unreadable>,
}

/// Stored data that is damaged or of a newer format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// One record. The store itself is intact, and deleting the record's run removes it.
    Record,
    /// The store itself. Deleting a run does not repair it.
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

    /// Describes an error of the store.
    pub(crate) fn store(error: &InfraError) -> Self {
        let failure = Self::new(Code::Store, "store error").why(error);
        match error.cause() {
            InfraError::Transient { .. } => {
                failure.next("run the same command again; saved progress is not lost")
            }
            InfraError::Refused { why: StoreRefusal::NewerFormat, .. } => failure.of_record(),
            InfraError::Corruption { .. } if error.is_of_shard() => {
                let repair = "list the damaged shards: gossip shard list RUN --damaged; \
                              then repair them: gossip shard repair RUN SHARD";
                Self { unreadable: Some(Unreadable::Record), ..failure }.next(repair)
            }
            InfraError::Corruption { .. } if error.is_of_record() => failure.of_record(),
            // The store's message names the damage and how to repair it.
            InfraError::Corruption { .. } => {
                Self { unreadable: Some(Unreadable::Store), ..failure }
            }
            // The store's message says what it rejects and what to do.
            _ => failure,
        }
    }

    /// Describes a store of a newer format.
    pub(crate) fn newer_store(found: u8) -> Self {
        let what = format!("store has format {found}, this gossip reads up to {FORMAT_VERSION}");
        Self::new(Code::Upgrade, what).next("upgrade this worker; saved progress is not lost")
    }

    fn of_record(self) -> Self {
        let list = "find the unreadable run and how to delete it: gossip run list";
        Self { unreadable: Some(Unreadable::Record), ..self }.next(list)
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
