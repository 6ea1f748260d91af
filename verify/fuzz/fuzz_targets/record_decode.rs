//! Decoding both parts of a stored shard never panics, and what decodes encodes to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::record_decode(data));
