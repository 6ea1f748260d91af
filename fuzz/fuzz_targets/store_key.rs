//! Reading a key never panics, and what is a key has no other spelling.
#![no_main]

use gossip_coordination::store::Key;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(key) = Key::parse(data) {
        assert_eq!(key.to_bytes().as_bytes(), data);
    }
});
