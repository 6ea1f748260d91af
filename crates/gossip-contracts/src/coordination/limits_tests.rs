//! The limits are part of the contract: hashes, records and stores of other versions depend on
//! them.

use super::{
    MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN,
    MAX_TOKEN_SIZE,
};

#[test]
fn limits_are_those_of_the_specification() {
    assert_eq!(MAX_KEY_SIZE, 4096);
    assert_eq!(MAX_TOKEN_SIZE, 16_384);
    assert_eq!(MAX_METADATA_SIZE, 16_384);
    assert_eq!(MAX_INITIAL_SHARDS, 10_000);
    assert_eq!(MAX_SPLIT_CHILDREN, 256);
    assert_eq!(MAX_SPAWNED_PER_SHARD, 1024);
}
