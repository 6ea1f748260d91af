//! Reading a command line never panics, and every key of a batch is in its arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::command_template(data));
