//! The answers to changes with an `Idempotency-Key`, until the server ends.
//!
//! The store remembers operations in the record that they changed, and forgets a request to a lease
//! holder when the holder has received it. So a repetition is answered from here: it neither
//! executes the change again nor conflicts with its first time, of which its deadline is a part.

use std::collections::VecDeque;

use gossip::identity::{LogicalTime, RunId, ShardId, WorkerId};

use crate::desk::receiver;
use crate::problem::Problem;
use crate::wire::{Action, Verb};

/// Changes that are remembered, of about 300 bytes each.
const ANSWERS_MAX: usize = 1_024;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    verb: Verb,
    run: RunId,
    shard: Option<ShardId>,
    to: Option<WorkerId>,
}

impl Change {
    pub(crate) fn new(
        action: &Action,
        run: RunId,
        shard: Option<ShardId>,
    ) -> Result<Self, Problem> {
        Ok(Self { verb: action.action, run, shard, to: receiver(action)? })
    }

    /// Returns whether both are the same change but for its parameters.
    fn is_about(&self, other: &Self) -> bool {
        (self.verb, self.run, self.shard) == (other.verb, other.run, other.shard)
    }
}

/// The state of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Never,
    /// It was made, with this answer.
    Done(String),
    /// It may have been made, as a request that is valid until then.
    Begun(LogicalTime),
    /// The key was used for this change with other parameters.
    Otherwise,
}

#[derive(Debug)]
struct Remembered {
    key: String,
    change: Change,
    until: LogicalTime,
    answer: Option<String>,
}

/// The changes that were made, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<Remembered>);

impl Answers {
    pub(crate) fn keep(
        &mut self,
        key: &str,
        change: Change,
        until: LogicalTime,
        answer: Option<String>,
    ) {
        // One entry for each change, or a search would find the older one.
        self.forget(key, &change);
        self.0.push_back(Remembered { key: key.to_owned(), change, until, answer });
        if self.0.len() > ANSWERS_MAX {
            self.0.pop_front();
        }
    }

    /// Removes a change that was refused, so that it may be tried again.
    pub(crate) fn forget(&mut self, key: &str, change: &Change) {
        self.0.retain(|known| known.key != key || !known.change.is_about(change));
    }

    pub(crate) fn find(&self, key: &str, change: &Change) -> Known {
        let found = self.0.iter().find(|known| known.key == key && known.change.is_about(change));
        match found {
            None => Known::Never,
            Some(known) if known.change != *change => Known::Otherwise,
            Some(Remembered { answer: Some(answer), .. }) => Known::Done(answer.clone()),
            Some(Remembered { answer: None, until, .. }) => Known::Begun(*until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(verb: Verb, run: u64, to: Option<u64>) -> Change {
        Change { verb, run: RunId::from_raw(run), shard: None, to: to.map(WorkerId::from_raw) }
    }

    #[test]
    fn answer_is_that_of_the_same_key_and_change() {
        let (mut answers, until) = (Answers::default(), LogicalTime::from_raw(7));
        let split = change(Verb::Split, 1, None);
        answers.keep("a", split, until, None);
        assert_eq!(answers.find("a", &split), Known::Begun(until));
        answers.keep("a", split, until, Some("done".to_owned()));
        assert_eq!(answers.find("a", &split), Known::Done("done".to_owned()));
        for other in [change(Verb::Split, 2, None), change(Verb::Release, 1, None)] {
            assert_eq!(answers.find("a", &other), Known::Never);
        }
        assert_eq!(answers.find("b", &split), Known::Never);
        assert_eq!(answers.find("a", &change(Verb::Split, 1, Some(3))), Known::Otherwise);
        answers.forget("a", &split);
        assert_eq!(answers.find("a", &split), Known::Never);
    }

    #[test]
    fn number_of_answers_is_bounded_and_the_newest_stay() {
        let (mut answers, until) = (Answers::default(), LogicalTime::from_raw(7));
        let pause = change(Verb::Pause, 1, None);
        for number in 0..2 * ANSWERS_MAX {
            answers.keep(&number.to_string(), pause, until, None);
        }
        assert_eq!(answers.0.len(), ANSWERS_MAX);
        assert_eq!(answers.find("0", &pause), Known::Never);
        let newest = (2 * ANSWERS_MAX - 1).to_string();
        assert_eq!(answers.find(&newest, &pause), Known::Begun(until));
    }
}
