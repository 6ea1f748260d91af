//! The one connection of a process that writes, and groups of transactions on it.
//!
//! A group is one `BEGIN IMMEDIATE … COMMIT`: one sync for everybody in it. Its transactions are
//! applied in their order, each sees what those before it wrote, and each has its own outcome. A
//! conflict writes nothing. If something else fails (a full disk, a damaged page, a value that is
//! too large), the group is rolled back and its halves are tried, and theirs, until those that
//! failed are alone: so nobody pays for a neighbour, no savepoints are needed, and one that cannot
//! be costs its group no more commits than the group can be halved.
//!
//! # Invariants
//! - Outcomes are told only after the group's `COMMIT`: a conflict was decided on what the group
//!   itself wrote, so it is no conflict if the group is not there.
//! - Between two groups the connection is in no transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gossip_coordination::InfraError;
use gossip_coordination::store::{CommitOutcome, Txn};
use rusqlite::Connection;

use crate::apply::{COMMIT, Group};
use crate::db_file::DbFile;
use crate::failure::{certainly_did_not_happen, infra, is_busy};
use crate::schema::Role;
use crate::wal_checkpointer::{CheckpointSchedule, WalCheckpointer};

/// What became of one transaction.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// The first pause before `BEGIN IMMEDIATE` is tried again: half a synced commit.
const BUSY_PAUSE_MIN: Duration = Duration::from_micros(50);

/// The longest: as long as a synced commit of another process. Where several commit all the time
/// the lock is free for moments only, and who looks once in a millisecond waits for ten of them
/// and more; so a waiting process looks ten thousand times a second, while its patience lasts.
const BUSY_PAUSE_MAX: Duration = Duration::from_micros(100);

const _: () = assert!(BUSY_PAUSE_MIN.as_nanos() < BUSY_PAUSE_MAX.as_nanos());

/// The writing connection and what belongs to it.
#[derive(Debug)]
pub(crate) struct Writer {
    file: Arc<DbFile>,
    /// `None` during a group, and after one that left it in a transaction or panicked; then the
    /// next group opens another.
    connection: Option<Connection>,
    log: Arc<WalCheckpointer>,
    schedule: CheckpointSchedule,
    /// Whether a `COMMIT` failed in doubt and none succeeded since. The log then holds frames that
    /// a later failure could leave whole, so that one is in doubt as well.
    in_doubt: bool,
}

/// What became of a group.
#[derive(Debug)]
pub(crate) struct Committed {
    /// One for each transaction.
    pub(crate) outcomes: Vec<Outcome>,
    /// Why it was not begun, or the rest of it not, if so: somebody else holds the file. Whoever
    /// waited meanwhile need not wait again.
    pub(crate) not_begun: Option<InfraError>,
}

/// Why a group is not there.
#[derive(Debug)]
pub(crate) enum GroupFailure {
    /// It did not begin: somebody else holds the file.
    NotBegun(InfraError),
    /// A transaction failed, or the disk is full; nothing happened.
    Spoiled(InfraError),
    /// The `COMMIT` failed, and may have happened. These would be the outcomes.
    Doubt(InfraError, Vec<CommitOutcome>),
}

impl Writer {
    pub(crate) fn new(
        file: Arc<DbFile>,
        mut connection: Connection,
        log: Arc<WalCheckpointer>,
    ) -> rusqlite::Result<Self> {
        log.watch(&mut connection)?;
        let schedule = CheckpointSchedule::new(Arc::clone(&log));
        Ok(Self { file, connection: Some(connection), log, schedule, in_doubt: false })
    }

    /// Commits `txns` as one group, and answers for each.
    pub(crate) fn commit(&mut self, txns: &[&Txn]) -> Committed {
        let committed = self.commit_parts(txns);
        self.schedule.after_group();
        committed
    }

    #[cfg(test)]
    pub(crate) fn log(&self) -> &WalCheckpointer {
        &self.log
    }

    #[cfg(test)]
    pub(crate) const fn connection(&mut self) -> &mut Option<Connection> {
        &mut self.connection
    }

    /// Commits `txns`, together or in halves. If one part waits for the file in vain, those behind
    /// it do not wait again, or a large group would take as many times as long as it has parts.
    fn commit_parts(&mut self, txns: &[&Txn]) -> Committed {
        let mut outcomes = Vec::with_capacity(txns.len());
        // What is still to be tried, the next one last.
        let mut parts = vec![txns];
        while let Some(part) = parts.pop() {
            match self.try_group(part) {
                Ok(done) => outcomes.extend(done.into_iter().map(Ok)),
                Err(GroupFailure::Spoiled(_)) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(GroupFailure::NotBegun(error)) => {
                    outcomes.resize(txns.len(), Err(error.clone()));
                    return Committed { outcomes, not_begun: Some(error) };
                }
                Err(failure @ (GroupFailure::Spoiled(_) | GroupFailure::Doubt(..))) => {
                    outcomes.extend(failed(failure, part.len()));
                }
            }
        }
        Committed { outcomes, not_begun: None }
    }

    fn try_group(&mut self, txns: &[&Txn]) -> Result<Vec<CommitOutcome>, GroupFailure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reconnect().map_err(|error| not_begun(&error))?,
        };
        let outcomes = self.group_on(&connection, txns);
        // One that cannot even roll back is closed, which does it too. So does a panic.
        if connection.is_autocommit() || run(&connection, "ROLLBACK").is_ok() {
            self.connection = Some(connection);
        }
        outcomes
    }

    /// May leave a transaction open when it fails.
    fn group_on(
        &mut self,
        connection: &Connection,
        txns: &[&Txn],
    ) -> Result<Vec<CommitOutcome>, GroupFailure> {
        self.file.check().map_err(|error| not_begun(&error))?;
        self.schedule.before_group(connection);
        let patience = self.file.options().busy_timeout;
        begin(connection, patience).map_err(|error| not_begun(&error))?;
        let mut group = Group::new(connection);
        let applied = txns.iter().map(|txn| group.apply(txn));
        let outcomes: Vec<_> = applied.collect::<Result<_, _>>().map_err(GroupFailure::Spoiled)?;
        drop(group);
        let Err(error) = run(connection, "COMMIT") else {
            self.in_doubt = false;
            return Ok(outcomes);
        };
        let is_certain = certainly_did_not_happen(&error) && !self.in_doubt;
        self.in_doubt = !is_certain;
        let error = infra(COMMIT, &error);
        Err(if is_certain {
            GroupFailure::Spoiled(error)
        } else {
            GroupFailure::Doubt(error, outcomes)
        })
    }

    fn reconnect(&self) -> rusqlite::Result<Connection> {
        let mut connection = self.file.connect(Role::Checkpoint)?;
        connection.busy_timeout(Duration::ZERO)?;
        self.log.watch(&mut connection)?;
        Ok(connection)
    }
}

fn not_begun(error: &rusqlite::Error) -> GroupFailure {
    GroupFailure::NotBegun(infra(COMMIT, error))
}

/// What the callers of a group that is not there are told.
pub(crate) fn failed(failure: GroupFailure, count: usize) -> Vec<Outcome> {
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
