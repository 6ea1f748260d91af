//! Reading the record of a planned move, with its snapshot, never panics, and what is one has no
//! other spelling.
#![no_main]

use gossip_handoff::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = Record::from_bytes(data) {
        assert_eq!(record.to_bytes(), data);
    }
});
