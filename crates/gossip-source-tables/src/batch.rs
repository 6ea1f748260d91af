//! Rows that one statement returned, and the batches that are in use.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Rows that one statement returns at most: as many as a page has by default.
pub(crate) const BATCH_ROWS: usize = 1024;

/// The longest row that is kept with its key. A batch holds at most 16 MiB, and each shard that is
/// processed has three; longer rows are read one by one.
pub(crate) const KEPT_BODY_LEN: usize = 16 * 1024;

/// One row.
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    /// The row as JSON, unless it is longer than [`KEPT_BODY_LEN`].
    pub(crate) body: Option<Vec<u8>>,
    /// The length of the JSON, if it is known.
    pub(crate) len: Option<u64>,
}

/// Rows in the order of their keys.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<Row>,
}

impl Batch {
    /// Returns the kept body of the row with this key.
    fn body(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.rows.binary_search_by(|row| (*row.key).cmp(key)).ok()?;
        self.rows[at].body.as_deref()
    }
}

/// The batches that listings have in use. A listing holds its batches; this only finds them.
#[derive(Default)]
pub(crate) struct Batches(Mutex<Vec<Weak<Batch>>>);

impl Batches {
    pub(crate) fn add(&self, batch: &Arc<Batch>) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batches.retain(|batch| batch.strong_count() > 0);
        batches.push(Arc::downgrade(batch));
    }

    /// Copies the kept body of a row into `scratch`; returns whether there is one.
    pub(crate) fn copy(&self, key: &[u8], scratch: &mut Vec<u8>) -> bool {
        let batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest first: a row that was listed twice is returned as the later listing had it.
        for batch in batches.iter().rev().filter_map(Weak::upgrade) {
            if let Some(body) = batch.body(key) {
                scratch.clear();
                scratch.extend_from_slice(body);
                return true;
            }
        }
        false
    }
}
