//! The lines of a program that items are streamed to mean what their JSON says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::stream_answer(data));
