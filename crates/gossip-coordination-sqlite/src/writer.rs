//! The one writing connection of a process, and groups of transactions on it.
//!
//! A group is one `BEGIN IMMEDIATE … COMMIT`: one sync for all of its transactions. They are
//! applied in order, each sees the writes of those before it, and each has its own outcome. A
//! conflict writes nothing. If anything else fails (a full disk, a damaged page, a value that is
//! too large), the group is rolled back and its halves are retried, recursively, until the failing
//! transactions are alone. So no transaction fails because of another, no savepoints are needed,
//! and one failing transaction costs its group a logarithmic number of commits.
//!
//! # Invariants
//! - Outcomes are returned only after the group's `COMMIT`. A conflict may be with a write of the
//!   same group, so it is no conflict if the group is not committed.
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

/// The outcome of one transaction.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// The first pause before `BEGIN IMMEDIATE` is retried: half a synced commit.
const BUSY_PAUSE_MIN: Duration = Duration::from_micros(50);

/// The longest pause: one synced commit of another process. If several processes commit without a
/// pause the lock is free for moments only, and a process that polls once per millisecond waits for
/// ten commits and more. So a waiting process polls ten thousand times a second, up to the busy
/// timeout.
const BUSY_PAUSE_MAX: Duration = Duration::from_micros(100);

const _: () = assert!(BUSY_PAUSE_MIN.as_nanos() < BUSY_PAUSE_MAX.as_nanos());

/// The writing connection and its state.
#[derive(Debug)]
pub(crate) struct Writer {
    file: Arc<DbFile>,
    /// `None` during a group, and after one that panicked or left a transaction open; the next
    /// group then opens another connection.
    connection: Option<Connection>,
    checkpointer: Arc<WalCheckpointer>,
    schedule: CheckpointSchedule,
    /// Whether a `COMMIT` is unresolved and none has succeeded since. The log then holds frames
    /// that a later failed `COMMIT` may complete, so that one is unresolved as well.
    is_unresolved: bool,
}

/// The result of a group.
#[derive(Debug)]
pub(crate) struct Committed {
    /// One outcome per transaction.
    pub(crate) outcomes: Vec<Outcome>,
    /// Why the group or the rest of it was not started, if so. The cause is mostly that another
    /// process holds the file; callers that waited for it need not wait again.
    pub(crate) not_started: Option<InfraError>,
}

/// Why a group was not committed.
#[derive(Debug)]
pub(crate) enum GroupFailure {
    /// It was not started: another process holds the file, or the file was moved or could not be
    /// opened again.
    NotStarted(InfraError),
    /// A transaction failed, or the disk is full; nothing was committed.
    RolledBack(InfraError),
    /// The `COMMIT` failed and may have been applied, or the file was moved meanwhile. These would
    /// be the outcomes.
    Unresolved(InfraError, Vec<CommitOutcome>),
}

impl Writer {
    pub(crate) fn new(
        file: Arc<DbFile>,
        mut connection: Connection,
        checkpointer: Arc<WalCheckpointer>,
    ) -> rusqlite::Result<Self> {
        checkpointer.watch(&mut connection)?;
        let schedule = CheckpointSchedule::new(Arc::clone(&checkpointer));
        let connection = Some(connection);
        Ok(Self { file, connection, checkpointer, schedule, is_unresolved: false })
    }

    /// Commits `txns` as one group and returns one outcome per transaction.
    pub(crate) fn commit(&mut self, txns: &[&Txn]) -> Committed {
        let committed = self.commit_parts(txns);
        self.schedule.after_group();
        committed
    }

    #[cfg(test)]
    pub(crate) fn checkpointer(&self) -> &WalCheckpointer {
        &self.checkpointer
    }

    #[cfg(test)]
    pub(crate) const fn connection(&mut self) -> &mut Option<Connection> {
        &mut self.connection
    }

    /// Commits `txns` together or, after a rollback, in ever smaller halves. Returns one outcome
    /// per transaction, in their order. If a part is not started, its transactions and all after
    /// them fail.
    fn commit_parts(&mut self, txns: &[&Txn]) -> Committed {
        let mut outcomes = Vec::with_capacity(txns.len());
        // A stack with the earliest part on top, so that outcomes are produced in order.
        let mut parts = vec![txns];
        while let Some(part) = parts.pop() {
            match self.try_group(part) {
                Ok(done) => outcomes.extend(done.into_iter().map(Ok)),
                Err(GroupFailure::RolledBack(_)) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(GroupFailure::NotStarted(error)) => {
                    // The remaining parts fail without waiting: otherwise a large group would wait
                    // for the busy timeout once per part.
                    outcomes.resize(txns.len(), Err(error.clone()));
                    return Committed { outcomes, not_started: Some(error) };
                }
                Err(failure @ (GroupFailure::RolledBack(_) | GroupFailure::Unresolved(..))) => {
                    outcomes.extend(failed(failure, part.len()));
                }
            }
        }
        Committed { outcomes, not_started: None }
    }

