//! A hash table of record slots.
//!
//! A successful lookup reads one cache line of this table, where a general table reads two, its
//! tags and its items: with a million shards each is a cache miss, usually with a TLB miss. It
//! needs no more memory than a general table.
//!
//! The table holds slots only. The caller compares the keys of the records, and hashes them again
//! when the table grows.
//!
//! # Invariants
//! - A slot is in the first bucket, from its home on, that had space when it was inserted.
//! - Every bucket that it passed counts it, so a search ends at a bucket with a count of zero.

use super::table::Slot;

/// Slots in a bucket: as many as one cache line holds besides their tags.
const BUCKET_SLOTS: usize = 12;

/// Bytes of tags and counter together.
const TAG_BYTES: usize = 16;

/// One in each byte.
const EACH_BYTE: u128 = u128::MAX / 255;
/// All but the high bit of each byte.
const LOW_BITS: u128 = EACH_BYTE * 0x7F;
/// The bytes that are tags.
const SLOT_BYTES: u128 = (1 << (u8::BITS as usize * BUCKET_SLOTS)) - 1;

/// A table grows when it is fuller than this many eighths. Fuller buckets send more past them.
const MAX_EIGHTHS: usize = 7;

/// The tag of a free position; no hash has this tag.
const VACANT: u8 = 0;

/// One cache line: slots, and tags that exclude most of them without reading their records.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// A byte of each slot's hash, or [`VACANT`]. The bytes after [`BUCKET_SLOTS`] count the slots
    /// that passed because the bucket was full: sixteen bytes are compared at once.
    tags: [u8; TAG_BYTES],
    /// Valid where the tag is not vacant.
    slots: [Slot; BUCKET_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(TAG_BYTES == BUCKET_SLOTS + size_of::<u32>());

impl Bucket {
    const EMPTY: Self = Self { tags: [VACANT; TAG_BYTES], slots: [Slot(0); BUCKET_SLOTS] };

    /// Returns how many slots passed this bucket.
    #[inline]
    fn passed(&self) -> u32 {
        let [.., a, b, c, d] = self.tags;
        u32::from_le_bytes([a, b, c, d])
    }

    fn set_passed(&mut self, passed: u32) {
        self.tags[BUCKET_SLOTS..].copy_from_slice(&passed.to_le_bytes());
    }

    /// Returns the positions with `tag`, as the high bit of their byte.
    #[inline]
    fn tagged(&self, tag: u8) -> u128 {
        let different = u128::from_le_bytes(self.tags) ^ (EACH_BYTE * u128::from(tag));
        // Exact, without a carry between bytes: a carry could mark an adjacent vacant position,
        // whose slot is not valid.
        let low_bits_set = (different & LOW_BITS) + LOW_BITS;
        !(low_bits_set | different | LOW_BITS) & SLOT_BYTES
    }

    /// Returns the position of the slot with `tag` for which `same` holds.
    #[inline]
    fn find(&self, tag: u8, mut same: impl FnMut(Slot) -> bool) -> Option<usize> {
        let mut candidates = self.tagged(tag);
        while candidates != 0 {
            let position = first_position(candidates);
            if same(self.slots[position]) {
                return Some(position);
            }
            candidates &= candidates - 1;
        }
        None
    }
}

/// Record slots by hash.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    /// None, or a power of two.
    buckets: Vec<Bucket>,
    len: usize,
}

