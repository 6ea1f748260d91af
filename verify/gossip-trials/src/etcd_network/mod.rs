//! Real etcd under faults of the network, with the worker of the product and its default settings.
//!
//! Three servers and six worker processes each have a network namespace. Links between them are
//! cut both ways and one way, flap and are slow; leaders and workers are stopped and leaders are
//! killed; the clocks of the workers differ. Every worker writes its own history of calls and
//! returns (`history`), and a sink stores the effects (`sink`).
//!
//! A world ends when all keys are processed. Then it is judged (`judge`):
//!
//! - the operations on each shard, and its stored state at the end, are linearizable (`linear`);
//!   histories that are doctored are not (`doctored`);
//! - no effect of a lower fence is accepted after one of a higher, and every key has one;
//! - every lost lease has a fault that explains it, and those that were not inevitable are bounded.
//!
//! `cargo xtask etcd-network` runs it. `docs/reliability.md` has the figures.

mod doctored;
mod history;
mod judge;
mod linear;
mod plan;
mod recorded;
mod sink;
mod worker;
mod world;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use gossip_testkit::test_support::EtcdCluster;

use self::history::Histories;
use self::judge::{FaultFigures, Figures};
use self::linear::{Millis, Nanos};
use self::plan::{Counts, Fault, Plan, Scale};
use self::worker::Order;
use self::world::Settings;
use crate::process::output_of;
use crate::{Failure, Outcome};
use gossip_testkit::Rng;

/// Worker processes of a world.
const WORKERS: usize = 6;
/// Threads of each, so shards that a worker holds at a time.
const THREADS: usize = 2;
/// Workers from this one on reach the members through a proxy of their machine, which can delay.
const FIRST_SLOW: usize = 4;
/// Shards of a run: less than threads, so that some threads wait for the end of any lease.
const SHARDS: usize = 10;
/// Keys of a run, and of a run of a short world.
const KEYS: u64 = 20_000;
const KEYS_SHORT: u64 = 4_000;
/// Partitions, and pauses, of one world at most: some minutes.
const FAULTS_PER_WORLD: u64 = 25;
/// The product's defaults, which the worlds use; the sequential shard needs them.
const LEASE: Millis = 15_000;
const SKEW: Millis = 2_000;
/// Offsets of clocks within the allowed skew, and of one that exceeds it in every other world, in
/// milliseconds.
const OFFSETS: [i64; WORKERS] = [0, 900, -900, 450, -450, 0];
const OFFSET_BEYOND: i64 = 4_000;
/// Leases that may be lost although their holder was not cut off or stopped for two thirds of a
/// lease, for 100 partitions and pauses. A request that hangs takes 8 s until its timeout, so two
/// in a row cost a lease (docs/limitations.md).
const AVOIDABLE_PER_100_FAULTS: u64 = 40;

const _: () = assert!(FIRST_SLOW < WORKERS);
const _: () = assert!(SHARDS < THREADS * WORKERS);
const _: () = assert!(OFFSET_BEYOND.unsigned_abs() > SKEW);

/// A cell of a table without figures.
const NONE: &str = "–";
/// The path of etcd's data in the store.
const NAMESPACE: &str = "network";
/// The socket of the sink, in the directory of a world.
const SINK: &str = "sink";

/// The names of files in the directory of a world.
struct Names;

impl Names {
    const FAULTS: &str = "faults";

    fn history(worker: usize) -> String {
        format!("history.{worker}")
    }

    fn output(worker: usize) -> String {
        format!("output.{worker}")
    }
}

/// The program `etcd-network`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

/// Returns why this machine cannot run the campaign, if it cannot.
pub fn obstacle() -> Option<String> {
    if !EtcdCluster::can_filter_packets() {
        return Some(EtcdCluster::NO_FILTER.to_owned());
    }
    world::fake_clock().err().map(|error| error.to_string())
}

fn run(words: &[&str]) -> Outcome<String> {
    match *words {
        ["worker", directory, ref order @ ..] => {
            worker::run(directory.as_ref(), &Order::parse(order)?)
        }
        [partitions, pauses, seed, directory] => {
            let counts = Counts { partitions: partitions.parse()?, pauses: pauses.parse()? };
            campaign(counts, seed.parse()?, directory.as_ref(), false)
        }
        ["short", partitions, pauses, seed, directory] => {
            let counts = Counts { partitions: partitions.parse()?, pauses: pauses.parse()? };
            campaign(counts, seed.parse()?, directory.as_ref(), true)
        }
        ["check", directory] => recheck(directory.as_ref()),
        _ => {
            Err("usage: etcd-network [short] PARTITIONS PAUSES SEED DIRECTORY | check WORLD".into())
        }
    }
}

