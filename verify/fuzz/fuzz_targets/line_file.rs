//! The lines of a file are those that a naive reader finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::line_file(data));
