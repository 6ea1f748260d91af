//! Verifying a certificate never panics, whatever the file says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::certificate(data));
