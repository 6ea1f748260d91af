//! Decoding a lifecycle event never panics, and what decodes is written the same again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::event(data));
