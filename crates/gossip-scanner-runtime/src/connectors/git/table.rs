//! The blobs of a repository in the order of their ids, and where each first appeared.

use std::collections::BTreeMap;

use gossip_contracts::connector::Origin;
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

/// The longest object id: SHA-256. Repositories with SHA-1 use the first twenty bytes.
pub(super) const OID_LEN_MAX: usize = 32;

/// One blob.
#[derive(Clone, Copy)]
pub(super) struct Blob {
    oid: [u8; OID_LEN_MAX],
    /// Saturates: it is a hint, and the body has the size.
    size: u32,
    /// Index of the commit plus one; zero if no commit has the blob.
    commit: u32,
    path: u32,
}

impl Blob {
    pub(super) fn oid(&self, len: usize) -> &[u8] {
        &self.oid[..len]
    }
}

/// All blobs, sorted by id.
#[derive(Default)]
pub(super) struct Table {
    oid_len: usize,
    blobs: Vec<Blob>,
    commits: Vec<Box<str>>,
    paths: Vec<Box<[u8]>>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.blobs.len()
    }

    pub(super) fn oid_len(&self) -> usize {
        self.oid_len
    }

    pub(super) fn oid(&self, index: usize) -> &[u8] {
        self.blobs[index].oid(self.oid_len)
    }

    pub(super) fn size(&self, index: usize) -> u64 {
        u64::from(self.blobs[index].size)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<&Blob> {
        let found = self.blobs.binary_search_by(|blob| blob.oid(self.oid_len).cmp(key));
        found.ok().map(|index| &self.blobs[index])
    }

    /// Returns the part of a range behind a cursor, as `[first, end)` of indexes.
    pub(super) fn part(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> (usize, usize) {
        let below = |key: &[u8]| self.blobs.partition_point(|blob| blob.oid(self.oid_len) < key);
        let start = below(range.start);
        let behind = from
            .last_key()
            .map_or(0, |key| self.blobs.partition_point(|blob| blob.oid(self.oid_len) <= key));
        let end = if range.end.is_empty() { self.blobs.len() } else { below(range.end) };
        (start.max(behind).min(end), end)
    }

    pub(super) fn origin(&self, key: &[u8]) -> Option<Origin<'_>> {
        let blob = self.find(key)?;
        let commit = blob.commit.checked_sub(1).map(|index| &*self.commits[index as usize]);
        Some(Origin { path: &self.paths[blob.path as usize], revision: commit.unwrap_or_default() })
    }
}

/// A table while the history is walked.
#[derive(Default)]
pub(super) struct TableBuilder {
    table: Table,
    paths: BTreeMap<Box<[u8]>, u32>,
    /// The commit whose objects come next, and whether it is in the table.
    commit: Option<(Box<str>, bool)>,
}

impl TableBuilder {
    pub(super) fn begin_commit(&mut self, id: &str) {
        self.commit = Some((id.into(), false));
    }

    /// Adds a blob; `None` if its id is none or there are more paths than can be counted.
    pub(super) fn add(&mut self, oid: &str, size: u64, path: &[u8]) -> Option<()> {
        let oid_len = oid.len() / 2;
        let mut bytes = [0; OID_LEN_MAX];
        decode_hex(oid, bytes.get_mut(..oid_len)?)?;
        // One repository has one kind of ids.
        if self.table.oid_len != 0 && self.table.oid_len != oid_len {
            return None;
        }
        self.table.oid_len = oid_len;
        if let Some((id, is_known @ false)) = &mut self.commit {
            self.table.commits.push(std::mem::take(id));
            *is_known = true;
        }
        let commit = u32::try_from(self.table.commits.len()).ok()?;
        let commit = if self.commit.is_some() { commit } else { 0 };
        let path = match self.paths.get(path) {
            Some(index) => *index,
            None => {
                let index = u32::try_from(self.table.paths.len()).ok()?;
                self.table.paths.push(path.into());
                self.paths.insert(path.into(), index);
                index
            }
        };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.table.blobs.push(Blob { oid: bytes, size, commit, path });
        Some(())
    }

    pub(super) fn finish(mut self) -> Table {
        self.table.blobs.sort_unstable_by_key(|blob| blob.oid);
        // Git lists an object once; a second entry would be a key that is not greater.
        self.table.blobs.dedup_by_key(|blob| blob.oid);
        self.table.blobs.shrink_to_fit();
        self.table
    }
}

fn decode_hex(text: &str, bytes: &mut [u8]) -> Option<()> {
    if bytes.is_empty() || text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(())
}

/// Returns an object id in hexadecimal digits.
pub(super) fn hex(oid: &[u8]) -> String {
    oid.iter().map(|byte| format!("{byte:02x}")).collect()
}
