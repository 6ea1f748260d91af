//! A connector of your own, registered under a scheme.
//!
//! `cargo run -p gossip-engine --example own_connector -- words:3 STORE` lists all words of three
//! letters from `a` to `d`. A source needs two functions: one lists its keys in byte order from a
//! position, the other reads an item. The test at the end runs the suite that every connector must
//! pass. A source with more to offer implements `Connector` itself (`gossip::connector`).
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::ffi::OsStr;

use gossip::connector::{KeyIterator, SortedConnector, SortedKeys};
use gossip::prelude::*;

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
struct Words(u32);

impl Words {
    /// Opens the source of a name: the text after `words:`.
    fn open(name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        let length = name.to_str().and_then(|name| name.parse().ok());
        let length = length.filter(|length| (1..=8).contains(length));
        Ok(Box::new(SortedConnector::new(Self(length.ok_or(ConnectorError::NotFound)?))))
    }
}

impl SortedKeys for Words {
    fn keys_from(&self, start: &[u8]) -> Result<KeyIterator, ConnectorError> {
        let (length, start) = (self.0, start.to_vec());
        let letter = move |number: u32, place: u32| b'a' + (number >> (2 * place) & 3) as u8;
        let word = move |number| (0..length).rev().map(|place| letter(number, place)).collect();
        let words = (0..4_u32.pow(length)).map(word);
        Ok(Box::new(words.skip_while(move |word: &Vec<u8>| *word < start).map(Ok)))
    }

    fn read(&self, key: &[u8], body: &mut Vec<u8>) -> Result<(), OpenError> {
        let is_word = key.len() == self.0 as usize && key.iter().all(|it| b"abcd".contains(it));
        if !is_word {
            return Err(OpenError::Vanished);
        }
        body.extend_from_slice(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gossip::connector::conformance::{ExpectedItem, Fixture, assert_conforms};

    use super::*;

    struct TwoLetters;

    impl Fixture for TwoLetters {
        fn connect(&self) -> Box<dyn Connector> {
            Words::open(OsStr::new("2")).expect("a length")
        }

        fn expected(&self) -> Vec<ExpectedItem> {
            let words = "abcd".chars().flat_map(|a| "abcd".chars().map(move |b| format!("{a}{b}")));
            words.map(|word| ExpectedItem::new(word.clone(), word)).collect()
        }
    }

    #[test]
    fn words_conform() {
        assert_conforms(&mut TwoLetters);
    }
}
