//! Coverage of scripts: the answers that occurred, and the rule orders that were shown.

use std::collections::BTreeSet;
use std::fmt;

use super::answer::EXECUTED;
use super::arguments::Arguments;

/// An operation and one of its answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The command.
    pub operation: String,
    /// `executed`, `replayed` or the variant of a refusal.
    pub answer: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.answer)
    }
}

/// Two rules of an operation, of which the first is reported when both are violated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// The command.
    pub operation: String,
    /// The answer of the rule that is checked first.
    pub first: String,
    /// The answer of the rule that is checked second.
    pub second: String,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} < {}", self.operation, self.first, self.second)
    }
}

impl Order {
    /// Parses `checkpoint: StaleFence < LeaseExpired`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rules = text.split_once(':').and_then(|(operation, rules)| {
            let (first, second) = rules.split_once('<')?;
            Some((operation, first, second))
        });
        let (operation, first, second) = rules.ok_or("an order reads `OPERATION: A < B`")?;
        let [operation, first, second] = [operation, first, second].map(|word| word.trim().into());
        Ok(Self { operation, first, second })
    }
}

/// Coverage of one script.
#[derive(Clone, Debug, Default)]
pub struct FileCoverage {
    /// Path below the scripts' directory.
    pub name: String,
    /// The answers that occurred.
    pub cells: BTreeSet<Cell>,
    /// The orders that were shown.
    pub orders: BTreeSet<Order>,
}

/// Collects the two answers that show an order.
#[derive(Debug)]
pub(super) struct Watch {
    order: Order,
    seen: Vec<Step>,
    /// Commands since the last step.
    between: usize,
}

/// One refusal or replay of the watched operation.
#[derive(Debug)]
struct Step {
    label: String,
    arguments: Arguments,
    commands_before: usize,
}

impl Watch {
    pub(super) const fn new(order: Order) -> Self {
        Self { order, seen: Vec::new(), between: 0 }
    }

    /// Records a command.
    pub(super) fn note(&mut self, arguments: &Arguments, label: &str) {
        // A successful command changes the state, also if it is the watched operation.
        if arguments.command != self.order.operation || label == EXECUTED {
            self.between += 1;
            return;
        }
        let (label, arguments) = (label.to_owned(), arguments.clone());
        self.seen.push(Step { label, arguments, commands_before: self.between });
        self.between = 0;
    }

    /// Returns the order if it was shown.
    pub(super) fn close(self) -> Result<Order, String> {
        let order = &self.order;
        let [one, other] = &self.seen[..] else {
            let times = self.seen.len();
            return Err(format!("`{order}` needs exactly two refusals, there are {times}"));
        };
        let answers = [one.label.as_str(), other.label.as_str()];
        let wanted = [order.first.as_str(), order.second.as_str()];
        if answers != wanted && answers != [wanted[1], wanted[0]] {
            return Err(format!("`{order}` was answered {} and {}", answers[0], answers[1]));
        }
        let changes = one.arguments.differences(&other.arguments);
        match (changes, other.commands_before) {
            (1, _) | (0, 1..) => Ok(self.order),
            (arguments, commands) => Err(format!(
                "`{order}` must change one argument or the state, not {arguments} arguments with \
                 {commands} commands in between"
            )),
        }
    }
}
