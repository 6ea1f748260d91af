//! Decoding the token of a cursor, with its accumulator, never panics, and what decodes is written
//! the same again.
#![no_main]

use gossip_scanner_runtime::RuntimeToken;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(token) = RuntimeToken::decode(data) else { return };
    let mut again = Vec::new();
    token.encode_into(&mut again).expect("what was read can be written");
    assert_eq!(again, data);
});
