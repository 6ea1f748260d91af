//! What has changed in the source of a finished run, by listing it again.
//!
//! The keys of each final range are compared with those that the run counted there. A file of rows
//! needs no listing: it is compared by size and time before. A source that cannot be listed is
//! reported as not compared.

use std::fmt;

use gossip::connector::{CheckedEnumeration, Page, PageError};
use gossip::coordination::{ShardFilter, ShardStatus, ShardSummary};
use gossip::identity::{RunId, TenantId};
use gossip::model::CursorUpdate;
use gossip::runtime::{Accumulator, RuntimeToken};
use gossip::sources::Source;
use gossip::store::Coordinator;

use crate::failure::Failure;
use crate::output::{self, count};
use crate::runs;
use crate::sources;

/// Ranges that are printed; of a source that has nothing in common with the run every one differs.
const RANGES_MAX: usize = 20;

/// What a look at the source of a finished run showed.
#[derive(Debug)]
pub(crate) enum Looked {
    /// It has the same keys as then.
    Same,
    /// It has others.
    Changed(Changes),
    /// It was not compared, for this reason.
    Not(String),
}

/// How a source differs from what a run has covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    more: u64,
    fewer: u64,
    /// Ranges with as many keys as before, but others.
    other: u64,
    /// Ranges that differ.
    ranges: u64,
    /// The first of them, each in a line.
    lines: Vec<String>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.more, format!("{} more", count(self.more, "item"))),
            (self.fewer, format!("{} fewer", count(self.fewer, "item"))),
            (self.other, format!("other items in {}", count(self.other, "range"))),
        ];
        let parts: Vec<_> =
            parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
        write!(f, "the source now has {}", parts.join(" and "))?;
        // Otherwise the only part names the ranges already.
        if self.ranges > self.other {
            write!(f, ", in {}", count(self.ranges, "range"))?;
        }
        Ok(())
    }
}

/// Lists the source of a finished run, if it can have other keys than then.
pub(crate) fn since(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Looked, Failure> {
    let job = runs::job_of(coordinator, tenant, run)?;
    let source = match sources::parse(&job.source, job.options) {
        Ok(source) => source,
        Err(error) => return Ok(Looked::Not(error.to_string())),
    };
    match source {
        // A file is compared by size and time when the run is opened, and integers stay.
        Source::Lines { .. } | Source::Manifest { .. } | Source::Integers(_) => {
            return Ok(Looked::Same);
        }
        // The runtime's enum may grow.
        _ => {}
    }
    let mut rows = runs::rows(coordinator, tenant, run, ShardFilter::all())?;
    // The ranges of split shards are covered by those that were cut from them.
    rows.retain(|row| row.status != ShardStatus::Split);
    Ok(match compare(&source, &rows) {
        Ok(changes) if changes.ranges == 0 => Looked::Same,
        Ok(changes) => Looked::Changed(changes),
        // The run is finished, whatever became of its source since.
        Err(error) => Looked::Not(error.to_string()),
    })
}

/// Compares the keys of each row with the source. The rows are final ranges in ascending order.
fn compare(source: &Source, rows: &[ShardSummary]) -> Result<Changes, PageError> {
    let connector = source.open()?;
    let root = source.root();
    let mut listing =
        CheckedEnumeration::open(&*connector, root.as_spec_ref(), CursorUpdate::initial())?;
    let (mut page, mut next, mut changes) = (Page::default(), 0, Changes::default());
    for row in rows {
        let mut found = Accumulator::EMPTY;
        loop {
            let Some(item) = page.item(next) else {
                if page.is_exhausted() {
                    break;
                }
                listing.next_page(&mut page)?;
                next = 0;
                continue;
            };
            // Not consumed: the key belongs to the next row. An empty end is the last key of all.
            if !row.end.is_empty() && *item.key() >= *row.end {
                break;
            }
            found.add(item.key());
            next += 1;
        }
        // A token that cannot be read counts as no key, so that its range is reported and not
        // passed over.
        let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
        let stated = token.map_or(Accumulator::EMPTY, |token| token.accumulator);
        let range = || output::range_text(&row.start, &row.end, source.key_format());
        changes.add(&stated, &found, range);
    }
    Ok(changes)
}

impl Changes {
    fn add(&mut self, stated: &Accumulator, found: &Accumulator, range: impl Fn() -> String) {
        if stated == found {
            return;
        }
        let (before, now) = (stated.count(), found.count());
        self.ranges += 1;
        self.more += now.saturating_sub(before);
        self.fewer += before.saturating_sub(now);
        self.other += u64::from(before == now);
        if self.lines.len() < RANGES_MAX {
            let (range, before) = (range(), count(before, "item"));
            self.lines.push(match stated.count() == now {
                true => format!("{range}: {before} as before, but others"),
                false => format!("{range}: {before} then, {} now", output::number(now)),
            });
        }
    }

    /// Returns a line for each of the first ranges that differ, and one that counts the others.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let more = self.ranges - self.lines.len() as u64;
        let more = (more > 0).then(|| {
            format!(
                "and {} more {}",
                output::number(more),
                if more == 1 { "range" } else { "ranges" }
            )
        });
        self.lines.iter().cloned().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_and_listed_by_range() {
        let keys = |keys: &[&str]| {
            let mut found = Accumulator::EMPTY;
            keys.iter().for_each(|key| found.add(key.as_bytes()));
            found
        };
        let range = || "up to m".to_owned();
        let mut changes = Changes::default();
        changes.add(&keys(&["a"]), &keys(&["a"]), range);
        assert_eq!(changes, Changes::default());
        changes.add(&keys(&["a"]), &keys(&["a", "b", "c"]), range);
        changes.add(&keys(&["x", "y"]), &keys(&["x"]), || "from m to the last key".to_owned());
        assert_eq!(
            changes.to_string(),
            "the source now has 2 items more and 1 item fewer, in 2 ranges"
        );
        assert_eq!(
            changes.lines().collect::<Vec<_>>(),
            ["up to m: 1 item then, 3 now", "from m to the last key: 2 items then, 1 now"]
        );
        changes.add(&keys(&["p"]), &keys(&["q"]), range);
        assert!(changes.to_string().contains("other items in 1 range"));
        let mut other = Changes::default();
        other.add(&keys(&["p"]), &keys(&["q"]), range);
        assert_eq!(other.to_string(), "the source now has other items in 1 range");
        for _ in 0..RANGES_MAX {
            changes.add(&keys(&["p"]), &keys(&[]), range);
        }
        assert_eq!(changes.lines().count(), RANGES_MAX + 1);
        assert_eq!(changes.lines().last().unwrap(), "and 3 more ranges");
    }
}