/// Runs as many worlds as the faults need, and returns the tables.
#[expect(clippy::print_stdout, reason = "a line for each world, while it runs")]
fn campaign(counts: Counts, seed: u64, directory: &Path, is_short: bool) -> Outcome<String> {
    if let Some(why) = obstacle() {
        return Err(format!("the campaign cannot run: {why}").into());
    }
    let worlds = counts.partitions.max(counts.pauses).div_ceil(FAULTS_PER_WORLD).max(1);
    let part = |count: u64, nth: u64| count * (nth + 1) / worlds - count * nth / worlds;
    let mut sum = Figures::default();
    for nth in 0..worlds {
        let mut rng = Rng::seeded(seed ^ (nth << 32));
        let of_world =
            Counts { partitions: part(counts.partitions, nth), pauses: part(counts.pauses, nth) };
        let scale = Scale { workers: WORKERS, first_slow: FIRST_SLOW, is_short };
        let plan = Plan::draw(&mut rng, of_world, scale);
        let place = directory.join(format!("world-{nth}"));
        let keys = if is_short { KEYS_SHORT } else { KEYS };
        let offsets = offsets(&mut rng, nth);
        let settings = Settings { directory: &place, plan: &plan, keys, offsets };
        let kept = |failure: Failure| {
            format!("seed {seed}, world {nth}, histories in {}: {failure}", place.display())
        };
        // A worker that ends early may be the effect of a violation, which says more.
        let evidence = world::run(&settings).map_err(|failure| {
            let checked = recheck(&place).unwrap_or_else(|refusal| refusal.to_string());
            kept(format!("{failure}; histories so far: {checked}").into())
        })?;
        let figures = judge::judge(&evidence, keys, WORKERS).map_err(kept)?;
        println!("world {nth} of {worlds}: {}", summary(&figures));
        sum.add(figures);
    }
    check_bound(&sum)?;
    Ok(tables(&sum, worlds))
}

/// Checks the histories in the directory of a world again.
fn recheck(directory: &Path) -> Outcome<String> {
    let shards = judge::check_unfinished(&Histories::read(directory, WORKERS)?)?;
    Ok(format!("{shards} shards linearizable"))
}

/// Returns how much the clock of each worker is ahead.
fn offsets(rng: &mut Rng, world: u64) -> [i64; WORKERS] {
    let mut offsets = OFFSETS;
    if world % 2 == 1 {
        offsets[WORKERS - 1] = if world % 4 == 1 { OFFSET_BEYOND } else { -OFFSET_BEYOND };
    }
    let by = usize::try_from(rng.below(WORKERS as u64)).expect("below the number of workers");
    offsets.rotate_left(by);
    offsets
}

/// Fails if more leases were lost than the bound allows.
fn check_bound(figures: &Figures) -> Outcome<()> {
    let (lost, allowed) = (figures.avoidable(), allowed(figures));
    match lost <= allowed {
        true => Ok(()),
        false => Err(format!("{lost} leases were lost needlessly, {allowed} allowed").into()),
    }
}

fn allowed(figures: &Figures) -> u64 {
    let [partitions, pauses] = [Fault::is_partition, Fault::is_pause as fn(Fault) -> bool]
        .map(|is_it| count(figures, is_it));
    ((partitions + pauses) * AVOIDABLE_PER_100_FAULTS).div_ceil(100)
}

fn count(figures: &Figures, is_it: fn(Fault) -> bool) -> u64 {
    let of_kind = figures.faults.iter().filter(|(fault, _)| is_it(**fault));
    of_kind.map(|(_, figures)| figures.lasted.len() as u64).sum()
}

fn summary(figures: &Figures) -> String {
    let [partitions, pauses] = [Fault::is_partition, Fault::is_pause as fn(Fault) -> bool]
        .map(|is_it| count(figures, is_it));
    let lost: u64 = figures.faults.values().map(|it| it.lost).sum();
    format!(
        "{partitions} partitions, {pauses} pauses, {} operations on {} shards linearizable, {lost} \
         leases lost, {} of them needlessly, {} stale effects refused, {} ways of doctoring refused",
        figures.operations,
        figures.shards,
        figures.avoidable(),
        figures.effects.stale,
        figures.doctored,
    )
}

