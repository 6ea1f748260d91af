//! What has changed in the source of a finished run, by listing it again.
//!
//! The keys of each final range are compared with those that the run counted there. A file of rows
//! needs no listing: it is compared by size and time before.

use std::fmt;

use gossip::connector::{CheckedEnumeration, Page, PageError};
use gossip::coordination::{ShardFilter, ShardStatus, ShardSummary};
use gossip::identity::{RunId, TenantId};
use gossip::model::CursorUpdate;
use gossip::runtime::{Accumulator, RuntimeToken};
use gossip::sources::Source;
use gossip::store::Coordinator;

use crate::failure::{Code, Failure};
use crate::output::count;
use crate::runs;
use crate::sources;

/// How a source differs from what a run has covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    more: u64,
    fewer: u64,
    /// Ranges with as many keys as before, but others.
    other: u64,
    /// Ranges that differ.
    ranges: u64,
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
        let ranges = count(self.ranges, "range");
        write!(f, "the source now has {}, in {ranges}", parts.join(" and "))
    }
}

/// Lists the source of a finished run; `None` if it has the same keys as then.
pub(crate) fn since(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Option<Changes>, Failure> {
    let job = runs::job_of(coordinator, tenant, run)?;
    let source = sources::parse(&job.source, job.options)
        .map_err(|error| Failure::new(Code::Usage, "the source cannot be opened").why(error))?;
    if !matches!(source, Source::Tree { .. }) {
        return Ok(None);
    }
    let mut rows = runs::rows(coordinator, tenant, run, ShardFilter::all())?;
    rows.retain(|row| row.status != ShardStatus::Split);
    let changes = compare(&source, &rows).map_err(|error| {
        Failure::new(Code::Usage, "the source cannot be listed again").why(error)
    })?;
    Ok((changes != Changes::default()).then_some(changes))
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
            if !row.end.is_empty() && *item.key() >= *row.end {
                break;
            }
            found.add(item.key());
            next += 1;
        }
        let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
        let stated = token.map_or(Accumulator::EMPTY, |token| token.accumulator);
        changes.add(&stated, &found);
    }
    Ok(changes)
}

impl Changes {
    fn add(&mut self, stated: &Accumulator, found: &Accumulator) {
        if stated == found {
            return;
        }
        let (before, now) = (stated.count(), found.count());
        self.ranges += 1;
        self.more += now.saturating_sub(before);
        self.fewer += before.saturating_sub(now);
        self.other += u64::from(before == now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_by_range() {
        let keys = |keys: &[&str]| {
            let mut found = Accumulator::EMPTY;
            keys.iter().for_each(|key| found.add(key.as_bytes()));
            found
        };
        let mut changes = Changes::default();
        changes.add(&keys(&["a"]), &keys(&["a"]));
        assert_eq!(changes, Changes::default());
        changes.add(&keys(&["a"]), &keys(&["a", "b", "c"]));
        changes.add(&keys(&["x", "y"]), &keys(&["x"]));
        assert_eq!(
            changes.to_string(),
            "the source now has 2 items more and 1 item fewer, in 2 ranges"
        );
        changes.add(&keys(&["p"]), &keys(&["q"]));
        assert!(changes.to_string().contains("other items in 1 range"));
    }
}
