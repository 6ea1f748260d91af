//! The states that shards and runs had during an operation.
//!
//! A refusal is decided at one instant between the beginning of an operation and its end. Its
//! reason must have been true in one of the states of that time: the oracle keeps the latest ones.

use std::collections::VecDeque;

/// Number of earlier states that are kept for each shard and run. An operation during which more
/// changes happened is rare; its refusal is not checked, and counted.
const STATES_KEPT: usize = 16;

/// The earlier states of a shard or a run, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Past<T>(VecDeque<(u64, T)>);

impl<T> Default for Past<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Past<T> {
    /// Keeps a state that the commit with number `ended_at` replaces.
    pub(super) fn keep(&mut self, state: T, ended_at: u64) {
        if self.0.len() == STATES_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((ended_at, state));
    }

    /// Returns the states after commit `since`, of which `present` is the last; `None` if they are
    /// not all known.
    pub(super) fn states<'p>(
        &'p self,
        present: &'p T,
        changed_at: u64,
        since: u64,
    ) -> Option<impl Iterator<Item = &'p T> + Clone + use<'p, T>> {
        let is_later = |(ended_at, _): &&(u64, T)| *ended_at > since;
        let all_later = self.0.iter().all(|it| is_later(&it));
        let dropped = self.0.len() == STATES_KEPT && all_later;
        // A change that left no state behind is not an effect of an operation.
        let unknown = changed_at > since && self.0.iter().filter(is_later).count() == 0;
        let earlier = self.0.iter().filter(move |(ended_at, _)| *ended_at > since);
        let states = earlier.map(|(_, state)| state).chain(std::iter::once(present));
        (!dropped && !unknown).then_some(states)
    }
}