fn tables(figures: &Figures, worlds: u64) -> String {
    let mut text = "## faults\n\
        | fault | times | lasted | the store answers again: median, most | leases lost | \
         inevitable | holder reached a majority |\n|---|---:|---|---|---:|---:|---:|\n"
        .to_owned();
    for fault in Fault::ALL {
        let of_fault = figures.faults.get(&fault).cloned().unwrap_or_default();
        let FaultFigures { lasted, resumed, lost, inevitable, by_leader } = of_fault;
        let (what, times) = (fault.in_words(), lasted.len());
        let none = || NONE.to_owned();
        let since = if fault.is_of_leader() { "start" } else { "end" };
        let lasted =
            spread(lasted).map_or_else(none, |[least, _, most]| format!("{least} to {most} s"));
        let resumed = spread(resumed)
            .map_or_else(none, |[_, median, most]| format!("{median}, {most} s after its {since}"));
        text.push_str(&format!(
            "| {what} | {times} | {lasted} | {resumed} | {lost} | {inevitable} | {by_leader} |\n"
        ));
    }
    let Figures { shards, operations, replies_lost, grants, grants_lost, .. } = figures;
    let sink::Effects { accepted, stale, repeated } = figures.effects;
    let [partitions, pauses] = [Fault::is_partition, Fault::is_pause as fn(Fault) -> bool]
        .map(|is_it| count(figures, is_it));
    let per_world = figures.doctored as f64 / worlds as f64;
    text.push_str(&format!(
        "## judged\n| judged | figure |\n|---|---|\n\
         | servers | {} |\n\
         | worlds, partitions, pauses | {worlds}, {partitions}, {pauses} |\n\
         | histories of shards, all linearizable | {shards} |\n\
         | operations, of which with a lost reply | {operations}, {replies_lost} |\n\
         | grants, of which with a lost reply | {}, {grants_lost} |\n\
         | ways of doctoring a history, refused in a world | {per_world:.1} of {} on average |\n\
         | effects accepted, of which repeated | {accepted}, {repeated} |\n\
         | effects of a stale fence, all refused | {stale} |\n\
         | leases lost that were not inevitable | {} of {} allowed |\n\
         | outages reported by workers | {} |\n",
        version(),
        grants + grants_lost,
        doctored::Doctoring::ALL.len(),
        figures.avoidable(),
        allowed(figures),
        figures.outages,
    ));
    text
}

/// Returns the version of the servers.
fn version() -> String {
    let output = output_of(Command::new("etcd").arg("--version")).unwrap_or_default();
    let first = output.lines().next().unwrap_or_default();
    format!("etcd {}", first.rsplit(' ').next().unwrap_or_default())
}

/// Returns minimum, median and maximum in seconds, if there are any.
fn spread(mut times: Vec<Nanos>) -> Option<[String; 3]> {
    times.sort_unstable();
    let last = times.len().checked_sub(1)?;
    Some(
        [0, last / 2, last]
            .map(|index| format!("{:.1}", Duration::from_nanos(times[index]).as_secs_f32())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(lost: u64, inevitable: u64) -> Figures {
        let lasted = vec![1; 8];
        let of_fault = FaultFigures { lasted, lost, inevitable, ..FaultFigures::default() };
        Figures { faults: [(Fault::WorkerCut, of_fault)].into(), ..Figures::default() }
    }

    #[test]
    fn bound_counts_leases_whose_loss_was_not_inevitable() {
        assert!(check_bound(&figures(9, 9)).is_ok());
        assert!(check_bound(&figures(13, 9)).is_ok());
        assert!(check_bound(&figures(14, 9)).is_err());
    }

    #[test]
    fn clocks_differ_by_more_than_the_skew_in_every_other_world() {
        let differ = |world| {
            let offsets = offsets(&mut Rng::seeded(world), world);
            offsets.iter().max().unwrap() - offsets.iter().min().unwrap()
        };
        let skew = i64::try_from(SKEW).unwrap();
        assert!(differ(0) <= skew && differ(2) <= skew);
        assert!(differ(1) > skew && differ(3) > skew);
    }

    #[test]
    fn tables_have_a_row_for_every_fault() {
        let tables = tables(&figures(3, 1), 1);
        for fault in Fault::ALL {
            assert!(tables.contains(fault.in_words()), "{fault:?}");
        }
        assert!(tables.contains("| 2 of 4 allowed |"), "{tables}");
    }
}
