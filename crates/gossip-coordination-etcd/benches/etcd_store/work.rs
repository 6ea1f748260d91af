//! What one operation costs in computing, on both sides. Unlike a rate it hardly depends on what
//! else the machine does.

use gossip_coordination_etcd::{GrpcClient, GrpcConfig};
use gossip_testkit::test_support::EtcdServer;

use crate::bare::Swap;
use crate::rounds::{Caller, together};
use crate::{holders, median};

/// Operations in flight.
const IN_FLIGHT: [usize; 3] = [16, 64, 256];
/// Rounds of each side, in turns.
const ROUNDS: usize = 5;
/// Of the kernel's counters.
const MICROS_PER_TICK: f64 = 10_000.0;

/// Microseconds of all cores for one operation.
#[derive(Clone, Copy)]
struct Work {
    client: f64,
    server: f64,
}

pub async fn work() {
    println!(
        "| in flight | computed µs of the client: swap | unbatched | coalesced | of the server: \
         swap | unbatched | coalesced |\n|---:|---:|---:|---:|---:|---:|---:|"
    );
    for in_flight in IN_FLIGHT {
        let server = EtcdServer::single();
        let pid = server.pid().expect("it runs");
        let grpc = GrpcConfig::new([server.endpoint()]);
        let client = GrpcClient::new(&grpc).expect("our own server has an address");
        let mut swaps = Vec::new();
        for number in 0..in_flight {
            swaps.push(Swap::new(&client, number).await);
        }
        let mut plain = holders(&grpc, in_flight, false).await;
        let mut coalesced = holders(&grpc, in_flight, true).await;
        let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rounds[0].push(round(&mut swaps, pid).await);
            rounds[1].push(round(&mut plain, pid).await);
            rounds[2].push(round(&mut coalesced, pid).await);
        }
        let of = |work: fn(&Work) -> f64| {
            let typical = rounds.each_ref().map(|side| median(side.iter().map(work).collect()));
            typical.map(|micros| format!("{micros:.0}")).join(" | ")
        };
        println!("| {in_flight} | {} | {} |", of(|it| it.client), of(|it| it.server));
    }
}

async fn round<C: Caller>(callers: &mut Vec<C>, server: u32) -> Work {
    let before = (micros("self"), micros(&server.to_string()));
    let (back, round) = together(std::mem::take(callers)).await;
    *callers = back;
    let after = (micros("self"), micros(&server.to_string()));
    let count = round.count as f64;
    Work { client: (after.0 - before.0) / count, server: (after.1 - before.1) / count }
}

/// Computing time of a process so far.
fn micros(process: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // After the process name, which may hold any character, user and system time are the 12th
    // and 13th fields.
    let (_, fields) = text.rsplit_once(") ").expect("the process name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|it| it.parse::<f64>().expect("a number")).sum::<f64>() * MICROS_PER_TICK
}
