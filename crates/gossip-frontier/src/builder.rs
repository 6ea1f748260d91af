//! Stages a run's first shards into a preallocated arena.
//!
//! There are two phases. **Stage**: the `add_*` and `split_*` methods check one shard, or all
//! shards of a split, copy them into the borrowed arena and assign ids 0, 1, 2, … **Build**:
//! [`PreallocShardBuilder::build_inputs`] validates the manifest as a whole and returns its rows.
//!
//! Staging allocates nothing: entries are stored inline and bytes in the arena. The builder
//! registers nothing and is independent of runs.
//!
//! # Invariants
//!
//! * Every method that fails leaves entries, ids and the arena's accounting unchanged. That
//!   includes a split whose last child does not fit into the arena.
//! * An entry's id is its index, so ids are dense and a failed call cannot consume one.
//! * At most `entry_limit <= CAP <= 1024` entries, so the entries never spill to the heap.
//!
//! # Limits, innermost first
//!
//! | limit | by | value |
//! |---|---|---|
//! | `entry_limit` | the caller, at construction | 1 to `CAP` |
//! | `CAP` | the type | 1 to [`MAX_BUILDER_CAP`], at compile time |
//! | manifest | [`MAX_INITIAL_SHARDS`] | checked at construction |
//! | children of one split | [`MAX_SPLIT_CHILDREN`] | checked before the remaining entries |

#[cfg(test)]
#[path = "builder_law_tests.rs"]
mod builder_law_tests;
#[cfg(test)]
#[path = "builder_tests.rs"]
mod builder_tests;
mod bulk_split;

use std::fmt;

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, MAX_SPLIT_CHILDREN,
    ManifestValidationError, ShardArena, ShardSpecHandle, ShardSpecInputError, ShardSpecRef,
    validate_manifest,
};
use gossip_contracts::identity::ShardId;
use gossip_stdx::{InlineVec, SlabFull};
use thiserror::Error;

use self::bulk_split::BulkSplit;
use crate::hint::{ShardSpecScratch, manifest_shard_ref, prefix_shard_ref, range_shard_ref};
use crate::key_encoding::{PrefixShardError, validated};

/// Maximum `CAP`. Entries are stored inline, so this limits a builder to about 100 KiB of stack. A
/// run's manifest is registered at once: for a longer one, up to [`MAX_INITIAL_SHARDS`], use one
/// builder and arena for each batch, keep all of them, and shift the ids of each batch's
/// [`InitialShardInput`] rows by the number of rows before it.
pub const MAX_BUILDER_CAP: usize = 1024;

const _: () = assert!(MAX_BUILDER_CAP <= MAX_INITIAL_SHARDS);
const _: () = assert!(MAX_SPLIT_CHILDREN <= MAX_BUILDER_CAP);

/// Stages up to `CAP` initial shards into a borrowed arena.
///
/// Dropping it clears the arena, including specs that were stored before.
///
/// ```
/// use gossip_contracts::coordination::ShardArena;
/// use gossip_frontier::builder::PreallocShardBuilder;
///
/// let mut arena = ShardArena::with_capacity(8, 4096);
/// let mut builder = PreallocShardBuilder::<8>::new(&mut arena, 8)?;
/// builder.add_prefix(b"logs/", b"")?;
/// builder.split_range_by_boundaries(b"m", &[b"p", b"t"], b"z", b"")?;
/// assert_eq!(builder.build_inputs()?.len(), 4);
/// # Ok::<(), gossip_frontier::builder::PreallocShardBuilderError>(())
/// ```
///
/// A `CAP` too large for the stack does not compile:
///
/// ```compile_fail
/// # use gossip_contracts::coordination::ShardArena;
/// # use gossip_frontier::builder::PreallocShardBuilder;
/// let mut arena = ShardArena::with_capacity(8, 4096);
/// let builder = PreallocShardBuilder::<1025>::new(&mut arena, 8);
/// ```
pub struct PreallocShardBuilder<'a, const CAP: usize> {
    /// Holds the spec of every entry, and possibly specs of others.
    arena: &'a mut ShardArena,
    scratch: ShardSpecScratch,
    /// The entry at index `i` has the id `i`. Never longer than `entry_limit`.
    entries: InlineVec<BuilderEntry<'a>, CAP>,
    /// Between 1 and `CAP`.
    entry_limit: usize,
}

