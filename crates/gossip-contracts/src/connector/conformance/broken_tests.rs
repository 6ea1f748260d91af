//! Connectors that break the contract in one way each, and the law that detects each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;

use super::conformance_tests::{MemoryFixture, tricky};
use super::*;
use crate::connector::{
    Capabilities, CheckedEnumeration, ConnectorError, Enumeration, ItemBody,
    MAX_CONNECTOR_TOKEN_SIZE, MAX_INLINE_BODY_BYTES, MemoryConnector, OpenError, Page, PageError,
    PageItem, PageViolation,
};
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

/// A defect of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    // In the listed keys.
    OutOfOrder,
    DuplicateInPage,
    RepeatsCursorKey,
    SkipsOnResume,
    IgnoresStart,
    IgnoresEnd,
    IncludesEnd,
    ExcludesStart,
    StopsEarly,
    NeverListsTheLast,
    RestartsWithoutToken,
    AcceptsAnyToken,
    ResumesByToken,
    TokensAreProcessLocal,
    FailsOnForeignCursor,
    EmptyKey,
    LongKey,
    LongToken,
    // In the filling of pages.
    EmptyPages,
    InfiniteKeys,
    IgnoresLimit,
    DropsItemThatDoesNotFit,
    NoEndMark,
    SharedPosition,
    ReplacesPage,
    Unavailable,
    // In metadata and opening.
    MissingSize,
    WrongSize,
    WrongCount,
    MissingCount,
    SampleOutOfRange,
    SampleOutOfOrder,
    SampleMissing,
    SampleClaimsAll,
    SampleOverruns,
    WrongBody,
    InfiniteBody,
    BodyFails,
    StaleScratch,
    HugeScratch,
    NeedsToken,
    RefusesNeighbours,
    OpensByToken,
    OpensAnything,
    VanishedIsUnavailable,
}

struct Broken {
    inner: MemoryConnector,
    flaw: Flaw,
    /// Process number; tokens that are valid only within one process contain it.
    process: u8,
    /// Position shared by all listings, for the flaw `SharedPosition`.
    shared: Arc<AtomicUsize>,
}

struct BrokenFixture {
    source: MemoryFixture,
    flaw: Flaw,
    processes: AtomicUsize,
}

impl Fixture for BrokenFixture {
    fn connect(&self) -> Box<dyn Connector> {
        let process = self.processes.fetch_add(1, Ordering::Relaxed) as u8;
        let (inner, flaw) = (self.source.connector(), self.flaw);
        Box::new(Broken { inner, flaw, process, shared: Arc::default() })
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        self.source.expected_items()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        spoil == Spoil::Vanish && self.source.items.remove(key).is_some()
    }
}

fn broken(flaw: Flaw) -> BrokenFixture {
    BrokenFixture { source: tricky(), flaw, processes: AtomicUsize::new(0) }
}

type Row = (Vec<u8>, Vec<u8>, u64);

impl Broken {
    /// Returns the correct rows, before a flaw is applied.
    fn rows(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Vec<Row> {
        let mut page = Page::default();
        let mut listing = CheckedEnumeration::open(&self.inner, range, from).unwrap();
        listing.next_page(&mut page).unwrap();
        assert!(page.is_exhausted(), "the fixture fits in one page");
        let row = |item: PageItem<'_>| {
            (item.key().to_vec(), item.token().unwrap().to_vec(), item.size_hint().unwrap())
        };
        page.items().map(row).collect()
    }

