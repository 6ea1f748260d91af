//! Listings of directories that several shards of a process share.
//!
//! A directory cannot be entered in the middle, so each shard whose range begins or ends in it
//! needs all of its names. The first reads it, and the others wait for that and take the same
//! names, as long as the stamp of the directory is the one from before the reading.
//!
//! It never returns names of a directory that has changed since they were read, as far as the file
//! system shows it.
//!
//! # Invariants
//!
//! - At most [`LISTINGS_MAX`] listings of together [`LISTINGS_BYTES_MAX`] bytes are kept. Those
//!   that are dropped live on in the walks that use them.
//! - One thread at a time reads a directory that is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_contracts::connector::ConnectorError;

use super::directory::Stamp;
use super::names::Names;

/// Maximum number of listings: a shard begins and ends in one directory of each level, and those of
/// the upper levels are the same for most shards.
pub(super) const LISTINGS_MAX: usize = 64;

/// Maximum number of bytes of all listings, about three million names of usual length. A directory
/// with more is read by each shard, which keeps its own part only.
pub(super) const LISTINGS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Listings by the prefix of their directory.
#[derive(Default)]
pub(super) struct Listings(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    slots: BTreeMap<Box<[u8]>, Slot>,
    /// How often one was asked for.
    uses: u64,
}

struct Slot {
    /// `None` before it is read, and if it cannot be shared. Locked while the directory is read.
    listing: Arc<Mutex<Option<Listing>>>,
    /// The bytes that it takes, as far as they are known.
    size: usize,
    /// The use that asked for it last.
    used: u64,
}

/// The names of a directory, and its stamp from before they were read.
#[derive(Clone, Default)]
pub(super) struct Listing {
    pub(super) stamp: Stamp,
    pub(super) names: Arc<Names>,
}

/// What a reading found.
pub(super) struct Read {
    pub(super) listing: Listing,
    /// Whether the names serve other shards too, as long as the stamp does not change.
    pub(super) is_shareable: bool,
}

impl Listings {
    /// Returns the names of the directory at `prefix`: those of an earlier call if they are usable
    /// and `stamp` returns theirs, and otherwise those that `read` returns.
    ///
    /// # Errors
    ///
    /// That of `read`.
    pub(super) fn get(
        &self,
        prefix: &[u8],
        is_usable: impl FnOnce(&Names) -> bool,
        stamp: impl FnOnce() -> Option<Stamp>,
        read: impl FnOnce() -> Result<Read, ConnectorError>,
    ) -> Result<Arc<Names>, ConnectorError> {
        let slot = self.lock().slot(prefix);
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listing) = known.as_ref().filter(|listing| is_usable(&listing.names))
            && stamp() == Some(listing.stamp)
        {
            return Ok(Arc::clone(&listing.names));
        }
        // Before the reading, so that its failure leaves no stale names behind.
        *known = None;
        let Read { listing, is_shareable } = read()?;
        let names = Arc::clone(&listing.names);
        if is_shareable && names.size() <= LISTINGS_BYTES_MAX {
            self.lock().keep(prefix, names.size());
            *known = Some(listing);
        }
        Ok(names)
    }

    /// Returns the listing of the directory at `prefix`, if one is kept. The caller compares its
    /// stamp.
    pub(super) fn find(&self, prefix: &[u8]) -> Option<Listing> {
        let slot = self.lock().slots.get(prefix).map(|slot| Arc::clone(&slot.listing))?;
        let listing = slot.lock().unwrap_or_else(PoisonError::into_inner);
        listing.clone()
    }

    // Held for a moment only: a thread that holds it waits for no reading.
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Returns the slot of a directory, and makes one if there is none.
    fn slot(&mut self, prefix: &[u8]) -> Arc<Mutex<Option<Listing>>> {
        self.uses += 1;
        let used = self.uses;
        if let Some(slot) = self.slots.get_mut(prefix) {
            slot.used = used;
            return Arc::clone(&slot.listing);
        }
        let listing = Arc::default();
        let slot = Slot { listing: Arc::clone(&listing), size: 0, used };
        self.slots.insert(prefix.into(), slot);
        self.evict();
        listing
    }

    /// Accounts for the listing in the slot of a directory.
    fn keep(&mut self, prefix: &[u8], size: usize) {
        // Without a slot it was evicted during the reading; then only its reader uses it.
        if let Some(slot) = self.slots.get_mut(prefix) {
            slot.size = size;
            self.evict();
        }
    }

    /// Drops the listings that were not used for longest, until the others are within the bounds.
    fn evict(&mut self) {
        let mut size: usize = self.slots.values().map(|slot| slot.size).sum();
        while self.slots.len() > LISTINGS_MAX || size > LISTINGS_BYTES_MAX {
            let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.used);
            let Some(prefix) = oldest.map(|(prefix, _)| prefix.clone()) else { return };
            size -= self.slots.remove(&prefix).map_or(0, |slot| slot.size);
        }
    }
}
