//! The one connection of a process that writes, and groups of transactions on it.
//!
//! A group is one `BEGIN IMMEDIATE … COMMIT`: one sync for everybody in it. Its transactions are
//! applied in their order, each sees what those before it wrote, and each has its own outcome. A
//! conflict writes nothing. If something else fails (a full disk, a damaged page, a value that is
//! too large), the group is rolled back and each transaction is tried alone, so that nobody pays for
//! a neighbour and no savepoints are needed.
//!
//! # Invariants
//! - Outcomes are told only after the group's `COMMIT`: a conflict was decided on what the group
//!   itself wrote, so it is no conflict if the group is not there.
//! - Between two groups the connection is in no transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gossip_coordination::InfraError;
use gossip_coordination::store::{CommitOutcome, Txn};
use rusqlite::Connection;

use crate::apply::{COMMIT, apply};
use crate::failure::{certainly_did_not_happen, infra, is_busy};
use crate::log::{Log, LogTurn};
use crate::options::SqliteOptions;
use crate::schema::{Role, connect};

/// What became of one transaction.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// The first pause before `BEGIN IMMEDIATE` is tried again: half a synced commit.
const BUSY_PAUSE_MIN: Duration = Duration::from_micros(50);

/// The longest: a waiting process looks often enough to get its turn between the commits of a busy
/// one, and wakes a thousand times a second at most.
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(1);

const _: () = assert!(BUSY_PAUSE_MIN.as_nanos() < BUSY_PAUSE_MAX.as_nanos());

/// The writing connection and what belongs to it.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    options: SqliteOptions,
    /// `None` after a failure that left it in a transaction; the next group opens another.
    connection: Option<Connection>,
    log: Arc<Log>,
    turn: LogTurn,
    /// Whether a `COMMIT` failed in doubt and none succeeded since. The log then holds frames that
    /// a later failure could leave whole, so that one is in doubt as well.
    in_doubt: bool,
}

/// Why a group is not there.
enum GroupFailure {
    /// It did not begin: somebody else holds the file.
    NotBegun(InfraError),
    /// A transaction failed, or the disk is full; nothing happened.
    Spoiled(InfraError),
    /// The `COMMIT` failed, and may have happened. These would be the outcomes.
    Doubt(InfraError, Vec<CommitOutcome>),
}

impl Writer {
    pub(crate) fn new(
        path: PathBuf,
        options: SqliteOptions,
        mut connection: Connection,
        log: Arc<Log>,
    ) -> rusqlite::Result<Self> {
        log.watch(&mut connection)?;
        let turn = LogTurn::new(Arc::clone(&log));
        Ok(Self { path, options, connection: Some(connection), log, turn, in_doubt: false })
    }

    /// Commits `txns` as one group, and answers for each.
    pub(crate) fn commit(&mut self, txns: &[Txn]) -> Vec<Outcome> {
        let outcomes = match self.try_group(txns) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(GroupFailure::Spoiled(_)) if txns.len() > 1 => {
                txns.iter().flat_map(|txn| self.commit_alone(txn)).collect()
            }
            Err(failure) => failed(failure, txns.len()),
        };
        self.turn.after_group();
        outcomes
    }

    fn commit_alone(&mut self, txn: &Txn) -> Vec<Outcome> {
        match self.try_group(std::slice::from_ref(txn)) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(failure) => failed(failure, 1),
        }
    }

    fn try_group(&mut self, txns: &[Txn]) -> Result<Vec<CommitOutcome>, GroupFailure> {
        let not_begun = |error: &rusqlite::Error| GroupFailure::NotBegun(infra(COMMIT, error));
        self.reconnect().map_err(|error| not_begun(&error))?;
        let Some(connection) = &self.connection else {
            return Err(not_begun(&rusqlite::Error::InvalidQuery));
        };
        self.turn.before_group(connection);
        begin(connection, self.options.busy_timeout).map_err(|error| not_begun(&error))?;
        let applied: Result<Vec<_>, _> = txns.iter().map(|txn| apply(connection, txn)).collect();
        let outcomes = match applied {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.settle();
                return Err(GroupFailure::Spoiled(error));
            }
        };
        match run(connection, "COMMIT") {
            Ok(()) => {
                self.in_doubt = false;
                Ok(outcomes)
            }
            Err(error) => {
                let is_certain = certainly_did_not_happen(&error) && !self.in_doubt;
                self.in_doubt |= !is_certain;
                self.settle();
                let error = infra(COMMIT, &error);
                Err(if is_certain {
                    GroupFailure::Spoiled(error)
                } else {
                    GroupFailure::Doubt(error, outcomes)
                })
            }
        }
    }

    /// Leaves no transaction open, whatever happened. A connection that cannot even roll back is
    /// closed, which does it too.
    fn settle(&mut self) {
        let is_settled = self
            .connection
            .as_ref()
            .is_some_and(|it| it.is_autocommit() || run(it, "ROLLBACK").is_ok());
        if !is_settled {
            self.connection = None;
        }
    }

    /// A panic may have left a transaction open, and a failure no connection at all.
    fn reconnect(&mut self) -> rusqlite::Result<()> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_autocommit()) {
            self.settle();
        }
        if self.connection.is_none() {
            let mut connection = connect(&self.path, &self.options, Role::Keep)?;
            connection.busy_timeout(Duration::ZERO)?;
            self.log.watch(&mut connection)?;
            self.connection = Some(connection);
        }
        Ok(())
    }
}

/// What the callers of a group that is not there are told.
fn failed(failure: GroupFailure, count: usize) -> Vec<Outcome> {
    match failure {
        GroupFailure::NotBegun(error) | GroupFailure::Spoiled(error) => {
            vec![Err(error); count]
        }
        GroupFailure::Doubt(error, outcomes) => outcomes
            .into_iter()
            .map(|outcome| match outcome {
                CommitOutcome::Applied { .. } | CommitOutcome::Unknown => {
                    Ok(CommitOutcome::Unknown)
                }
                // It wrote nothing, so it did not happen; what it met may not be there either.
                CommitOutcome::Conflict(_) => Err(error.clone()),
            })
            .collect(),
    }
}

/// Takes the file's write lock. SQLite's own waiting sleeps up to a tenth of a second at a time; a
/// commit of another process takes a thousandth of that.
fn begin(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let mut pause = BUSY_PAUSE_MIN;
    let mut deadline = None;
    loop {
        match run(connection, "BEGIN IMMEDIATE") {
            Err(error) if is_busy(&error) => {
                // The clock is not looked at unless there is something to wait for.
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience);
                if Instant::now() >= deadline {
                    return Err(error);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
            }
            done => return done,
        }
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}
