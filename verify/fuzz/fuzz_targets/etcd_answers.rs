//! Whatever an etcd server answers, the store gives a typed error or an answer of the right shape.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossip_decoder_laws::etcd_answers(data));
