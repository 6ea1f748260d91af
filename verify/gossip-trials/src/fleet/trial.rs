//! One trial from an empty etcd to a verified certificate.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_contracts::identity::{RunId, TenantId};
use gossip_testkit::test_support::EtcdServer;

use crate::Outcome;
use crate::fleet::history_check::{Cause, Fates, Figures, History, Sleep, Time};
use crate::fleet::sink::{self, Sink};
use crate::fleet::watch::Watcher;
use crate::fleet::worker::Worker;
use crate::process::{Gossip, Wait, output_of};

/// The tenant of the run.
const TENANT: &str = "fleet";
const TENANT_BYTES: usize = 32;
/// Workers of the fleet.
const WORKERS: usize = 8;
/// Shards of each worker at a time.
const JOBS: u64 = 2;
/// Initial shards: several for each job, so that some wait and some are split.
const SHARDS: u64 = 48;
/// A takeover waits for the lease, and on etcd for the skew that clocks may have, two seconds.
const LEASE: &str = "5s";
/// Keys between two checkpoints of a shard; a second ends an interval, too.
const CHECKPOINT_KEYS: u64 = 25;
/// Keys per grant that may be processed again: one interval and the in-flight key.
const ALLOWED_OF_A_GRANT: u64 = CHECKPOINT_KEYS + 1;
/// Shards whose owners are requested to release them.
const RELEASES: usize = 6;
/// No step of the trial takes longer, on the slowest machine.
const WAIT: Wait = Wait { limit: Duration::from_secs(240), interval: Duration::from_millis(20) };
/// Attempts to suspend a worker in the middle of a key and not of a write.
const MAX_STOPS: usize = 50;

/// Why keys are redone, in the order of the table.
const CAUSES: [Cause; 3] = [Cause::Killed, Cause::Slept, Cause::Expired];

/// Runs the trial and returns its figures.
pub(crate) fn run(keys: u64, directory: &Path) -> Outcome<String> {
    let begun = Instant::now();
    let etcd = EtcdServer::single();
    let mut trial = Trial::prepare(keys, directory, &etcd)?;
    trial.wait_for_keys(keys / 20)?;
    trial.kill(0)?;
    trial.wait_for_keys(keys / 10)?;
    trial.kill(1)?;
    trial.suspend(2)?;
    trial.drain(3)?;
    let released = trial.request_releases()?;
    trial.wait_until_overtaken(2)?;
    trial.resume(2)?;
    let figures = trial.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(format!(
        "{WORKERS} workers on etcd, 2 killed, 1 suspended beyond its lease, 1 drained, \
         {released} shards released on request: {figures}; the certificate verifies; \
         {seconds:.0} s\n\
         | {keys} | {released} | {} | {} of {ALLOWED_OF_A_GRANT} allowed | {} | {} | \
         {seconds:.0} s |",
        CAUSES.map(|cause| figures.redone_by(cause).to_string()).join(", "),
        figures.most_of_a_grant,
        figures.moved_by_drain,
        figures.refused,
    ))
}

struct Trial {
    gossip: Gossip,
    run: String,
    keys: u64,
    sink: Sink,
    workers: Vec<Worker>,
    fates: Fates,
    /// Until the end of the trial.
    watcher: Option<Watcher>,
}

impl Trial {
    /// Creates the run and starts the workers.
    fn prepare(keys: u64, directory: &Path, etcd: &EtcdServer) -> Outcome<Self> {
        let store = format!("etcd://127.0.0.1:{}/fleet", etcd.client_port());
        let gossip = Gossip::on(store, directory)?;
        let sink = Sink::make(gossip.directory(), keys)?;
        let mut trial = Self {
            gossip,
            run: String::new(),
            keys,
            sink,
            workers: Vec::new(),
            fates: Fates::default(),
            watcher: None,
        };
        trial.run = trial.create()?;
        let run = RunId::from_raw(u64::from_str_radix(&trial.run, 16)?);
        trial.watcher = Some(Watcher::start(trial.gossip.store(), tenant(), run)?);
        for number in 0..WORKERS {
            let name = number.to_string();
            let worker = Worker::start(&mut trial.worker(&name)?, name, trial.gossip.directory())?;
            trial.workers.push(worker);
        }
        Ok(trial)
    }

    fn create(&self) -> Outcome<String> {
        let (source, shards) = (self.source(), SHARDS.to_string());
        // Each worker passes its own command, which contains its name.
        let create = ["run", "create", &source, "--stream", "--lease", LEASE, "--shards", &shards];
        output_of(self.command().args(create).args(["--", "false"]))
    }

