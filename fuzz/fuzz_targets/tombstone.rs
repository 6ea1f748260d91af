//! Decoding a tombstone never panics, and what decodes is written the same again.
#![no_main]

use gossip_coordination::store::{Key, decode_tombstone, encode_tombstone};
use gossip_fuzz::records::{RUN, TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, run) = (TENANT, RUN);
    same_again(Key::Tombstone { tenant, run }, data, |value, again| {
        let read = decode_tombstone(tenant, run, value);
        read.map(|tombstone| encode_tombstone(tenant, run, &tombstone, again)).is_ok()
    });
});
