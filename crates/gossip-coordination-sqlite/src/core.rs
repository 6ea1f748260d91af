//! The state shared by all handles of a database: the writer, the readers and the group commit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gossip_coordination::store::{Answer, CommitOutcome, Read, StoreLimits, Txn};
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::Connection;

use crate::apply::COMMIT;
use crate::db_file::DbFile;
use crate::group_commit::GroupCommit;
use crate::readers::Readers;
use crate::schema::Role;
use crate::wal_checkpointer::WalCheckpointer;
use crate::writer::{Committed, Outcome, Writer};

/// Limits of one transaction. SQLite would take more, but every process waits while one holds the
/// file's write lock, so a large registration is split into steps of some milliseconds.
pub(crate) const LIMITS: StoreLimits =
    StoreLimits { txn_ops: 1_024, txn_bytes: 16 << 20, page: 1_000 };

/// The largest load of one group, in operations or KiB to write: four of the largest transactions,
/// some ten milliseconds of work for one sync.
const GROUP_LOAD_MAX: usize = 4_096;

const _: () = assert!(LIMITS.txn_ops <= GROUP_LOAD_MAX);

/// How long one caller commits for others: many times an ordinary group. While another process
/// holds the file each group waits for seconds, and a caller whose own job is done must not wait
/// for many of them: its lease may expire meanwhile.
const LEAD_TIME_MAX: Duration = Duration::from_millis(20);

/// Transactions of one caller, and their outcomes.
#[derive(Debug)]
struct Job {
    txns: Vec<Txn>,
    /// One per transaction once the job is done.
    outcomes: Vec<Outcome>,
    /// As in [`Committed`].
    not_started: Option<InfraError>,
}

/// The shared part of a database.
#[derive(Debug)]
pub(crate) struct Core {
    file: Arc<DbFile>,
    group_commit: GroupCommit<Job>,
    readers: Readers,
    /// The connection that is asked for changes, once it was needed. SQLite counts the commits of
    /// all connections but the asking one, so it commits nothing.
    watcher: Mutex<Option<Connection>>,
    /// Locked by the leader of the group commit only, so it is never contended. Dropped last: the
    /// last connection moves the log into the file, and one that has synced the log before need not
    /// sync its directory again.
    writer: Mutex<Writer>,
}

