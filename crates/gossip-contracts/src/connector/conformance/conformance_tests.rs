use std::collections::BTreeMap;
use std::io::Cursor as IoCursor;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::connector::{
    Capabilities, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError, Page, PageItem,
};
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

/// Keys that sort in unexpected ways: prefixes of one another, bytes 0x00 and 0xFF, and paths whose
/// names sort differently from whole paths.
pub(super) const TRICKY_KEYS: [&[u8]; 14] = [
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a-b",
    b"a/b",
    b"a/b/c",
    b"a0",
    b"canary-key",
    b"line\nbreak",
    b"\x80\xfe",
    b"\xff",
    b"\xff\xff",
    b"\xff\xff\0",
];

pub(super) fn tricky() -> MemoryFixture {
    let body = |key: &[u8]| key.repeat(key.len());
    MemoryFixture { items: TRICKY_KEYS.iter().map(|key| (key.to_vec(), body(key))).collect() }
}

/// A source in memory; `Change` and `Deny` are recorded separately so that items stay expected.
pub(super) struct MemoryFixture {
    pub(super) items: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryFixture {
    pub(super) fn connector(&self) -> MemoryConnector {
        MemoryConnector::try_new(self.items.clone()).unwrap()
    }

    pub(super) fn expected_items(&self) -> Vec<ExpectedItem> {
        self.items.iter().map(|(key, body)| ExpectedItem::new(key.clone(), body.clone())).collect()
    }
}

/// The reference connector, with every supported change to its items.
struct Spoilable {
    connector: MemoryConnector,
    items: Vec<ExpectedItem>,
}

impl Spoilable {
    fn new(fixture: &MemoryFixture) -> Self {
        Self { connector: fixture.connector(), items: fixture.expected_items() }
    }
}

impl Fixture for Spoilable {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.connector.clone())
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        // The order must not matter.
        self.items.iter().rev().cloned().collect()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        if spoil == Spoil::Vanish {
            self.items.retain(|item| item.key != key);
        }
        self.connector.spoil(key, spoil)
    }
}

/// A source with minimal capabilities: no token, size, count or sample, and bodies as readers.
struct Plain(MemoryConnector);

struct PlainEnumeration {
    keys: std::vec::IntoIter<Vec<u8>>,
    waiting: Option<Vec<u8>>,
}

impl Connector for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let mut inner = self.0.enumerate(range, from)?;
        let mut page = Page::default();
        inner.next_page(&mut page)?;
        assert!(page.is_exhausted(), "the fixture fits in one page");
        let keys: Vec<_> = page.items().map(|item| item.key().to_vec()).collect();
        Ok(Box::new(PlainEnumeration { keys: keys.into_iter(), waiting: None }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        match self.0.open(item, &mut Vec::new())? {
            ItemBody::Bytes(bytes) if bytes.len() > 4 => {
                Ok(ItemBody::Reader(Box::new(IoCursor::new(bytes.to_vec()))))
            }
            ItemBody::Bytes(bytes) => {
                scratch.clear();
                scratch.extend_from_slice(bytes);
                Ok(ItemBody::Bytes(scratch))
            }
            ItemBody::File(_) | ItemBody::Reader(_) => unreachable!("the source is in memory"),
        }
    }
}

impl Enumeration for PlainEnumeration {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while let Some(key) = self.waiting.take().or_else(|| self.keys.next()) {
            if page.push(PageItem::new(&key)).is_err() {
                self.waiting = Some(key);
                return Ok(());
            }
        }
        page.mark_exhausted();
        Ok(())
    }
}

struct PlainFixture(MemoryFixture);

impl Fixture for PlainFixture {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(Plain(self.0.connector()))
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        self.0.expected_items()
    }
}

#[test]
fn the_reference_conforms() {
    assert_conforms(&mut Spoilable::new(&tricky()));
}

#[test]
fn a_connector_with_no_capability_conforms() {
    assert_conforms(&mut PlainFixture(tricky()));
}

/// Keys of maximum length: pages end by bytes, and no key lies directly above another.
#[test]
fn the_longest_keys_conform() {
    let items = (0..20).map(|n| (vec![n; MAX_KEY_SIZE - usize::from(n % 2)], vec![n]));
    assert_conforms(&mut Spoilable::new(&MemoryFixture { items: items.collect() }));
}

/// A suite that stops checking still passes, so its cases are counted.
#[test]
fn the_suite_runs_hundreds_of_cases() {
    let report = check_all(&mut Spoilable::new(&tricky()));
    println!("{} cases over {} items", report.cases, TRICKY_KEYS.len());
    assert!(report.cases > 400, "{} cases", report.cases);
}

#[test]
fn an_unfit_fixture_is_rejected_by_every_law() {
    let few = MemoryFixture { items: [(vec![1], vec![])].into() };
    let many = (0..=MAX_FIXTURE_ITEMS as u32).map(|n| (n.to_be_bytes().to_vec(), vec![]));
    let many = MemoryFixture { items: many.collect() };
    let (mut few, mut many) = (Spoilable::new(&few), Spoilable::new(&many));
    let fixtures: [&mut dyn Fixture; 3] = [&mut few, &mut many, &mut Twice(tricky())];
    for fixture in fixtures {
        let report = check_all(fixture);
        assert_eq!(report.failures.len(), Law::ALL.len());
        let unfit = |failure: &Failure| matches!(failure.problem, Problem::UnfitFixture { .. });
        assert!(report.failures.iter().all(unfit), "{report}");
    }
}

struct Twice(MemoryFixture);

impl Fixture for Twice {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.0.connector())
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        [self.0.expected_items(), self.0.expected_items()].concat()
    }
}

#[test]
fn expected_items_show_lengths_only() {
    let shown = format!("{:?}", ExpectedItem::new(b"canary-key".to_vec(), b"canary".to_vec()));
    assert_eq!(shown, "ExpectedItem { key_len: 10, body_len: 6 }");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_reference_conforms_for_any_keys(
        items in btree_map(vec(any::<u8>(), 1..6), vec(any::<u8>(), 0..9), MIN_FIXTURE_ITEMS..24),
    ) {
        let report = check_all(&mut Spoilable::new(&MemoryFixture { items }));
        prop_assert!(report.failures.is_empty(), "{report}");
    }

    #[test]
    fn the_reference_conforms_on_dense_keys(
        items in btree_map(vec(0_u8..2, 1..6), vec(any::<u8>(), 0..9), MIN_FIXTURE_ITEMS..24),
    ) {
        let report = check_all(&mut Spoilable::new(&MemoryFixture { items }));
        prop_assert!(report.failures.is_empty(), "{report}");
    }
}
