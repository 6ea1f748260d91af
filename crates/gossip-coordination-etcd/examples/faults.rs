//! A campaign: workers on three real servers lose their leader, again and again.
//!
//! `cargo xtask etcd-faults --rounds 10` runs it.
//!
//! The number is how often the leader is lost in each way. Every line is a loss: how it happened,
//! how long until the first worker and until every worker worked again. A stale write that is
//! accepted, or acknowledged progress that is lost, ends the campaign with a panic. The rows at the
//! end are those of `docs/reliability.md`.
#![expect(clippy::print_stdout, reason = "what it prints is its result")]

use gossip_coordination_etcd::test_support::{Campaign, EtcdCluster, Loss, Resumed, Verdict};

const WORKERS: usize = 8;
const SHARDS: u32 = 32;

#[tokio::main]
async fn main() {
    #[expect(clippy::disallowed_methods, reason = "a program of its own")]
    let rounds = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let mut rows = Vec::new();
    for loss in Loss::ALL {
        let mut campaign = Campaign::start(EtcdCluster::three(), WORKERS, SHARDS).await;
        let mut losses = Vec::new();
        for _ in 0..rounds {
            let resumed = campaign.lose_leader(loss).await;
            let (first, all) = (resumed.first.as_millis(), resumed.all.as_millis());
            println!("{loss:?}: first {first} ms, all {all} ms");
            losses.push(resumed);
        }
        let verdict = campaign.finish().await;
        println!("{loss:?}: {verdict:?}");
        rows.push(row(loss, losses, verdict));
    }
    println!("| leader | losses | first worker | median | every worker | checkpoints | refused |");
    rows.iter().for_each(|row| println!("{row}"));
}

/// What the losses of one kind have in common, in seconds.
fn row(loss: Loss, mut losses: Vec<Resumed>, verdict: Verdict) -> String {
    losses.sort_unstable_by_key(|it| it.first);
    let first: Vec<f32> = losses.iter().map(|it| it.first.as_secs_f32()).collect();
    let all = losses.iter().map(|it| it.all.as_secs_f32()).fold(0.0, f32::max);
    let count = losses.len();
    let [least, middle, most] = [0, count / 2, count.saturating_sub(1)]
        .map(|index| first.get(index).copied().unwrap_or_default());
    let Verdict { acknowledged, refused, .. } = verdict;
    format!(
        "| {loss:?} | {count} | {least:.1} to {most:.1} s | {middle:.1} s | at most {all:.1} s | \
         {acknowledged} | {refused} |"
    )
}
