//! `cargo xtask poison`: keys that kill the worker which processes them end up parked, alone.
//!
//! `poison KEYS KILLERS SEED JOBS DIRECTORY`. Some keys are killers: their handler kills its worker
//! with signal 9. The worker is restarted each time, as by a supervisor, until it exits. Then
//! exactly the killers must be parked, each alone in its shard; every other key must have been
//! handled; and there must have been at most k · (log₂ n + 8) crashes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::Value;

use crate::Outcome;
use crate::process::Gossip;
use gossip_testkit::Rng;

/// Keys per command: a killer also affects the other keys of its batch.
const BATCH: &str = "100";

/// Short, because the next process waits until the lease expires; long enough for a busy machine.
const LEASE: &str = "1s";
/// Exit status of a worker with parked shards or failed items.
const INCOMPLETE: i32 = 3;
/// Signal 9.
const KILLED: i32 = 9;

/// Kills the worker if one of the keys is a killer, and otherwise records them in one write.
const HANDLER: &str = "\
    for key; do case \" $KILLERS \" in *\" $key \"*) kill -9 $PPID; exit 1;; esac; done; \
    echo \"$*\" >> seen";

/// The program `poison`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    let [keys, killers, seed, jobs, directory] = *words else {
        return Err("usage: poison KEYS KILLERS SEED JOBS DIRECTORY".into());
    };
    let keys = keys.parse()?;
    let killers = draw_killers(keys, killers.parse()?, seed.parse()?);
    let trial = Trial::new(keys, killers, jobs.parse()?, directory.as_ref())?;
    trial.run()
}

/// Draws `count` different keys.
fn draw_killers(keys: u64, count: usize, seed: u64) -> BTreeSet<u64> {
    let mut rng = Rng::seeded(seed);
    let mut killers = BTreeSet::new();
    while killers.len() < count.min(usize::try_from(keys).unwrap_or(usize::MAX)) {
        killers.insert(rng.below(keys));
    }
    killers
}

struct Trial {
    gossip: Gossip,
    keys: u64,
    killers: BTreeSet<u64>,
    /// Threads of the worker: a killer affects the shards of all of them.
    jobs: u64,
}

impl Trial {
    fn new(keys: u64, killers: BTreeSet<u64>, jobs: u64, directory: &Path) -> Outcome<Self> {
        Ok(Self { gossip: Gossip::on_sqlite(directory)?, keys, killers, jobs })
    }

    fn run(&self) -> Outcome<String> {
        let begun = Instant::now();
        let (run, crashes) = self.work()?;
        let parked = self.check_parked(&run)?;
        let seen = self.check_seen()?;
        self.check_certificate(&run)?;
        let (keys, killers, jobs) = (self.keys, self.killers.len(), self.jobs);
        let (allowed, seconds) = (self.allowed(), begun.elapsed().as_secs_f64());
        Ok(format!(
            "{killers} killers among {keys} keys: exactly those parked, everything else done, \
             {crashes} crashes of {jobs} threads ({allowed} allowed), {seconds:.0} s\n\
             | {keys} | {killers} | {jobs} | {crashes} | {allowed} | {parked} | {seen} | \
             {seconds:.0} s |",
        ))
    }

    /// Restarts the worker until it exits; returns its run and the number of crashes.
    fn work(&self) -> Outcome<(String, u64)> {
        let mut crashes = 0;
        loop {
            let output = self.worker().output()?;
            match (output.status.code(), output.status.signal()) {
                (Some(INCOMPLETE), _) => {
                    let said: Value = serde_json::from_slice(&output.stdout)?;
                    return Ok((said["run"].as_str().ok_or("no run")?.to_owned(), crashes));
                }
                (None, Some(KILLED)) => crashes += 1,
                _ => return Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
            }
            if crashes > self.allowed() {
                return Err(format!("not finished after {crashes} crashes").into());
            }
        }
    }

    fn worker(&self) -> Command {
        let source = format!("range:0..{}", self.keys);
        let killers: Vec<_> = self.killers.iter().map(u64::to_string).collect();
        let mut command = self.gossip.command();
        command.args(["exec", &source, "-q", "-o", "json", "--lease", LEASE]);
        command.args([
            "--jobs",
            &self.jobs.to_string(),
            "--batch",
            BATCH,
            "--checkpoint-keys",
            BATCH,
        ]);
        command.args(["--", "sh", "-c", HANDLER, "sh", "{}"]).env("KILLERS", killers.join(" "));
        command
    }

    /// k · (log₂ n + 8), rounded down.
    fn allowed(&self) -> u64 {
        let log = (self.keys.max(1) as f64).log2();
        (self.killers.len() as f64 * (log + 8.0)) as u64
    }

    /// Checks that the keys in parked shards are exactly the killers, and returns their number.
    fn check_parked(&self, run: &str) -> Outcome<usize> {
        let listed = self
            .gossip
            .command()
            .args(["shard", "list", run, "--parked", "-o", "json"])
            .output()?;
        let rows: Vec<Value> = serde_json::from_slice(&listed.stdout)?;
        let mut left = BTreeSet::new();
        for row in &rows {
            let number = |name: &str| row[name].as_str().and_then(|text| text.parse::<u64>().ok());
            let (Some(start), Some(end)) = (number("start"), number("end")) else {
                return Err(format!("the bounds of a shard are no numbers: {row}").into());
            };
            // The cursor is the last key that was done.
            let first = number("cursor").map_or(start, |cursor| cursor + 1);
            left.extend(first.max(start)..end.min(self.keys));
        }
        if left != self.killers || rows.len() != self.killers.len() {
            return Err(format!(
                "{} keys in {} shards are parked, {} of them not killers",
                left.len(),
                rows.len(),
                left.difference(&self.killers).count()
            )
            .into());
        }
        Ok(left.len())
    }

    /// Checks that a handler recorded every other key, and returns their number.
    fn check_seen(&self) -> Outcome<usize> {
        let text = fs::read_to_string(self.gossip.directory().join("seen"))?;
        let seen: BTreeSet<u64> =
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        match (0..self.keys).find(|key| seen.contains(key) == self.killers.contains(key)) {
            Some(key) => {
                Err(format!("key {key} was handled although it is a killer, or the reverse").into())
            }
            None => Ok(seen.len()),
        }
    }

    /// Checks that the certificate is incomplete by exactly the killers.
    fn check_certificate(&self, run: &str) -> Outcome<()> {
        let mut verify = self.gossip.command();
        let verified = verify.args(["run", "verify", run, "--source", "-o", "json"]).output()?;
        let said: Value = serde_json::from_slice(&verified.stdout)?;
        let expected = self.keys - self.killers.len() as u64;
        if verified.status.code() != Some(INCOMPLETE) || said["keys"] != expected {
            return Err(format!("the certificate says {said}").into());
        }
        Ok(())
    }
}
