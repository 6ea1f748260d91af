//! Reading the key of a number never panics, and a number has one key.
#![no_main]

use gossip_scanner_runtime::connectors::{number_key, parse_number_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(number) = parse_number_key(data) {
        assert_eq!(number_key(number).as_slice(), data);
    }
});