    fn rows_with_flaw(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Vec<Row> {
        let mut rows = self.rows(range, from);
        match self.flaw {
            Flaw::OutOfOrder if rows.len() > 1 => rows.swap(0, 1),
            Flaw::DuplicateInPage if rows.len() > 1 => rows.insert(1, rows[0].clone()),
            Flaw::RepeatsCursorKey if !from.is_initial() => {
                rows.insert(0, (from.last_key().unwrap().to_vec(), vec![], 0));
            }
            Flaw::SkipsOnResume if !from.is_initial() => drop(rows.drain(..rows.len().min(1))),
            Flaw::IgnoresStart => {
                rows = self.rows(ShardSpecRef::new(b"", range.end, b""), from);
            }
            Flaw::IgnoresEnd => rows = self.rows(ShardSpecRef::new(range.start, b"", b""), from),
            Flaw::IncludesEnd => {
                let above = [range.end, b"\0"].concat();
                let end = if range.end.is_empty() { b"" } else { &above[..] };
                rows = self.rows(ShardSpecRef::new(range.start, end, b""), from);
            }
            Flaw::ExcludesStart => rows.retain(|row| row.0 != range.start),
            Flaw::StopsEarly => rows.truncate(5),
            Flaw::NeverListsTheLast => rows.retain(|row| row.0 != b"\xff\xff\0"),
            Flaw::RestartsWithoutToken if from.token().is_none() => {
                rows = self.rows(range, CursorUpdate::initial());
            }
            Flaw::AcceptsAnyToken => {
                let skipped = from.token().filter(|token| token.len() != 8).map_or(0, <[u8]>::len);
                rows.drain(..skipped.min(rows.len()));
            }
            Flaw::ResumesByToken if token_index(from.token()).is_some() => {
                rows = self.rows(range, CursorUpdate::initial());
                // The token is the number of items of the whole source up to its own.
                let whole = self.rows(subject::WHOLE, CursorUpdate::initial());
                let passed = &whole[..token_index(from.token()).unwrap()];
                rows.retain(|row| !passed.contains(row));
            }
            Flaw::TokensAreProcessLocal => {
                if from.token().is_some_and(|token| token != [self.process]) {
                    rows.clear();
                }
                rows.iter_mut().for_each(|row| row.1 = vec![self.process]);
            }
            Flaw::FailsOnForeignCursor => {
                let opened = from.last_key().map(|key| self.known(key));
                if opened == Some(false) {
                    rows.clear();
                }
            }
            Flaw::EmptyKey => rows.insert(0, (vec![], vec![], 0)),
            Flaw::LongKey => rows.insert(0, (vec![0; MAX_KEY_SIZE + 1], vec![], 0)),
            Flaw::LongToken => {
                rows.iter_mut().for_each(|row| row.1 = vec![0; MAX_CONNECTOR_TOKEN_SIZE + 1]);
            }
            Flaw::WrongSize => rows.iter_mut().for_each(|row| row.2 += 1),
            Flaw::InfiniteKeys => rows.extend(
                (0..2000_u32)
                    .map(|n| ([&b"\xff\xff\xff"[..], &n.to_be_bytes()].concat(), vec![], 0)),
            ),
            _ => {}
        }
        rows
    }

    fn known(&self, key: &[u8]) -> bool {
        self.inner.open(PageItem::new(key), &mut Vec::new()).is_ok()
    }
}

impl Connector for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        if self.flaw == Flaw::Unavailable {
            return Err(ConnectorError::NotFound);
        }
        let (rows, flaw) = (self.rows_with_flaw(range, from), self.flaw);
        let shared = match flaw {
            Flaw::SharedPosition => Arc::clone(&self.shared),
            _ => Arc::default(),
        };
        shared.store(0, Ordering::Relaxed);
        Ok(Box::new(BrokenEnumeration { rows, flaw, next: shared }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let unavailable = ConnectorError::NotFound.into();
        match self.flaw {
            Flaw::WrongBody => return Ok(ItemBody::Bytes(b"something else")),
            Flaw::InfiniteBody => return Ok(ItemBody::Reader(Box::new(std::io::repeat(0)))),
            Flaw::BodyFails => return Ok(ItemBody::Reader(Box::new(FailingBody))),
            Flaw::NeedsToken if item.token().is_none() => return Err(unavailable),
            Flaw::OpensByToken if token_index(item.token()).is_some() => {
                let whole = self.rows(subject::WHOLE, CursorUpdate::initial());
                let named = &whole[token_index(item.token()).unwrap() - 1].0;
                return self.inner.open(PageItem::new(named), scratch);
            }
            Flaw::OpensAnything if !self.known(item.key()) => return Ok(ItemBody::Bytes(b"")),
            Flaw::VanishedIsUnavailable if !self.known(item.key()) => return Err(unavailable),
            Flaw::HugeScratch => scratch.resize(MAX_INLINE_BODY_BYTES + 1, 0),
            Flaw::StaleScratch => {
                let mut unused = Vec::new();
                let ItemBody::Bytes(body) = self.inner.open(item, &mut unused)? else {
                    unreachable!("the source is in memory")
                };
                scratch.extend_from_slice(body);
                return Ok(ItemBody::Bytes(scratch));
            }
            _ => {}
        }
        self.inner.open(item, scratch)
    }

    fn check(
        &self,
        item: PageItem<'_>,
        beside: Option<PageItem<'_>>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        match self.flaw {
            Flaw::RefusesNeighbours if beside.is_some() => Err(OpenError::Vanished),
            _ => self.open(item, scratch).map(drop),
        }
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let count = self.inner.count_keys(range)?;
        match self.flaw {
            Flaw::WrongCount => Ok(count.map(|count| count + 1)),
            Flaw::MissingCount => Ok(None),
            _ => Ok(count),
        }
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let keys: Vec<Vec<u8>> = match self.flaw {
            Flaw::SampleMissing => vec![],
            Flaw::SampleOutOfRange => vec![b"zzz".to_vec()],
            Flaw::SampleClaimsAll => vec![b"a".to_vec()],
            Flaw::SampleOutOfOrder => {
                keys_of(self.rows(range, CursorUpdate::initial()).iter().rev())
            }
            Flaw::SampleOverruns => keys_of(self.rows(range, CursorUpdate::initial()).iter()),
            _ => return self.inner.sample_keys(range, sample),
        };
        for key in keys {
            let _ = sample.push(PageItem::new(&key));
        }
        if self.flaw == Flaw::SampleClaimsAll {
            sample.mark_exhausted();
        }
        Ok(())
    }
}

