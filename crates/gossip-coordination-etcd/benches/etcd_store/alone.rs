//! One side alone, for a profiler. Instructions hardly depend on what else the machine does: count
//! them for a few operations of each caller and for many, and the difference is that of the
//! operations in between.
//!
//! `valgrind --tool=callgrind --fair-sched=yes BENCHMARK alone SIDE OPERATIONS --bench`

use gossip_coordination_etcd::{GrpcClient, GrpcConfig};
use gossip_testkit::test_support::EtcdServer;

use crate::bare::Swap;
use crate::holders;
use crate::rounds::Caller;

/// Operations in flight: few enough that none times out under a profiler.
const IN_FLIGHT: usize = 32;

/// What to name behind the section.
const USAGE: &str = "alone swap|unbatched|coalesced OPERATIONS";

pub async fn alone() {
    let mut named = std::env::args().skip_while(|name| name != "alone").skip(1);
    let (side, each) = (named.next().expect(USAGE), named.next().expect(USAGE));
    let each: usize = each.parse().expect(USAGE);
    let server = EtcdServer::single();
    let grpc = GrpcConfig::new([server.endpoint()]);
    match &*side {
        "swap" => {
            let client = GrpcClient::new(&grpc).expect("our own server has an address");
            let mut swaps = Vec::new();
            for number in 0..IN_FLIGHT {
                swaps.push(Swap::new(&client, number).await);
            }
            play(swaps, each).await;
        }
        "unbatched" => play(holders(&grpc, IN_FLIGHT, false).await, each).await,
        "coalesced" => play(holders(&grpc, IN_FLIGHT, true).await, each).await,
        _ => panic!("{USAGE}"),
    }
    println!("{side}: {} operations", IN_FLIGHT * each);
}

async fn play<C: Caller>(callers: Vec<C>, each: usize) {
    let repeat = |mut caller: C| async move {
        for _ in 0..each {
            caller.once().await;
        }
    };
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(repeat(caller))).collect();
    for task in tasks {
        task.await.expect("a caller does not fail");
    }
}
