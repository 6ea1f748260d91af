use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError,
    Page, PageError, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{FenceEpoch, RunId};

use super::test_support::*;
use super::*;
use crate::accumulator::Accumulator;
use crate::connectors::test_support::{TempDir, keys_from};
use crate::connectors::{Source, SourceOptions};
use crate::initial::initial_shards;

fn against(source: &dyn Connector, leaves: &[LeafRecord]) -> Result<Verification, Refusal> {
    let request = request();
    let certificate = written(&request, leaves, None);
    verify(&certificate[..], Against::ITSELF.with_source(&request, source))
}

#[test]
fn a_source_that_is_as_it_was_is_found_so() {
    assert!(against(&source(), &leaves()).unwrap().is_compared);
    assert!(against(&source(), &complete_leaves()).unwrap().is_complete());
}

#[test]
fn a_source_that_has_changed_is_refused() {
    let with = |keys: Vec<Vec<u8>>| {
        MemoryConnector::try_new(keys.into_iter().map(|key| (key, vec![]))).unwrap()
    };
    let all = || (0..40).map(key);
    let one_less = with(all().filter(|k| *k != key(5)).collect());
    let refused = against(&one_less, &leaves()).unwrap_err();
    assert_eq!(refused, Refusal::CountDiffers { leaf: 1, stated: 8, found: 7 });
    let one_more = with(all().chain([b"k05x".to_vec()]).collect());
    let refused = against(&one_more, &leaves()).unwrap_err();
    assert_eq!(refused, Refusal::CountDiffers { leaf: 1, stated: 8, found: 9 });
    let more = (0..5).map(|number| format!("k05{number}").into_bytes());
    let refused = against(&with(all().chain(more).collect()), &leaves()).unwrap_err();
    assert_eq!(refused, Refusal::CountDiffers { leaf: 1, stated: 8, found: 13 });
    let one_other = all().filter(|k| *k != key(5)).chain([b"k05x".to_vec()]);
    let refused = against(&with(one_other.collect()), &leaves()).unwrap_err();
    assert_eq!(refused, Refusal::KeysDiffer { leaf: 1, count: 8 });
    // Behind the cursor of a parked leaf nothing was claimed.
    let behind = with(all().filter(|k| *k != key(30)).collect());
    assert!(against(&behind, &leaves()).is_ok());
}

/// Every leaf that differs is named, and not only the first.
#[test]
fn every_leaf_that_differs_is_listed() {
    let kept = (0..40).filter(|number| ![5, 18, 19].contains(number)).map(key);
    let other = kept.chain([b"k18x".to_vec(), b"k19x".to_vec()]);
    let source = MemoryConnector::try_new(other.map(|key| (key, vec![]))).unwrap();
    let (request, mut found) = (request(), Differences::default());
    let certificate = written(&request, &leaves(), None);
    let against = Against::ITSELF.with_source(&request, &source);
    let refused = verify_with_differences(&certificate[..], against, &mut found).unwrap_err();
    assert_eq!(refused, Refusal::CountDiffers { leaf: 1, stated: 8, found: 7 });
    let numbers: Vec<_> = found.listed.iter().map(|it| (it.leaf, it.stated, it.found)).collect();
    assert_eq!((found.count, numbers), (2, vec![(1, 8, 7), (3, 8, 8)]));
    assert_eq!((*found.listed[1].start).to_vec(), leaves()[2].start);
}

#[test]
fn of_many_leaves_that_differ_the_first_are_listed() {
    let range = |number: usize| (key(number), key(number + 1));
    let leaves: Vec<_> = (0..40)
        .map(|number| {
            let (start, end) = range(number);
            let leaf = LeafRecord::new(&start, &end, LeafStatus::Done, FenceEpoch::INITIAL);
            let mut keys = Accumulator::EMPTY;
            keys.add(&start);
            leaf.with_progress(&start, keys, 0)
        })
        .collect();
    let request = Request { start: key(0), end: key(40), ..request() };
    let certificate = written(&request, &leaves, None);
    let empty = MemoryConnector::try_new(std::iter::empty::<(Vec<u8>, Vec<u8>)>()).unwrap();
    let (against, mut found) =
        (Against::ITSELF.with_source(&request, &empty), Differences::default());
    verify_with_differences(&certificate[..], against, &mut found).unwrap_err();
    assert_eq!((found.count, found.listed.len()), (40, DIFFERENCES_MAX));
}

