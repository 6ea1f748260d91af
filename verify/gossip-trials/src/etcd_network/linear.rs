//! Linearizability of the operations on one shard.
//!
//! A history is a set of operations with the times of call and return. It is linearizable if each
//! operation can be assigned one instant between the two so that, in the order of these instants,
//! every result is that of a sequential shard ([`Shard::apply`]). An operation whose reply was lost
//! has no return: its instant is any time after the call, or it did not happen.
//!
//! The check is the search of Wing and Gong with Lowe's memoization of visited states: it fixes one
//! operation after the other and goes back where no operation fits. It is pure and bounded
//! ([`STEPS_MAX`]). A history that it cannot decide within the bound is not accepted.
//!
//! # Never
//! - reads a clock, a file or a record of the store: results are all it has;
//! - uses code of the product: the sequential shard is written here a second time.

use std::collections::BTreeSet;
use std::fmt;

/// States that one search visits at most. A history of some thousand operations, in which a few
/// overlap at a time, needs about one state per operation.
pub(super) const STEPS_MAX: usize = 200_000;

/// Nanoseconds of the monotonic clock, which the processes of a machine share.
pub(super) type Nanos = u64;

/// Milliseconds of a worker's clock, as it passed them to the coordinator.
pub(super) type Millis = u64;

/// The constants of the product that the sequential shard needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The fence of a shard that was never granted.
    pub(super) initial_fence: u64,
    pub(super) lease: Millis,
    pub(super) skew: Millis,
}

/// One operation on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) worker: usize,
    pub(super) call: Nanos,
    /// `None` if the reply was lost: the operation happened at any time after its call, or never.
    pub(super) end: Option<Nanos>,
    pub(super) effect: Effect,
}

/// An operation with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A lease with this fence was granted, with the cursor of the shard.
    Grant { fence: u64, cursor: u64, deadline: Millis, now: Millis },
    /// An acquire whose reply was lost.
    LostGrant,
    /// A lease was renewed.
    Renew { fence: u64, deadline: Millis, now: Millis },
    /// A write by the lease holder.
    Write { fence: u64, op: u64, write: Write, answer: Answer },
    /// The fence was refused as stale.
    Stale { fence: u64 },
    /// The shard was read when everything else had returned.
    Final { fence: u64, cursor: u64, is_done: bool },
}

/// The change that a lease holder makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Checkpoint { cursor: u64 },
    Complete { cursor: u64 },
    Release,
}

/// The reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Executed,
    /// The operation id had been executed before.
    Replayed,
    /// The reply was lost.
    Lost,
}

/// A sequential shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Shard {
    fence: u64,
    is_leased: bool,
    is_done: bool,
    cursor: u64,
    /// The latest end of the lease that its holder knows; zero if the grant was lost.
    deadline: Millis,
    /// The latest time at which an operation was decided.
    clock: Millis,
    /// Operation ids that were executed, of those that occur more than once.
    executed: BTreeSet<u64>,
}

impl Shard {
    /// Changes the shard by an operation, or returns `None` if the result is not the shard's.
    fn apply(&self, effect: &Effect, terms: Terms, repeated: &BTreeSet<u64>) -> Option<Self> {
        let mut next = self.clone();
        match *effect {
            Effect::Grant { fence, cursor, deadline, now } => {
                next.clock = self.clock.max(now);
                let is_free = !self.is_leased || self.may_be_taken(next.clock, terms);
                if self.is_done || fence != self.fence + 1 || cursor != self.cursor || !is_free {
                    return None;
                }
                (next.fence, next.is_leased, next.deadline) = (fence, true, deadline);
            }
            Effect::LostGrant => {
                if self.is_done {
                    return None;
                }
                (next.fence, next.is_leased, next.deadline) = (self.fence + 1, true, 0);
            }
            Effect::Renew { fence, deadline, now } => {
                if !self.is_held_under(fence) {
                    return None;
                }
                next.deadline = self.deadline.max(deadline);
                next.clock = self.clock.max(now);
            }
            Effect::Write { op, answer: Answer::Replayed, .. } => {
                return self.executed.contains(&op).then_some(next);
            }
            Effect::Write { fence, op, write, .. } => {
                if !self.is_held_under(fence) || self.executed.contains(&op) {
                    return None;
                }
                next.change(write)?;
                if repeated.contains(&op) {
                    next.executed.insert(op);
                }
            }
            Effect::Stale { fence } => {
                return (!self.is_held_under(fence)).then_some(next);
            }
            Effect::Final { fence, cursor, is_done } => {
                let is_same = (fence, cursor, is_done) == (self.fence, self.cursor, self.is_done);
                return is_same.then_some(next);
            }
        }
        Some(next)
    }

    fn change(&mut self, write: Write) -> Option<()> {
        match write {
            Write::Checkpoint { cursor } | Write::Complete { cursor } if cursor < self.cursor => {
                return None;
            }
            Write::Checkpoint { cursor } => self.cursor = cursor,
            Write::Complete { cursor } => {
                (self.cursor, self.is_done, self.is_leased) = (cursor, true, false);
            }
            Write::Release => self.is_leased = false,
        }
        Some(())
    }

