//! Places of records by the hash of their keys.
//!
//! A lookup that finds its record waits for one line of this table, where a general table waits
//! for two, its tags and its items: among a million shards each is a trip to memory, and nearly
//! always a missing address translation beside it. It takes no more room than a general one.
//!
//! The table holds places only. What is at a place is the caller's business, who compares keys and
//! hashes them again when the table grows.
//!
//! # Invariants
//! - A place stands in the first bucket, from its home on, that had room when it came.
//! - Every bucket that it went past counts it, so a search ends at a bucket that counts nobody.

use super::table::Slot;

/// Places in a bucket: what one cache line holds beside their tags.
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

/// Marks a place of a bucket that is not taken; no hash has this tag.
const VACANT: u8 = 0;

/// One cache line: places, and what sorts most of them out without a look at their records.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// A byte of each place's hash, or [`VACANT`]. Those behind [`BUCKET_SLOTS`] are the number of
    /// places that went past because there was no room: sixteen bytes are compared at once.
    tags: [u8; TAG_BYTES],
    /// Mean something where the tag is not vacant.
    slots: [Slot; BUCKET_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(TAG_BYTES == BUCKET_SLOTS + size_of::<u32>());

impl Bucket {
    const EMPTY: Self = Self { tags: [VACANT; TAG_BYTES], slots: [Slot(0); BUCKET_SLOTS] };

    /// How many places of the table went past.
    #[inline]
    fn passed(&self) -> u32 {
        let [.., a, b, c, d] = self.tags;
        u32::from_le_bytes([a, b, c, d])
    }

    fn set_passed(&mut self, passed: u32) {
        self.tags[BUCKET_SLOTS..].copy_from_slice(&passed.to_le_bytes());
    }

    /// The positions that have `tag`: the high bit of a byte for each.
    #[inline]
    fn tagged(&self, tag: u8) -> u128 {
        let different = u128::from_le_bytes(self.tags) ^ (EACH_BYTE * u128::from(tag));
        // Exact, without a carry from byte to byte: what marked a neighbour too could mark a vacant
        // position, whose place may not be in use.
        let low_bits_set = (different & LOW_BITS) + LOW_BITS;
        !(low_bits_set | different | LOW_BITS) & SLOT_BYTES
    }

    /// The position of the place with `tag` that is the `same`.
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

/// Places by hash.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    /// None, or a power of two.
    buckets: Vec<Bucket>,
    len: usize,
}

impl SlotTable {
    /// How many places it holds.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The place that has `hash`, most likely, if any has: only [`Self::find`] is sure.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<Slot> {
        let bucket = self.buckets.get(self.path(hash).next()?)?;
        let tagged = bucket.tagged(tag(hash));
        (tagged != 0).then(|| bucket.slots[first_position(tagged)])
    }

    /// The place with `hash` that is the `same`.
    #[inline]
    pub(super) fn find(&self, hash: u64, same: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let (bucket, position) = self.locate(hash, same)?;
        Some(self.buckets[bucket].slots[position])
    }

    /// Makes room for `additional` places; `hash_of` tells the hash of one that is here.
    pub(super) fn reserve(&mut self, additional: usize, hash_of: impl Fn(Slot) -> u64) {
        let wanted = self.len + additional;
        if wanted <= room(self.buckets.len()) {
            return;
        }
        let mut count = self.buckets.len().max(1);
        while wanted > room(count) {
            count *= 2;
        }
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; count]);
        for bucket in &old {
            // The counter behind the tags is left out, because there are fewer slots.
            let taken = bucket.slots.iter().zip(&bucket.tags).filter(|(_, tag)| **tag != VACANT);
            taken.for_each(|(slot, _)| self.place(hash_of(*slot), *slot));
        }
    }

    /// Adds a place that is not here.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        self.reserve(1, hash_of);
        self.place(hash, slot);
        self.len += 1;
    }

    /// Takes the place with `hash` that is the `same` out, if it is here.
    pub(super) fn remove(&mut self, hash: u64, same: impl FnMut(Slot) -> bool) {
        let Some((found, position)) = self.locate(hash, same) else { return };
        self.buckets[found].tags[position] = VACANT;
        self.len -= 1;
        for bucket in self.path(hash).take_while(|bucket| *bucket != found) {
            let bucket = &mut self.buckets[bucket];
            bucket.set_passed(bucket.passed() - 1);
        }
    }

    /// How often a place went past a bucket.
    #[cfg(test)]
    pub(super) fn passed(&self) -> u32 {
        self.buckets.iter().map(Bucket::passed).sum()
    }

    /// Bucket and position of the place with `hash` that is the `same`.
    #[inline]
    fn locate(&self, hash: u64, mut same: impl FnMut(Slot) -> bool) -> Option<(usize, usize)> {
        for index in self.path(hash) {
            let bucket = &self.buckets[index];
            if let Some(position) = bucket.find(tag(hash), &mut same) {
                return Some((index, position));
            }
            if bucket.passed() == 0 {
                break;
            }
        }
        None
    }

    /// Puts a place into the first bucket with room; there is one.
    fn place(&mut self, hash: u64, slot: Slot) {
        for index in self.path(hash) {
            let bucket = &mut self.buckets[index];
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

    /// Every bucket, from the home of `hash` on.
    #[inline]
    fn path(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let count = self.buckets.len();
        // The low bits choose the home; the tag is made of the high ones.
        (0..count).map(move |step| (hash as usize).wrapping_add(step) & (count - 1))
    }
}

/// The position of the lowest byte that is marked.
#[inline]
const fn first_position(marks: u128) -> usize {
    (marks.trailing_zeros() / u8::BITS) as usize
}

/// How many places that many buckets may hold.
const fn room(buckets: usize) -> usize {
    buckets * BUCKET_SLOTS * MAX_EIGHTHS / 8
}

/// The byte of a hash by which places are sorted out before their records are looked at.
#[inline]
fn tag(hash: u64) -> u8 {
    let [high, ..] = hash.to_be_bytes();
    high.max(VACANT + 1)
}
