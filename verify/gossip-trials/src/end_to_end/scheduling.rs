//! How close several processes come to the time in which their work could be done.

use std::fmt::Write as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_testkit::test_support::EtcdServer;

use super::handler::{KEY_TIME, SLOW};
use super::measure::{median, seconds};
use super::traces::etcd_requests;
use super::{Bench, Scale};
use crate::Outcome;

/// Processes, or threads of one.
const WORKERS: u32 = 8;

/// Keys, and how many of them at the end are slow.
const KEYS: u32 = 2_000;
const SLOW_KEYS: u32 = 100;

/// Keys of the job in which two workers are killed, which is after [`KILLED_AFTER`].
const EVEN_KEYS: u32 = 8_000;
const KILLED: usize = 2;
const KILLED_AFTER: Duration = Duration::from_secs(2);

pub(super) fn table(bench: &Bench) -> Outcome<String> {
    let mut table = "| job | ideal | taken | ÷ ideal |\n|---|---:|---:|---:|\n".to_owned();
    let (keys, slow) = match bench.scale {
        Scale::Full => (KEYS, SLOW_KEYS),
        Scale::Quick => (KEYS / 10, SLOW_KEYS / 10),
    };
    let handler = format!("slow-from-{}", keys - slow);
    let ideal = KEY_TIME * (keys - slow + slow * SLOW) / WORKERS;
    let job = format!("{keys} keys of 5 ms, {slow} of them {SLOW} × slower at the end");
    row(&mut table, bench, &format!("{job}, {WORKERS} processes"), ideal, || {
        processes(bench, &bench.sqlite(), keys, &handler, 0).map(|(taken, _)| taken)
    })?;
    row(&mut table, bench, &format!("{job}, `-j{WORKERS}`"), ideal, || {
        bench.remove_store()?;
        let begun = Instant::now();
        finish(start(bench, &bench.sqlite(), WORKERS, keys, &handler)?)?;
        Ok(begun.elapsed())
    })?;
    let keys = match bench.scale {
        Scale::Full => EVEN_KEYS,
        Scale::Quick => EVEN_KEYS / 4,
    };
    let job = format!("{keys} keys of 5 ms, {WORKERS} processes, `kill -9` of {KILLED} after 2 s");
    // The others do the work that is left after the kill.
    let left = (KEY_TIME * keys).saturating_sub(KILLED_AFTER * WORKERS);
    let killed = u32::try_from(KILLED)?;
    row(&mut table, bench, &job, KILLED_AFTER + left / (WORKERS - killed), || {
        processes(bench, &bench.sqlite(), keys, "even", KILLED).map(|(taken, _)| taken)
    })?;
    table.push('\n');
    table.push_str(&etcd(bench)?);
    Ok(table)
}

fn row(
    table: &mut String,
    bench: &Bench,
    job: &str,
    ideal: Duration,
    run: impl Fn() -> Outcome<Duration>,
) -> Outcome<()> {
    let rounds = (0..bench.rounds()).map(|_| run()).collect::<Outcome<Vec<_>>>()?;
    let taken = median(rounds.iter().map(Duration::as_secs_f64).collect());
    let ideal = ideal.as_secs_f64();
    let (shown, taken, ratio) = (seconds(ideal), seconds(taken), taken / ideal);
    writeln!(table, "| {job} | {shown} | {taken} | {ratio:.2} |")?;
    Ok(())
}

/// Starts processes on one new run, kills some of them later, and waits for the others. Returns how
/// long they took and the number of those that were killed.
fn processes(
    bench: &Bench,
    store: &str,
    keys: u32,
    handler: &str,
    killed: usize,
) -> Outcome<(Duration, usize)> {
    if store.starts_with("sqlite:") {
        bench.remove_store()?;
    }
    let begun = Instant::now();
    let mut workers: Vec<Child> =
        (0..WORKERS).map(|_| start(bench, store, 1, keys, handler)).collect::<Outcome<_>>()?;
    if killed > 0 {
        thread::sleep(KILLED_AFTER.saturating_sub(begun.elapsed()));
        for mut worker in workers.drain(..killed) {
            worker.kill()?;
            worker.wait()?;
        }
    }
    workers.into_iter().try_for_each(finish)?;
    Ok((begun.elapsed(), killed))
}

fn start(bench: &Bench, store: &str, jobs: u32, keys: u32, handler: &str) -> Outcome<Child> {
    let (range, jobs, own) = (format!("range:0..{keys}"), format!("-j{jobs}"), bench.handler());
    let words = [&range, &jobs, "--shards", "32", "--stream", "--", &own, "handle", handler];
    Ok(bench.exec_on(store, &words).stderr(Stdio::piped()).spawn()?)
}

fn finish(worker: Child) -> Outcome<()> {
    let output = worker.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Requests of eight processes to etcd, for each thousand keys.
fn etcd(bench: &Bench) -> Outcome<String> {
    let etcd = EtcdServer::single();
    let store = format!("etcd://127.0.0.1:{}/bench", etcd.client_port());
    let before = etcd_requests(etcd.client_port())?;
    let keys = match bench.scale {
        Scale::Full => EVEN_KEYS,
        Scale::Quick => EVEN_KEYS / 4,
    };
    let (taken, _) = processes(bench, &store, keys, "even", 0)?;
    let requests = etcd_requests(etcd.client_port())? - before;
    let per_thousand = requests * 1_000.0 / f64::from(keys);
    let taken = seconds(taken.as_secs_f64());
    Ok(format!(
        "| etcd, {keys} keys of 5 ms, {WORKERS} processes | taken | requests per 1,000 keys |\n\
         |---|---:|---:|\n| one run | {taken} | {per_thousand:.0} |"
    ))
}
