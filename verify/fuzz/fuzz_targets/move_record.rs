//! Reading the record of a planned move, with its snapshot, never panics, and what is one has no
//! other spelling.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::move_record(data));
