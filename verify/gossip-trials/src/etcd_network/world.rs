//! One world: three servers and some workers, each on a machine of its own, and the faults of a
//! plan.

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gossip::coordination::{RunManagement as _, ShardFilter, ShardStatus};
use gossip::identity::TenantId;
use gossip::runtime::{Clock as _, SystemClock};
use gossip::store::Backend;
use gossip::{DEFAULT_TENANT, Scan, tenant_id};
use gossip_testkit::test_support::{EtcdCluster, send_signal};

use super::history::{Histories, monotonic};
use super::judge::Injected;
use super::linear::{Effect, Operation};
use super::plan::{Fault, Plan, Planned};
use super::recorded::number_behind;
use super::sink::{self, Sink};
use super::worker::Order;
use super::{FIRST_SLOW, NAMESPACE, Names, SHARDS, SINK, THREADS, WORKERS};
use crate::process::{Wait, own_program};
use crate::{Failure, Outcome};

/// Members of the cluster: the machines before those of the workers.
const MEMBERS: usize = 3;

/// How long workers may take until their first claims are answered.
const STARTED: Wait = Wait { limit: Duration::from_secs(60), interval: Duration::from_millis(50) };

/// How long workers may take to finish when the faults are over: a lease of a worker that was
/// stopped runs out, and its keys are processed.
const FINISHED: Wait =
    Wait { limit: Duration::from_secs(180), interval: Duration::from_millis(100) };

/// How long the members may be without a leader before a fault.
const LED: Wait = Wait { limit: Duration::from_secs(60), interval: Duration::from_millis(50) };

/// Milliseconds by which a clock may differ from the ordered offset: the worker reads two clocks
/// one after the other on a busy machine.
const CLOCK_TOLERANCE: i64 = 250;

/// The evidence that a world leaves.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) injected: Vec<Injected>,
    pub(super) histories: Histories,
    pub(super) effects: Vec<sink::Effect>,
    /// The last read of each shard.
    pub(super) finals: Vec<(u64, Operation)>,
}

/// The settings of a world.
#[derive(Debug)]
pub(super) struct Settings<'s> {
    pub(super) directory: &'s Path,
    pub(super) plan: &'s Plan,
    pub(super) keys: u64,
    /// How much the clock of each worker is ahead, in milliseconds.
    pub(super) offsets: [i64; WORKERS],
}

/// Runs a world to its end and returns the evidence.
///
/// # Errors
///
/// If a worker does not complete the run.
pub(super) fn run(settings: &Settings<'_>) -> Outcome<Evidence> {
    let Settings { directory, plan, keys, offsets } = settings;
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let cluster = EtcdCluster::three_machines_and(WORKERS);
    let hosts: Vec<String> =
        cluster.endpoints().iter().map(|it| it.trim_start_matches("http://").to_owned()).collect();
    let endpoints = hosts.join(",");
    let backend = Backend::open(&format!("etcd://{endpoints}/{NAMESPACE}").parse()?)?;
    let (tenant, shards) = (tenant_id(DEFAULT_TENANT)?, NonZero::new(SHARDS).ok_or("no shards")?);
    let prepared = Scan::of(format!("range:0..{keys}")).shards(shards).prepare()?;
    let session = prepared.open(&backend, tenant, &())?;
    let threads = u32::try_from(SHARDS.min(THREADS * WORKERS))?;
    let sink = Sink::start(&directory.join(SINK), *keys, threads, Instant::now() + plan.lasts())?;
    let base = wall_clock()? - i64::try_from(monotonic() / 1_000_000)?;
    let mut workers = Vec::new();
    for (index, offset) in offsets.iter().enumerate() {
        let (endpoints, is_slow) = (endpoints.clone(), index >= FIRST_SLOW);
        let order = Order { index, keys: *keys, run: session.run().as_raw(), endpoints, is_slow };
        workers.push(Worker::start(&cluster, directory, &order, *offset)?);
    }
    STARTED.until("workers claim no shard", || {
        workers.iter_mut().try_for_each(Worker::check)?;
        Ok(workers.iter().all(Worker::has_claimed))
    })?;
    let world = World { cluster: Mutex::new(cluster), workers: &workers };
    let injected = world.inject(plan)?;
    fs::write(directory.join(Names::FAULTS), listed(&injected))?;
    FINISHED.until("workers do not complete the run", || {
        workers.iter_mut().map(Worker::has_completed).try_fold(true, |all, it| Ok(all & it?))
    })?;
    let finals = finals(&backend, tenant, session.run())?;
    let histories = Histories::read(directory, WORKERS)?;
    check_clocks(&histories, base, offsets)?;
    Ok(Evidence { injected, histories, effects: sink.effects(), finals })
}

