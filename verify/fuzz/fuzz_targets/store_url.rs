//! Reading the URL of a store never panics and never shows a password.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::store_url(data));