fn keys_of<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<u8>> {
    rows.map(|row| row.0.clone()).collect()
}

/// Returns the content of a memory connector's token: the number of items up to it.
fn token_index(token: Option<&[u8]>) -> Option<usize> {
    let token = token?.try_into().ok()?;
    Some(u64::from_be_bytes(token) as usize)
}

struct BrokenEnumeration {
    rows: Vec<Row>,
    flaw: Flaw,
    next: Arc<AtomicUsize>,
}

impl Enumeration for BrokenEnumeration {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        if self.flaw == Flaw::ReplacesPage {
            *page = Page::default();
        }
        if self.flaw == Flaw::EmptyPages {
            return Ok(());
        }
        while let Some((key, token, size)) = self.rows.get(self.next.load(Ordering::Relaxed)) {
            let item = PageItem::new(key).with_token(token);
            let item = match self.flaw {
                Flaw::MissingSize => item,
                _ => item.with_size_hint(*size),
            };
            match (page.push(item), self.flaw) {
                (Err(_), Flaw::IgnoresLimit) | (Ok(()), _) => {}
                (Err(_), Flaw::DropsItemThatDoesNotFit) => break,
                (Err(_), _) => return Ok(()),
            }
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        if self.flaw != Flaw::NoEndMark {
            page.mark_exhausted();
        }
        Ok(())
    }
}

struct FailingBody;

impl std::io::Read for FailingBody {
    fn read(&mut self, _buffer: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("canary-key"))
    }
}

#[test]
fn without_a_flaw_the_connector_conforms() {
    assert_conforms(&mut broken(Flaw::None));
}