impl SlotTable {
    /// Returns the number of slots.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns a slot that probably has `hash`: only [`Self::find`] is certain.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<Slot> {
        // Only the home bucket: most slots are in it, and `find` searches the others.
        let bucket = self.buckets.get(self.path(hash).next()?)?;
        let tagged = bucket.tagged(tag(hash));
        (tagged != 0).then(|| bucket.slots[first_position(tagged)])
    }

    /// Returns the slot with `hash` for which `same` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, same: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let (bucket, position) = self.locate(hash, same)?;
        Some(self.buckets[bucket].slots[position])
    }

    /// Reserves space for `additional` slots; `hash_of` returns the hash of a stored one.
    pub(super) fn reserve(&mut self, additional: usize, hash_of: impl Fn(Slot) -> u64) {
        let wanted = self.len + additional;
        if wanted <= room(self.buckets.len()) {
            return;
        }
        // A power of two, so that `path` needs a mask instead of a division.
        let mut count = self.buckets.len().max(1);
        while wanted > room(count) {
            count *= 2;
        }
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; count]);
        for bucket in &old {
            // `zip` ends with the slots, so the counter behind the tags is not taken for tags.
            let taken = bucket.slots.iter().zip(&bucket.tags).filter(|(_, tag)| **tag != VACANT);
            taken.for_each(|(slot, _)| self.place(hash_of(*slot), *slot));
        }
    }

    /// Inserts a slot that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        self.reserve(1, hash_of);
        self.place(hash, slot);
        self.len += 1;
    }

    /// Removes the slot with `hash` for which `same` holds, if any.
    pub(super) fn remove(&mut self, hash: u64, same: impl FnMut(Slot) -> bool) {
        let Some((found, position)) = self.locate(hash, same) else { return };
        self.buckets[found].tags[position] = VACANT;
        self.len -= 1;
        // Exactly these buckets counted the slot when it was stored.
        for bucket in self.path(hash).take_while(|bucket| *bucket != found) {
            let bucket = &mut self.buckets[bucket];
            bucket.set_passed(bucket.passed() - 1);
        }
    }

    /// Returns the sum of the buckets' counts.
    #[cfg(test)]
    pub(super) fn passed(&self) -> u32 {
        self.buckets.iter().map(Bucket::passed).sum()
    }

    /// Returns bucket and position of the slot with `hash` for which `same` holds.
    #[inline]
    fn locate(&self, hash: u64, mut same: impl FnMut(Slot) -> bool) -> Option<(usize, usize)> {
        for index in self.path(hash) {
            let bucket = &self.buckets[index];
            if let Some(position) = bucket.find(tag(hash), &mut same) {
                return Some((index, position));
            }
            // Every slot beyond a bucket on its path is counted in it, so there is none.
            if bucket.passed() == 0 {
                break;
            }
        }
        None
    }

    /// Stores a slot in the first bucket with space; the load factor guarantees one.
    fn place(&mut self, hash: u64, slot: Slot) {
        for index in self.path(hash) {
            let bucket = &mut self.buckets[index];
            // Counter bytes may be zero too, but `tagged` masks them out.
            let vacant = bucket.tagged(VACANT);
            if vacant != 0 {
                let position = first_position(vacant);
                bucket.tags[position] = tag(hash);
                bucket.slots[position] = slot;
                return;
            }
            bucket.set_passed(bucket.passed() + 1);
        }
        unreachable!("a table is never full");
    }

    /// Returns every bucket index, from the home of `hash` on.
    #[inline]
    fn path(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let count = self.buckets.len();
        // The low bits choose the home and the high bits the tag, so tags differ within a bucket.
        (0..count).map(move |step| (hash as usize).wrapping_add(step) & (count - 1))
    }
}

/// The position of the lowest byte that is marked.
#[inline]
const fn first_position(marks: u128) -> usize {
    (marks.trailing_zeros() / u8::BITS) as usize
}

/// Returns the maximum number of slots in that many buckets.
const fn room(buckets: usize) -> usize {
    buckets * BUCKET_SLOTS * MAX_EIGHTHS / 8
}

/// Returns the byte of a hash that excludes most slots before their records are read.
#[inline]
fn tag(hash: u64) -> u8 {
    let [high, ..] = hash.to_be_bytes();
    // A hash with the tag of a free position would be overwritten by the next insert.
    high.max(VACANT + 1)
}
