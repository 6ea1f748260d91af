//! Reading a range of integers never panics, and it can be typed again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::source_range(data));