fn check_clocks(histories: &Histories, base: i64, offsets: &[i64]) -> Outcome<()> {
    for (worker, ordered) in offsets.iter().enumerate() {
        let found = histories.clock_offset(worker, base).ok_or("a worker noted no clock")?;
        if (found - ordered).abs() > CLOCK_TOLERANCE {
            return Err(format!("clock of worker {worker}: {found} ms, not {ordered}").into());
        }
    }
    Ok(())
}

fn wall_clock() -> Outcome<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Returns the stored state of every shard, as the last operation on it.
fn finals(
    backend: &Backend,
    tenant: TenantId,
    run: gossip::identity::RunId,
) -> Outcome<Vec<(u64, Operation)>> {
    let (mut rows, call) = (Vec::new(), monotonic());
    let now = SystemClock::new().now();
    backend.coordinator().list_shards_into(now, tenant, run, ShardFilter::all(), &mut rows)?;
    let end = Some(monotonic());
    let read = |row: &gossip::coordination::ShardSummary| {
        let (fence, cursor) = (row.fence_epoch.as_raw(), number_behind(row.last_key.as_deref()));
        let effect = Effect::Final { fence, cursor, is_done: row.status == ShardStatus::Done };
        (row.shard.as_raw(), Operation { worker: WORKERS, call, end, effect })
    };
    Ok(rows.iter().map(read).collect())
}

/// Returns the faults for people who read the histories of a failure.
fn listed(injected: &[Injected]) -> String {
    let line = |it: &Injected| {
        let Injected { fault, worker, start, end } = it;
        format!("{start} {end} {fault:?} {worker:?}\n")
    };
    injected.iter().map(line).collect()
}

/// A worker process.
#[derive(Debug)]
struct Worker {
    index: usize,
    child: Child,
    directory: PathBuf,
}

impl Worker {
    fn start(cluster: &EtcdCluster, directory: &Path, order: &Order, offset: i64) -> Outcome<Self> {
        let launcher = cluster.launcher(MEMBERS + order.index);
        let (program, words) = launcher.split_first().ok_or("no launcher")?;
        let mut command = Command::new(program);
        command.args(words).arg(own_program()?.get_program()).arg("worker").arg(directory);
        command.args(order.words()).stdin(Stdio::piped());
        let output = File::create(directory.join(Names::output(order.index)))?;
        command.stdout(output.try_clone()?).stderr(output);
        if offset != 0 {
            // The monotonic clock stays right, as on a machine whose wall clock is wrong.
            let seconds = format!("{:+.3}", offset as f64 / 1_000.0);
            command.env("LD_PRELOAD", fake_clock()?).env("FAKETIME", seconds);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let (index, directory) = (order.index, directory.to_owned());
        Ok(Self { index, child: command.spawn()?, directory })
    }

    fn history(&self) -> String {
        fs::read_to_string(self.directory.join(Names::history(self.index))).unwrap_or_default()
    }

    /// Returns whether a claim was answered. There are fewer shards than threads, so the answer
    /// may be that none is free.
    fn has_claimed(&self) -> bool {
        let history = self.history();
        history.contains(" granted ") || history.contains(" none-free")
    }

    /// Fails if the process has ended.
    fn check(&mut self) -> Outcome<()> {
        match self.child.try_wait()? {
            Some(_) => Err(self.failure()),
            None => Ok(()),
        }
    }

    /// Returns whether the process has ended because the run is complete; fails if it has ended
    /// otherwise.
    fn has_completed(&mut self) -> Outcome<bool> {
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(self.failure()),
            None => Ok(false),
        }
    }

    fn failure(&self) -> Failure {
        let output = fs::read_to_string(self.directory.join(Names::output(self.index)));
        format!("worker {} ended: {}", self.index, output.unwrap_or_default()).into()
    }

    /// Delays everything between the worker and the members from now on.
    fn delay(&self, delay: Duration) {
        let Some(mut stdin) = self.child.stdin.as_ref() else { return };
        // A worker that has ended has no links.
        let _ = writeln!(stdin, "{}", delay.as_millis());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the library that changes the clock of a process.
///
/// # Errors
///
/// If it is not installed.
pub(super) fn fake_clock() -> Outcome<PathBuf> {
    let libraries = fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path());
    let library = |path: PathBuf| path.join("faketime/libfaketimeMT.so.1");
    let found = libraries.map(library).find(|path| path.is_file());
    found.ok_or_else(|| "libfaketime is not installed: cargo xtask setup etcd-network".into())
}

/// The parts of a world that faults change.
struct World<'w> {
    cluster: Mutex<EtcdCluster>,
    workers: &'w [Worker],
}

