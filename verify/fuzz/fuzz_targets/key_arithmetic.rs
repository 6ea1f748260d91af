//! The laws of successor, midpoint and split points, on any two keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::key_arithmetic(data));
