//! Decoding metadata never panics; what decodes encodes to the same bytes, and the helpers agree.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::metadata_decode(data));