impl World<'_> {
    /// Injects the faults of all lanes at the same time, and returns them with their times.
    fn inject(&self, plan: &Plan) -> Outcome<Vec<Injected>> {
        let lane = |lane: &[Planned]| lane.iter().map(|it| self.befall(it)).collect();
        let lanes: Outcome<Vec<Vec<Injected>>> = thread::scope(|scope| {
            let lanes = plan.lanes.each_ref().map(|it| scope.spawn(|| lane(it)));
            lanes.into_iter().map(|it| it.join().map_err(|_| "a lane panicked")?).collect()
        });
        Ok(lanes?.concat())
    }

    fn befall(&self, planned: &Planned) -> Outcome<Injected> {
        let Planned { fault, worker, lasts, gap, interval } = *planned;
        let member = if fault.is_of_leader() { Some(self.leader()?) } else { None };
        let links = member.map_or_else(|| worker_links(fault, worker), |it| peer_links(fault, it));
        let start = monotonic();
        match (fault, member) {
            (Fault::LeaderFlaps | Fault::WorkerFlaps, _) => self.flap(&links, lasts, interval),
            (Fault::LeaderStopped, Some(member)) => {
                self.cluster().member(member).pause();
                thread::sleep(lasts);
                self.cluster().member(member).resume();
            }
            (Fault::LeaderKilled, Some(member)) => {
                self.cluster().member(member).kill();
                thread::sleep(lasts);
                self.cluster().member(member).restart_without_waiting();
            }
            (Fault::WorkerStopped, _) => {
                let pid = self.workers[worker].child.id();
                send_signal("STOP", pid);
                thread::sleep(lasts);
                send_signal("CONT", pid);
            }
            (Fault::WorkerSlow, _) => {
                self.workers[worker].delay(interval);
                thread::sleep(lasts);
                self.workers[worker].delay(Duration::ZERO);
            }
            _ => {
                self.cut(&links);
                thread::sleep(lasts);
                self.join(&links);
            }
        }
        let end = monotonic();
        thread::sleep(gap);
        let worker = member.is_none().then_some(worker);
        Ok(Injected { fault, worker, start, end })
    }

    fn flap(&self, links: &[(usize, usize)], lasts: Duration, interval: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            self.cut(links);
            thread::sleep(interval);
            self.join(links);
            thread::sleep(interval);
        }
    }

    fn cut(&self, links: &[(usize, usize)]) {
        let cluster = self.cluster();
        links.iter().for_each(|(from, to)| cluster.drop_packets(*from, *to));
    }

    fn join(&self, links: &[(usize, usize)]) {
        let cluster = self.cluster();
        links.iter().for_each(|(from, to)| cluster.pass_packets(*from, *to));
    }

    fn leader(&self) -> Outcome<usize> {
        let mut leader = None;
        LED.until("no member is the leader", || {
            leader = self.cluster().declared_leader();
            Ok(leader.is_some())
        })?;
        leader.ok_or_else(|| "no leader".into())
    }

    fn cluster(&self) -> MutexGuard<'_, EtcdCluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the directions in which packets between a member and its peers are dropped.
fn peer_links(fault: Fault, member: usize) -> Vec<(usize, usize)> {
    let peers = (0..MEMBERS).filter(|it| *it != member);
    directions(
        fault != Fault::LeaderHearsNothing,
        fault != Fault::LeaderSendsNothing,
        member,
        peers,
    )
}

/// Returns the directions in which packets between a worker and all members are dropped.
fn worker_links(fault: Fault, worker: usize) -> Vec<(usize, usize)> {
    let machine = MEMBERS + worker;
    directions(fault != Fault::RepliesLost, fault != Fault::RequestsLost, machine, 0..MEMBERS)
}

/// Returns the links from and to a machine.
fn directions(
    sends: bool,
    receives: bool,
    machine: usize,
    others: impl Iterator<Item = usize>,
) -> Vec<(usize, usize)> {
    let both = others.flat_map(|other| [((machine, other), sends), ((other, machine), receives)]);
    both.filter(|(_, is_cut)| *is_cut).map(|(link, _)| link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_faults_drop_packets_one_way() {
        assert_eq!(peer_links(Fault::LeaderCut, 1).len(), 4);
        assert_eq!(peer_links(Fault::LeaderSendsNothing, 1), [(1, 0), (1, 2)]);
        assert_eq!(peer_links(Fault::LeaderHearsNothing, 1), [(0, 1), (2, 1)]);
        assert_eq!(worker_links(Fault::WorkerCut, 0).len(), 6);
        assert_eq!(worker_links(Fault::RequestsLost, 0), [(3, 0), (3, 1), (3, 2)]);
        assert_eq!(worker_links(Fault::RepliesLost, 0), [(0, 3), (1, 3), (2, 3)]);
    }
}
