//! Handoff records in a store: save, load, list by party, forget.
//!
//! The payload belongs to `gossip-handoff`; here a record is bytes, two parties, and whether it is
//! over. The functions are flights, so `gossip-handoff` shares one implementation between its
//! blocking and its asynchronous repository.
//!
//! # Invariants
//! - A save compares the revision, so of two concurrent saves one gets
//!   [`SaveHandoffError::Conflict`].
//! - A record that is not over has an index entry for each party, and one that is over has none:
//!   both are written in the same commit.
//! - Every save carries its own mark. A save whose reply was lost looks for its mark before it
//!   returns.

use gossip_contracts::identity::TenantId;
use thiserror::Error;

use super::codec::{
    HANDOFF_PAYLOAD_MAX, HandoffTooLarge, decode_handoff, encode_handoff, encode_mover_entry,
};
use super::core::encoded;
use super::engine::{Read, StoreLimits};
use super::flight::{Flight, Io};
use super::key::Key;
use super::range::KeyRange;
use super::retry::Tries;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::{InfraError, StoreRefusal};
use crate::handoff::HandoffId;

/// Records per read: together they stay below the 4 MiB limit of an engine's reply.
const RECORDS_PER_READ: usize = 8;

const _: () = assert!(RECORDS_PER_READ * (HANDOFF_PAYLOAD_MAX + 256) < 4 << 20);

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHandoff {
    /// The handoff.
    pub handoff: HandoffId,
    /// The revision that the next save compares.
    pub revision: u64,
    /// The payload.
    pub payload: Vec<u8>,
}

/// One save of a record.
#[derive(Clone, Copy, Debug)]
pub struct HandoffWrite<'a> {
    /// The tenant.
    pub tenant: TenantId,
    /// The handoff.
    pub handoff: HandoffId,
    /// The payload.
    pub payload: &'a [u8],
    /// Numbers of the two parties. They never change during the life of the record.
    pub parties: [u64; 2],
    /// Whether the handoff is over with this save.
    pub is_over: bool,
    /// The revision to replace; `None` if the record must not exist.
    pub expected: Option<u64>,
    /// A number that no other save of the store has.
    pub mark: u64,
}

/// Why a record was not saved or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SaveHandoffError {
    /// The record changed since the expected revision.
    #[error("the handoff record was changed by another writer")]
    Conflict,
    /// The record is too long.
    #[error(transparent)]
    TooLarge(#[from] HandoffTooLarge),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] InfraError),
}

/// Saves a record and returns its revision.
#[must_use]
pub fn save_handoff(
    limits: StoreLimits,
    write: HandoffWrite<'_>,
) -> Flight<'_, Result<u64, SaveHandoffError>> {
    Flight::new(move |io| async move {
        let mut value = Vec::new();
        encode_handoff(write.tenant, write.handoff, (write.mark, write.payload), &mut value)?;
        let txn = save_txn(&write, value);
        // Refused here with a clear reason instead of by the engine in its own words.
        check_fits(limits, &txn)?;
        Commit { io: &io, write, operation: "handoff.save" }.run(&txn).await
    })
}

/// Deletes a record that is over and still at `revision`.
#[must_use]
pub fn forget_handoff(
    tenant: TenantId,
    handoff: HandoffId,
    revision: u64,
) -> Flight<'static, Result<(), SaveHandoffError>> {
    Flight::new(move |io| async move {
        let key = Key::Handoff { tenant, handoff };
        let mut txn = Txn::new();
        txn.expect_revision(key, Some(revision));
        txn.delete(key);
        let mut tries = Tries::new("handoff.forget", revision);
        loop {
            let outcome = io.commit(txn.clone()).await.map_err(|error| tries.ended(error))?;
            let ticks = match outcome {
                CommitOutcome::Applied { .. } => return Ok(()),
                // A missing record is the goal, whichever writer deleted it.
                CommitOutcome::Conflict(_) if load(&io, tenant, handoff).await?.is_none() => {
                    return Ok(());
                }
                CommitOutcome::Conflict(_) => return Err(SaveHandoffError::Conflict),
                CommitOutcome::Unknown => tries.failed(None, false)?,
            };
            io.pause(ticks).await;
        }
    })
}

