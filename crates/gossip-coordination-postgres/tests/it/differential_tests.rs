//! The same random operations on the coordinator in memory and on a real server.

use std::sync::atomic::Ordering;

use gossip_conformance::differential::{Plan, check_plan};

use crate::conformance_tests::OnBlocking;
use crate::message_proxy::{MessageProxy, Side};
use crate::real_server::server;

/// 50 sequences of 200 operations.
const PLAN: Plan = Plan { seeds: 1_000..1_050, steps: 200, list_every: 50 };

#[test]
fn a_server_answers_ten_thousand_operations_as_memory_does() {
    let played = check_plan(&OnBlocking::default(), &PLAN, |_, _| ());
    println!("{played:?}");
    assert!(played.operations >= 10_000, "{played:?}");
}

/// One commit in four loses its reply.
#[test]
fn a_server_with_lost_replies_answers_as_memory_does() {
    let plan = Plan { seeds: 2_000..2_010, ..PLAN };
    let played = check_plan(&OnBlocking::default(), &plan, |backend, drawn| {
        if drawn % 4 == 0 {
            backend.store().lose_next_reply();
        }
    });
    println!("{played:?}");
}

/// Every second operation has its connection cut at some message, of a read, of a commit or of the
/// next connection.
#[test]
fn a_server_behind_cut_connections_answers_as_memory_does() {
    const CUTS_MIN: usize = 500;
    let proxy = MessageProxy::before(server().port());
    let cuts = proxy.cuts();
    let target = OnBlocking { proxy: Some(proxy), is_pooled: false };
    let plan = Plan { seeds: 3_000..3_012, ..PLAN };
    let played = check_plan(&target, &plan, |_, drawn| {
        let proxy = target.proxy.as_ref().expect("it was given above");
        let count = usize::try_from(drawn / 4 % 8).expect("a small number");
        match drawn % 4 {
            0 => proxy.cut_after(Side::Client, count),
            1 => proxy.cut_after(Side::Server, count),
            _ => proxy.cut_nothing(),
        }
    });
    let cuts = cuts.load(Ordering::Relaxed);
    println!("{played:?}, {cuts} cuts");
    assert!(cuts >= CUTS_MIN, "{cuts}");
}
