//! Decoding an owner key never panics, and what decodes is written the same again.
#![no_main]

use gossip_coordination::store::{Key, decode_owner, encode_owner};
use gossip_fuzz::records::{TENANT, same_again, shard};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, shard) = (TENANT, shard(false));
    same_again(Key::Owner { tenant, shard }, data, |value, again| {
        let read = decode_owner(tenant, shard, value);
        read.map(|owner| encode_owner(tenant, shard, &owner, again)).is_ok()
    });
});