/// One staged shard. Its id is its index.
#[derive(Clone, Copy)]
struct BuilderEntry<'a> {
    /// Live in the arena from staging to `reset`.
    handle: ShardSpecHandle,
    /// Checked against the range when the manifest is built.
    cursor: CursorUpdate<'a>,
}

impl<'a, const CAP: usize> PreallocShardBuilder<'a, CAP> {
    /// Creates a builder of at most `entry_limit` shards.
    ///
    /// # Errors
    /// If `entry_limit` is zero, above `CAP`, or above [`MAX_INITIAL_SHARDS`], in this order.
    pub fn new(
        arena: &'a mut ShardArena,
        entry_limit: usize,
    ) -> Result<Self, PreallocShardBuilderError> {
        // Checked here because a bound on a const parameter cannot be declared on the type.
        const { assert!(CAP <= MAX_BUILDER_CAP, "entries are stored on the stack") };
        check_entry_limit(entry_limit, CAP)?;
        Ok(Self { arena, scratch: ShardSpecScratch::new(), entries: InlineVec::new(), entry_limit })
    }

    /// Stages the range `[start, end)`.
    ///
    /// # Errors
    /// As [`Self::add_range_with_cursor`].
    pub fn add_range(
        &mut self,
        start: &[u8],
        end: &[u8],
        connector_extra: &[u8],
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.add_range_with_cursor(start, end, connector_extra, CursorUpdate::initial())
    }

    /// Stages the range `[start, end)`, already scanned up to `cursor`.
    ///
    /// # Errors
    /// `CapacityExceeded`, then `RangeInvalid`, then `SlabFull`. The cursor is checked by
    /// [`Self::build_inputs`].
    pub fn add_range_with_cursor(
        &mut self,
        start: &[u8],
        end: &[u8],
        connector_extra: &[u8],
        cursor: CursorUpdate<'a>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.check_budget(1)?;
        // Built in the scratch space first: an invalid shard must not take space in the arena.
        let spec = range_shard_ref(start, end, connector_extra, &mut self.scratch)
            .map_err(PreallocShardBuilderError::RangeInvalid)?;
        let handle = self.arena.alloc_spec(spec)?;
        Ok(self.push(handle, cursor))
    }

    /// Stages all keys that start with `prefix`.
    ///
    /// # Errors
    /// As [`Self::add_prefix_with_cursor`].
    pub fn add_prefix(
        &mut self,
        prefix: &[u8],
        connector_extra: &[u8],
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.add_prefix_with_cursor(prefix, connector_extra, CursorUpdate::initial())
    }

    /// Stages all keys that start with `prefix`, already scanned up to `cursor`.
    ///
    /// # Errors
    /// `CapacityExceeded`, then `PrefixInvalid`, then `SlabFull`. The cursor is checked by
    /// [`Self::build_inputs`].
    pub fn add_prefix_with_cursor(
        &mut self,
        prefix: &[u8],
        connector_extra: &[u8],
        cursor: CursorUpdate<'a>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.check_budget(1)?;
        let spec = prefix_shard_ref(prefix, connector_extra, &mut self.scratch)
            .map_err(PreallocShardBuilderError::PrefixInvalid)?;
        let handle = self.arena.alloc_spec(spec)?;
        Ok(self.push(handle, cursor))
    }

    /// Stages the rows `start_row..end_row` of one manifest.
    ///
    /// # Errors
    /// As [`Self::add_manifest_with_cursor`].
    pub fn add_manifest(
        &mut self,
        manifest_id: u64,
        start_row: u64,
        end_row: u64,
        connector_extra: &[u8],
    ) -> Result<ShardId, PreallocShardBuilderError> {
        let cursor = CursorUpdate::initial();
        self.add_manifest_with_cursor(manifest_id, start_row, end_row, connector_extra, cursor)
    }

