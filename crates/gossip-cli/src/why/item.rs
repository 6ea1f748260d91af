//! Explains an item: finds its key, and the shard whose range contains it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gossip::connector::{CheckedEnumeration, Connector, MIN_PAGE_BYTES, Page, PageLimits};
use gossip::coordination::{ParkReason, ShardStatus, ShardSummary};
use gossip::model::{CursorUpdate, ShardSpecRef};
use gossip::runtime::RuntimeToken;
use gossip::sources::{KeyFormat, Source};

use super::answer::{Answer, of_run, of_shard};
use super::facts::{Facts, SourceState};
use crate::failure::{Code, Failure};
use crate::progress;
use crate::sources;

/// Explains the item that `typed` names.
pub(super) fn explain(facts: &Facts, typed: &OsStr) -> Result<Answer, Failure> {
    let shown = progress::escaped(typed.as_bytes());
    let Some(job) = &facts.job else {
        return Err(Failure::new(Code::Usage, "the run was not created by gossip exec")
            .next(format!("ask for the run instead: gossip why {}", facts.id())));
    };
    let source = sources::restore(&job.source, job.options)
        .map_err(|error| Failure::new(Code::Internal, "the source cannot be parsed").why(error))?;
    let Some(key) = key_of(&source, typed) else {
        return Ok(not_in_source(facts, &shown));
    };
    let is_in = |row: &&ShardSummary| {
        row.status != ShardStatus::Split
            && row.damage.is_none()
            && *row.start <= *key
            && (row.end.is_empty() || *key < *row.end)
    };
    let exists = exists(&source, facts, &key);
    let Some(row) = facts.rows.iter().find(is_in) else {
        // In a damaged shard, or in no part of the source.
        return Ok(match facts.rows.iter().any(|row| row.damage.is_some()) {
            true => of_run(facts),
            false => not_in_source(facts, &shown),
        });
    };
    if exists == Some(false) {
        return Ok(not_in_source(facts, &shown));
    }
    let shard = row.shard.as_raw();
    let is_passed = row.status == ShardStatus::Done
        || row.last_key.as_deref().is_some_and(|last| *key <= *last);
    if is_passed {
        return Ok(passed(facts, row, &shown));
    }
    if row.status == ShardStatus::Parked && row.park_reason == Some(ParkReason::Poisoned) {
        let text = row.park_context.as_deref().unwrap_or("its command failed");
        return Ok(Answer::new("item-failed", format!("the command failed for {shown}"))
            .evidence(format!("shard {shard:016x}: {}", progress::escaped(text.as_bytes())))
            .next(format!(
                "fix the cause, then gossip shard unpark {} {shard:016x} and repeat the command",
                facts.id()
            )));
    }
    let of_shard = of_shard(facts, row.shard)?;
    let at = row.last_key.as_deref().map_or_else(
        || "the shard was not begun".to_owned(),
        |last| format!("the shard has reached {}", source.key_format().readable(last)),
    );
    Ok(Answer {
        incident: "not-yet-reached",
        cause: format!("{shown} was not reached yet: {}", of_shard.cause),
        evidence: std::iter::once(at).chain(of_shard.evidence).collect(),
        next: of_shard.next,
    })
}

fn not_in_source(facts: &Facts, shown: &str) -> Answer {
    let source =
        facts.job.as_ref().map_or_else(String::new, |job| progress::escaped(job.source.as_bytes()));
    let answer = Answer::new("not-in-source", format!("{shown} is not an item of the source"))
        .evidence(format!("the source is {source}"));
    answer.next("check the spelling; an item is a path, a number, or FILE:LINE")
}

fn passed(facts: &Facts, row: &ShardSummary, shown: &str) -> Answer {
    let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
    let unread = token.map_or(0, |token| token.unread);
    let shard = format!("shard {:016x}, fence {}", row.shard.as_raw(), row.fence_epoch.as_raw());
    let answer = Answer::new("done", format!("{shown} is done")).evidence(shard);
    match unread {
        0 => answer,
        // Which of its items they are is not stored with the shard.
        unread => answer
            .evidence(format!("{unread} items of this shard could not be read, maybe this one"))
            .next(format!("gossip failed {}", facts.id())),
    }
}

/// Returns the key of an item as it is typed: a path as seen from the directory of the source or
/// from here, a number, or `FILE:LINE`.
fn key_of(source: &Source, typed: &OsStr) -> Option<Vec<u8>> {
    match source {
        Source::Tree { root, .. } => {
            let path = Path::new(typed);
            let absolute = std::path::absolute(path).ok()?;
            let below = absolute.strip_prefix(root).ok();
            let below = below.filter(|below| root.join(below).symlink_metadata().is_ok());
            let key = below.unwrap_or(path).as_os_str().as_bytes();
            ((!key.is_empty() && path.is_relative()) || below.is_some()).then(|| key.to_vec())
        }
        Source::Lines { .. } => line_key(source, number(typed)?),
        Source::Manifest { .. } => KeyFormat::Row.parse(number(typed)?.to_string().as_bytes()),
        _ => source.key_format().parse(typed.as_bytes()),
    }
}

/// Reads `N` or `FILE:N`.
fn number(typed: &OsStr) -> Option<u64> {
    let text = typed.to_str()?;
    let digits = text.rsplit_once(':').map_or(text, |(_, digits)| digits);
    digits.parse().ok()
}

/// Returns the key of a line, by its number from 1 on. Keys of lines are positions, so the lines
/// before it are listed.
fn line_key(source: &Source, line: u64) -> Option<Vec<u8>> {
    let connector = source.open().ok()?;
    let root = source.root();
    let mut listing =
        CheckedEnumeration::open(&*connector, root.as_spec_ref(), CursorUpdate::initial()).ok()?;
    let mut page = Page::default();
    let mut before = line.checked_sub(1)?;
    loop {
        listing.next_page(&mut page).ok()?;
        let len = page.len() as u64;
        if before < len {
            let index = usize::try_from(before).ok()?;
            return page.item(index).map(|item| item.key().to_vec());
        }
        before -= len;
        if page.is_exhausted() {
            return None;
        }
    }
}

/// Returns whether the source has the key; `None` if it cannot be listed here.
fn exists(source: &Source, facts: &Facts, key: &[u8]) -> Option<bool> {
    if facts.source != SourceState::Here {
        return None;
    }
    let connector = source.open().ok()?;
    Some(first_from(&*connector, source, key)?.as_slice() == key)
}

/// Lists the first key at or above `key`; empty if there is none.
fn first_from(connector: &dyn Connector, source: &Source, key: &[u8]) -> Option<Vec<u8>> {
    let root = source.root();
    let range = ShardSpecRef::new(key, root.end(), root.metadata());
    let mut page = Page::with_limits(PageLimits::try_new(1, MIN_PAGE_BYTES).ok()?);
    let mut listing = CheckedEnumeration::open(connector, range, CursorUpdate::initial()).ok()?;
    listing.next_page(&mut page).ok()?;
    Some(page.item(0).map_or_else(Vec::new, |item| item.key().to_vec()))
}
