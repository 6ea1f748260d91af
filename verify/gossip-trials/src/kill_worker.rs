//! `cargo xtask kill-worker`: kills `gossip exec` with signal 9 repeatedly and checks for lost
//! keys.
//!
//! `kill-worker KILLS SEED DIRECTORY`. One process at a time runs a job of 10⁵ keys and is killed
//! after a random time, until the job is complete. Then its certificate is compared with the
//! source, and the output of its handlers is counted: no key may be lost, and per grant of a shard
//! at most one checkpoint interval may have been processed again. Then the next job starts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::process::{Gossip, output_of};
use gossip_testkit::Rng;

/// Keys of one job.
const KEYS: usize = 100_000;
/// Keys per command. Each command is followed by a checkpoint, so this is the checkpoint interval.
const BATCH: usize = 250;
const CHECKPOINT_KEYS: &str = "1";
/// Threads of the worker, each with a shard.
const JOBS: usize = 4;
/// Short, because the next process waits until the lease expires.
const LEASE: &str = "300ms";
/// Maximum lifetime of a worker in milliseconds: about two leases.
const LIFE_MAX: u64 = 700;

/// After a delay, records the keys of one batch and their grant in one write. With the delay a job
/// takes a few hundred processes.
const HANDLER: &str = "sleep 0.15; echo \"$GOSSIP_SHARD $GOSSIP_FENCE $*\" >> seen";

/// The program `kill-worker`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    let [kills, seed, directory] = *words else {
        return Err("usage: kill-worker KILLS SEED DIRECTORY".into());
    };
    Campaign::new(seed.parse()?, directory.as_ref())?.run(kills.parse()?)
}

struct Campaign {
    gossip: Gossip,
    rng: Rng,
    kills: usize,
    jobs: usize,
    redone: usize,
    /// Maximum number of keys of one grant that were processed again.
    most_of_a_grant: usize,
}

impl Campaign {
    fn new(seed: u64, directory: &Path) -> Outcome<Self> {
        Ok(Self {
            gossip: Gossip::on_sqlite(directory)?,
            rng: Rng::seeded(seed),
            kills: 0,
            jobs: 0,
            redone: 0,
            most_of_a_grant: 0,
        })
    }

    /// Runs complete jobs until there were enough kills.
    fn run(&mut self, kills: usize) -> Outcome<String> {
        let begun = Instant::now();
        while self.kills < kills {
            self.job()?;
            let Self { kills, jobs, redone, .. } = &*self;
            let seconds = begun.elapsed().as_secs_f64();
            let so_far = format!("{kills} kills, {jobs} jobs of {KEYS} keys, {redone} keys redone");
            writeln!(io::stdout(), "{so_far}, {seconds:.0} s")?;
        }
        // The last line is the table row of the documentation. A lost key, too many repeated keys
        // and an invalid certificate end the campaign earlier, so they have no column.
        let Self { kills, jobs, redone, most_of_a_grant, .. } = &*self;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(format!(
            "| {kills} | {jobs} | {redone} | {most_of_a_grant} of {BATCH} allowed | \
             {seconds:.0} s |"
        ))
    }

    /// Runs one job up to the check of its certificate.
    fn job(&mut self) -> Outcome<()> {
        let _ = fs::remove_file(self.gossip.directory().join("seen"));
        let run = loop {
            let mut worker = self.start()?;
            if let Some(run) = self.live_and_die(&mut worker)? {
                break run;
            }
        };
        self.jobs += 1;
        self.count()?;
        self.verify(&run)
    }

    fn start(&self) -> io::Result<Child> {
        let source = format!("range:0..{KEYS}");
        let (batch, jobs) = (BATCH.to_string(), JOBS.to_string());
        let mut command = self.gossip.command();
        command.args(["exec", &source, "-o", "jsonl", "-q", "--lease", LEASE, "--batch", &batch]);
        command.args([
            "--checkpoint-keys",
            CHECKPOINT_KEYS,
            "--jobs",
            &jobs,
            "--retries",
            "1000000",
        ]);
        // The handler ignores the job number; it distinguishes the runs.
        command.args(["--", "sh", "-c", HANDLER, &format!("job-{}", self.jobs), "{}"]);
        command.stdout(Stdio::piped()).spawn()
    }

    /// Kills a worker after a random time; returns the run if it was complete before.
    fn live_and_die(&mut self, worker: &mut Child) -> Outcome<Option<String>> {
        let until = Instant::now() + Duration::from_millis(1 + self.rng.below(LIFE_MAX));
        while Instant::now() < until {
            if let Some(status) = worker.try_wait()? {
                if !status.success() {
                    return Err(format!("the worker ended early: {status}").into());
                }
                let mut line = String::new();
                if let Some(stdout) = &mut worker.stdout {
                    io::Read::read_to_string(stdout, &mut line)?;
                }
                let (_, rest) = line.split_once("\"run\":\"").ok_or("no outcome")?;
                return Ok(Some(rest.get(..16).ok_or("no run")?.to_owned()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        worker.kill()?;
        worker.wait()?;
        self.kills += 1;
        Ok(None)
    }

    /// Checks that every key was recorded, and counts the repeated ones.
    fn count(&mut self) -> Outcome<()> {
        // Commands of the last killed worker may still write.
        thread::sleep(Duration::from_millis(500));
        let text = fs::read_to_string(self.gossip.directory().join("seen"))?;
        // The last grant of each key, and the number of keys of each grant that were repeated.
        let mut last: Vec<Option<(&str, &str)>> = vec![None; KEYS];
        let mut redone: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let grant = words.next().zip(words.next()).ok_or("a line without a grant")?;
            for number in words {
                let place = last.get_mut(number.parse::<usize>()?).ok_or("no such key")?;
                if let Some(before) = place.replace(grant) {
                    *redone.entry(before).or_default() += 1;
                }
            }
        }
        if let Some(lost) = last.iter().position(Option::is_none) {
            return Err(format!("key {lost} was lost").into());
        }
        let most = redone.values().copied().max().unwrap_or(0);
        if most > BATCH {
            return Err(format!("{most} keys of one grant were redone").into());
        }
        self.redone += redone.values().sum::<usize>();
        self.most_of_a_grant = self.most_of_a_grant.max(most);
        Ok(())
    }

    fn verify(&self, run: &str) -> Outcome<()> {
        let mut verify = self.gossip.command();
        output_of(verify.args(["run", "verify", run, "--source", "-q"])).map(drop)
    }
}