/// Loads the record of a handoff, if it exists.
#[must_use]
pub fn load_handoff(
    tenant: TenantId,
    handoff: HandoffId,
) -> Flight<'static, Result<Option<StoredHandoff>, InfraError>> {
    Flight::new(move |io| async move {
        let value = load(&io, tenant, handoff).await?;
        value.map(|value| stored(tenant, handoff, &value)).transpose()
    })
}

/// Lists the first `limit` unfinished handoffs of `party` after `after`, in id order. One that ends
/// concurrently is omitted or returned as it was.
#[must_use]
pub fn list_moves(
    limits: StoreLimits,
    tenant: TenantId,
    party: u64,
    after: Option<HandoffId>,
    limit: usize,
) -> Flight<'static, Result<MovePage, InfraError>> {
    Flight::new(move |io| async move {
        let limit = limit.min(limits.page);
        // A scan of no keys is not a request of an engine.
        if limit == 0 {
            return Ok(MovePage::default());
        }
        let mut range = KeyRange::moves_of(tenant, party);
        if let Some(handoff) = after {
            range = range.after(&Key::HandoffIndex { tenant, party, handoff });
        }
        let page = io.scan(range, limit).await?;
        // The index page decides whether more follow: deleted records shorten only the result.
        let is_last = page.len() < limit;
        let ids: Vec<HandoffId> = page.iter().filter_map(|(key, _)| move_at(key)).collect();
        assert!(ids.len() == page.len(), "the range holds index entries only");
        assert!(ids.is_sorted_by_key(|id| id.as_raw()), "a page is in key order");
        let more = ids.last().copied().filter(|_| !is_last);
        let mut moves = MovePage { more, ..MovePage::default() };
        for chunk in ids.chunks(RECORDS_PER_READ) {
            let keys = chunk.iter().map(|handoff| Key::Handoff { tenant, handoff: *handoff });
            let values = io.load(keys.collect()).await?;
            assert!(values.len() == chunk.len(), "each record was read");
            for (handoff, value) in chunk.iter().zip(values) {
                // A record that was deleted since the scan is over.
                if let Some(value) = value {
                    moves.add(tenant, *handoff, &value);
                }
            }
        }
        assert!(moves.len() <= ids.len(), "an index entry has at most one record");
        Ok(moves)
    })
}

/// Lists the first `limit` records of a tenant after `after`, including those that are over, in id
/// order.
#[must_use]
pub fn list_handoffs(
    limits: StoreLimits,
    tenant: TenantId,
    after: Option<HandoffId>,
    limit: usize,
) -> Flight<'static, Result<MovePage, InfraError>> {
    Flight::new(move |io| async move {
        let mut range = KeyRange::handoffs_of(tenant);
        if let Some(handoff) = after {
            range = range.after(&Key::Handoff { tenant, handoff });
        }
        let mut moves = MovePage::default();
        while moves.len() < limit {
            let wanted = RECORDS_PER_READ.min(limits.page).min(limit - moves.len());
            assert!(wanted > 0, "a page holds at least one record");
            let page = io.scan(range, wanted).await?;
            for (key, value) in &page {
                if let Key::Handoff { handoff, .. } = key {
                    // Damaged records are listed by id, so an operator can find and remove them.
                    moves.add(tenant, *handoff, value);
                    moves.more = Some(*handoff);
                    range = range.after(key);
                }
            }
            if page.len() < wanted {
                moves.more = None;
                break;
            }
        }
        assert!(moves.len() <= limit, "a listing keeps to its limit");
        assert!(moves.more.is_none() || moves.len() > 0, "the next page begins after a record");
        Ok(moves)
    })
}

/// A page of records, in id order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovePage {
    /// Decoded records.
    pub found: Vec<StoredHandoff>,
    /// Records that are damaged or of a newer format; they do not hide the others.
    pub damaged: Vec<HandoffId>,
    /// The handoff after which the next page begins, if there is one.
    pub more: Option<HandoffId>,
}

impl MovePage {
    fn len(&self) -> usize {
        self.found.len() + self.damaged.len()
    }

