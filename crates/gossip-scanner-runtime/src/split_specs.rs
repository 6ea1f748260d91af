//! The parts of a split: their ranges, and the metadata of each.
//!
//! The metadata of a shard is the envelope of `gossip-frontier`: a hint, and the job as the
//! connector's bytes. A part keeps the job, and its hint is the parent's, narrowed to its range
//! ([`propagate_hint_on_split`]). So the hint of a shard of rows always states the rows of its
//! range, and its bounds must be row keys.
//!
//! Metadata that is no envelope comes from a program that registered its shards itself. It is
//! copied unchanged.

use std::borrow::Cow;
use std::iter;

use gossip_contracts::coordination::{ShardSpec, ShardSpecInputError, ShardSpecRef};
use gossip_frontier::{
    HintPropagationError, KeyBuf, KeyEncoding as _, ManifestRowKey, MetadataBuf, ShardHint,
    ShardMetadata, decode_hint, decode_metadata, propagate_hint_on_split,
};
use thiserror::Error;

/// Returns where a shard can be split so that the same keys lie on both sides as for a split at
/// `point`: in a shard of rows at the next row. `None` if no row follows.
pub(crate) fn aligned<'p>(parent: ShardSpecRef<'_>, point: &'p [u8]) -> Option<Cow<'p, [u8]>> {
    match decode_hint(parent) {
        Ok(ShardHint::Manifest { .. }) => {
            let mut key = KeyBuf::new();
            ManifestRowKey::at_or_after(point)?.encode_into(&mut key);
            Some(Cow::Owned(key.as_bytes().to_vec()))
        }
        Ok(_) | Err(_) => Some(Cow::Borrowed(point)),
    }
}

/// Returns the part `[start, end)` of a shard.
///
/// # Errors
///
/// The range is not part of what the parent's hint describes, or no range at all.
pub(crate) fn part(
    parent: ShardSpecRef<'_>,
    start: &[u8],
    end: &[u8],
) -> Result<ShardSpec, PartError> {
    let mut buf = MetadataBuf::new();
    let metadata = match decode_metadata(parent) {
        // The whole keeps a hint that a part of it could not have, such as a prefix.
        Ok(_) if (start, end) == (parent.start, parent.end) => parent.metadata,
        Ok(ShardMetadata { hint, connector_extra }) => {
            match propagate_hint_on_split(hint, start, end)? {
                // Not encoded again, so that equal metadata stays equal bytes.
                same if same == hint => parent.metadata,
                narrowed => ShardMetadata::new(narrowed, connector_extra)
                    .encode_into(&mut buf)
                    .expect("a narrowed hint is no longer than its parent's, which fits"),
            }
        }
        Err(_) => parent.metadata,
    };
    Ok(ShardSpec::try_new(start, end, metadata)?)
}

/// Returns the parts of a shard between points that lie in ascending order inside it.
///
/// # Errors
///
/// As [`part`].
pub(crate) fn parts(
    parent: ShardSpecRef<'_>,
    points: &[&[u8]],
) -> Result<Vec<ShardSpec>, PartError> {
    let starts = iter::once(parent.start).chain(points.iter().copied());
    let ends = points.iter().copied().chain(iter::once(parent.end));
    starts.zip(ends).map(|(start, end)| part(parent, start, end)).collect()
}

