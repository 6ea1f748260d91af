//! Keys of integers decode from exactly one width, and their order is that of their bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::integer_keys(data));
