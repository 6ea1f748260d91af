//! The arguments of a call show nothing in `Debug`, which the library logs.

use std::sync::Arc;

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::store::{Key, KeyRange, Read, Txn};

use crate::batch::CommitCall;
use crate::locks::LockPlan;
use crate::read::ReadCall;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

#[test]
fn arguments_show_no_byte_of_a_key_or_a_value() {
    // A byte of a value, and the first of every key, as `Debug` of bytes would show them.
    let (value, letter) = ("222", "116");
    let head = Key::RunHead { tenant: TENANT, run: RunId::from_raw(1) };
    let mut txn = Txn::new();
    txn.expect_value(head, Arc::new(vec![222]));
    txn.expect_empty(KeyRange::tenant(TENANT));
    txn.put(head, vec![222]);
    txn.delete(Key::TenantCounter { tenant: TENANT });
    let call = CommitCall::new(1, LockPlan::default(), [&txn].into_iter());
    let reads = [Read::Get(head), Read::Count(KeyRange::tenant(TENANT))];
    let read = ReadCall::new(&reads, 10);
    for shown in [format!("{:?}", call.params()), format!("{:?}", read.params())] {
        assert!(!shown.contains(value) && !shown.contains(letter), "{shown}");
    }
}
