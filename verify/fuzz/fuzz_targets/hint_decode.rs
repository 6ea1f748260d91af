//! Decoding a hint never panics, and gives back exactly the bytes it consumed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::hint_decode(data));
