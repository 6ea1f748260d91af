//! The processes of a trial: started, told, killed, and all of them ended with it.

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

/// How long a process may take to end after the request to end.
const END: Wait = Wait { limit: Duration::from_secs(60), interval: Duration::from_millis(2) };

/// One process, or what is left of it.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) journal: PathBuf,
    /// When it was killed, if it was.
    pub(crate) killed_at: Option<u64>,
    child: Child,
    /// Hears its lines, and answers the last.
    ear: Option<JoinHandle<String>>,
}

/// Every process there was.
pub(crate) struct Fleet {
    url: String,
    directory: PathBuf,
    seed: u64,
    shape: Shape,
    pub(crate) lives: Vec<Life>,
    /// Shards that were accepted, by all of them.
    accepted: Arc<AtomicU64>,
}

impl Fleet {
    pub(crate) fn new(url: &str, directory: &Path, seed: u64, shape: Shape) -> Self {
        let (url, directory) = (url.to_owned(), directory.to_owned());
        Self { url, directory, seed, shape, lives: Vec::new(), accepted: Arc::default() }
    }

    /// How many shards were accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Starts a process for `worker`; answers its place.
    pub(crate) fn start(&mut self, worker: u64) -> Result<usize, Failure> {
        let place = self.lives.len();
        let journal = self.directory.join(format!("journal-{place}"));
        let seed = self.seed.wrapping_add(place as u64).to_string();
        let mut command = own_program()?;
        command.args(["work", &self.url]).arg(&journal);
        command.args([&worker.to_string(), &seed, self.shape.name()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("a pipe was asked for")?;
        let accepted = Arc::clone(&self.accepted);
        let ear = std::thread::spawn(move || {
            let mut last = String::new();
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line == "accepted" {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                last = line;
            }
            last
        });
        self.lives.push(Life { journal, killed_at: None, child, ear: Some(ear) });
        Ok(place)
    }

    /// Kills a process where it stands.
    pub(crate) fn kill(&mut self, place: usize) -> Result<(), Failure> {
        let life = &mut self.lives[place];
        life.child.kill()?;
        life.killed_at = Some(micros());
        life.child.wait()?;
        Ok(())
    }

    /// Whether a process still runs.
    pub(crate) fn runs(&mut self, place: usize) -> Result<bool, Failure> {
        Ok(self.lives[place].child.try_wait()?.is_none())
    }

    /// Tells a process to give everything away and to end; answers its last words.
    pub(crate) fn drain(&mut self, place: usize) -> Result<String, Failure> {
        let life = &mut self.lives[place];
        life.child.stdin.as_mut().ok_or("a pipe was asked for")?.write_all(b"drain\n")?;
        self.wait(place)
    }

    /// Ends everything that still runs. Those who are alive end as they are.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        for place in 0..self.lives.len() {
            drop(self.lives[place].child.stdin.take());
            if self.lives[place].killed_at.is_none() {
                self.wait(place)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, place: usize) -> Result<String, Failure> {
        END.until(&format!("the end of process {place}"), || Ok(!self.runs(place)?))?;
        let life = &mut self.lives[place];
        let status = life.child.wait()?;
        let last = life.ear.take().map(JoinHandle::join).transpose();
        let last = last.map_err(|_| "a thread panicked")?.unwrap_or_default();
        match status.success() {
            true => Ok(last),
            false => Err(format!("process {place} ended with {status}: {last}").into()),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for life in &mut self.lives {
            // Those that have ended are gone already.
            let _gone = life.child.kill();
            let _gone = life.child.wait();
        }
    }
}