    /// Stages the rows `start_row..end_row` of one manifest, already scanned up to `cursor`.
    ///
    /// # Errors
    /// `CapacityExceeded`, then `ManifestCtorInvalid`, then `SlabFull`. The cursor is checked by
    /// [`Self::build_inputs`].
    pub fn add_manifest_with_cursor(
        &mut self,
        manifest_id: u64,
        start_row: u64,
        end_row: u64,
        connector_extra: &[u8],
        cursor: CursorUpdate<'a>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.check_budget(1)?;
        let scratch = &mut self.scratch;
        let spec = manifest_shard_ref(manifest_id, start_row, end_row, connector_extra, scratch)
            .map_err(PreallocShardBuilderError::ManifestCtorInvalid)?;
        let handle = self.arena.alloc_spec(spec)?;
        Ok(self.push(handle, cursor))
    }

    /// Stages a copy of any spec; its metadata is stored unchanged.
    ///
    /// # Errors
    /// As [`Self::add_spec_ref_with_cursor`].
    pub fn add_spec_ref(
        &mut self,
        spec: ShardSpecRef<'_>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.add_spec_ref_with_cursor(spec, CursorUpdate::initial())
    }

    /// Stages a copy of any spec, already scanned up to `cursor`.
    ///
    /// # Errors
    /// `CapacityExceeded`, then `SpecInvalid`, then `SlabFull`. The cursor is checked by
    /// [`Self::build_inputs`].
    pub fn add_spec_ref_with_cursor(
        &mut self,
        spec: ShardSpecRef<'_>,
        cursor: CursorUpdate<'a>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.check_budget(1)?;
        let spec = validated(spec).map_err(PreallocShardBuilderError::SpecInvalid)?;
        // Pushed after the allocation, because a full arena must not consume an id.
        let handle = self.arena.alloc_spec(spec)?;
        Ok(self.push(handle, cursor))
    }

    /// Stages a spec that is already in the arena, without copying it.
    ///
    /// # Errors
    /// As [`Self::add_spec_handle_with_cursor`].
    pub fn add_spec_handle(
        &mut self,
        handle: ShardSpecHandle,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.add_spec_handle_with_cursor(handle, CursorUpdate::initial())
    }

    /// Stages a spec that is already in the arena, scanned up to `cursor`.
    ///
    /// # Errors
    /// `CapacityExceeded`, then `InvalidSpecHandle`. The cursor is checked by
    /// [`Self::build_inputs`].
    pub fn add_spec_handle_with_cursor(
        &mut self,
        handle: ShardSpecHandle,
        cursor: CursorUpdate<'a>,
    ) -> Result<ShardId, PreallocShardBuilderError> {
        self.check_budget(1)?;
        // A handle may outlive its spec. A stale one fails here, at the call that passed it, and
        // not in `build_inputs`.
        self.live_spec(handle)?;
        Ok(self.push(handle, cursor))
    }

    /// Stages `[start, end)` split at every split point, and returns the number of shards.
    ///
    /// Points must be strictly ascending and strictly inside the range; without points the range is
    /// one shard. [`split_points`](crate::split_points()) returns such points.
    ///
    /// # Errors
    /// `FanOutExceeded`, then `CapacityExceeded`, then `RangeInvalid` for the first child that is
    /// not a valid range (which an empty point causes), then `SlabFull`. On any error nothing is
    /// staged.
    pub fn split_range_by_boundaries(
        &mut self,
        start: &[u8],
        split_points: &[&[u8]],
        end: &[u8],
        connector_extra: &[u8],
    ) -> Result<usize, PreallocShardBuilderError> {
        let split = BulkSplit::Range { start, split_points, end };
        self.stage_split(split, connector_extra)
    }

    /// Stages `start_row..end_row` in chunks of `rows_per_shard`, the last one possibly shorter,
    /// and returns the number of shards.
    ///
    /// # Errors
    /// `ManifestCtorInvalid` if there are no rows, or none per shard; then `FanOutExceeded`,
    /// `CapacityExceeded`, `ManifestCtorInvalid` for the metadata, and `SlabFull`. On any error
    /// nothing is staged.
    pub fn split_manifest_by_rows(
        &mut self,
        manifest_id: u64,
        start_row: u64,
        end_row: u64,
        rows_per_shard: u64,
        connector_extra: &[u8],
    ) -> Result<usize, PreallocShardBuilderError> {
        let split = BulkSplit::Manifest { manifest_id, start_row, end_row, rows_per_shard };
        self.stage_split(split, connector_extra)
    }

