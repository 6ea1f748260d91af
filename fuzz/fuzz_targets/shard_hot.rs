//! Decoding the hot part of a shard never panics. `record_decode` writes whole shards again.
#![no_main]

use gossip_coordination::store::{Key, decode_hot};
use gossip_fuzz::records::{TENANT, seal, shard};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, payload)) = data.split_first() else { return };
    let (tenant, shard) = (TENANT, shard(first & 1 == 1));
    let _ = decode_hot(tenant, shard, payload);
    let _ = decode_hot(tenant, shard, &seal(Key::ShardHot { tenant, shard }, payload));
});
