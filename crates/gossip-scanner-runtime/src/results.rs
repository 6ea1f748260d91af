//! Results of items that are stored with the cursor, and their listing.
//!
//! A processor returns results with an item ([`ItemResult::Results`](crate::ItemResult::Results)).
//! They are bytes here. The checkpoint that moves the cursor past the item stores them in the same
//! commit, so that after any crash a listing has the results of every covered item exactly once.
//!
//! # Blocks
//!
//! The results of a shard are stored in numbered blocks. A block is a sequence of entries:
//!
//! ```text
//!  ordinal  more    key_len  content_len  key      content
//!  8 bytes  1 byte  2 bytes  4 bytes      key_len  content_len      numbers little-endian
//! ```
//!
//! The *ordinal* of an item is the number of keys that its shard's cursor covers before it. The
//! cursor's token holds that number, so it is the same for every worker that repeats the item, and
//! rises along the shard. Results longer than a block are cut into chunks, all but the last with
//! `more` set to 1.
//! The number of a block is that of its first chunk: `ordinal × 256 + chunk`. It therefore gives
//! the chunk of every entry: those of one item follow each other, and a new item begins with 0.
//!
//! A shard that is repaired may begin again and store some items once more, in other blocks. The
//! listing skips ordinals that it has passed, and chunks that it has read.

use std::fmt;

use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{
    InfraError, RESULT_BLOCK_MAX, ResultBlock, RunManagement, SideRecord, SideRecordId,
    SideRecordKind, StoredSideRecord,
};
use thiserror::Error;

/// Maximum bytes of the results of one item: they are stored in one commit, together with the
/// cursor.
pub const ITEM_RESULTS_MAX: usize = 512 << 10;

/// Bytes of an entry before its key.
const ENTRY_HEAD: usize = 8 + 1 + 2 + 4;

/// Maximum content of one entry: with the longest key it fits a block.
pub(crate) const CHUNK_MAX: usize = RESULT_BLOCK_MAX - ENTRY_HEAD - MAX_KEY_SIZE;

/// Chunks that the number of a block counts for one item.
const CHUNKS: u64 = 256;

const _: () = assert!(ITEM_RESULTS_MAX.div_ceil(CHUNK_MAX) < CHUNKS as usize);

/// Records per read.
const PAGE: usize = 32;

/// An encoded entry.
pub(crate) struct Entry {
    /// The number of a block that begins with it.
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the bytes of the entries of one item.
pub(crate) const fn entry_len(key: &[u8], content: &[u8]) -> usize {
    let chunks = content.len().div_ceil(CHUNK_MAX);
    let chunks = if chunks == 0 { 1 } else { chunks };
    chunks * (ENTRY_HEAD + key.len()) + content.len()
}

/// Returns the entries of one item, with at most [`ITEM_RESULTS_MAX`] bytes of results.
pub(crate) fn entries(ordinal: u64, key: &[u8], content: &[u8]) -> impl Iterator<Item = Entry> {
    assert!(content.len() <= ITEM_RESULTS_MAX, "longer results are refused before");
    let count = content.len().div_ceil(CHUNK_MAX).max(1);
    (0..count).map(move |chunk| {
        let rest = &content[chunk * CHUNK_MAX..];
        let part = &rest[..rest.len().min(CHUNK_MAX)];
        let mut bytes = Vec::with_capacity(ENTRY_HEAD + key.len() + part.len());
        bytes.extend_from_slice(&ordinal.to_le_bytes());
        bytes.push(u8::from(chunk + 1 < count));
        let key_len = u16::try_from(key.len()).expect("keys are shorter than 64 KiB");
        bytes.extend_from_slice(&key_len.to_le_bytes());
        let part_len = u32::try_from(part.len()).expect("a chunk is shorter than a block");
        bytes.extend_from_slice(&part_len.to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(part);
        // Saturating: a shard with 2^56 keys would need centuries.
        Entry { number: ordinal.saturating_mul(CHUNKS).saturating_add(chunk as u64), bytes }
    })
}

/// The stored results of one item.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredResults {
    /// The key of the item.
    pub key: Box<[u8]>,
    /// What the processor returned.
    pub content: Vec<u8>,
}

/// Lengths only: results quote the user's data.
impl fmt::Debug for StoredResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredResults({} bytes)", self.content.len())
    }
}

/// Why results could not be listed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The store failed, or a block is damaged.
    #[error(transparent)]
    Store(#[from] InfraError),
    /// A block has another content than the runtime writes.
    #[error("a block of results is malformed")]
    Malformed,
}

/// Passes the results of every covered item of a run to `visit`, in the order of their keys, each
/// item once.
///
/// The run may be active: items that are covered meanwhile may be missing.
///
/// # Errors
///
/// [`ResultsError`]; and the first error of `visit`, which ends the listing.
pub fn for_each_result<B, E>(
    backend: &mut B,
    tenant: TenantId,
    run: RunId,
    mut visit: impl FnMut(StoredResults) -> Result<(), E>,
) -> Result<(), E>
where
    B: RunManagement + ?Sized,
    E: From<ResultsError>,
{
    for shard in shards_by_key(backend, tenant, run)? {
        let mut reader = ShardReader::default();
        let mut after = SideRecordId { group: shard, number: 0 };
        // The first block has no predecessor in its shard that a listing could begin after.
        let mut page = vec![first_of(backend, (tenant, run), shard)?];
        loop {
            for StoredSideRecord { id, record } in page.drain(..).flatten() {
                let SideRecord::Results(block) = record else { continue };
                if id.group != shard {
                    continue;
                }
                after = id;
                reader.read(&block, &mut visit)?;
            }
            let mut next = Vec::new();
            list(backend, (tenant, run), Some(after), PAGE, &mut next)?;
            if next.first().is_none_or(|it| it.id.group != shard) {
                break;
            }
            page.extend(next.into_iter().map(Some));
        }
        reader.finish()?;
    }
    Ok(())
}

