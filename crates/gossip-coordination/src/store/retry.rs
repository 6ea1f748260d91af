//! How often a flight tries again, and how long it waits before it does.

use super::key::Key;
use crate::error::InfraError;

/// Conflicts and lost replies that one operation bears, or one step of an operation that takes
/// many. Each lost race means that somebody else succeeded, so this many in a row mean that the
/// caller had better come back later.
pub(super) const TRIES_MAX: u32 = 16;

/// Conflicts on the quota and on the keys of newborn shards that one operation bears: the first say
/// nothing about the shard itself, the second are decided anew at once (DESIGN Q15). Bounded all
/// the same, so that no store can keep a flight in the air for ever.
pub(super) const SIDE_TRIES_MAX: u32 = 1_000;

/// The longest wait before another try, in ticks: far below any lease.
pub(super) const BACKOFF_TICKS_MAX: u64 = 64;

/// How the message of an error ends that leaves open whether the operation happened.
const IN_DOUBT: &str = "; it may have happened";

/// The tries of one operation.
#[derive(Debug)]
pub(super) struct Tries {
    operation: &'static str,
    made: u32,
    aside: u32,
    /// Whether a reply was lost: that try may have happened, or will.
    is_unresolved: bool,
    /// Spreads the waits of handles that collide.
    spread: u64,
}

impl Tries {
    pub(super) const fn new(operation: &'static str, spread: u64) -> Self {
        Self { operation, made: 0, aside: 0, is_unresolved: false, spread }
    }

    /// The tries of what remains to be done of an operation that has happened.
    pub(super) const fn of_the_rest(operation: &'static str, spread: u64) -> Self {
        let new = Self::new(operation, spread);
        Self { is_unresolved: true, ..new }
    }

    /// Counts a try that failed because of `key`, or whose reply was lost if there is none, and
    /// answers how long to wait before the next. `side` tells that the subject itself was not
    /// contended.
    ///
    /// # Errors
    ///
    /// [`InfraError::Transient`] if there were too many.
    pub(super) fn failed(&mut self, key: Option<Key>, side: bool) -> Result<u64, InfraError> {
        self.is_unresolved |= key.is_none();
        if side {
            self.aside += 1;
        } else {
            self.made += 1;
        }
        if self.made < TRIES_MAX && self.aside < SIDE_TRIES_MAX {
            return Ok(if side { 0 } else { self.backoff() });
        }
        let message = match key {
            Some(key) => format!("lost {} races, the last for {}", self.lost(), key.kind().name()),
            None => format!("no reply after {} tries", self.lost()),
        };
        Err(self.ended(InfraError::Transient { operation: self.operation, message }))
    }

    /// What to tell of an operation that `error` of the store ended. It may speak for the last try
    /// only: if the reply to another was lost, trying again tells what happened.
    pub(super) fn ended(&self, error: InfraError) -> InfraError {
        let doubtful = |message| format!("{message}{IN_DOUBT}");
        match error {
            error if !self.is_unresolved || says_so(&error) => error,
            InfraError::Transient { operation, message }
            | InfraError::Refused { operation, message, .. } => {
                InfraError::Transient { operation, message: doubtful(message) }
            }
            InfraError::Corruption { operation, message } => {
                InfraError::Corruption { operation, message: doubtful(message) }
            }
        }
    }

    const fn lost(&self) -> u32 {
        self.made + self.aside
    }

    /// Doubles with every try; handles differ by up to as much again.
    const fn backoff(&self) -> u64 {
        let base = 1_u64 << (self.made - 1);
        let base = if base < BACKOFF_TICKS_MAX / 2 { base } else { BACKOFF_TICKS_MAX / 2 };
        base + self.spread % (base + 1)
    }
}

/// Whether the error was told before by what knows of the same unresolved.
fn says_so(error: &InfraError) -> bool {
    match error {
        InfraError::Transient { message, .. }
        | InfraError::Refused { message, .. }
        | InfraError::Corruption { message, .. } => message.ends_with(IN_DOUBT),
    }
}
