//! A rule text that is accepted can scan; one that is refused changes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::rule_text(data));
