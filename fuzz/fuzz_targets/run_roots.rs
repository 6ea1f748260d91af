//! Decoding a chunk of roots never panics, and what decodes is written the same again.
#![no_main]

use gossip_coordination::store::{Key, decode_roots, encode_roots};
use gossip_fuzz::records::{RUN, TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, run, chunk) = (TENANT, RUN, 2);
    same_again(Key::RunRoots { tenant, run, chunk }, data, |value, again| {
        let mut ids = Vec::new();
        if decode_roots(tenant, run, chunk, value, &mut ids).is_err() {
            assert!(ids.is_empty(), "a refused chunk leaves nothing");
            return false;
        }
        encode_roots(tenant, run, chunk, &ids, again);
        true
    });
});
