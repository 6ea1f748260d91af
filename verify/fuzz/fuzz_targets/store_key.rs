//! Parsing a key never panics, and a valid key has no other encoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::store_key(data));
