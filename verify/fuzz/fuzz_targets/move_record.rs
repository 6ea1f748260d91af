//! Parsing a handoff record, with its snapshot, never panics, and a valid record has no
//! other encoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::move_record(data));
