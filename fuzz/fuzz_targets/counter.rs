//! Decoding a counter never panics, and what decodes is written the same again.
#![no_main]

use gossip_coordination::store::{Key, decode_count, encode_tenant_count};
use gossip_fuzz::records::{TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let tenant = TENANT;
    same_again(Key::TenantCounter { tenant }, data, |value, again| {
        let read = decode_count(Some(tenant), value);
        read.map(|count| encode_tenant_count(tenant, count, again)).is_ok()
    });
});
