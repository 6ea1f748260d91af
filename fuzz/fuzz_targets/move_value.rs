//! Decoding the stored value of a planned move never panics, and it is written the same again.
#![no_main]

use gossip_coordination::HandoffId;
use gossip_coordination::store::{Key, decode_handoff, encode_handoff};
use gossip_fuzz::records::{TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, handoff) = (TENANT, HandoffId::from_raw(6));
    same_again(Key::Handoff { tenant, handoff }, data, |value, again| {
        let Ok(read) = decode_handoff(tenant, handoff, value) else { return false };
        encode_handoff(tenant, handoff, read, again).is_ok()
    });
});