/// A source that cannot be listed between two keys, as a directory that may not be read.
struct Walled {
    inner: MemoryConnector,
    wall: Vec<u8>,
}

struct WalledListing {
    keys: Vec<Vec<u8>>,
    next: usize,
    wall: Option<usize>,
}

impl Connector for Walled {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let keys = keys_from(&self.inner, range, from);
        let inside = range.start <= &*self.wall && &*self.wall < range.end;
        let wall = inside.then(|| keys.partition_point(|key| *key < self.wall));
        Ok(Box::new(WalledListing { keys, next: 0, wall }))
    }

    fn open<'a>(&'a self, _: PageItem<'_>, _: &'a mut Vec<u8>) -> Result<ItemBody<'a>, OpenError> {
        Err(OpenError::Vanished)
    }
}

impl Enumeration for WalledListing {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.keys.len() {
            if self.wall == Some(self.next) {
                let denied = Err(ConnectorError::PermissionDenied);
                return if page.is_empty() { denied } else { Ok(()) };
            }
            if page.push(PageItem::new(&self.keys[self.next])).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        page.mark_exhausted();
        Ok(())
    }
}

/// What stopped the run must not stop the comparison of what the run did cover.
#[test]
fn a_parked_leaf_is_not_listed_behind_its_cursor() {
    let source = Walled { inner: source(), wall: key(27) };
    assert!(against(&source, &leaves()).unwrap().is_compared);
}

#[test]
fn a_source_that_fails_inside_a_done_leaf_is_refused() {
    let source = Walled { inner: source(), wall: key(12) };
    let refused = against(&source, &leaves()).unwrap_err();
    let error = PageError::Connector(ConnectorError::PermissionDenied);
    assert_eq!(refused, Refusal::SourceFailed { leaf: 2, error });
}

/// The certificate of a real directory, from its initial shards.
#[test]
fn a_tree_is_certified_and_compared() {
    let directory = TempDir::new();
    for path in ["a-b", "a/b", "a/c", "d/e/f", "d/e-f", "z", "line\nbreak", "\u{e9}"] {
        directory.write(path, "");
    }
    let typed = directory.path().as_os_str();
    let source = Source::parse(typed, SourceOptions::NONE).unwrap();
    let connector = source.open().unwrap();
    let request = Request::new(RunId::from_raw(7), &source);
    let mut writer = CertificateWriter::new(Vec::new(), &request).unwrap();
    for shard in initial_shards(&*connector, source.root().as_spec_ref(), 4).unwrap() {
        let keys = keys_from(&*connector, shard.as_spec_ref(), CursorUpdate::initial());
        let mut accumulator = Accumulator::EMPTY;
        keys.iter().for_each(|key| accumulator.add(key));
        let cursor = keys.last().map_or_else(|| shard.start(), Vec::as_slice);
        let leaf =
            LeafRecord::new(shard.start(), shard.end(), LeafStatus::Done, FenceEpoch::INITIAL);
        writer.leaf(&leaf.with_progress(cursor, accumulator, 0)).unwrap();
    }
    let certificate = writer.finish(None).unwrap();
    let check = || verify(&certificate[..], Against::ITSELF.with_source(&request, &*connector));
    let verified = check().unwrap();
    assert_eq!((verified.done, verified.keys), (2, 8));
    assert!(verified.is_complete());

    directory.write("d/new", "");
    assert!(matches!(check(), Err(Refusal::CountDiffers { .. })));
    // The same files with an option that the certificate does not name are another request.
    let ignoring = SourceOptions { ignore: true, ..SourceOptions::NONE };
    let other = Source::parse(typed, ignoring).unwrap();
    let asked = Request::new(RunId::from_raw(7), &other);
    let refused = verify(&certificate[..], Against::ITSELF.with_source(&asked, &*connector));
    assert_eq!(refused, Err(Refusal::OtherRequest { what: "options" }));
}
