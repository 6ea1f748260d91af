use std::ffi::OsStr;

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError,
    Page, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpec, ShardSpecRef};
use gossip_frontier::{ShardHint, decode_hint};
use proptest::collection::btree_set;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::connectors::test_support::{TempDir, keys_from};
use crate::connectors::{IntegerRange, LineFile, Source, SourceOptions, parse_row_key};
use crate::initial::*;

const ROOT: ShardSpecRef<'_> = ShardSpecRef::new(b"\0", b"\xff\xff\xff\xff\xff", b"");

fn memory(keys: impl IntoIterator<Item = Vec<u8>>) -> MemoryConnector {
    MemoryConnector::try_new(keys.into_iter().map(|key| (key, vec![]))).unwrap()
}

fn assert_tiles(shards: &[ShardSpec], root: ShardSpecRef<'_>) {
    assert_eq!(shards.first().unwrap().start(), root.start);
    assert_eq!(shards.last().unwrap().end(), root.end);
    assert!(shards.windows(2).all(|pair| pair[0].end() == pair[1].start()));
    assert!(shards.iter().all(|shard| shard.start() < shard.end()));
}

fn counts(connector: &dyn Connector, shards: &[ShardSpec]) -> Vec<usize> {
    let count = |shard: &ShardSpec| {
        keys_from(connector, shard.as_spec_ref(), CursorUpdate::initial()).len()
    };
    shards.iter().map(count).collect()
}

fn source_of(text: &str) -> Source {
    Source::parse(OsStr::new(text), SourceOptions::NONE).unwrap()
}

#[test]
fn a_large_range_is_cut_evenly() {
    let source = source_of("range:1..=1000");
    let connector = source.open().unwrap();
    let root = source.root();
    let shards = initial_shards(&*connector, root.as_spec_ref(), 10).unwrap();
    assert_tiles(&shards, root.as_spec_ref());
    assert_eq!(counts(&*connector, &shards), [100; 10]);
}

#[test]
fn a_huge_range_is_cut_without_listing_it() {
    let source = source_of("range:0..18446744073709551615");
    let root = source.root();
    let integers = IntegerRange::new(0, u64::MAX);
    let shards = initial_shards(&integers, root.as_spec_ref(), 256).unwrap();
    assert_tiles(&shards, root.as_spec_ref());
    let counts: Vec<_> = shards
        .iter()
        .map(|shard| integers.count_keys(shard.as_spec_ref()).unwrap().unwrap())
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), u64::MAX);
    assert!(counts.iter().all(|count| count.abs_diff(1 << 56) <= 1), "{counts:?}");
}

/// More shards than one sample is cut into, and as many as a run can have.
#[test]
fn thousands_of_shards_are_as_many_as_were_asked_for() {
    let source = source_of("range:0..100_000");
    let (connector, root) = (source.open().unwrap(), source.root());
    for target in [257, 5_000, INITIAL_SHARDS_MAX] {
        let shards = initial_shards(&*connector, root.as_spec_ref(), target).unwrap();
        assert_tiles(&shards, root.as_spec_ref());
        assert_eq!(shards.len(), target);
        let count = |shard: &ShardSpec| connector.count_keys(shard.as_spec_ref()).unwrap().unwrap();
        let (least, most) = (shards.iter().map(count).min(), shards.iter().map(count).max());
        assert!(most.unwrap() <= 3 * least.unwrap(), "{target}: {least:?} to {most:?}");
    }
}

#[test]
fn a_small_source_gets_few_shards_however_many_were_asked_for() {
    let connector = memory((0..100_u8).map(|key| vec![b'k', key]));
    let shards = initial_shards(&connector, ROOT, 5_000).unwrap();
    assert_tiles(&shards, ROOT);
    // One for four keys, less what rounding in two levels costs.
    assert!((20..=25).contains(&shards.len()), "{}", shards.len());
}

/// The hint of each shard states the rows of its range, also where no sample names a row.
#[test]
fn shards_of_rows_have_a_hint_of_their_own_rows() {
    let source = source_of("range:7..40");
    let (connector, root) = (source.open().unwrap(), source.root());
    for connector in [&*connector, &Blind::NoSample] {
        let shards = initial_shards(connector, root.as_spec_ref(), 5).unwrap();
        assert_tiles(&shards, root.as_spec_ref());
        assert_eq!(shards.len(), 5);
        for shard in &shards {
            let row = |bound| parse_row_key(bound).unwrap();
            let (start_row, end_row) = (row(shard.start()), row(shard.end()));
            let expected = ShardHint::Manifest { manifest_id: 0, start_row, end_row };
            assert_eq!(decode_hint(shard.as_spec_ref()), Ok(expected));
        }
    }
}

/// Fewer rows than parts: cuts between the same rows are one.
#[test]
fn rows_that_cannot_be_sampled_are_never_cut_between_two_rows() {
    let root = source_of("range:7..10").root();
    let shards = initial_shards(&Blind::NoSample, root.as_spec_ref(), 8).unwrap();
    assert_tiles(&shards, root.as_spec_ref());
    assert_eq!(shards.len(), 3);
}