/// Returns the shards that have results, by the key of their first result.
///
/// The results of a shard lie in one interval, and those of two shards in disjoint ones: a split
/// gives away only keys behind the cursor.
fn shards_by_key<B: RunManagement + ?Sized>(
    backend: &mut B,
    tenant: TenantId,
    run: RunId,
) -> Result<Vec<u64>, ResultsError> {
    let (mut shards, mut after) = (Vec::new(), None);
    loop {
        let mut first = Vec::new();
        list(backend, (tenant, run), after, 1, &mut first)?;
        let Some(StoredSideRecord { id, record: SideRecord::Results(block) }) = first.pop() else {
            break;
        };
        let (entry, _) = parse(&block.content)?;
        shards.push((Box::<[u8]>::from(entry.key), id.group));
        // One record for each shard: the listing skips the other blocks of the shard.
        after = Some(id.last_of_group());
    }
    shards.sort_unstable();
    Ok(shards.into_iter().map(|(_, shard)| shard).collect())
}

/// Returns the first block of a shard.
fn first_of<B: RunManagement + ?Sized>(
    backend: &mut B,
    of: (TenantId, RunId),
    shard: u64,
) -> Result<Option<StoredSideRecord>, ResultsError> {
    let before = shard.checked_sub(1).map(|group| SideRecordId { group, number: u64::MAX });
    let mut first = Vec::new();
    list(backend, of, before, 1, &mut first)?;
    Ok(first.pop())
}

fn list<B: RunManagement + ?Sized>(
    backend: &mut B,
    (tenant, run): (TenantId, RunId),
    after: Option<SideRecordId>,
    limit: usize,
    out: &mut Vec<StoredSideRecord>,
) -> Result<(), ResultsError> {
    let kind = SideRecordKind::Results;
    Ok(backend.list_side_records_into(tenant, run, kind, after, limit, out)?)
}

/// Reads the blocks of one shard in their order.
#[derive(Default)]
struct ShardReader {
    /// The ordinal of the next item that was not passed.
    next: u64,
    /// An item whose last chunk was not read.
    begun: Option<Begun>,
    /// Whether chunks of an item are missing.
    is_broken: bool,
}

struct Begun {
    ordinal: u64,
    /// How many of its chunks were read.
    chunks: u64,
    item: StoredResults,
}

impl ShardReader {
    fn read<E: From<ResultsError>>(
        &mut self,
        block: &ResultBlock,
        visit: &mut impl FnMut(StoredResults) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = &*block.content;
        let mut place = None;
        while !rest.is_empty() {
            let (entry, behind) = parse(rest)?;
            rest = behind;
            let chunk = match place {
                None => block.number % CHUNKS,
                Some((ordinal, chunk)) if ordinal == entry.ordinal => chunk + 1,
                Some(_) => 0,
            };
            place = Some((entry.ordinal, chunk));
            // Of an item that was stored twice, after a repair.
            if entry.ordinal < self.next {
                continue;
            }
            if let Some(item) = self.add(&entry, chunk) {
                self.next = entry.ordinal + 1;
                visit(item)?;
            }
        }
        Ok(())
    }

    /// Adds a chunk to its item. Returns the item with its last chunk.
    fn add(&mut self, entry: &ParsedEntry<'_>, chunk: u64) -> Option<StoredResults> {
        let is_same = |begun: &Begun| begun.ordinal == entry.ordinal;
        let read = self.begun.as_ref().filter(|begun| is_same(begun)).map_or(0, |it| it.chunks);
        // The blocks of two storings of an item are mixed: each chunk is in one block of either.
        if chunk < read {
            return None;
        }
        // All chunks of an item are stored in one commit, so a missing one is damage.
        if chunk > read {
            self.is_broken = true;
            return None;
        }
        let begun = self.begun.take();
        self.is_broken |= begun.as_ref().is_some_and(|begun| !is_same(begun));
        let mut item = begun.filter(is_same).map_or_else(
            || StoredResults { key: entry.key.into(), content: Vec::new() },
            |begun| begun.item,
        );
        item.content.extend_from_slice(entry.content);
        if !entry.more {
            return Some(item);
        }
        self.begun = Some(Begun { ordinal: entry.ordinal, chunks: chunk + 1, item });
        None
    }

    const fn finish(&self) -> Result<(), ResultsError> {
        match (&self.begun, self.is_broken) {
            (None, false) => Ok(()),
            (Some(_), _) | (None, true) => Err(ResultsError::Malformed),
        }
    }
}

struct ParsedEntry<'a> {
    ordinal: u64,
    more: bool,
    key: &'a [u8],
    content: &'a [u8],
}

/// Returns the first entry of a block and the bytes behind it.
fn parse(bytes: &[u8]) -> Result<(ParsedEntry<'_>, &[u8]), ResultsError> {
    parse_entry(bytes).ok_or(ResultsError::Malformed)
}

fn parse_entry(bytes: &[u8]) -> Option<(ParsedEntry<'_>, &[u8])> {
    let (ordinal, rest) = bytes.split_first_chunk()?;
    let (&more, rest) = rest.split_first()?;
    let (key_len, rest) = rest.split_first_chunk()?;
    let (content_len, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
    let content_len = usize::try_from(u32::from_le_bytes(*content_len)).ok()?;
    let (content, rest) = rest.split_at_checked(content_len)?;
    // The largest ordinal has no successor.
    let ordinal = Some(u64::from_le_bytes(*ordinal)).filter(|ordinal| *ordinal < u64::MAX)?;
    let more = match more {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some((ParsedEntry { ordinal, more, key, content }, rest))
}