    fn add(&mut self, tenant: TenantId, handoff: HandoffId, value: &Versioned) {
        match stored(tenant, handoff, value) {
            Ok(stored) => self.found.push(stored),
            // A damaged record must not fail the listing of the others.
            Err(_) => self.damaged.push(handoff),
        }
    }
}

const fn move_at(key: &Key) -> Option<HandoffId> {
    let Key::HandoffIndex { handoff, .. } = key else { return None };
    Some(*handoff)
}

fn save_txn(write: &HandoffWrite<'_>, value: Vec<u8>) -> Txn {
    let (tenant, handoff) = (write.tenant, write.handoff);
    let key = Key::Handoff { tenant, handoff };
    let mut txn = Txn::new();
    // Of two drivers of one handoff only one may advance it from this revision.
    txn.expect_revision(key, write.expected);
    txn.put(key, value);
    // Two party names may have the same number, and a transaction writes a key once.
    let [from, to] = write.parties;
    for party in [Some(from), (to != from).then_some(to)].into_iter().flatten() {
        let entry = Key::HandoffIndex { tenant, party, handoff };
        if write.is_over {
            txn.delete(entry);
        } else if write.expected.is_none() {
            txn.put(entry, encoded(|out| encode_mover_entry(tenant, party, handoff, out)));
        }
    }
    assert!(txn.writes().len() <= 3, "a save writes a record and its two index entries");
    txn
}

fn check_fits(limits: StoreLimits, txn: &Txn) -> Result<(), InfraError> {
    if limits.admit(txn) {
        return Ok(());
    }
    let message = format!("{} bytes exceed what the store takes", txn.byte_count());
    let (operation, why) = ("handoff.save", StoreRefusal::TooLarge);
    Err(InfraError::Refused { operation, why, message })
}

async fn load(
    io: &Io,
    tenant: TenantId,
    handoff: HandoffId,
) -> Result<Option<Versioned>, InfraError> {
    let mut answers = io.read(vec![Read::Get(Key::Handoff { tenant, handoff })]).await?;
    let value = answers.value();
    answers.assert_used();
    Ok(value)
}

fn stored(
    tenant: TenantId,
    handoff: HandoffId,
    value: &Versioned,
) -> Result<StoredHandoff, InfraError> {
    let (_, payload) = decode_handoff(tenant, handoff, &value.bytes)?;
    Ok(StoredHandoff { handoff, revision: value.revision, payload: payload.to_vec() })
}

/// An in-flight save.
struct Commit<'a> {
    io: &'a Io,
    write: HandoffWrite<'a>,
    operation: &'static str,
}

impl Commit<'_> {
    /// Commits until the outcome is known. Retrying is harmless: the compare lets it apply once,
    /// and the mark shows whether it did.
    async fn run(&self, txn: &Txn) -> Result<u64, SaveHandoffError> {
        let mut tries = Tries::new(self.operation, self.write.mark);
        // A retry without a compare could overwrite a later save.
        assert!(!txn.compares().is_empty(), "a save compares the record it replaces");
        loop {
            let outcome = self.io.commit(txn.clone()).await.map_err(|error| tries.ended(error))?;
            let ticks = match outcome {
                CommitOutcome::Applied { revision } => {
                    assert!(
                        self.write.expected.is_none_or(|it| it < revision),
                        "revisions increase"
                    );
                    return Ok(revision);
                }
                CommitOutcome::Conflict(_) => {
                    // The conflict may be caused by this save's own earlier try, whose reply was
                    // lost.
                    return self.own_revision().await?.ok_or(SaveHandoffError::Conflict);
                }
                CommitOutcome::Unknown => tries.failed(None, false)?,
            };
            self.io.pause(ticks).await;
        }
    }

    /// Returns the revision of the record, if this save wrote it.
    async fn own_revision(&self) -> Result<Option<u64>, InfraError> {
        let (tenant, handoff) = (self.write.tenant, self.write.handoff);
        let Some(value) = load(self.io, tenant, handoff).await? else { return Ok(None) };
        let (mark, _) = decode_handoff(tenant, handoff, &value.bytes)?;
        Ok((mark == self.write.mark).then_some(value.revision))
    }
}
