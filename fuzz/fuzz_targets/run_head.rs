//! Decoding the head of a run never panics, and what decodes is written the same again.
#![no_main]

use gossip_contracts::identity::ShardId;
use gossip_coordination::store::{Key, decode_run_head, encode_run_head};
use gossip_fuzz::records::{RUN, TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, run) = (TENANT, RUN);
    same_again(Key::RunHead { tenant, run }, data, |value, again| {
        let Ok(head) = decode_run_head(tenant, run, value) else { return false };
        let roots = head.roots();
        let count = if head.has_roots() { u64::from(roots.registered) } else { 0 };
        // Any roots will do: the head does not hold them.
        let record = head.into_record((0..count).map(ShardId::from_raw).collect());
        encode_run_head(&record.expect("as many unique roots as were counted"), roots, again);
        true
    });
});
