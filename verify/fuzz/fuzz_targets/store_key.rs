//! Reading a key never panics, and what is a key has no other spelling.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::store_key(data));