/// Each flaw is detected, first by the law that covers it.
#[rstest]
#[case(Flaw::OutOfOrder, Law::EveryPageSize)]
#[case(Flaw::DuplicateInPage, Law::EveryPageSize)]
#[case(Flaw::RepeatsCursorKey, Law::ResumeAfterEveryKey)]
#[case(Flaw::SkipsOnResume, Law::ResumeAfterEveryKey)]
#[case(Flaw::IgnoresStart, Law::CursorOutsideRange)]
#[case(Flaw::IgnoresEnd, Law::ResumeAfterEveryKey)]
#[case(Flaw::IncludesEnd, Law::ResumeAfterEveryKey)]
#[case(Flaw::ExcludesStart, Law::CursorOutsideRange)]
#[case(Flaw::StopsEarly, Law::EveryPageSize)]
#[case(Flaw::NeverListsTheLast, Law::EveryPageSize)]
#[case(Flaw::RestartsWithoutToken, Law::ResumeWithoutToken)]
#[case(Flaw::AcceptsAnyToken, Law::ResumeWithUnreadableToken)]
#[case(Flaw::ResumesByToken, Law::ResumeWithNeighboursToken)]
#[case(Flaw::TokensAreProcessLocal, Law::ResumeAfterEveryKey)]
#[case(Flaw::FailsOnForeignCursor, Law::ResumeBetweenKeys)]
#[case(Flaw::EmptyKey, Law::EveryPageSize)]
#[case(Flaw::LongKey, Law::EveryPageSize)]
#[case(Flaw::LongToken, Law::EveryPageSize)]
#[case(Flaw::EmptyPages, Law::EveryPageSize)]
#[case(Flaw::InfiniteKeys, Law::EveryPageSize)]
#[case(Flaw::IgnoresLimit, Law::EveryPageSize)]
#[case(Flaw::DropsItemThatDoesNotFit, Law::EveryPageSize)]
#[case(Flaw::NoEndMark, Law::EveryPageSize)]
#[case(Flaw::SharedPosition, Law::Independence)]
#[case(Flaw::ReplacesPage, Law::EveryPageSize)]
#[case(Flaw::Unavailable, Law::EveryPageSize)]
#[case(Flaw::MissingSize, Law::SizeHints)]
#[case(Flaw::WrongSize, Law::SizeHints)]
#[case(Flaw::WrongCount, Law::Counts)]
#[case(Flaw::MissingCount, Law::Counts)]
#[case(Flaw::SampleOutOfRange, Law::Samples)]
#[case(Flaw::SampleOutOfOrder, Law::Samples)]
#[case(Flaw::SampleMissing, Law::Samples)]
#[case(Flaw::SampleClaimsAll, Law::Samples)]
#[case(Flaw::SampleOverruns, Law::Samples)]
#[case(Flaw::WrongBody, Law::OpenYieldsBody)]
#[case(Flaw::InfiniteBody, Law::OpenYieldsBody)]
#[case(Flaw::BodyFails, Law::OpenYieldsBody)]
#[case(Flaw::StaleScratch, Law::OpenYieldsBody)]
#[case(Flaw::HugeScratch, Law::OpenYieldsBody)]
#[case(Flaw::NeedsToken, Law::OpenYieldsBody)]
#[case(Flaw::RefusesNeighbours, Law::OpenYieldsBody)]
#[case(Flaw::OpensByToken, Law::OpenWithNeighboursToken)]
#[case(Flaw::OpensAnything, Law::UnknownItems)]
#[case(Flaw::VanishedIsUnavailable, Law::UnknownItems)]
fn a_flaw_is_detected_by_its_law(#[case] flaw: Flaw, #[case] first: Law) {
    let report = check_all(&mut broken(flaw));
    let found = report.failures.first().expect("the flaw was not detected");
    assert_eq!(found.law, first, "{report}");
    assert!(!format!("{report} {report:?}").contains("canary"), "{report}");
}

/// Flaws that the validator itself rejects, with the broken rule.
#[rstest]
#[case(Flaw::OutOfOrder, PageViolation::OutOfOrder { index: 1, key_len: 1, previous_len: 2 })]
#[case(Flaw::DuplicateInPage, PageViolation::DuplicateKey { index: 1, key_len: 1 })]
#[case(Flaw::EmptyPages, PageViolation::NotAdvancing)]
#[case(Flaw::NoEndMark, PageViolation::NotAdvancing)]
#[case(Flaw::IgnoresLimit, PageViolation::LimitIgnored { items: 3 })]
#[case(Flaw::DropsItemThatDoesNotFit, PageViolation::ItemDropped { items: 3 })]
#[case(Flaw::IgnoresEnd, PageViolation::AboveRange { index: 2, key_len: 1, end_len: 1 })]
#[case(Flaw::IncludesEnd, PageViolation::AboveRange { index: 2, key_len: 1, end_len: 1 })]
#[case(Flaw::ReplacesPage, PageViolation::PageReplaced { items: 14 })]
#[case(Flaw::EmptyKey, PageViolation::EmptyKey { index: 0 })]
fn the_validator_reports_the_broken_rule(#[case] flaw: Flaw, #[case] expected: PageViolation) {
    let connector = broken(flaw).connect();
    // Only a bounded range can be exceeded; the other rules need more keys than it has.
    let range = match expected {
        PageViolation::AboveRange { .. } => ShardSpecRef::new(b"", b"a", b""),
        _ => subject::WHOLE,
    };
    let mut listing =
        CheckedEnumeration::open(&*connector, range, CursorUpdate::initial()).unwrap();
    let mut page = subject::page_of(subject::SMALL_PAGE);
    let error = loop {
        match listing.next_page(&mut page) {
            Ok(()) => assert!(!page.is_exhausted(), "the flaw was not detected"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, PageError::Violation(expected));
}

/// An error type that includes key text would be detected by this check.
#[test]
fn every_representation_of_a_key_is_detected() {
    let key = b"canary-key";
    for text in ["at canary-key!", &format!("{key:?}"), "63616e6172792d6b6579"] {
        assert!(items::shows_key(text, key), "{text}");
    }
    assert!(!items::shows_key("the item is not in the source", key));
    assert!(!items::shows_key("the", b"the"), "too short to be conclusive");
}
