//! The format of a store, and its upgrade to the newest format (ADR 77).
//!
//! The schema record announces the format before the first value of it is written, so that older
//! programs can leave in time. Then every value is rewritten where it is, while newer programs
//! work on: each is compared in its own transaction, and a conflict leaves it to the next pass.
//!
//! Owner keys are left alone. They are bound to a process, which a rewrite would undo, and end with
//! its lease.

use super::codec::{FORMAT_FIRST, FORMAT_VERSION, decode_schema, encode_schema, upgraded};
use super::core::encoded;
use super::engine::Read;
use super::flight::Flight;
use super::key::{Key, KeyKind};
use super::range::KeyRange;
use super::retry::Tries;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// Returns the format of the store. It may be newer than every format that this program reads.
///
/// # Errors
///
/// Returns [`InfraError`] if the read or the decoding fails.
#[must_use]
pub fn load_store_format() -> Flight<'static, Result<u8, InfraError>> {
    Flight::new(move |io| async move {
        let stored = io.load(vec![Key::SchemaVersion]).await?.pop().flatten();
        format_in(stored.as_ref())
    })
}

/// Announces that the store has the newest format of this program. Older programs leave; newer ones
/// are not affected, because a format is never lowered. Only the operator may call this.
///
/// # Errors
///
/// Returns [`InfraError`]. After a lost reply it retries until the store holds the record.
#[must_use]
pub fn announce_format() -> Flight<'static, Result<(), InfraError>> {
    Flight::new(move |io| async move {
        let mut tries = Tries::new("schema.commit", 0);
        loop {
            let stored = io.load(vec![Key::SchemaVersion]).await;
            let stored = stored.map_err(|error| tries.ended(error))?.pop().flatten();
            if format_in(stored.as_ref())? >= FORMAT_VERSION {
                return Ok(());
            }
            let mut txn = Txn::new();
            // Compared, so that a newer program that announces its format meanwhile is not set
            // back.
            txn.expect(Key::SchemaVersion, stored.as_ref());
            txn.put(Key::SchemaVersion, encoded(|out| encode_schema(FORMAT_VERSION, out)));
            let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
            let ticks = match outcome {
                CommitOutcome::Applied { .. } => return Ok(()),
                CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), false)?,
                CommitOutcome::Unknown => tries.failed(None, false)?,
            };
            io.pause(ticks).await;
        }
    })
}

/// A page of an upgrade.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UpgradedPage {
    /// Values that were rewritten.
    pub rewritten: u64,
    /// Values of an older format that are left for the next pass: they changed meanwhile, or the
    /// reply was lost.
    pub left: u64,
    /// Values that cannot be read, and were left as they are.
    pub unreadable: u64,
    /// The rest of the range, if there may be more.
    pub rest: Option<KeyRange>,
}

/// Rewrites the values at the beginning of `range`, up to `limit`, in the newest format.
///
/// # Errors
///
/// Returns [`InfraError`] if the store fails. Keys rewritten before the failure stay rewritten.
#[must_use]
pub fn upgrade_page(
    range: KeyRange,
    limit: usize,
) -> Flight<'static, Result<UpgradedPage, InfraError>> {
    Flight::new(move |io| async move {
        let mut answers = io.read(vec![Read::Scan { range, limit }]).await?;
        let found = answers.page();
        let rest = found.last().filter(|_| found.len() >= limit).map(|(key, _)| range.after(key));
        let mut page = UpgradedPage { rewritten: 0, left: 0, unreadable: 0, rest };
        let mut txns = Vec::new();
        for (key, value) in &found {
            // A rewrite would put it without its binding, and it would outlive its process.
            if key.kind() == KeyKind::Owner {
                continue;
            }
            match upgraded(key, &value.bytes) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let mut txn = Txn::new();
                    // A transaction each: one record that changes meanwhile does not keep the
                    // others from their upgrade.
                    txn.expect(*key, Some(value));
                    txn.put(*key, bytes);
                    txns.push(txn);
                }
                // Counted and left: an upgrade must not end at a record that only a repair can
                // help.
                Err(_) => page.unreadable += 1,
            }
        }
        if txns.is_empty() {
            return Ok(page);
        }
        for outcome in io.commit_each(txns).await {
            match outcome? {
                CommitOutcome::Applied { .. } => page.rewritten += 1,
                CommitOutcome::Conflict(_) | CommitOutcome::Unknown => page.left += 1,
            }
        }
        Ok(page)
    })
}

fn format_in(stored: Option<&Versioned>) -> Result<u8, InfraError> {
    stored.map_or(Ok(FORMAT_FIRST), |value| decode_schema(&value.bytes))
}
