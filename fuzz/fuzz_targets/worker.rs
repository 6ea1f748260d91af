//! Decoding an entry of the registry of workers never panics, and it is written the same again.
#![no_main]

use gossip_contracts::identity::WorkerId;
use gossip_coordination::store::{Key, decode_worker, encode_worker};
use gossip_fuzz::records::{TENANT, same_again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (tenant, worker) = (TENANT, WorkerId::from_raw(5));
    same_again(Key::Worker { tenant, worker }, data, |value, again| {
        let read = decode_worker(tenant, worker, value);
        read.map(|entry| encode_worker(tenant, &entry, again)).is_ok()
    });
});
