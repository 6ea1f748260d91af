//! Sorts leaves by their ranges in bounded memory.
//!
//! Up to [`SORTED_BYTES_MAX`] of leaves are sorted in memory. Beyond it each such part is written,
//! sorted, to a temporary file, and the parts are merged when they are read.
//!
//! # Invariants
//! - Memory is bounded by [`SORTED_BYTES_MAX`] and a buffer for each part of the file.
//! - The file has no name: it is gone when this process ends, however it ends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use gossip_contracts::identity::{FenceEpoch, ShardId};

use super::record::{LeafRecord, LeafStatus, ParkedFor};
use crate::accumulator::{ACCUMULATOR_LEN, Accumulator};
use crate::exec::nameless_file;

/// Maximum bytes of leaves in memory: some ten thousand of usual length.
const SORTED_BYTES_MAX: usize = 4 << 20;

/// Buffer of each part that is merged: a two hundred and fiftieth of the part.
const BUFFER_BYTES: usize = 16 << 10;

/// Maximum bytes of a key in the file: far more than a key has. A longer one is damage.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// A leaf with the id of its shard, which decides between equal starts.
#[derive(PartialEq, Eq)]
struct Entry {
    leaf: LeafRecord,
    shard: ShardId,
}

impl Entry {
    fn place(&self) -> (&[u8], ShardId) {
        (&self.leaf.start, self.shard)
    }

    fn byte_count(&self) -> usize {
        let LeafRecord { start, end, cursor, .. } = &self.leaf;
        size_of::<Self>() + start.len() + end.len() + cursor.as_ref().map_or(0, Vec::len)
    }
}

/// Leaves in any order.
pub(super) struct LeafSorter<'d> {
    /// For the temporary file.
    directory: &'d Path,
    held: Vec<Entry>,
    held_bytes: usize,
    file: Option<File>,
    /// Where each part of the file ends.
    ends: Vec<u64>,
}

impl<'d> LeafSorter<'d> {
    pub(super) const fn new(directory: &'d Path) -> Self {
        Self { directory, held: Vec::new(), held_bytes: 0, file: None, ends: Vec::new() }
    }

    pub(super) fn add(&mut self, leaf: LeafRecord, shard: ShardId) -> io::Result<()> {
        let entry = Entry { leaf, shard };
        self.held_bytes += entry.byte_count();
        self.held.push(entry);
        if self.held_bytes >= SORTED_BYTES_MAX { self.spill() } else { Ok(()) }
    }

    /// Returns the leaves in order.
    pub(super) fn finish(mut self) -> io::Result<SortedLeaves> {
        // All parts are read from the file then, so the merge has one kind of input.
        if self.file.is_some() {
            self.spill()?;
        }
        self.sort();
        let mut sorted = SortedLeaves { held: self.held.into_iter(), heads: BinaryHeap::new() };
        let Some(file) = self.file.map(Arc::new) else { return Ok(sorted) };
        let mut at = 0;
        for end in self.ends {
            let part = BufReader::with_capacity(
                BUFFER_BYTES,
                FilePart { file: Arc::clone(&file), at, end },
            );
            sorted.heads.extend(Head::next_of(part)?);
            at = end;
        }
        Ok(sorted)
    }

    fn sort(&mut self) {
        self.held.sort_unstable_by(|one, other| one.place().cmp(&other.place()));
    }

    /// Moves the leaves in memory to the file, as one more part.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless_file(self.directory)?),
        };
        let mut out = BufWriter::new(&*file);
        let mut end = self.ends.last().copied().unwrap_or(0);
        let mut bytes = Vec::new();
        for entry in self.held.drain(..) {
            bytes.clear();
            write_entry(&entry, &mut bytes);
            out.write_all(&bytes)?;
            end += bytes.len() as u64;
        }
        out.flush()?;
        self.held_bytes = 0;
        self.ends.push(end);
        Ok(())
    }
}

/// Leaves in the order of their ranges: those of memory, or those of the parts of the file.
pub(super) struct SortedLeaves {
    held: std::vec::IntoIter<Entry>,
    heads: BinaryHeap<Head>,
}

impl SortedLeaves {
    pub(super) fn next(&mut self) -> io::Result<Option<LeafRecord>> {
        if let Some(entry) = self.held.next() {
            return Ok(Some(entry.leaf));
        }
        let Some(Head { entry, part }) = self.heads.pop() else { return Ok(None) };
        self.heads.extend(Head::next_of(part)?);
        Ok(Some(entry.leaf))
    }
}

/// The first leaf of a part that was not returned, and the rest of the part.
struct Head {
    entry: Entry,
    part: BufReader<FilePart>,
}

impl Head {
    fn next_of(mut part: BufReader<FilePart>) -> io::Result<Option<Self>> {
        // The end of the part. A missing byte within an entry is damage and an error.
        if part.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let entry = read_entry(&mut part)?;
        Ok(Some(Self { entry, part }))
    }
}

