//! A connector of your own, registered under a scheme.
//!
//! `cargo run -p gossip-engine --example own_connector -- words:3 STORE` lists all words of three
//! letters from `a` to `d`. A connector lists keys in byte order from any position and opens the
//! item of a key; `gossip::connector` has the contract, and a conformance suite that checks it.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::ffi::OsStr;

use gossip::connector::{Capabilities, Enumeration, ItemBody, Page, PageItem, PushError, SeekCost};
use gossip::model::{CursorUpdate, ShardSpecRef};
use gossip::prelude::*;

/// Letters of the words.
const LETTERS: &[u8] = b"abcd";
/// Longest words: there are 4^8 of them.
const LENGTH_MAX: usize = 8;

fn main() -> Result<(), ScanError> {
    let mut args = std::env::args().skip(1);
    let source = args.next().unwrap_or_else(|| "words:3".to_owned());
    let store = args.next().unwrap_or_else(|| "memory:".to_owned());
    // Every process of the run registers the same.
    let scan = Scan::of(source).connector("words", Words::open).store(store);
    let outcome = scan.each(|item| {
        println!("{}", item.text()?);
        Ok(())
    })?;
    println!("{:?}, {} items", outcome.status, outcome.totals.keys);
    Ok(())
}

/// All words of a length, as a source.
#[derive(Clone, Copy, Debug)]
struct Words {
    length: usize,
}

impl Words {
    /// Opens the source of a name: the text after `words:`.
    fn open(name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        let length = name.to_str().and_then(|name| name.parse().ok());
        match length.filter(|length| (1..=LENGTH_MAX).contains(length)) {
            Some(length) => Ok(Box::new(Self { length })),
            None => Err(ConnectorError::NotFound),
        }
    }

    fn count(self) -> usize {
        LETTERS.len().pow(self.length as u32)
    }

    /// The word at an index in byte order.
    fn word(self, index: usize) -> Vec<u8> {
        let digit = |place: u32| index / LETTERS.len().pow(place) % LETTERS.len();
        (0..self.length as u32).rev().map(|place| LETTERS[digit(place)]).collect()
    }

    /// The first index whose word does not precede, by a binary search.
    fn first(self, precedes: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if precedes(&self.word(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

impl Connector for Words {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let is_done = |word: &[u8]| from.last_key().is_some_and(|last| word <= last);
        let next = self.first(|word| word < range.start || is_done(word));
        let end = match range.end {
            [] => self.count(),
            end => self.first(|word| word < end),
        };
        Ok(Box::new(Listing { words: *self, next, end }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let is_word = item.key().len() == self.length
            && item.key().iter().all(|letter| LETTERS.contains(letter));
        if !is_word {
            return Err(OpenError::Vanished);
        }
        scratch.clear();
        scratch.extend_from_slice(item.key());
        Ok(ItemBody::Bytes(scratch))
    }
}

/// A listing in progress.
#[derive(Debug)]
struct Listing {
    words: Words,
    next: usize,
    end: usize,
}

impl Enumeration for Listing {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.end {
            match page.push(PageItem::new(&self.words.word(self.next))) {
                // The page keeps any other refusal, and the runtime reports it.
                Err(PushError::Full) => return Ok(()),
                _ => self.next += 1,
            }
        }
        page.mark_exhausted();
        Ok(())
    }
}
