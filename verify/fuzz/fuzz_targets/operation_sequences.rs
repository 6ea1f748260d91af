//! Any sequence of operations is answered as a naive model answers it, which was written apart.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::operation_sequences(data));
