//! The programs that campaigns run: the `gossip` binary, and themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::Outcome;

/// Returns a command that runs the executable of this process again.
pub(crate) fn own_program() -> Outcome<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// Returns the path of the `gossip` executable, which cargo puts beside the executable of this
/// process: `target/PROFILE/gossip`.
///
/// # Errors
///
/// If it was not built. Cargo builds the programs of its own package for a test, and no others, so
/// the error names the command that builds this one.
pub(crate) fn gossip_binary() -> Outcome<PathBuf> {
    let gossip = std::env::current_exe()?.with_file_name("gossip");
    match gossip.is_file() {
        true => Ok(gossip),
        false => {
            // The profile of this process is the one whose `gossip` is missing.
            let release = if cfg!(debug_assertions) { "" } else { " --release" };
            let build = format!("cargo build -p gossip-cli{release}");
            Err(format!("{} does not exist; run `{build}` first", gossip.display()).into())
        }
    }
}

/// Runs a command to its end and returns what it printed, without the space around it.
///
/// # Errors
///
/// If it does not start or does not succeed; then the error is all that it printed.
pub fn output_of(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => Ok(text.trim().to_owned()),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The `gossip` binary with a store, and a directory in which it runs.
#[derive(Debug)]
pub(crate) struct Gossip {
    binary: PathBuf,
    directory: PathBuf,
    store: String,
}

impl Gossip {
    /// Empties `directory` and uses it, with a SQLite file in it as the store.
    pub(crate) fn on_sqlite(directory: &Path) -> Outcome<Self> {
        let mut gossip = Self::on(String::new(), directory)?;
        gossip.store = format!("sqlite:{}", gossip.directory.join("db").display());
        Ok(gossip)
    }

    /// Empties `directory` and uses it, with the store of a URL.
    pub(crate) fn on(store: String, directory: &Path) -> Outcome<Self> {
        let binary = gossip_binary()?;
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
        Ok(Self { binary, directory: fs::canonicalize(directory)?, store })
    }

    /// The directory, as an absolute path.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The URL of the store.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// Returns a command without input, to which the caller adds arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.directory).stdin(Stdio::null()).env("GOSSIP_STORE", &self.store);
        command
    }
}

/// How long something is waited for, and how often it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) limit: Duration,
    pub(crate) interval: Duration,
}

impl Wait {
    /// Waits until a condition holds.
    ///
    /// # Errors
    ///
    /// If the condition fails, or does not hold within the limit.
    pub(crate) fn until(self, what: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
        let begun = Instant::now();
        while !holds()? {
            if begun.elapsed() > self.limit {
                return Err(format!("{what}: not within {} s", self.limit.as_secs()).into());
            }
            thread::sleep(self.interval);
        }
        Ok(())
    }
}
