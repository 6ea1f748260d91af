//! Serves golden script commands: reads one request line, writes one reply line.
//!
//! Several such processes run one script together. Each opens a coordinator on the file of each
//! script, and they share nothing else. The process ends at the end of its standard input.
#![expect(clippy::print_stderr, reason = "standard output carries the answers")]

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use gossip_conformance::testscript::{HandleServer, ScriptBackend, WorldSettings};
use gossip_coordination::store::{StoreConfig, StoreCoordinator, fresh_nonce};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};
use gossip_coordination_sqlite::{OpenCheck, SqliteCoordinator, SqliteDatabase, SqliteOptions};

use crate::Failure;

/// Executes the commands on standard input, on files in `directory`.
pub(crate) fn run(directory: &Path) -> Result<String, Failure> {
    let backend = OnFiles { directory: directory.to_owned(), begun: 0 };
    let (mut handle, mut output) = (HandleServer::new(backend), std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        writeln!(output, "{}", handle.answer(&line?))?;
        output.flush()?;
    }
    Ok("standard input ended".to_owned())
}

/// Opens one file per script, named by the number of the script.
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
        // Durability is not under test here, so fsync is relaxed.
        let options = SqliteOptions { check: OpenCheck::Header, ..SqliteOptions::default() };
        match SqliteDatabase::open(file, options.relaxed()) {
            Ok(database) => {
                let config = settings.limit(StoreConfig::new(fresh_nonce()));
                let mut store = database.store();
                settings.allot(&mut store);
                Some(StoreCoordinator::new(store, config))
            }
            Err(error) => {
                eprintln!("cannot open the file of a script: {error}");
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
