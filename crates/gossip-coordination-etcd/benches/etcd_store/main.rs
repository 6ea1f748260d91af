//! Checkpoints, claims and renewals on real etcd, beside what etcd itself can do.
//!
//! Machines are shared, so only ratios count, and both sides of a ratio are measured in one run: in
//! turns, a round of each, none always behind the same one, and the median of the rounds' ratios.
//! Client and servers share the machine, and the client is the same for all: what we add to a bare
//! swap is the second compare, the protocol, the codec and the checksum. Every operation is
//! accepted; a refused one stops the benchmark.
//!
//! `cargo bench -p gossip-coordination-etcd --bench etcd_store [SECTION]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, unreachable_pub, unnameable_types, reason = "a benchmark has no users")]

mod alone;
mod bare;
mod claims;
mod counting;
mod ours;
mod rounds;
mod work;

use std::time::Duration;

use gossip_contracts::identity::RunId;
use gossip_coordination_etcd::{EtcdConfig, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::{EtcdCluster, EtcdServer};

use self::bare::{Swap, ThreeTrips};
use self::counting::Counting;
use self::ours::{Holder, Process, register};
use self::rounds::{Caller, Round, median, ratio, together};

/// Bytes of a hot record with keys of 64 bytes, a lease and a full log (docs/storage-format.md):
/// what etcd alone is given, too.
pub const VALUE_LEN: usize = 553;
/// Operations in flight.
const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];
/// Rounds of each side: every order fifteen times. Many short ones, because the machine itself is
/// faster in one second than in the next, and only rounds of one order are compared. Two of them
/// differ by a tenth there, so the median of thirty is off by two hundredths, and that of ninety by
/// one.
const ROUNDS: usize = 90;
/// Rounds of the slow shape, which is far from any goal.
const TRIP_ROUNDS: usize = 3;

const _: () = assert!(TRIP_ROUNDS <= ROUNDS && ROUNDS.is_multiple_of(ORDERS.len()));

/// Before each round. A server writes its pages ten times a second, and what one side leaves behind
/// to be written and collected the next one would pay for.
const SETTLING: Duration = Duration::from_millis(150);

/// The three sides that are compared in every round.
#[derive(Clone, Copy)]
enum Side {
    Swap,
    Plain,
    Coalesced,
}

/// In which orders they play: each comes right behind each other one, and behind itself, twice.
const ORDERS: [[Side; 3]; 6] = {
    use Side::{Coalesced, Plain, Swap};
    [
        [Swap, Plain, Coalesced],
        [Coalesced, Swap, Plain],
        [Plain, Coalesced, Swap],
        [Swap, Coalesced, Plain],
        [Plain, Swap, Coalesced],
        [Coalesced, Plain, Swap],
    ]
};

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("the machine has threads");
    runtime.block_on(async {
        if std::env::args().any(|name| name == "alone") {
            alone::alone().await;
            return;
        }
        if wanted("checkpoints") {
            checkpoints().await;
        }
        if wanted("work") {
            work::work().await;
        }
        if wanted("claims") {
            claims::claims().await;
        }
        if wanted("renewals") {
            claims::renewals().await;
        }
    });
}

/// Whether `section` is asked for: all are, unless some are named.
fn wanted(section: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|name| !name.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == section)
}

async fn checkpoints() {
    println!(
        "| servers | in flight | swaps/s | three trips/s | unbatched/s | coalesced/s | \
         unbatched ÷ swap | coalesced ÷ swap | three trips ÷ swap | p50 ms: swap | coalesced | \
         coalesced ÷ swap |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for in_flight in IN_FLIGHT {
        let server = EtcdServer::single();
        compare("one", &GrpcConfig::new([server.endpoint()]), in_flight).await;
    }
    for in_flight in IN_FLIGHT {
        let cluster = EtcdCluster::three();
        compare("three", &GrpcConfig::new(cluster.endpoints()), in_flight).await;
    }
}

/// The four shapes of one durable change, in turns.
async fn compare(servers: &str, grpc: &GrpcConfig, in_flight: usize) {
    let client = GrpcClient::new(grpc).expect("our own servers have addresses");
    let (mut swaps, mut trips) = (Vec::new(), Vec::new());
    for number in 0..in_flight {
        swaps.push(Swap::new(&client, number).await);
        trips.push(ThreeTrips::new(&client, number).await);
    }
    let mut plain = holders(grpc, in_flight, false).await;
    let mut coalesced = holders(grpc, in_flight, true).await;
    let mut table = Table::default();
    for round in 0..ROUNDS {
        if round < TRIP_ROUNDS {
            table.trips.push(play(&mut trips).await);
        }
        for side in ORDERS[round % ORDERS.len()] {
            match side {
                Side::Swap => table.swap.push(play(&mut swaps).await),
                Side::Plain => table.plain.push(play(&mut plain).await),
                Side::Coalesced => table.coalesced.push(play(&mut coalesced).await),
            }
        }
    }
    table.print(servers, in_flight);
}

async fn play<C: Caller>(callers: &mut Vec<C>) -> Round {
    tokio::time::sleep(SETTLING).await;
    let (back, round) = together(std::mem::take(callers)).await;
    *callers = back;
    round
}

#[derive(Default)]
struct Table {
    swap: Vec<Round>,
    trips: Vec<Round>,
    plain: Vec<Round>,
    coalesced: Vec<Round>,
}

impl Table {
    fn print(&self, servers: &str, in_flight: usize) {
        let rate = |round: &Round| round.rate;
        let p50 = |round: &Round| round.p50;
        let typical =
            |rounds: &[Round], of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "| {servers} | {in_flight} | {:.0} | {:.0} | {:.0} | {:.0} | **{:.3}** | **{:.3}** | \
             {:.2} | {:.2} | {:.2} | **{:.3}** |",
            typical(&self.swap, rate),
            typical(&self.trips, rate),
            typical(&self.plain, rate),
            typical(&self.coalesced, rate),
            ratio(&self.plain, &self.swap, rate),
            ratio(&self.coalesced, &self.swap, rate),
            ratio(&self.trips, &self.swap, rate),
            typical(&self.swap, p50),
            typical(&self.coalesced, p50),
            ratio(&self.coalesced, &self.swap, p50),
        );
    }
}

/// Callers with a shard each, on a namespace of their own.
async fn holders(grpc: &GrpcConfig, in_flight: usize, coalesce: bool) -> Vec<Holder> {
    // It counts nothing, as the bare sides do not.
    let client = GrpcClient::new(grpc).expect("our own servers have addresses");
    let mut process = Process::new(client, &config(grpc, coalesce));
    let run = RunId::from_raw(1);
    register(&mut process.handle(), run, in_flight).await;
    let mut holders = Vec::new();
    for shard in 0..in_flight as u64 {
        holders.push(Holder::new(process.handle(), run, shard).await);
    }
    holders
}

/// A process with a connection of its own, whose requests are counted.
pub fn process(grpc: &GrpcConfig, coalesce: bool) -> Process {
    let client = GrpcClient::new(grpc).expect("our own servers have addresses");
    Process::new(Counting::new(client), &config(grpc, coalesce))
}

pub fn config(grpc: &GrpcConfig, coalesce: bool) -> EtcdConfig {
    let hosts = grpc.endpoints.iter().map(|endpoint| endpoint.trim_start_matches("http://"));
    let namespace = if coalesce { "bench/coalesced" } else { "bench/plain" };
    let config = EtcdConfig::new(hosts, namespace).expect("the usual settings work");
    EtcdConfig { coalesce, ..config }
}
