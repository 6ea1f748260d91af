//! Explains an item: finds its key, and the shard whose range contains it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use gossip::connector::{CheckedEnumeration, Connector, MIN_PAGE_BYTES, Page, PageLimits};
use gossip::coordination::{ParkReason, ShardStatus, ShardSummary};
use gossip::model::{CursorUpdate, ShardSpecRef};
use gossip::runtime::RuntimeToken;
use gossip::sources::Source;

use super::answer::{Answer, of_run, of_shard};
use super::facts::{Facts, SourceState};
use crate::failed::{self, ShownItem};
use crate::failure::{Code, Failure};
use crate::sources;
use crate::{items, listing, output, progress};

/// Explains the item that `typed` names.
pub(super) fn explain(facts: &Facts, typed: &OsStr) -> Result<Answer, Failure> {
    // The record of a failed item has its name, also where the source cannot be read.
    let named = failed::named(&facts.failures, &facts.items, typed);
    // A whole range that is parked for one of its items is explained below.
    let alone =
        |item: &&&ShownItem| item.item.shard().is_none_or(|shard| item.is_failed_item_of(shard));
    if let Some(item) = named.iter().find(alone) {
        return Ok(not_done(facts, item));
    }
    let shown = progress::escaped(typed.as_bytes());
    let Some(job) = &facts.job else {
        return Err(Failure::new(Code::Usage, "the run was not created by gossip exec")
            .next(format!("ask for the run instead: gossip why {}", facts.id())));
    };
    let source = sources::restore(&job.source, job.options)
        .map_err(|error| Failure::new(Code::Internal, "the source cannot be parsed").why(error))?;
    let Some(key) = items::key_of(&source, typed) else {
        return Ok(not_in_source(facts, &shown));
    };
    let is_in = |row: &&ShardSummary| {
        row.status != ShardStatus::Split
            && row.damage.is_none()
            && *row.start <= *key
            && (row.end.is_empty() || *key < *row.end)
    };
    let exists = exists(&source, facts, &key);
    // Ranges of shards that are not split do not overlap, so there is one at most.
    let Some(row) = facts.rows.iter().find(is_in) else {
        // In a damaged shard, or in no part of the source.
        return Ok(match facts.rows.iter().any(|row| row.damage.is_some()) {
            true => of_run(facts),
            false => not_in_source(facts, &shown),
        });
    };
    // Before the range is explained: a key that the source lacks lies in a range as well.
    if exists == Some(false) {
        return Ok(not_in_source(facts, &shown));
    }
    let shard = row.shard.as_raw();
    // The cursor alone says it: every key up to it is done or has a record.
    let is_passed = row.status == ShardStatus::Done
        || row.last_key.as_deref().is_some_and(|last| *key <= *last);
    if is_passed {
        return Ok(passed(facts, row, &shown));
    }
    if row.status == ShardStatus::Parked && row.park_reason == Some(ParkReason::Poisoned) {
        let text = row.park_context.as_deref().unwrap_or("its command failed");
        // The key and not the typed text, because it names one item only.
        let name = OsString::from_vec(source.key_format().text(&key).into_owned());
        return Ok(Answer::new("item-failed", format!("the command failed for {shown}"))
            .evidence(format!("shard {shard:016x}: {}", progress::escaped(text.as_bytes())))
            .next(retry_text(&format!(
                "gossip retry {} {}",
                facts.id(),
                listing::typed(&[name])
            ))));
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

/// Explains an item that has a record: it failed, or could not be read.
fn not_done(facts: &Facts, item: &ShownItem) -> Answer {
    let record = item.item.record();
    let message = record.map(|record| output::readable(record.message.as_bytes()));
    let message = message.filter(|text| !text.is_empty());
    let why = message.map_or_else(String::new, |text| format!(": {text}"));
    let name = &item.name;
    match item.item.shard() {
        Some(shard) => {
            let tries = record.map_or(0, |record| u64::from(record.tries));
            let tries = output::count(tries, "attempt");
            Answer::new("item-failed", format!("the command failed for {name}{why}"))
                .evidence(format!("shard {:016x}, {tries}", shard.as_raw()))
                .evidence(format!("its error output: gossip failed {}", facts.id()))
                .next(retry_text(&facts.retry(item)))
        }
        None => Answer::new("item-unread", format!("{name} could not be read{why}"))
            .evidence("the run has passed it and cannot return to it")
            .next("make it readable, then repeat the command with --restart"),
    }
}

fn retry_text(retry: &str) -> String {
    format!("fix the cause, then {retry} and repeat the command")
}

fn not_in_source(facts: &Facts, shown: &str) -> Answer {
    let source =
        facts.job.as_ref().map_or_else(String::new, |job| progress::escaped(job.source.as_bytes()));
    let answer = Answer::new("not-in-source", format!("{shown} is not an item of the source"))
        .evidence(format!("the source is {source}"));
    answer.next("check the spelling; an item is a path, a number, the text of a line, or FILE:LINE")
}

fn passed(facts: &Facts, row: &ShardSummary, shown: &str) -> Answer {
    let unread_in = |row: &ShardSummary| {
        let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
        token.map_or(0, |token| token.unread)
    };
    // A run has a bounded number of records. If every unread item has one, this item is none.
    let recorded = facts.failures.iter().filter(|item| item.item.shard().is_none()).count() as u64;
    let unread = match facts.rows.iter().map(unread_in).sum::<u64>() <= recorded {
        true => 0,
        false => unread_in(row),
    };
    let shard = format!("shard {:016x}, fence {}", row.shard.as_raw(), row.fence_epoch.as_raw());
    let answer = Answer::new("done", format!("{shown} is done")).evidence(shard);
    match unread {
        0 => answer,
        unread => answer
            .evidence(format!("{unread} items of this shard could not be read, maybe this one"))
            .next(format!("gossip failed {}", facts.id())),
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
    // From the key on, so that one page of one item answers the question.
    let range = ShardSpecRef::new(key, root.end(), root.metadata());
    let mut page = Page::with_limits(PageLimits::try_new(1, MIN_PAGE_BYTES).ok()?);
    let mut listing = CheckedEnumeration::open(connector, range, CursorUpdate::initial()).ok()?;
    listing.next_page(&mut page).ok()?;
    Some(page.item(0).map_or_else(Vec::new, |item| item.key().to_vec()))
}
