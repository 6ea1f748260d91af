//! Reading the key of a row never panics, and a row has one key.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::row_key(data));
