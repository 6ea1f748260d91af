//! The part of a table that a listing has still to read, as conditions of SQL.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_frontier::{ColumnBound, ColumnKind, ColumnValue, column_bound};

/// Rows at or behind one place and before another one.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lower: ColumnBound,
    /// `None` for no end.
    pub(crate) upper: Option<ColumnBound>,
}

impl Span {
    /// Returns the rows of `range` with keys above the cursor.
    pub(crate) fn of(
        kinds: &[ColumnKind],
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Self {
        let start = column_bound(kinds, range.start);
        let lower = match from.last_key() {
            Some(key) if key >= range.start => after(kinds, key),
            Some(_) | None => start,
        };
        let upper = (!range.end.is_empty()).then(|| column_bound(kinds, range.end));
        Self { lower, upper }
    }

    /// Returns the same rows without those up to `key`.
    pub(crate) fn behind(&self, kinds: &[ColumnKind], key: &[u8]) -> Self {
        Self { lower: after(kinds, key), upper: self.upper.clone() }
    }

    /// Returns whether no row can be part of it, whatever the table holds.
    pub(crate) fn is_empty(&self) -> bool {
        let none_behind = self.lower.values.is_empty() && self.lower.is_after;
        let upper = self.upper.as_ref();
        none_behind || upper.is_some_and(|upper| upper.values.is_empty() && !upper.is_after)
    }

    /// Returns the condition on these columns, with numbered parameters that begin with `mark`, and
    /// the values of the parameters. `None` if every row is part of it.
    ///
    /// Columns are compared as rows, `(a, b) > ($1, $2)`: databases answer that from an index, and
    /// the equivalent with `OR` by a filter over everything before it.
    pub(crate) fn condition(&self, columns: &[String], mark: char) -> Condition {
        let mut condition = Condition { sql: None, values: Vec::new() };
        condition.add(columns, mark, &self.lower, if self.lower.is_after { ">" } else { ">=" });
        if let Some(upper) = &self.upper {
            condition.add(columns, mark, upper, if upper.is_after { "<=" } else { "<" });
        }
        condition
    }
}

/// A condition and the values of its parameters.
pub(crate) struct Condition {
    sql: Option<String>,
    pub(crate) values: Vec<ColumnValue>,
}

impl Condition {
    /// Returns ` WHERE …`, or nothing.
    pub(crate) fn clause(&self) -> String {
        self.sql.as_ref().map_or_else(String::new, |sql| format!(" WHERE {sql}"))
    }

    fn add(&mut self, columns: &[String], mark: char, bound: &ColumnBound, operator: &str) {
        if bound.values.is_empty() {
            return;
        }
        let compared = columns[..bound.values.len()].join(", ");
        let marks = bound.values.iter().map(|value| {
            self.values.push(value.clone());
            format!("{mark}{}", self.values.len())
        });
        let marks = marks.collect::<Vec<_>>().join(", ");
        let sql = format!("({compared}) {operator} ({marks})");
        self.sql = Some(match self.sql.take() {
            Some(before) => format!("{before} AND {sql}"),
            None => sql,
        });
    }
}

/// Returns the place right behind a key, or between keys.
fn after(kinds: &[ColumnKind], key: &[u8]) -> ColumnBound {
    // The next greater bytes: at or above them is above the key.
    column_bound(kinds, &[key, b"\0"].concat())
}
