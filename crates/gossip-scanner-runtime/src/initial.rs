//! The initial shards of a run, from a bounded sample of its source.
//!
//! The connector samples keys ([`Connector::sample_keys`] is bounded by contract), and the root is
//! cut so that every shard holds about as many of the sampled ones. If the sample holds every key,
//! the source is small and gets no more shards than are worth their overhead. If a connector cannot
//! sample, or its sample is empty, the root is divided evenly by bytes. Each shard carries the
//! root's hint, narrowed to its range; cuts of rows fall on rows.
//!
//! Nothing here lists a source, counts it, or depends on anything but what the connector answers:
//! the same answers give the same cuts. Cuts need not be perfect, since busy shards are split
//! later.

use gossip_contracts::connector::{
    Connector, ConnectorError, MAX_PAGE_BYTES, MAX_PAGE_ITEMS, Page, PageLimits, PageViolation,
};
use gossip_contracts::coordination::{
    MAX_INITIAL_SHARDS, MAX_SPLIT_CHILDREN, ShardSpec, ShardSpecRef,
};
use gossip_frontier::{
    KeyBuf, KeyRange, KeyRangeError, SplitPointsError, split_points, split_points_by_density,
};
use thiserror::Error;

use crate::split_specs::{PartError, aligned, parts};

/// Maximum number of initial shards: as many as a run can be registered with.
pub const INITIAL_SHARDS_MAX: usize = MAX_INITIAL_SHARDS;

/// Initial shards of a run that was asked for no number, at most: four for each of 64 workers. More
/// would cost more to register than they spread; splits divide them further.
pub const DEFAULT_SHARDS_MAX: usize = 256;

/// A source of fewer keys than this for each shard gets fewer shards: claiming, renewing and
/// completing one costs about as much as a few trivial keys.
pub(crate) const INITIAL_KEYS_MIN: usize = 4;

/// Keys to sample per shard. A cut falls on a sampled key, so the size of a part is wrong by about
/// one in so many.
const SAMPLED_KEYS_PER_SHARD: usize = 16;

/// Parts that one sample is cut into, at most. For more, each of these parts is sampled and cut
/// again.
const PARTS_PER_SAMPLE: usize = MAX_SPLIT_CHILDREN;

const _: () = assert!(INITIAL_SHARDS_MAX <= PARTS_PER_SAMPLE * PARTS_PER_SAMPLE, "two levels");
const _: () = assert!(PARTS_PER_SAMPLE * SAMPLED_KEYS_PER_SHARD <= MAX_PAGE_ITEMS);

/// Divides `root` into at most `target` shards with about equally many keys.
///
/// They tile the root in order, and there is always at least one.
///
/// # Errors
///
/// Returns an error for a target of zero or beyond [`INITIAL_SHARDS_MAX`], for a root without
/// bounds, and for a source that cannot be read or breaks the rules of pages.
pub fn initial_shards(
    connector: &dyn Connector,
    root: ShardSpecRef<'_>,
    target: usize,
) -> Result<Vec<ShardSpec>, InitialShardsError> {
    if target == 0 || target > INITIAL_SHARDS_MAX {
        return Err(InitialShardsError::Target { target, max: INITIAL_SHARDS_MAX });
    }
    KeyRange::try_from_spec(root)?;
    let coarse = cut(connector, root, target.div_ceil(PARTS_PER_SAMPLE))?;
    let count = coarse.len();
    let mut shards = Vec::with_capacity(target);
    for (index, part) in coarse.into_iter().enumerate() {
        // The shares add up to the target. One is too large only if the source has few keys.
        let share = (index + 1) * target / count - index * target / count;
        shards.extend(cut(connector, part.as_spec_ref(), share.clamp(1, PARTS_PER_SAMPLE))?);
    }
    Ok(shards)
}

/// Divides a range into at most `parts` shards with about equally many keys.
fn cut(
    connector: &dyn Connector,
    root: ShardSpecRef<'_>,
    parts: usize,
) -> Result<Vec<ShardSpec>, InitialShardsError> {
    let range = KeyRange::try_from_spec(root)?;
    if parts == 1 {
        return tiles(root, &[]);
    }
    let sample = look(connector, root, parts)?;
    let cuts = match sample.is_empty() && !sample.is_exhausted() {
        true => even_cuts(range, parts)?,
        false => cuts_by_density(range, parts, &sample)?,
    };
    tiles(root, &cuts)
}

/// Why a source was not divided.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitialShardsError {
    /// No shards, or too many.
    #[error("{target} initial shards were asked for; 1 to {max} are possible")]
    Target {
        /// Shards asked for.
        target: usize,
        /// [`INITIAL_SHARDS_MAX`].
        max: usize,
    },
    /// The root is no bounded range.
    #[error(transparent)]
    Root(#[from] KeyRangeError),
    /// The source could not be asked.
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// The sample breaks a rule of pages.
    #[error("in a sample of the source: {0}")]
    Sample(PageViolation),
    /// The source has a key that no shard would contain.
    #[error("the source has a key outside the range that its family states")]
    KeyOutsideRoot,
    /// The root could not be cut.
    #[error(transparent)]
    Cut(#[from] SplitPointsError),
    /// The root's hint does not fit its keys.
    #[error("the hint of the source's root does not fit: {0}")]
    Hint(#[from] PartError),
}

/// Returns keys that show where the source is dense; none if it cannot be sampled.
fn look(
    connector: &dyn Connector,
    root: ShardSpecRef<'_>,
    parts: usize,
) -> Result<Page, InitialShardsError> {
    let limits = PageLimits::try_new(parts * SAMPLED_KEYS_PER_SHARD, MAX_PAGE_BYTES);
    let mut sample = Page::with_limits(limits.expect("parts in bounds give a page in bounds"));
    connector.sample_keys(root, &mut sample)?;
    match sample.fault() {
        Some(fault) => Err(InitialShardsError::Sample(fault)),
        None => Ok(sample),
    }
}

fn cuts_by_density(
    range: KeyRange<'_>,
    target: usize,
    sample: &Page,
) -> Result<Vec<Vec<u8>>, InitialShardsError> {
    let mut keys: Vec<&[u8]> = sample.items().map(|item| item.key()).collect();
    let parts = match sample.is_exhausted() {
        // The number of keys is exact, so no shard is made that would have fewer than the minimum.
        true => (keys.len() / INITIAL_KEYS_MIN).clamp(1, target),
        false => target,
    };
    let cuts = split_points_by_density(range, parts, &mut keys)?;
    Ok(cuts.iter().map(|key| key.to_vec()).collect())
}

fn even_cuts(range: KeyRange<'_>, target: usize) -> Result<Vec<Vec<u8>>, InitialShardsError> {
    let mut buffers = vec![KeyBuf::new(); target - 1];
    let cuts = split_points(range, target, &mut buffers)?;
    Ok(cuts.iter().map(|key| key.to_vec()).collect())
}

/// Returns the shards between the cuts, which lie in ascending order strictly inside the root.
fn tiles(root: ShardSpecRef<'_>, cuts: &[Vec<u8>]) -> Result<Vec<ShardSpec>, InitialShardsError> {
    let mut points: Vec<_> = cuts.iter().filter_map(|cut| aligned(root, cut)).collect();
    // Two cuts between the same rows are one, and a cut after the last row is none.
    points.dedup();
    points.retain(|point| **point < *root.end);
    let points: Vec<&[u8]> = points.iter().map(|point| &**point).collect();
    Ok(parts(root, &points)?)
}