    /// Commits `txns` in one SQLite transaction, on a new connection if there is none. Whatever the
    /// result, no transaction stays open.
    fn try_group(&mut self, txns: &[&Txn]) -> Result<Vec<CommitOutcome>, GroupFailure> {
        // Taken out, so that a panic drops the connection and its open transaction with it.
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reconnect().map_err(|error| not_started(&error))?,
        };
        let outcomes = self.group_on(&connection, txns);
        // A connection that cannot roll back is closed instead, which rolls back as well.
        if connection.is_autocommit() || run(&connection, "ROLLBACK").is_ok() {
            self.connection = Some(connection);
        }
        outcomes
    }

    /// Commits `txns` on `connection` and returns their outcomes. On failure it may leave the
    /// transaction open, which the caller rolls back.
    fn group_on(
        &mut self,
        connection: &Connection,
        txns: &[&Txn],
    ) -> Result<Vec<CommitOutcome>, GroupFailure> {
        self.file.check().map_err(|error| not_started(&error))?;
        // Before `BEGIN`: SQLite refuses to checkpoint inside a write transaction.
        self.schedule.before_group(connection);
        let busy_timeout = self.file.options().busy_timeout;
        begin(connection, busy_timeout).map_err(|error| not_started(&error))?;
        let mut group = Group::new(connection);
        let applied = txns.iter().map(|txn| group.apply(txn));
        let outcomes: Vec<_> =
            applied.collect::<Result<_, _>>().map_err(GroupFailure::RolledBack)?;
        // Returns its statement to the connection's cache.
        drop(group);
        let Err(error) = run(connection, "COMMIT") else {
            self.is_unresolved = false;
            // If the file was moved meanwhile, another process may have created one and leased the
            // same shards. So nothing is acknowledged before the file is moved back.
            return match self.file.check() {
                Ok(()) => Ok(outcomes),
                Err(error) => Err(GroupFailure::Unresolved(infra(COMMIT, &error), outcomes)),
            };
        };
        // A failed `COMMIT` after an unresolved one may have completed the frames of that one.
        let is_certain = certainly_did_not_happen(&error) && !self.is_unresolved;
        self.is_unresolved = !is_certain;
        let error = infra(COMMIT, &error);
        Err(if is_certain {
            GroupFailure::RolledBack(error)
        } else {
            GroupFailure::Unresolved(error, outcomes)
        })
    }

    fn reconnect(&self) -> rusqlite::Result<Connection> {
        // This does not create a file: the database must still be there.
        let mut connection = self.file.connect(Role::Checkpoint)?;
        connection.busy_timeout(Duration::ZERO)?;
        self.checkpointer.watch(&mut connection)?;
        Ok(connection)
    }
}

fn not_started(error: &rusqlite::Error) -> GroupFailure {
    GroupFailure::NotStarted(infra(COMMIT, error))
}

/// Returns the outcomes of the `count` transactions of a group that failed: the error for those
/// that were certainly not applied, `Unknown` for the others.
pub(crate) fn failed(failure: GroupFailure, count: usize) -> Vec<Outcome> {
    match failure {
        GroupFailure::NotStarted(error) | GroupFailure::RolledBack(error) => {
            vec![Err(error); count]
        }
        GroupFailure::Unresolved(error, outcomes) => outcomes
            .into_iter()
            .map(|outcome| match outcome {
                CommitOutcome::Applied { .. } | CommitOutcome::Unknown => {
                    Ok(CommitOutcome::Unknown)
                }
                // A conflict wrote nothing, so this transaction was certainly not applied. But the
                // record it conflicted with may be uncommitted, so the conflict is not returned.
                CommitOutcome::Conflict(_) => Err(error.clone()),
            })
            .collect(),
    }
}

/// Takes the file's write lock, and waits for it up to `busy_timeout`; then returns the busy error
/// of the last attempt. It polls, because SQLite's busy handler sleeps up to 100 ms at a time and a
/// commit of another process takes a thousandth of that.
pub(crate) fn begin(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    let mut pause = BUSY_PAUSE_MIN;
    let mut deadline = None;
    loop {
        match run(connection, "BEGIN IMMEDIATE") {
            Err(error) if is_busy(&error) => {
                // The clock is read only if the lock is held: a free lock is the usual case.
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + busy_timeout);
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
