//! A campaign on a cluster of three etcd servers: leader losses, then stopped workers.
//!
//! `cargo xtask etcd-faults --rounds 10` runs it. The number is the number of leader losses of each
//! kind, and of stopped workers.
//!
//! Each line of the first part is a leader loss: its kind, and the time until the first worker and
//! until every worker made progress again. Each line of the second part is a worker process that
//! was stopped (`SIGSTOP`) for longer than its lease: the time until another worker had its shard.
//! An accepted stale write or a loss of acknowledged progress ends the campaign with a panic. The
//! last output is the tables of `docs/reliability.md`.
#![expect(clippy::print_stdout, reason = "a line for each loss, while it runs")]

use std::process::ExitCode;
use std::time::Duration;

use gossip_coordination_etcd::EtcdConfig;
use gossip_testkit::test_support::EtcdCluster;
use gossip_testkit_etcd::{
    Campaign, Loss, Resumed, StoppedWorkers, Takeover, Verdict, be_a_stopped_worker,
};
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::process::own_program;

const WORKERS: usize = 8;
const SHARDS: u32 = 32;

/// Lifetime of the owner key of a stopped worker: shorter than its lease, so that only the lease
/// decides.
const OWNER_LEASE_TTL: Duration = Duration::from_secs(2);

/// The program `etcd-faults`.
pub fn main() -> ExitCode {
    if be_a_stopped_worker() {
        return ExitCode::SUCCESS;
    }
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    let [rounds] = *words else { return Err("usage: etcd-faults ROUNDS".into()) };
    let rounds = rounds.parse()?;
    let runtime = Runtime::new()?;
    let losses = runtime.block_on(lose_leaders(rounds));
    drop(runtime);
    let stopped = stop_workers(rounds)?;
    Ok(format!(
        "## losses\n\
         | the leader is | losses | first worker works again after | every worker after | \
         checkpoints acknowledged | refused: lease lost meanwhile |\n\
         |---|---:|---|---|---:|---:|\n{losses}\n\
         ## stopped\n\
         | a worker is | times | another has its shard after | after the end of the lease | \
         late writes refused |\n\
         |---|---:|---|---|---:|\n{stopped}"
    ))
}

/// Returns the rows of the leader losses.
async fn lose_leaders(rounds: usize) -> String {
    let can_have_machines = EtcdCluster::can_have_machines();
    let mut rows = String::new();
    for loss in Loss::ALL {
        if loss.needs_machines() && !can_have_machines {
            println!("{loss:?}: NOT RUN, {}", EtcdCluster::NO_MACHINES);
            continue;
        }
        let mut campaign = Campaign::start(loss.cluster(), WORKERS, SHARDS).await;
        let mut losses = Vec::new();
        for _ in 0..rounds {
            let resumed = campaign.lose_leader(loss).await;
            let (first, all) = (resumed.first.as_millis(), resumed.all.as_millis());
            println!("{loss:?}: first {first} ms, all {all} ms");
            losses.push(resumed);
        }
        let verdict = campaign.finish().await;
        println!("{loss:?}: {verdict:?}");
        rows.push_str(&row(loss, &losses, verdict));
    }
    if !can_have_machines {
        rows.push_str(&format!("\nPackets were not dropped: {}.\n", EtcdCluster::NO_MACHINES));
    }
    rows
}

/// Formats the row of one kind of loss.
fn row(loss: Loss, losses: &[Resumed], Verdict { acknowledged, refused, .. }: Verdict) -> String {
    let (count, what) = (losses.len(), loss.in_words());
    let first = spread(losses.iter().map(|it| it.first));
    let all = losses.iter().map(|it| it.all).max().unwrap_or_default().as_secs_f32();
    format!("| {what} | {count} | {first} | at most {all:.1} s | {acknowledged} | {refused} |\n")
}

/// Returns the row of the stopped workers.
fn stop_workers(count: usize) -> Outcome<String> {
    let cluster = EtcdCluster::three();
    let endpoints = cluster.endpoints();
    let hosts = endpoints.iter().map(|it| it.trim_start_matches("http://"));
    let config = EtcdConfig::new(hosts, "stopped").expect("the default settings are valid");
    let (owner_lease_ttl, max_clock_skew) = (OWNER_LEASE_TTL, Duration::ZERO);
    let mut workers = StoppedWorkers::new(EtcdConfig { owner_lease_ttl, max_clock_skew, ..config });
    let mut takeovers: Vec<Takeover> = Vec::new();
    for _ in 0..count {
        let takeover = workers.stop_one(own_program()?);
        let Takeover { after_stop, after_lease, acknowledged } = takeover;
        let (stop, lease) = (after_stop.as_millis(), after_lease.as_millis());
        println!(
            "Stopped worker: {acknowledged} checkpoints, taken over after {stop} ms, \
             {lease} ms after its lease"
        );
        takeovers.push(takeover);
    }
    let after_stop = spread(takeovers.iter().map(|it| it.after_stop));
    let after_lease = takeovers.iter().map(|it| it.after_lease).max().unwrap_or_default();
    Ok(format!(
        "| stopped (`SIGSTOP`) until another has its shard, then continued | {count} | \
         {after_stop} | at most {} ms | {count} |",
        after_lease.as_millis()
    ))
}

/// Formats minimum, maximum and median in seconds.
fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<f32> = times.map(|it| it.as_secs_f32()).collect();
    times.sort_unstable_by(f32::total_cmp);
    let count = times.len();
    let [least, middle, most] = [0, count / 2, count.saturating_sub(1)]
        .map(|index| times.get(index).copied().unwrap_or_default());
    format!("{least:.1} to {most:.1} s, median {middle:.1} s")
}
