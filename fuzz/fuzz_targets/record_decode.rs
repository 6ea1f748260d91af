//! Decoding a stored shard or run never panics, and what decodes encodes to the same bytes.
//!
//! Raw bytes hardly ever pass the checksum, so payloads are also sealed here as the format says:
//! then everything behind the checksum is reached.
#![no_main]

use std::sync::Arc;

use gossip_contracts::identity::{ShardId, ShardKey};
use gossip_coordination::store::{
    Key, decode_run_head, decode_shard, encode_cold, encode_hot, encode_run_head,
};
use gossip_coordination::{RecordPool, ShardView};
use gossip_fuzz::records::{RUN, TENANT, seal, shard};
use libfuzzer_sys::fuzz_target;

/// Room for the largest record: two bounds, a key, metadata and a token.
const POOL_BYTES: usize = 1 << 17;

fuzz_target!(|data: &[u8]| {
    let Some((&[first, second, third], rest)) = data.split_first_chunk() else { return };
    let cut = usize::from(u16::from_le_bytes([first, second])).min(rest.len());
    let (hot, cold) = rest.split_at(cut);
    // Derived and root shards have different rules.
    let key = shard(third & 1 == 1);
    decode_parts(key, hot, cold);
    let hot = seal(Key::ShardHot { tenant: TENANT, shard: key }, hot);
    let cold = seal(Key::ShardCold { tenant: TENANT, shard: key }, cold);
    decode_parts(key, &hot, &cold);
    decode_head(rest);
    decode_head(&seal(Key::RunHead { tenant: TENANT, run: RUN }, rest));
});

fn decode_parts(key: ShardKey, hot: &[u8], cold: &[u8]) {
    let mut pool = RecordPool::new(POOL_BYTES);
    let Ok((record, indexed_at)) = decode_shard(&Arc::new(TENANT), key, hot, cold, &mut pool)
    else {
        assert_eq!(pool.bytes().used_bytes(), 0, "a refused record stays nowhere");
        return;
    };
    let (mut hot_again, mut cold_again) = (Vec::new(), Vec::new());
    encode_hot(ShardView::new(&record, &pool), indexed_at, &mut hot_again);
    encode_cold(ShardView::new(&record, &pool), &mut cold_again);
    assert_eq!((hot_again.as_slice(), cold_again.as_slice()), (hot, cold));
    record.free(&mut pool);
    assert_eq!(pool.bytes().used_bytes(), 0, "a freed record leaves nothing");
}

fn decode_head(value: &[u8]) {
    let Ok(head) = decode_run_head(TENANT, RUN, value) else { return };
    let roots = head.roots();
    let count = if head.has_roots() { u64::from(roots.registered) } else { 0 };
    // Any roots will do: the head does not hold them.
    let record = head.into_record((0..count).map(ShardId::from_raw).collect());
    let mut again = Vec::new();
    encode_run_head(&record.expect("as many unique roots as were counted"), roots, &mut again);
    assert_eq!(again, value);
}
