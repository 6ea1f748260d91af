//! The rows of a JSON Lines or CSV file are those that a naive reader finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::manifest_rows(data));
