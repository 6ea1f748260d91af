//! `cargo xtask bench end-to-end`: whole commands of `gossip` beside the tools that people use now.
//!
//! `end-to-end figures DIRECTORY` runs every job in rounds, in each round all programs of a job one
//! after another, and prints tables of medians. The directory keeps the trees of files for the next
//! time. `end-to-end quick DIRECTORY` runs every job once and small, to check the programs.
//!
//! `end-to-end handle KIND` is the handler of the stream jobs: `json`, `lines` and `plain` answer
//! at once, `slow` and `even` sleep first.

mod handler;
mod jobs;
mod measure;
mod scheduling;
mod traces;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::Outcome;
use crate::process::gossip_binary;

/// The program `end-to-end`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    match *words {
        ["figures", directory] => figures(&Bench::new(directory.as_ref(), Scale::Full)?),
        ["quick", directory] => figures(&Bench::new(directory.as_ref(), Scale::Quick)?),
        ["handle", kind] => handler::run(kind),
        _ => Err("usage: end-to-end figures|quick DIRECTORY".into()),
    }
}

fn figures(bench: &Bench) -> Outcome<String> {
    let jobs = jobs::tables(bench)?;
    let (scheduling, traces) = (scheduling::table(bench)?, traces::table(bench)?);
    Ok(format!("{jobs}\n\n{scheduling}\n\n{traces}"))
}

/// How large the jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Full,
    /// A hundredth, in one round.
    Quick,
}

/// The programs that are compared, and where they run.
struct Bench {
    /// An absolute path; the working directory of every program.
    directory: PathBuf,
    gossip: PathBuf,
    /// This program, which is the handler of the stream jobs.
    own: PathBuf,
    scale: Scale,
}

/// Rounds of each job; the medians of so many are stated.
const ROUNDS: usize = 7;

impl Bench {
    fn new(directory: &Path, scale: Scale) -> Outcome<Self> {
        fs::create_dir_all(directory)?;
        let directory = fs::canonicalize(directory)?;
        Ok(Self { directory, gossip: gossip_binary()?, own: std::env::current_exe()?, scale })
    }

    const fn rounds(&self) -> usize {
        match self.scale {
            Scale::Full => ROUNDS,
            Scale::Quick => 1,
        }
    }

    /// Returns so many items, or a hundredth.
    const fn scaled(&self, items: usize) -> usize {
        match self.scale {
            Scale::Full => items,
            Scale::Quick => items / 100,
        }
    }

    /// Returns `gossip exec` with these words, on a new store.
    fn exec(&self, words: &[&str]) -> Outcome<Command> {
        self.remove_store()?;
        Ok(self.exec_on(&self.sqlite(), words))
    }

    /// Returns `gossip exec` with these words, on the store of a URL.
    fn exec_on(&self, store: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.gossip);
        command.current_dir(&self.directory).args(["exec", "--quiet", "--store", store]);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn sqlite(&self) -> String {
        format!("sqlite:{}", self.directory.join("db").display())
    }

    fn remove_store(&self) -> Outcome<()> {
        for suffix in ["", "-wal", "-shm"] {
            match fs::remove_file(self.directory.join(format!("db{suffix}"))) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns a pipeline of other tools.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(&self.directory).args(["-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Returns this program as the handler of a stream.
    fn handler(&self) -> String {
        self.own.display().to_string()
    }
}
