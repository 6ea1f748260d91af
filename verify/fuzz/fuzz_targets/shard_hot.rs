//! Decoding the hot part of a shard never panics. `record_decode` writes whole shards again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::shard_hot(data));
