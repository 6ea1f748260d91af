//! Comparing a certificate with a source, by listing it again.
//!
//! The leaves tile the request in order, so one listing serves them all; to open one for each leaf
//! would read large directories over and over. Two things break it off: a parked leaf, of which
//! only what lies at or below the cursor is listed (behind it the source may be what it was parked
//! for), and a failure, which may belong to a leaf further on. Both times the next listing is
//! bounded to the leaf at hand.

use gossip_contracts::connector::{CheckedEnumeration, Connector, Page, PageError};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use super::differences::Differences;
use super::record::{LeafRecord, LeafStatus, Request};
use super::refusal::Refusal;
use crate::accumulator::Accumulator;

/// A source that is being compared.
pub(super) struct SourceCheck<'a> {
    connector: &'a dyn Connector,
    /// Where the request ends.
    end: Vec<u8>,
    /// The listing that goes through done leaves, with the keys that were not consumed yet.
    shared: Option<Listing>,
}

impl<'a> SourceCheck<'a> {
    /// Compares the requests; `None` if there is nothing to compare with.
    pub(super) fn new(
        stated: &Request,
        source: Option<(&Request, &'a dyn Connector)>,
    ) -> Result<Option<Self>, Refusal> {
        let Some((expected, connector)) = source else {
            return Ok(None);
        };
        let compared = [
            ("kind", stated.kind() == expected.kind()),
            ("options", stated.options == expected.options),
            ("exclusions", stated.excluded == expected.excluded),
            ("start", stated.start == expected.start),
            ("end", stated.end == expected.end),
        ];
        match compared.into_iter().find(|(_, is_same)| !is_same) {
            Some((what, _)) => Err(Refusal::OtherRequest { what }),
            None => Ok(Some(Self { connector, end: stated.end.clone(), shared: None })),
        }
    }

    /// Lists the keys of a leaf, as far as it claims them, and adds the leaf to `differences` if
    /// the source has others.
    pub(super) fn compare(
        &mut self,
        number: u64,
        leaf: &LeafRecord,
        differences: &mut Differences,
    ) -> Result<(), Refusal> {
        let listed = match leaf.status {
            LeafStatus::Done => self.list_done(leaf),
            LeafStatus::Parked(_) => self.list_parked(leaf),
        };
        let found = listed.map_err(|error| Refusal::SourceFailed { leaf: number, error })?;
        if leaf.accumulator != found {
            differences.add(number, leaf, found.count());
        }
        Ok(())
    }

    fn list_done(&mut self, leaf: &LeafRecord) -> Result<Accumulator, PageError> {
        let mut found = Accumulator::EMPTY;
        let mut shared = match self.shared.take() {
            Some(shared) => shared,
            None => Listing::open(self.connector, &leaf.start, &self.end)?,
        };
        match shared.take_below(&leaf.end, &mut found) {
            Ok(()) => self.shared = Some(shared),
            // The shared listing may have failed in the range of a later leaf, so this one is
            // listed alone before it is reported.
            Err(_) => {
                found = Accumulator::EMPTY;
                let mut own = Listing::open(self.connector, &leaf.start, &leaf.end)?;
                own.take_below(&leaf.end, &mut found)?;
            }
        }
        Ok(found)
    }

    fn list_parked(&mut self, leaf: &LeafRecord) -> Result<Accumulator, PageError> {
        // The shared listing would have to pass the part behind the cursor, for which the leaf may
        // be parked.
        self.shared = None;
        let mut found = Accumulator::EMPTY;
        if let Some(cursor) = &leaf.cursor {
            // The end is exclusive, and the cursor's own key is covered.
            let end = [cursor, &b"\0"[..]].concat();
            Listing::open(self.connector, &leaf.start, &end)?.take_below(&end, &mut found)?;
        }
        Ok(found)
    }
}

/// A listing, and the page it is in.
struct Listing {
    listing: CheckedEnumeration,
    page: Page,
    /// The first item of the page that was not taken.
    next: usize,
}

impl Listing {
    fn open(connector: &dyn Connector, start: &[u8], end: &[u8]) -> Result<Self, PageError> {
        let range = ShardSpecRef::new(start, end, b"");
        let listing = CheckedEnumeration::open(connector, range, CursorUpdate::initial())?;
        Ok(Self { listing, page: Page::default(), next: 0 })
    }

    /// Takes the keys below `end`, and leaves the first that is not.
    fn take_below(&mut self, end: &[u8], found: &mut Accumulator) -> Result<(), PageError> {
        // To the end of the leaf, also behind the first difference: the refusal states how many
        // keys the source has, and listing them costs no more than those of a certificate that is
        // right.
        loop {
            let Some(item) = self.page.item(self.next) else {
                if self.page.is_exhausted() {
                    break;
                }
                self.listing.next_page(&mut self.page)?;
                self.next = 0;
                continue;
            };
            if item.key() >= end {
                break;
            }
            found.add(item.key());
            self.next += 1;
        }
        Ok(())
    }
}
