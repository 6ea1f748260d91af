//! Decoding an entry of the registry of workers never panics, and it is written the same again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::worker(data));