#[test]
fn small_sources_get_few_shards() {
    for (keys, expected) in [(0_u8, 1), (1, 1), (7, 1), (8, 2), (39, 9), (40, 10), (200, 10)] {
        let connector = memory((0..keys).map(|key| vec![b'k', key]));
        let shards = initial_shards(&connector, ROOT, 10).unwrap();
        assert_tiles(&shards, ROOT);
        assert_eq!(shards.len(), expected, "{keys} keys");
    }
}

#[test]
fn a_large_line_file_is_never_one_shard() {
    let directory = TempDir::new();
    // Short lines first, long ones after: density in bytes, not in lines.
    let content = ["x\n".repeat(100_000), format!("{}\n", "y".repeat(99)).repeat(2_000)].concat();
    let lines = LineFile::open(&directory.write("lines", content)).unwrap();
    let root = source_of("range:0..18446744073709551615").root();
    let root = root.as_spec_ref();
    let shards = initial_shards(&lines, root, 12).unwrap();
    assert_tiles(&shards, root);
    assert_eq!(shards.len(), 12);
    let counts = counts(&lines, &shards);
    assert_eq!(counts.iter().sum::<usize>(), 102_000);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_tree_is_cut_by_its_files() {
    let directory = TempDir::new();
    for number in 0..200 {
        directory.write(format!("hot/{number:03}"), "");
    }
    directory.write("a/cold", "");
    directory.write("z/cold", "");
    let source = source_of(directory.path().to_str().unwrap());
    let (connector, root) = (source.open().unwrap(), source.root());
    let shards = initial_shards(&*connector, root.as_spec_ref(), 10).unwrap();
    let counts = counts(&*connector, &shards);
    assert_eq!(counts.iter().sum::<usize>(), 202);
    assert!(counts.iter().all(|count| (18..=22).contains(count)), "{counts:?}");
}

#[test]
fn impossible_requests_are_refused() {
    let connector = memory([vec![1]]);
    for target in [0, INITIAL_SHARDS_MAX + 1, usize::MAX] {
        let refused = initial_shards(&connector, ROOT, target);
        let max = INITIAL_SHARDS_MAX;
        assert_eq!(refused, Err(InitialShardsError::Target { target, max }));
    }
    let unbounded = ShardSpecRef::new(b"", b"", b"");
    let refused = initial_shards(&connector, unbounded, 4);
    assert!(matches!(refused, Err(InitialShardsError::Root(_))));
}

/// A connector that cannot sample, or fails to, or samples nonsense.
enum Blind {
    NoSample,
    Fails,
    Breaks,
}

impl Connector for Blind {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn enumerate(
        &self,
        _: ShardSpecRef<'_>,
        _: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        panic!("a look lists nothing");
    }

    fn open<'a>(&'a self, _: PageItem<'_>, _: &'a mut Vec<u8>) -> Result<ItemBody<'a>, OpenError> {
        panic!("a look opens nothing");
    }

    fn sample_keys(&self, _: ShardSpecRef<'_>, sample: &mut Page) -> Result<(), ConnectorError> {
        match self {
            Self::NoSample => {}
            Self::Fails => return Err(ConnectorError::NotFound),
            Self::Breaks => drop(sample.push(PageItem::new(b""))),
        }
        Ok(())
    }
}

#[test]
fn a_source_that_cannot_be_sampled_is_cut_by_bytes() {
    let shards = initial_shards(&Blind::NoSample, ROOT, 8).unwrap();
    assert_tiles(&shards, ROOT);
    assert_eq!(shards.len(), 8);
}

#[test]
fn a_sample_that_fails_is_an_error() {
    let refused = initial_shards(&Blind::Fails, ROOT, 8);
    assert_eq!(refused, Err(InitialShardsError::Connector(ConnectorError::NotFound)));
    let refused = initial_shards(&Blind::Breaks, ROOT, 8);
    assert!(matches!(refused, Err(InitialShardsError::Sample(_))));
}

proptest! {
    #[test]
    fn shards_tile_the_root_and_hold_every_key_once(
        keys in btree_set(vec(1..=0xFE_u8, 1..4), 0..60),
        target in 1..20_usize,
    ) {
        let connector = memory(keys.iter().cloned());
        let shards = initial_shards(&connector, ROOT, target).unwrap();
        assert_tiles(&shards, ROOT);
        prop_assert!(shards.len() <= target);
        let counts = counts(&connector, &shards);
        prop_assert_eq!(counts.iter().sum::<usize>(), keys.len());
        // Everything was sampled, so the parts are as even as can be.
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1);
    }

    #[test]
    fn the_same_source_gives_the_same_cuts(
        keys in btree_set(vec(1..=0xFE_u8, 1..4), 0..60),
        target in 1..20_usize,
    ) {
        let cuts = || initial_shards(&memory(keys.iter().cloned()), ROOT, target).unwrap();
        prop_assert_eq!(cuts(), cuts());
    }
}
