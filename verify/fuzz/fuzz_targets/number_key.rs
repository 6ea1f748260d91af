//! Reading the key of a number never panics, and a number has one key.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::number_key(data));