    const fn is_held_under(&self, fence: u64) -> bool {
        self.is_leased && !self.is_done && self.fence == fence
    }

    /// Returns whether the lease has ended at `now`, or its deadline is so far ahead that it may be
    /// void.
    const fn may_be_taken(&self, now: Millis, terms: Terms) -> bool {
        now >= self.deadline || self.deadline > now + terms.lease + terms.skew
    }
}

/// Why a history is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No order explains it. The operation is the first that fits nowhere in the longest order.
    NotLinearizable { explained: usize, operation: Box<Operation> },
    /// The search did not end within [`STEPS_MAX`].
    Undecided,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLinearizable { explained, operation } => {
                write!(f, "no order explains it; after {explained} operations: {operation:?}")
            }
            Self::Undecided => write!(f, "not decided after {STEPS_MAX} steps"),
        }
    }
}

/// Searches an order of `operations` that explains every result.
///
/// # Errors
///
/// [`Refusal`].
pub(super) fn check(operations: &[Operation], terms: Terms) -> Result<(), Refusal> {
    let mut sorted = operations.to_vec();
    sorted.sort_by_key(|it| it.call);
    Search::new(&sorted, terms).run()
}

struct Search<'o> {
    operations: &'o [Operation],
    terms: Terms,
    /// Operation ids that occur more than once.
    repeated: BTreeSet<u64>,
    required: usize,
}

/// A state of the search: the operations with an instant, and the shard after them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    fixed: Vec<u64>,
    shard: Shard,
}

impl State {
    fn is_fixed(&self, index: usize) -> bool {
        self.fixed[index / 64] & (1 << (index % 64)) != 0
    }
}

/// A state and the operations that may come next and were not tried yet, the best one last.
struct Step {
    state: State,
    next: Vec<usize>,
    explained: usize,
}

impl<'o> Search<'o> {
    fn new(operations: &'o [Operation], terms: Terms) -> Self {
        let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
        for operation in operations {
            if let Effect::Write { op, .. } = operation.effect
                && !seen.insert(op)
            {
                repeated.insert(op);
            }
        }
        // A replay without its first execution must be refused too.
        for operation in operations {
            if let Effect::Write { op, answer: Answer::Replayed, .. } = operation.effect {
                repeated.insert(op);
            }
        }
        let required = operations.iter().filter(|it| it.end.is_some()).count();
        Self { operations, terms, repeated, required }
    }

    fn run(&self) -> Result<(), Refusal> {
        let empty = vec![0; self.operations.len() / 64 + 1];
        let shard = Shard { fence: self.terms.initial_fence, ..Shard::default() };
        let state = State { fixed: empty, shard };
        let mut visited = BTreeSet::new();
        let mut stack = vec![Step { next: self.next(&state), state, explained: 0 }];
        // The longest order, and the operation that must come next in it and does not fit.
        let mut longest = (0, None);
        while let Some(step) = stack.last_mut() {
            if step.explained == self.required {
                return Ok(());
            }
            if visited.len() >= STEPS_MAX {
                return Err(Refusal::Undecided);
            }
            if longest.1.is_none() || step.explained > longest.0 {
                longest = (step.explained, self.due(&step.state));
            }
            let Some(index) = step.next.pop() else {
                stack.pop();
                continue;
            };
            let operation = &self.operations[index];
            let shard = step.state.shard.apply(&operation.effect, self.terms, &self.repeated);
            let Some(shard) = shard else { continue };
            let mut state = State { fixed: step.state.fixed.clone(), shard };
            state.fixed[index / 64] |= 1 << (index % 64);
            if visited.insert(state.clone()) {
                let explained = step.explained + usize::from(operation.end.is_some());
                stack.push(Step { next: self.next(&state), state, explained });
            }
        }
        let operation = longest.1.map_or(0, |index| index);
        let operation = Box::new(self.operations[operation].clone());
        Err(Refusal::NotLinearizable { explained: longest.0, operation })
    }

    /// Returns the operation without an instant that returned first: no other may come after it
    /// that was called later than its return.
    fn due(&self, state: &State) -> Option<usize> {
        let open = (0..self.operations.len()).filter(|index| !state.is_fixed(*index));
        let ends = open.filter_map(|index| Some((self.operations[index].end?, index)));
        ends.min().map(|(_, index)| index)
    }

    /// Returns the operations that may come next, the one that returned first last.
    fn next(&self, state: &State) -> Vec<usize> {
        let Some(due) = self.due(state).and_then(|index| self.operations[index].end) else {
            return Vec::new();
        };
        let mut has_lost_grant = false;
        let mut next: Vec<usize> = (0..self.operations.len())
            .take_while(|index| self.operations[*index].call <= due)
            .filter(|index| !state.is_fixed(*index))
            .filter(|index| {
                // Lost grants have one effect, so the earliest represents all.
                let is_lost = self.operations[*index].effect == Effect::LostGrant;
                !(is_lost && std::mem::replace(&mut has_lost_grant, true))
            })
            .collect();
        // Lost operations are tried after all others: most did not happen.
        let order = |index: &usize| self.operations[*index].end.unwrap_or(Nanos::MAX);
        next.sort_by_key(|index| std::cmp::Reverse(order(index)));
        next
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