    /// Frees every spec of the arena and restarts at id 0. All handles become stale.
    pub fn reset(&mut self) {
        // Entries first: an entry never exists without its spec, not even here.
        self.entries.clear();
        self.arena.clear();
    }

    /// Returns the rows of the manifest, in the order of their ids.
    ///
    /// Does not change the builder: calling it again returns the same rows. Cold path: the rows are
    /// collected into a `Vec`, and validation sorts copies of them.
    ///
    /// # Errors
    /// `InvalidSpecHandle` if a spec has been freed; `ManifestInvalid` if the shards do not form a
    /// manifest, for example because there are none or two overlap.
    pub fn build_inputs(&self) -> Result<Vec<InitialShardInput<'_>>, PreallocShardBuilderError> {
        let mut inputs = Vec::with_capacity(self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            inputs.push(InitialShardInput {
                shard_id: shard_id(index),
                spec: self.live_spec(entry.handle)?,
                cursor: entry.cursor,
            });
        }
        validate_manifest(&inputs)?;
        Ok(inputs)
    }

    /// Returns the number of shards staged.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no shard is staged.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Stages all children of a split or none: checks the limits, builds every child without
    /// storing it, then stores them, and frees them again if one does not fit.
    fn stage_split(
        &mut self,
        split: BulkSplit<'_>,
        connector_extra: &[u8],
    ) -> Result<usize, PreallocShardBuilderError> {
        let children = split.child_count()?;
        // Before the budget, because the number of children is wrong for every builder.
        if children > MAX_SPLIT_CHILDREN {
            return Err(PreallocShardBuilderError::FanOutExceeded {
                limit: MAX_SPLIT_CHILDREN,
                requested: children,
            });
        }
        self.check_budget(children)?;
        // An invalid boundary is found before anything is stored, so it needs no rollback.
        for index in 0..children {
            split.child(index, connector_extra, &mut self.scratch)?;
        }
        // The arena rounds, splits and merges blocks, so only storing the children shows whether
        // all of them fit.
        let staged_before = self.entries.len();
        for index in 0..children {
            let stored = split
                .child(index, connector_extra, &mut self.scratch)
                .and_then(|spec| Ok(self.arena.alloc_spec(spec)?));
            match stored {
                Ok(handle) => self.push(handle, CursorUpdate::initial()),
                Err(error) => {
                    self.unstage_to(staged_before);
                    return Err(error);
                }
            };
        }
        Ok(children)
    }

    /// Appends an entry; [`Self::check_budget`] has checked the limit.
    fn push(&mut self, handle: ShardSpecHandle, cursor: CursorUpdate<'a>) -> ShardId {
        let id = shard_id(self.entries.len());
        self.entries.push(BuilderEntry { handle, cursor });
        assert!(!self.entries.is_spilled(), "entry_limit is at most CAP");
        id
    }

    /// Frees the newest entries until `len` remain, in reverse order, so that the arena's free
    /// space merges as before.
    fn unstage_to(&mut self, len: usize) {
        while self.entries.len() > len {
            let entry = self.entries.pop().expect("there are more than `len` entries");
            self.arena.free_spec(entry.handle);
        }
    }

    /// Fails if `additional` entries would exceed the limit. Adds nothing.
    fn check_budget(&self, additional: usize) -> Result<(), PreallocShardBuilderError> {
        let current = self.entries.len();
        // Written as a subtraction that cannot underflow: `current` never exceeds the limit.
        if additional > self.entry_limit - current {
            return Err(PreallocShardBuilderError::CapacityExceeded {
                limit: self.entry_limit,
                current,
                additional,
            });
        }
        Ok(())
    }

    fn live_spec(
        &self,
        handle: ShardSpecHandle,
    ) -> Result<ShardSpecRef<'_>, PreallocShardBuilderError> {
        self.arena.try_view_spec(handle).ok_or(PreallocShardBuilderError::InvalidSpecHandle)
    }
}

