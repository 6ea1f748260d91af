//! An input has the same findings from memory and in small chunks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::scan_input(data));
