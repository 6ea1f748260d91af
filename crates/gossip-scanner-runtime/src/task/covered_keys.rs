//! What of a shard is finished, as its next checkpoint will say it.

use std::fmt;

use gossip_contracts::connector::{Page, PageItem};
use gossip_contracts::coordination::CursorUpdate;

use crate::accumulator::Accumulator;
use crate::token::{RuntimeToken, TokenError};
use crate::watermark::{ItemWatermark, Settled};

/// The finished part of a shard: a cursor, and what the runtime knows of the keys at or below it.
pub(super) struct CoveredKeys {
    /// Empty before the first key.
    key: Vec<u8>,
    /// The connector's token of that key; may be empty.
    connector_token: Vec<u8>,
    accumulator: Accumulator,
    /// How many of the counted keys were passed over unread.
    unread: u64,
    /// How much was found in the counted keys.
    found: u64,
    /// The whole token, encoded again whenever the rest changes.
    token: Vec<u8>,
    /// Items finished since the store last heard of it.
    pub(super) unsaved: u64,
    /// Items finished since the lease began or the range was last narrowed.
    pub(super) since_cut: u64,
    /// Items finished since the lease began.
    pub(super) finished: u64,
}

impl CoveredKeys {
    /// What a stored cursor says.
    ///
    /// # Errors
    ///
    /// A token that the runtime did not write.
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

    /// Takes in what the mark has passed; tells how many items and how many bytes.
    pub(super) fn advance(&mut self, mark: &mut ItemWatermark, page: &Page) -> (u64, u64) {
        let passed = mark.advance();
        let (mut items, mut bytes) = (0, 0);
        for index in passed.clone() {
            let item = page.item(index).expect("the mark follows this page");
            let settled = mark.settled(index).expect("the mark passes what is settled");
            self.take_in(item, settled);
            items += 1;
            bytes += item.size_hint().unwrap_or(0);
        }
        if let Some(last) = passed.last().and_then(|index| page.item(index)) {
            self.move_to(last);
        }
        self.unsaved += items;
        self.since_cut += items;
        self.finished += items;
        (items, bytes)
    }

    /// Where the connector goes on listing.
    pub(super) fn listed_from(&self) -> CursorUpdate<'_> {
        cursor(&self.key, &self.connector_token)
    }

    /// The last finished key, if there is one.
    pub(super) fn key(&self) -> Option<&[u8]> {
        Some(self.key.as_slice()).filter(|key| !key.is_empty())
    }

    /// The cursor to store.
    pub(super) fn cursor(&self) -> CursorUpdate<'_> {
        cursor(&self.key, &self.token)
    }

    /// The cursor to end with: that of a shard without items stands at its start (DESIGN Q2).
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
            // Not a key of the source any more, so a later count will not find it either.
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

/// The first of all keys: where an unbounded shard without items ends.
const LEAST_KEY: &[u8] = &[0];

fn cursor<'a>(key: &'a [u8], token: &'a [u8]) -> CursorUpdate<'a> {
    let key = Some(key).filter(|key| !key.is_empty());
    let token = Some(token).filter(|token| key.is_some() && !token.is_empty());
    CursorUpdate::try_from_parts(key, token)
        .expect("keys come from pages and ranges, and tokens leave room for the runtime's part")
}

// Numbers only.
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
