//! One of the processes that perform golden scripts together: a line in, a line out.
//!
//! It has a coordinator of its own on the file of each script, and shares nothing else with the
//! others. It ends when nobody tells it anything any more.
#![expect(clippy::print_stderr, reason = "standard output carries the answers")]

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use gossip_conformance::testscript::{Actor, ScriptBackend, WorldSettings};
use gossip_coordination::store::{StoreConfig, StoreCoordinator, fresh_nonce};
use gossip_coordination::{EventCollector, StateTransitionEvent};
use gossip_coordination_sqlite::{OpenCheck, SqliteCoordinator, SqliteDatabase, SqliteOptions};

use crate::Failure;

/// Performs what standard input says, on files in `directory`.
pub(crate) fn run(directory: &Path) -> Result<String, Failure> {
    let backend = OnFiles { directory: directory.to_owned(), begun: 0 };
    let (mut actor, mut output) = (Actor::new(backend), std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        writeln!(output, "{}", actor.answer(&line?))?;
        output.flush()?;
    }
    Ok("the play is over".to_owned())
}

/// A file for each script, which all processes find by its number.
struct OnFiles {
    directory: PathBuf,
    begun: u64,
}

impl ScriptBackend for OnFiles {
    type Coordinator = SqliteCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<SqliteCoordinator> {
        let file = self.directory.join(format!("{}.db", self.begun));
        self.begun += 1;
        if !settings.fit_a_store() {
            return None;
        }
        // What processes add is the same whether or not a disk is waited for.
        let options = SqliteOptions { check: OpenCheck::Header, ..SqliteOptions::default() };
        match SqliteDatabase::open(file, options.relaxed()) {
            Ok(database) => {
                let config = settings.limit(StoreConfig::new(fresh_nonce()));
                let mut store = database.store();
                settings.allot(&mut store);
                Some(StoreCoordinator::new(store, config))
            }
            Err(error) => {
                eprintln!("no file for a script: {error}");
                None
            }
        }
    }

    fn observe<R>(
        coordinator: &mut SqliteCoordinator,
        call: impl FnOnce(&mut SqliteCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}
