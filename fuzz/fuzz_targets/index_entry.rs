//! Decoding an entry of an index never panics, and what decodes is written the same again.
//!
//! The three indexes have entries without a payload; the first byte chooses among them.
#![no_main]

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::HandoffId;
use gossip_coordination::store::{
    Key, decode_claim_entry, decode_mover_entry, decode_parked_entry, encode_claim_entry,
    encode_mover_entry, encode_parked_entry,
};
use gossip_fuzz::records::{TENANT, same_again, shard};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let (tenant, shard, party) = (TENANT, shard(false), 9);
    let (at, handoff) = (LogicalTime::from_raw(4), HandoffId::from_raw(6));
    match first % 3 {
        0 => same_again(Key::ClaimIndex { tenant, shard, at }, data, |value, again| {
            let read = decode_claim_entry(tenant, shard, at, value);
            read.map(|()| encode_claim_entry(tenant, shard, at, again)).is_ok()
        }),
        1 => same_again(Key::ParkedIndex { tenant, shard }, data, |value, again| {
            let read = decode_parked_entry(tenant, shard, value);
            read.map(|()| encode_parked_entry(tenant, shard, again)).is_ok()
        }),
        _ => same_again(Key::HandoffIndex { tenant, party, handoff }, data, |value, again| {
            let read = decode_mover_entry(tenant, party, handoff, value);
            read.map(|()| encode_mover_entry(tenant, party, handoff, again)).is_ok()
        }),
    }
});
