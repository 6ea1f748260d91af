//! The validator of manifests agrees with a naive checker: on acceptance, and on the rule
//! that refuses the rest.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::manifest_validation(data));