/// Why a range is no part of a shard.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// It does not fit the hint.
    #[error(transparent)]
    Hint(#[from] HintPropagationError),
    /// It is no range.
    #[error(transparent)]
    Range(#[from] ShardSpecInputError),
}

#[cfg(test)]
mod tests {
    use gossip_contracts::coordination::MAX_METADATA_SIZE;
    use gossip_frontier::{ShardSpecScratch, manifest_shard_ref, prefix_shard_ref};
    use proptest::prelude::*;

    use super::*;
    use crate::connectors::row_key;

    fn rows(start: u64, end: u64) -> ShardSpec {
        let mut scratch = ShardSpecScratch::new();
        manifest_shard_ref(0, start, end, b"job", &mut scratch).unwrap().try_into().unwrap()
    }

    #[test]
    fn a_part_of_rows_states_its_own_rows_and_keeps_the_job() {
        let parent = rows(10, 20);
        let part = part(parent.as_spec_ref(), &row_key(12), &row_key(20)).unwrap();
        assert_eq!(part, rows(12, 20));
    }

    #[test]
    fn a_part_of_a_prefix_is_a_range_and_the_whole_stays_a_prefix() {
        let mut scratch = ShardSpecScratch::new();
        let parent = prefix_shard_ref(b"logs/", b"job", &mut scratch).unwrap();
        let whole = part(parent, parent.start, parent.end).unwrap();
        assert_eq!(whole.as_spec_ref(), parent);
        let cut = part(parent, b"logs/m", parent.end).unwrap();
        let metadata = decode_metadata(cut.as_spec_ref()).unwrap();
        assert_eq!(metadata, ShardMetadata::new(ShardHint::Range, b"job"));
    }

    #[test]
    fn metadata_of_another_program_is_copied() {
        let parent = ShardSpecRef::new(b"a", b"z", b"\xFF\xFF\xFF\xFFtheirs");
        assert_eq!(part(parent, b"m", b"z").unwrap().metadata(), parent.metadata);
        assert_eq!(aligned(parent, b"m").as_deref(), Some(&b"m"[..]));
    }

    #[test]
    fn a_point_between_two_rows_would_not_fit_the_hint_and_is_refused() {
        let parent = rows(10, 20);
        let between = [&row_key(12)[..], b"\0"].concat();
        let refused = part(parent.as_spec_ref(), &between, &row_key(20));
        assert!(matches!(refused, Err(PartError::Hint(_))), "{refused:?}");
    }

    /// The largest metadata there is: a part has no more of it.
    #[test]
    fn parts_of_full_metadata_fit() {
        let (mut scratch, mut other) = (ShardSpecScratch::new(), ShardSpecScratch::new());
        let longest = |made: &dyn Fn(&[u8]) -> bool| {
            let fits = |len: &usize| made(&vec![b'j'; *len]);
            let len = (0..=MAX_METADATA_SIZE).rev().find(fits).expect("an empty job fits");
            vec![b'j'; len]
        };
        let job = longest(&|job| {
            manifest_shard_ref(0, 10, 20, job, &mut ShardSpecScratch::new()).is_ok()
        });
        let parent = manifest_shard_ref(0, 10, 20, &job, &mut scratch).unwrap();
        assert_eq!(parent.metadata.len(), MAX_METADATA_SIZE);
        let cut = part(parent, &row_key(12), &row_key(20)).unwrap();
        assert_eq!(cut.metadata().len(), MAX_METADATA_SIZE);
        let job = longest(&|job| prefix_shard_ref(b"p", job, &mut ShardSpecScratch::new()).is_ok());
        let parent = prefix_shard_ref(b"p", &job, &mut other).unwrap();
        assert!(part(parent, b"pm", parent.end).is_ok());
    }

    proptest! {
        /// Whatever bytes a split is asked at, its parts have the same rows as their hints state.
        #[test]
        fn a_split_at_an_aligned_point_fits_the_hint(
            row in 10..30_u64,
            cut in 0..=16_usize,
            tail in proptest::collection::vec(any::<u8>(), 0..3),
        ) {
            let parent = rows(10, 20);
            let point = [&row_key(row)[..cut], &tail].concat();
            let Some(point) = aligned(parent.as_spec_ref(), &point) else { return Ok(()) };
            if *point > *parent.start() && parent.contains_key(&point) {
                let left = part(parent.as_spec_ref(), parent.start(), &point).unwrap();
                let right = part(parent.as_spec_ref(), &point, parent.end()).unwrap();
                let row = u64::from_be_bytes(point[8..].try_into().unwrap());
                prop_assert_eq!((left, right), (rows(10, row), rows(row, 20)));
            }
        }
    }
}
