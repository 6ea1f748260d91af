//! The two parts of a stored shard.

use std::cell::RefCell;
use std::sync::Arc;

use gossip_contracts::identity::ShardKey;
use gossip_coordination::store::{
    Key, decode_cold, decode_hot, decode_shard, encode_cold, encode_hot,
};
use gossip_coordination::{RecordPool, ShardView};

use crate::seal::{TENANT, seal, shard};

/// Room for the largest record: two bounds, a key, metadata and a token.
const POOL_BYTES: usize = 1 << 17;

thread_local! {
    // Kept, so that an input costs no allocation of ours. The pool is empty between two inputs.
    static POOL: RefCell<RecordPool> = RefCell::new(RecordPool::new(POOL_BYTES));
    static SEALED: RefCell<[Vec<u8>; 2]> = RefCell::default();
}

/// Decoding the hot part of a shard never panics. `record_decode` writes whole shards again.
pub(crate) fn hot(data: &[u8]) -> bool {
    let Some((&first, payload)) = data.split_first() else { return false };
    let (tenant, shard) = (TENANT, shard(first & 1 == 1));
    let is_taken = decode_hot(tenant, shard, payload).is_ok();
    SEALED.with_borrow_mut(|[sealed, _]| {
        seal(Key::ShardHot { tenant, shard }, payload, sealed);
        decode_hot(tenant, shard, sealed).is_ok() || is_taken
    })
}

/// Decoding the cold part of a shard never panics. `record_decode` writes whole shards again.
pub(crate) fn cold(data: &[u8]) -> bool {
    let Some((&first, payload)) = data.split_first() else { return false };
    let (tenant, shard) = (TENANT, shard(first & 1 == 1));
    let is_taken = decode_cold(tenant, shard, payload).is_ok();
    SEALED.with_borrow_mut(|[sealed, _]| {
        seal(Key::ShardCold { tenant, shard }, payload, sealed);
        decode_cold(tenant, shard, sealed).is_ok() || is_taken
    })
}

/// Decoding both parts of a shard never panics, a decoded record encodes to the same bytes, and a
/// refused record leaves nothing in the pool.
///
/// The first two bytes say where the parts are cut; the third, whether the shard is derived. Both
/// are sealed, as the format says: raw bytes hardly ever pass the checksum, and the laws of the
/// parts show them.
pub(crate) fn both_parts(data: &[u8]) -> bool {
    let Some((&[first, second, third], rest)) = data.split_first_chunk() else { return false };
    let cut = usize::from(u16::from_le_bytes([first, second])).min(rest.len());
    let (hot, cold) = rest.split_at(cut);
    let (tenant, shard) = (TENANT, shard(third & 1 == 1));
    SEALED.with_borrow_mut(|[sealed_hot, sealed_cold]| {
        seal(Key::ShardHot { tenant, shard }, hot, sealed_hot);
        seal(Key::ShardCold { tenant, shard }, cold, sealed_cold);
        POOL.with_borrow_mut(|pool| decode_parts(shard, sealed_hot, sealed_cold, pool))
    })
}

fn decode_parts(key: ShardKey, hot: &[u8], cold: &[u8], pool: &mut RecordPool) -> bool {
    let Ok((record, indexed_at)) = decode_shard(&Arc::new(TENANT), key, hot, cold, pool) else {
        assert_eq!(pool.bytes().used_bytes(), 0, "a refused record stays nowhere");
        return false;
    };
    let (mut hot_again, mut cold_again) = (Vec::new(), Vec::new());
    encode_hot(ShardView::new(&record, pool), indexed_at, &mut hot_again);
    encode_cold(ShardView::new(&record, pool), &mut cold_again);
    assert_eq!((hot_again.as_slice(), cold_again.as_slice()), (hot, cold));
    record.free(pool);
    assert_eq!(pool.bytes().used_bytes(), 0, "a freed record leaves nothing");
    true
}
