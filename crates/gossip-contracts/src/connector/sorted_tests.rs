use std::collections::BTreeMap;

use super::*;
use crate::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use crate::connector::{CheckedEnumeration, PageError, PageViolation, Spoil};

/// A map, which answers as a database with an ordered index does.
#[derive(Clone, Default)]
struct Map(BTreeMap<Vec<u8>, Result<Vec<u8>, OpenError>>);

impl SortedKeys for Map {
    fn keys_from(&self, start: &[u8]) -> Result<KeyIterator, ConnectorError> {
        let keys: Vec<_> = self.0.range(start.to_vec()..).map(|(key, _)| Ok(key.clone())).collect();
        Ok(Box::new(keys.into_iter()))
    }

    fn read(&self, key: &[u8], body: &mut Vec<u8>) -> Result<(), OpenError> {
        body.extend(self.0.get(key).ok_or(OpenError::Vanished)?.as_ref().map_err(|it| *it)?);
        Ok(())
    }
}

impl Fixture for Map {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(SortedConnector::new(self.clone()))
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let items =
            self.0.iter().map(|(key, body)| (key.clone(), body.clone().unwrap_or_default()));
        items.map(|(key, body)| ExpectedItem::new(key, body)).collect()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        match spoil {
            Spoil::Vanish => drop(self.0.remove(key)),
            Spoil::Change => drop(self.0.insert(key.to_vec(), Err(OpenError::Changed))),
            Spoil::Deny => drop(self.0.insert(key.to_vec(), Err(OpenError::PermissionDenied))),
        }
        true
    }
}

#[test]
fn a_map_conforms() {
    let keys = ["a", "a\0", "a-b", "a/b", "b", "b\u{ff}", "c", "\u{7f}", "z"];
    let items = keys.iter().map(|key| (key.as_bytes().to_vec(), Ok(key.repeat(3).into_bytes())));
    assert_conforms(&mut Map(items.collect()));
}

/// A source that lists whatever it was given.
struct Given(Vec<Result<&'static [u8], ConnectorError>>);

impl SortedKeys for Given {
    fn keys_from(&self, _start: &[u8]) -> Result<KeyIterator, ConnectorError> {
        Ok(Box::new(self.0.clone().into_iter().map(|key| Ok(key?.to_vec()))))
    }

    fn read(&self, _key: &[u8], _body: &mut Vec<u8>) -> Result<(), OpenError> {
        Err(OpenError::Vanished)
    }
}

fn first_page(
    keys: Vec<Result<&'static [u8], ConnectorError>>,
    last: &[u8],
) -> Result<(), PageError> {
    let connector = SortedConnector::new(Given(keys));
    let from = CursorUpdate::with_last_key(last);
    let mut listing =
        CheckedEnumeration::open(&connector, ShardSpecRef::new(b"", b"", b""), from).unwrap();
    listing.next_page(&mut Page::default())
}

/// Keys out of order are reported: if they were dropped, the run would end without them.
#[test]
fn a_source_out_of_order_is_detected() {
    let listed = first_page(vec![Ok(b"a"), Ok(b"c"), Ok(b"b")], b"a");
    assert!(
        matches!(listed, Err(PageError::Violation(PageViolation::OutOfOrder { .. }))),
        "{listed:?}"
    );
}

#[test]
fn an_error_of_the_iterator_ends_the_listing() {
    let listed = first_page(vec![Ok(b"b"), Err(ConnectorError::PermissionDenied)], b"a");
    assert_eq!(listed, Err(PageError::Connector(ConnectorError::PermissionDenied)));
}