impl<const CAP: usize> Drop for PreallocShardBuilder<'_, CAP> {
    fn drop(&mut self) {
        // The next borrower finds the arena empty, whether or not a manifest was built.
        self.arena.clear();
    }
}

impl<const CAP: usize> fmt::Debug for PreallocShardBuilder<'_, CAP> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreallocShardBuilder")
            .field("len", &self.entries.len())
            .field("entry_limit", &self.entry_limit)
            .finish_non_exhaustive()
    }
}

/// A builder could not be created, or an operation failed. Nothing was changed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PreallocShardBuilderError {
    /// Construction: a builder of zero shards is useless.
    #[error("entry limit is zero")]
    EntryLimitZero,
    /// Construction: the limit exceeds the inline capacity.
    #[error("entry limit {entry_limit} exceeds the capacity {cap}")]
    CapMismatch {
        /// Limit presented.
        entry_limit: usize,
        /// `CAP` of the builder.
        cap: usize,
    },
    /// Construction: the limit exceeds the maximum of one manifest. Unreachable while
    /// [`MAX_BUILDER_CAP`] is below [`MAX_INITIAL_SHARDS`]; the check does not rely on these
    /// values.
    #[error("entry limit {entry_limit} exceeds the manifest maximum of {max}")]
    EntryLimitExceedsManifestMax {
        /// Limit presented.
        entry_limit: usize,
        /// [`MAX_INITIAL_SHARDS`].
        max: usize,
    },
    /// Add: the entries would exceed the limit.
    #[error("{additional} more shards exceed the limit of {limit}, {current} are staged")]
    CapacityExceeded {
        /// Entry limit of the builder.
        limit: usize,
        /// Shards staged.
        current: usize,
        /// Shards requested.
        additional: usize,
    },
    /// Split: more children than one split may create.
    #[error("split into {requested} shards exceeds the maximum of {limit}")]
    FanOutExceeded {
        /// [`MAX_SPLIT_CHILDREN`].
        limit: usize,
        /// Children requested.
        requested: usize,
    },
    /// Add: the arena has no free slot or not enough bytes.
    #[error("shard arena is full")]
    SlabFull(#[from] SlabFull),
    /// Add: the bounds or the metadata do not form a valid range.
    #[error("range is not a valid shard")]
    RangeInvalid(#[source] ShardSpecInputError),
    /// Add: the prefix does not form a valid range.
    #[error("prefix is not a valid shard")]
    PrefixInvalid(#[source] PrefixShardError),
    /// Add: the rows or the metadata do not form a valid range.
    #[error("manifest rows are not a valid shard")]
    ManifestCtorInvalid(#[source] ShardSpecInputError),
    /// Add: the borrowed spec is invalid.
    #[error("spec is not a valid shard")]
    SpecInvalid(#[source] ShardSpecInputError),
    /// Add or build: the handle is stale or belongs to another arena.
    #[error("spec handle is not live in this arena")]
    InvalidSpecHandle,
    /// Build: the shards are valid individually but do not form a manifest.
    #[error("staged shards are not a valid manifest")]
    ManifestInvalid(#[from] ManifestValidationError),
}

/// Checks the limits of construction. Takes `cap` as a value so that each limit can be tested.
fn check_entry_limit(entry_limit: usize, cap: usize) -> Result<(), PreallocShardBuilderError> {
    if entry_limit == 0 {
        return Err(PreallocShardBuilderError::EntryLimitZero);
    }
    if entry_limit > cap {
        return Err(PreallocShardBuilderError::CapMismatch { entry_limit, cap });
    }
    if entry_limit > MAX_INITIAL_SHARDS {
        return Err(PreallocShardBuilderError::EntryLimitExceedsManifestMax {
            entry_limit,
            max: MAX_INITIAL_SHARDS,
        });
    }
    Ok(())
}

fn shard_id(index: usize) -> ShardId {
    ShardId::from_raw(index as u64)
}