impl Core {
    pub(crate) fn new(
        file: Arc<DbFile>,
        connection: Connection,
        checkpointer: Arc<WalCheckpointer>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            group_commit: GroupCommit::new(GROUP_LOAD_MAX, LEAD_TIME_MAX),
            writer: Mutex::new(Writer::new(Arc::clone(&file), connection, checkpointer)?),
            readers: Readers::new(Arc::clone(&file)),
            watcher: Mutex::new(None),
            file,
        })
    }

    /// Commits `txns` in one or more groups, each shared with concurrent callers, and returns one
    /// outcome per transaction, in their order.
    ///
    /// A transaction above [`LIMITS`] is refused, and does not affect the others. Transactions of
    /// different groups are not atomic together, nor are those of one group: each has its own
    /// compares and its own outcome.
    pub(crate) fn commit(&self, txns: Vec<Txn>) -> Vec<Outcome> {
        // Set once a group timed out on the lock of another process: the call waits for at most
        // one `busy_timeout`, however many groups it has.
        let mut timed_out = None;
        // One transaction is the usual case, so it skips the allocations of grouping.
        if let [txn] = txns.as_slice()
            && LIMITS.admit(txn)
        {
            let load = load(txn);
            return self.commit_group(txns, load, &mut timed_out);
        }
        let mut outcomes = Vec::with_capacity(txns.len());
        let (mut group, mut group_load) = (Vec::new(), 0);
        for txn in txns {
            let is_admitted = LIMITS.admit(&txn);
            // A refused transaction also ends the group, so that outcomes stay in order.
            if !is_admitted || group_load + load(&txn) > GROUP_LOAD_MAX {
                let full = std::mem::take(&mut group);
                outcomes.extend(self.commit_group(full, group_load, &mut timed_out));
                group_load = 0;
            }
            if is_admitted {
                group_load += load(&txn);
                group.push(txn);
            } else {
                outcomes.push(Err(too_large(&txn)));
            }
        }
        outcomes.extend(self.commit_group(group, group_load, &mut timed_out));
        outcomes
    }

    /// Commits `txns`, at most one group's load, and returns one outcome per transaction. Sets
    /// `timed_out` if the group was not started, and fails at once if it is set already.
    fn commit_group(
        &self,
        txns: Vec<Txn>,
        load: usize,
        timed_out: &mut Option<InfraError>,
    ) -> Vec<Outcome> {
        let count = txns.len();
        if count == 0 {
            return Vec::new();
        }
        if let Some(error) = timed_out {
            return vec![Err(error.clone()); count];
        }
        let job = Job { txns, outcomes: Vec::with_capacity(count), not_started: None };
        match self.group_commit.submit(job, load, |jobs| self.commit_batch(jobs)) {
            Some(job) => {
                *timed_out = job.not_started;
                job.outcomes
            }
            // The leader panicked, and it is not known whether before or after its `COMMIT`.
            None => vec![Ok(CommitOutcome::Unknown); count],
        }
    }

    /// Commits the transactions of all jobs as one group and stores each job's outcomes in it.
    fn commit_batch(&self, jobs: &mut [Job]) {
        let group: Vec<&Txn> = jobs.iter().flat_map(|job| &job.txns).collect();
        // A panic leaves the writer without a connection; the next group opens another.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Committed { outcomes, not_started } = writer.commit(&group);
        assert_eq!(outcomes.len(), group.len(), "each transaction has an outcome");
        let mut outcomes = outcomes.into_iter();
        for job in jobs {
            job.outcomes.extend(outcomes.by_ref().take(job.txns.len()));
            job.not_started.clone_from(&not_started);
        }
    }

    /// Returns a number that changes with every commit of this and other processes; `None` if it
    /// cannot be read. It is read from memory that the processes share.
    pub(crate) fn change_count(&self) -> Option<u64> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out, so that a connection that fails is opened again.
        let connection = match watcher.take() {
            Some(connection) => connection,
            None => self.file.connect(Role::Read).ok()?,
        };
        let count: i64 = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .ok()?;
        *watcher = Some(connection);
        Some(count.cast_unsigned())
    }

    /// Returns the answers to `reads`, all from one snapshot.
    pub(crate) fn read(&self, reads: &[Read]) -> Result<Vec<Answer>, InfraError> {
        self.readers.read(reads, LIMITS.page)
    }

    #[cfg(test)]
    pub(crate) fn log_frames(&self) -> i32 {
        self.writer.lock().unwrap().checkpointer().frames()
    }

    #[cfg(test)]
    pub(crate) fn forbid_writing(&self) {
        let mut writer = self.writer.lock().unwrap();
        let connection = writer.connection().as_ref().unwrap();
        connection.pragma_update(None, "query_only", true).unwrap();
    }

    /// Calls `hook` after every commit, when the write lock is released.
    #[cfg(test)]
    pub(crate) fn after_commit(&self, mut hook: impl FnMut() + Send + 'static) {
        let mut writer = self.writer.lock().unwrap();
        let connection = writer.connection().as_mut().unwrap();
        let hook = move |_: &mut rusqlite::hooks::Wal, _| {
            hook();
            Ok(())
        };
        connection.wal_hook(Some(hook)).unwrap();
    }

    #[cfg(test)]
    pub(crate) fn lose_connection(&self) {
        *self.writer.lock().unwrap().connection() = None;
    }

    /// Opens a separate connection for a long read, so that short reads do not wait for it.
    pub(crate) fn open_reader(&self) -> rusqlite::Result<Connection> {
        self.file.connect(Role::Read)
    }

    pub(crate) fn file(&self) -> &DbFile {
        &self.file
    }
}

/// Returns the load of a transaction: its operations or its KiB, whichever are more.
fn load(txn: &Txn) -> usize {
    txn.op_count().max(txn.byte_count() >> 10).clamp(1, GROUP_LOAD_MAX)
}

fn too_large(txn: &Txn) -> InfraError {
    let (ops, bytes) = (txn.op_count(), txn.byte_count());
    InfraError::Refused {
        operation: COMMIT,
        why: StoreRefusal::TooLarge,
        message: format!(
            "{ops} operations and {bytes} bytes in one transaction; at most {} and {}",
            LIMITS.txn_ops, LIMITS.txn_bytes
        ),
    }
}
