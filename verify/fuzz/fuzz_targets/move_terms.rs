//! Reading which move a record is about never panics, and a move has one spelling.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::move_terms(data));
