//! Decoding the stored value of a handoff never panics, and it is written the same again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::move_value(data));
