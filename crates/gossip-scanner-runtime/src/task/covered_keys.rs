//! The finished part of a shard, as its next checkpoint stores it.

use std::fmt;

use gossip_contracts::connector::{Page, PageItem};
use gossip_contracts::coordination::CursorUpdate;

use super::side_records::TaskRecords;
use crate::accumulator::Accumulator;
use crate::token::{RuntimeToken, TokenError};
use crate::watermark::{ItemWatermark, Settled};

/// The finished part of a shard: a cursor, and the statistics of the keys up to it.
pub(super) struct CoveredKeys {
    /// Empty before the first key.
    key: Vec<u8>,
    /// The connector's token of that key; may be empty.
    connector_token: Vec<u8>,
    accumulator: Accumulator,
    /// How many of the counted keys were skipped as unreadable.
    unread: u64,
    /// How many findings the counted keys have.
    found: u64,
    /// The encoded token; updated with every change of the other fields.
    token: Vec<u8>,
    /// Items finished since the last checkpoint.
    pub(super) unsaved: u64,
    /// Items finished since the lease began or the range was last narrowed.
    pub(super) since_cut: u64,
    /// Items finished since the lease began.
    pub(super) finished: u64,
}

impl CoveredKeys {
    /// Restores the state from a stored cursor.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime did not write the token.
    pub(super) fn restore(cursor: CursorUpdate<'_>) -> Result<Self, TokenError> {
        let stored = match cursor.token() {
            Some(token) => RuntimeToken::decode(token)?,
            None => RuntimeToken::START,
        };
        Ok(Self {
            key: cursor.last_key().unwrap_or_default().to_vec(),
            connector_token: stored.connector.to_vec(),
            accumulator: stored.accumulator,
            unread: stored.unread,
            found: stored.found,
            token: cursor.token().unwrap_or_default().to_vec(),
            unsaved: 0,
            since_cut: 0,
            finished: 0,
        })
    }

    /// Adds the items that the watermark passes, and moves their records to those of the next
    /// checkpoint. Returns their number and their size in bytes.
    pub(super) fn advance(
        &mut self,
        mark: &mut ItemWatermark,
        page: &Page,
        records: &mut TaskRecords,
    ) -> (u64, u64) {
        let (mut items, mut bytes) = (0, 0);
        let passed = mark.advance(|index, settled| {
            let item = page.item(index).expect("the mark follows this page");
            if !records.pass(index, self.accumulator.count(), item.key()) {
                return false;
            }
            self.take_in(item, settled);
            items += 1;
            bytes += item.size_hint().unwrap_or(0);
            true
        });
        if let Some(last) = passed.last().and_then(|index| page.item(index)) {
            // Once per advance and not per item: only the last cursor is ever stored.
            self.move_to(last);
        }
        self.unsaved += items;
        self.since_cut += items;
        self.finished += items;
        (items, bytes)
    }

    /// Returns the cursor from which the connector continues the listing.
    pub(super) fn listed_from(&self) -> CursorUpdate<'_> {
        cursor(&self.key, &self.connector_token)
    }

    /// Returns the last finished key, if there is one.
    pub(super) fn key(&self) -> Option<&[u8]> {
        Some(self.key.as_slice()).filter(|key| !key.is_empty())
    }

    /// Returns the cursor to store.
    pub(super) fn cursor(&self) -> CursorUpdate<'_> {
        cursor(&self.key, &self.token)
    }

    /// Returns the cursor of the completed shard: for a shard without items, its start (DESIGN Q2).
    pub(super) fn final_cursor<'a>(&'a self, start: &'a [u8]) -> CursorUpdate<'a> {
        let at = self.key().unwrap_or(if start.is_empty() { LEAST_KEY } else { start });
        cursor(at, &self.token)
    }

    fn take_in(&mut self, item: PageItem<'_>, settled: Settled) {
        match settled {
            Settled::Done => self.accumulator.add(item.key()),
            Settled::Found(number) => {
                self.accumulator.add(item.key());
                self.found = self.found.saturating_add(u64::from(number.get()));
            }
            Settled::Unread => {
                self.accumulator.add(item.key());
                self.unread += 1;
            }
            // The key is not in the source any more, so a later recount does not find it either.
            Settled::Gone => {}
        }
    }

    fn move_to(&mut self, item: PageItem<'_>) {
        self.key.clear();
        self.key.extend_from_slice(item.key());
        self.connector_token.clear();
        self.connector_token.extend_from_slice(item.token().unwrap_or_default());
        let token = RuntimeToken {
            accumulator: self.accumulator,
            unread: self.unread,
            found: self.found,
            connector: &self.connector_token,
        };
        token.encode_into(&mut self.token).expect("a page takes no token that is too long");
    }
}

/// The smallest key: the final cursor of a shard without items and without a start.
const LEAST_KEY: &[u8] = &[0];

fn cursor<'a>(key: &'a [u8], token: &'a [u8]) -> CursorUpdate<'a> {
    let key = Some(key).filter(|key| !key.is_empty());
    // A token without a key cannot be stored; it says nothing before the first key.
    let token = Some(token).filter(|token| key.is_some() && !token.is_empty());
    CursorUpdate::try_from_parts(key, token)
        .expect("keys come from pages and ranges, and tokens leave room for the runtime's part")
}

// Numbers only: keys must not reach a log.
impl fmt::Debug for CoveredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoveredKeys")
            .field("key_len", &self.key.len())
            .field("accumulator", &self.accumulator)
            .field("unread", &self.unread)
            .field("unsaved", &self.unsaved)
            .finish_non_exhaustive()
    }
}