// Reversed, because a heap returns the greatest first.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.entry.place().cmp(&self.entry.place())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// A part of a file, read at its own position.
struct FilePart {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for FilePart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        // At a position of its own: the parts share one file, whose cursor would be that of
        // another part.
        let read = self.file.read_at(&mut buffer[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The status of a leaf that is done; one that is parked has the place of its reason after it.
const DONE: u8 = 0;

fn write_entry(Entry { leaf, shard }: &Entry, out: &mut Vec<u8>) {
    let status = match leaf.status {
        LeafStatus::Done => DONE,
        LeafStatus::Parked(reason) => {
            let place = ParkedFor::ALL.iter().position(|known| *known == reason);
            u8::try_from(place.map_or(ParkedFor::ALL.len(), |place| place + 1))
                .expect("there are few reasons")
        }
    };
    out.push(status);
    out.push(u8::from(leaf.cursor.is_some()));
    for number in [shard.as_raw(), leaf.fence.as_raw(), leaf.unread] {
        out.extend(number.to_le_bytes());
    }
    out.extend(leaf.accumulator.to_bytes());
    for key in [&leaf.start[..], &leaf.end, leaf.cursor.as_deref().unwrap_or_default()] {
        out.extend((key.len() as u64).to_le_bytes());
        out.extend(key);
    }
}

/// Reads what [`write_entry`] wrote. The file is ours alone, so anything else is damage.
fn read_entry(from: &mut impl Read) -> io::Result<Entry> {
    let [status, has_cursor] = array(from)?;
    let mut number = || array(from).map(u64::from_le_bytes);
    let (shard, fence, unread) = (number()?, number()?, number()?);
    let accumulator = Accumulator::try_from_bytes(&array::<ACCUMULATOR_LEN>(from)?);
    let accumulator = accumulator.map_err(|_| io::ErrorKind::InvalidData)?;
    let (start, end, cursor) = (read_key(from)?, read_key(from)?, read_key(from)?);
    let status = match status.checked_sub(1) {
        None => LeafStatus::Done,
        Some(place) => {
            let reason = ParkedFor::ALL.get(usize::from(place));
            LeafStatus::Parked(*reason.ok_or(io::ErrorKind::InvalidData)?)
        }
    };
    let fence = FenceEpoch::from_raw(fence);
    let cursor = (has_cursor != 0).then_some(cursor);
    let leaf = LeafRecord { start, end, status, fence, cursor, accumulator, unread };
    Ok(Entry { leaf, shard: ShardId::from_raw(shard) })
}

fn array<const LEN: usize>(from: &mut impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_key(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = u64::from_le_bytes(array(from)?);
    // Checked before the allocation, so a damaged length does not exhaust the memory.
    if len > KEY_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut key = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?];
    from.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use gossip_testkit::Rng;

    use super::*;

    fn leaf(number: u64) -> LeafRecord {
        let status = match ParkedFor::ALL.get(number as usize % 9) {
            Some(reason) => LeafStatus::Parked(*reason),
            None => LeafStatus::Done,
        };
        // Long keys, so that few leaves make a part.
        let key = |number: u64| format!("{number:0900}").into_bytes();
        let leaf = LeafRecord::new(&key(number), &key(number + 1), status, FenceEpoch::INITIAL);
        if number.is_multiple_of(3) {
            return leaf;
        }
        let mut accumulator = Accumulator::EMPTY;
        accumulator.add(b"key");
        leaf.with_progress(&key(number), accumulator, number)
    }

    fn sorted(count: u64, seed: u64) -> (Vec<LeafRecord>, usize) {
        let mut numbers: Vec<u64> = (0..count).collect();
        let mut rng = Rng::seeded(seed);
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, rng.below(place as u64 + 1) as usize);
        }
        let directory = std::env::temp_dir();
        let mut sorter = LeafSorter::new(&directory);
        for number in numbers {
            sorter.add(leaf(number), ShardId::from_raw(count - number)).unwrap();
        }
        let parts = sorter.ends.len();
        let (mut leaves, mut sorted) = (Vec::new(), sorter.finish().unwrap());
        while let Some(leaf) = sorted.next().unwrap() {
            leaves.push(leaf);
        }
        (leaves, parts)
    }

    #[test]
    fn leaves_come_in_the_order_of_their_ranges_whether_or_not_they_fit_the_memory() {
        for (count, spills) in [(0, false), (1, false), (500, false), (9_000, true)] {
            let (leaves, parts) = sorted(count, 7);
            assert_eq!(parts > 2, spills, "{parts} parts");
            assert_eq!(leaves.len() as u64, count);
            assert!(leaves.iter().zip(0..).all(|(found, number)| *found == leaf(number)));
        }
    }

    #[test]
    fn shards_with_the_same_start_come_in_the_order_of_their_ids() {
        let directory = std::env::temp_dir();
        let mut sorter = LeafSorter::new(&directory);
        let of = |unread| LeafRecord { unread, ..leaf(0) };
        for id in [5, 1, 3] {
            sorter.add(of(id), ShardId::from_raw(id)).unwrap();
        }
        let mut sorted = sorter.finish().unwrap();
        let ids = [(); 3].map(|()| sorted.next().unwrap().unwrap().unread);
        assert_eq!(ids, [1, 3, 5]);
    }
}