    fn worker(&self, name: &str) -> Outcome<Command> {
        let (jobs, keys) = (JOBS.to_string(), CHECKPOINT_KEYS.to_string());
        let mut command = self.command();
        command.args([
            "-v",
            "worker",
            &self.run,
            "--jobs",
            &jobs,
            "--checkpoint-keys",
            &keys,
            "--",
        ]);
        command.arg(std::env::current_exe().unwrap_or_default()).arg("handle");
        command.arg(self.gossip.directory()).args([&self.keys.to_string(), name]);
        let log = File::create(self.gossip.directory().join(format!("log.{name}")))?;
        command.stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    fn command(&self) -> Command {
        let mut command = self.gossip.command();
        command.env("GOSSIP_TENANT", TENANT);
        command
    }

    fn source(&self) -> String {
        format!("range:0..{}", self.keys)
    }

    fn kill(&mut self, number: usize) -> Outcome<()> {
        self.workers[number].kill()?;
        self.fates.killed.insert(self.workers[number].name.clone());
        Ok(())
    }

    /// Suspends a worker while all its handlers are processing keys.
    fn suspend(&mut self, number: usize) -> Outcome<()> {
        for _ in 0..MAX_STOPS {
            let worker = &self.workers[number];
            worker.stop()?;
            WAIT.until("the suspension of a worker", || worker.is_stopped())?;
            let begun = self.in_flight(number)?;
            // A worker suspended during a write would hold the sink's lock.
            if let Some(begun) = begun.filter(|begun| !begun.is_empty())
                && !self.sink.is_busy()?
            {
                let sleep = Sleep { begun, from: sink::now(), until: Time::MAX };
                self.fates.slept.insert(worker.name.clone(), sleep);
                return Ok(());
            }
            worker.resume()?;
            thread::sleep(WAIT.interval);
        }
        Err("the worker was never suspended in the middle of a key".into())
    }

    /// Returns the in-flight keys and fences of a worker's handlers; `None` if a handler is idle.
    /// An idle handler might receive a key that it has not recorded yet.
    fn in_flight(&self, number: usize) -> Outcome<Option<BTreeSet<(u64, u64)>>> {
        let worker = &self.workers[number];
        let journal = self.sink.journal()?;
        let is_written = |(key, fence): (u64, u64)| {
            let written = format!("accepted {key} {fence} ");
            journal.lines().any(|line| line.starts_with(&written))
        };
        let begun = worker.last_begun()?.into_iter();
        Ok(begun.map(|begun| begun.filter(|begun| !is_written(*begun))).collect())
    }

    fn drain(&mut self, number: usize) -> Outcome<()> {
        self.workers[number].drain();
        let output = self.workers[number].finish()?;
        if output.status.code() != Some(130) {
            return Err(format!("drained: {}", self.log(number)?).into());
        }
        self.fates.drained.insert(self.workers[number].name.clone());
        Ok(())
    }

    /// Requests owners to release shards.
    fn request_releases(&self) -> Outcome<usize> {
        let listed = output_of(self.command().args(["shard", "list", &self.run, "-o", "jsonl"]))?;
        let leased = listed.lines().filter(|line| line.contains("\"status\":\"leased\""));
        let mut asked = 0;
        for line in leased.take(RELEASES) {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let shard = row["shard"].as_str().ok_or("a shard without an id")?;
            let mut release = self.command();
            // The shard may be done before the request.
            let ended = release.args(["-q", "shard", "release", &self.run, shard]).output()?;
            asked += usize::from(ended.status.success());
        }
        Ok(asked)
    }

    /// Waits until other workers have written every key that the suspended worker had begun.
    fn wait_until_overtaken(&self, number: usize) -> Outcome<()> {
        let sleep = self
            .fates
            .slept
            .get(&self.workers[number].name)
            .ok_or("the worker is not suspended")?;
        WAIT.until("the keys of the suspended worker", || {
            for (key, fence) in &sleep.begun {
                if self.sink.fence_of(*key)? <= *fence {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Resumes a suspended worker and waits for its late writes.
    fn resume(&mut self, number: usize) -> Outcome<()> {
        let name = self.workers[number].name.clone();
        let sleep = self.fates.slept.get_mut(&name).ok_or("the worker is not suspended")?;
        sleep.until = sink::now();
        let late = sleep.begun.len();
        self.workers[number].resume()?;
        WAIT.until("the late writes", || {
            let journal = self.sink.journal()?;
            let mine = journal.lines().filter(|line| line.starts_with("refused"));
            Ok(mine.filter(|line| line.split(' ').nth(4) == Some(&name)).count() >= late)
        })
    }

    /// Waits for all workers and checks the history.
    fn finish(mut self) -> Outcome<Figures> {
        for number in 0..WORKERS {
            let worker = &mut self.workers[number];
            let (fates, name) = (&self.fates, &worker.name);
            if !fates.killed.contains(name) && !fates.drained.contains(name) {
                WAIT.until("the end of a worker", || worker.has_ended())?;
                if !worker.finish()?.status.success() {
                    return Err(self.log(number)?.into());
                }
            }
            self.note_lost(number)?;
        }
        let export = ["run", "export", &self.run, "--to", "certificate", "-q"];
        output_of(self.command().args(export))?;
        let source = self.source();
        output_of(self.command().args(["verify", "certificate", "--source", &source, "-q"]))?;
        let leases = self.watcher.take().ok_or("the watcher has already stopped")?.finish();
        let history = History {
            journal: &self.sink.journal()?,
            leases: &leases,
            fates: &self.fates,
            keys: self.keys,
            allowed: ALLOWED_OF_A_GRANT,
        };
        history.check()
    }

    /// Records the leases that a worker reports as lost.
    fn note_lost(&mut self, number: usize) -> Outcome<()> {
        for line in self.log(number)?.lines() {
            let shard = line.strip_prefix("shard ").and_then(|rest| rest.strip_suffix(": Lost"));
            let name = &self.workers[number].name;
            self.fates.lost.extend(shard.map(|shard| (name.clone(), shard.to_owned())));
        }
        Ok(())
    }

    /// Returns the log of a worker.
    fn log(&self, number: usize) -> Outcome<String> {
        let name = format!("log.{}", self.workers[number].name);
        Ok(fs::read_to_string(self.gossip.directory().join(name))?)
    }

    fn wait_for_keys(&self, keys: u64) -> Outcome<()> {
        WAIT.until("some keys", || Ok(self.sink.journal()?.lines().count() as u64 >= keys))
    }
}

/// The id of a tenant is its name.
fn tenant() -> TenantId {
    let mut id = [0; TENANT_BYTES];
    id[..TENANT.len()].copy_from_slice(TENANT.as_bytes());
    TenantId::from_bytes(id)
}
