//! The worker processes of a trial, which are killed at the latest when the trial ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Failure;
use crate::handoff::world::Shape;
use crate::process::{Wait, own_program};
use crate::run::micros;

/// Maximum time of a process from the request to end to its end.
const END: Wait = Wait { limit: Duration::from_secs(60), interval: Duration::from_millis(2) };

/// One process, running or ended.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pub(crate) journal: PathBuf,
    /// Time of the kill, if any.
    pub(crate) killed_at: Option<u64>,
    child: Child,
    /// Reads its output and returns the last line.
    reader: Option<JoinHandle<String>>,
}

/// All processes of a trial.
pub(crate) struct Fleet {
    url: String,
    directory: PathBuf,
    seed: u64,
    shape: Shape,
    pub(crate) processes: Vec<WorkerProcess>,
    /// Number of accepted shards of all processes.
    accepted: Arc<AtomicU64>,
}

impl Fleet {
    pub(crate) fn new(url: &str, directory: &Path, seed: u64, shape: Shape) -> Self {
        let (url, directory) = (url.to_owned(), directory.to_owned());
        Self { url, directory, seed, shape, processes: Vec::new(), accepted: Arc::default() }
    }

    /// Returns the number of shards accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Starts a process for `worker` and returns its index.
    pub(crate) fn start(&mut self, worker: u64) -> Result<usize, Failure> {
        let place = self.processes.len();
        let journal = self.directory.join(format!("journal-{place}"));
        let seed = self.seed.wrapping_add(place as u64).to_string();
        let mut command = own_program()?;
        command.args(["work", &self.url]).arg(&journal);
        command.args([&worker.to_string(), &seed, self.shape.name()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("the pipe was configured above")?;
        let accepted = Arc::clone(&self.accepted);
        let reader = std::thread::spawn(move || {
            let mut last = String::new();
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line == "accepted" {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                last = line;
            }
            last
        });
        self.processes.push(WorkerProcess {
            journal,
            killed_at: None,
            child,
            reader: Some(reader),
        });
        Ok(place)
    }

    /// Kills a process with signal 9.
    pub(crate) fn kill(&mut self, place: usize) -> Result<(), Failure> {
        let process = &mut self.processes[place];
        process.child.kill()?;
        process.killed_at = Some(micros());
        process.child.wait()?;
        Ok(())
    }

    /// Returns whether a process is running.
    pub(crate) fn runs(&mut self, place: usize) -> Result<bool, Failure> {
        Ok(self.processes[place].child.try_wait()?.is_none())
    }

    /// Drains a process and returns its last line of output.
    pub(crate) fn drain(&mut self, place: usize) -> Result<String, Failure> {
        let process = &mut self.processes[place];
        process
            .child
            .stdin
            .as_mut()
            .ok_or("the pipe was configured above")?
            .write_all(b"drain\n")?;
        self.wait(place)
    }

    /// Ends all running processes without a drain.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        for place in 0..self.processes.len() {
            drop(self.processes[place].child.stdin.take());
            if self.processes[place].killed_at.is_none() {
                self.wait(place)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, place: usize) -> Result<String, Failure> {
        END.until(&format!("the end of process {place}"), || Ok(!self.runs(place)?))?;
        let process = &mut self.processes[place];
        let status = process.child.wait()?;
        let last = process.reader.take().map(JoinHandle::join).transpose();
        let last = last.map_err(|_| "a thread panicked")?.unwrap_or_default();
        match status.success() {
            true => Ok(last),
            false => Err(format!("process {place} ended with {status}: {last}").into()),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Fails if the process has already ended.
            let _gone = process.child.kill();
            let _gone = process.child.wait();
        }
    }
}
