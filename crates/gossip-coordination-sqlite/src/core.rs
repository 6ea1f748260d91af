//! What every handle and thread of a database shares: the writer, the readers, and the way to them.

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

/// What fits in one transaction. SQLite would take more; but whoever holds the file's write lock
/// makes every process wait, so a large registration goes in steps of some milliseconds.
pub(crate) const LIMITS: StoreLimits =
    StoreLimits { txn_ops: 1_024, txn_bytes: 16 << 20, page: 1_000 };

/// The most load of one group, in operations or KiB to write: what one transaction may have four
/// times, some ten milliseconds of work for one sync.
const GROUP_LOAD_MAX: usize = 4_096;

const _: () = assert!(LIMITS.txn_ops <= GROUP_LOAD_MAX);

/// How long one caller commits for others: many times an ordinary group. When another process holds
/// the file each group waits for seconds, and a caller whose own job is done shall not wait for
/// many of them: its lease may be over by then.
const LEAD_TIME_MAX: Duration = Duration::from_millis(20);

/// Transactions of one caller, and what became of them.
#[derive(Debug)]
struct Job {
    txns: Vec<Txn>,
    /// As many as `txns` once the job is done.
    outcomes: Vec<Outcome>,
    /// As in [`Committed`].
    not_begun: Option<InfraError>,
}

/// The shared part of a database.
#[derive(Debug)]
pub(crate) struct Core {
    file: Arc<DbFile>,
    group_commit: GroupCommit<Job>,
    /// Locked by whoever drives a convoy, and by nobody else.
    writer: Mutex<Writer>,
    readers: Readers,
}

impl Core {
    pub(crate) fn new(
        file: Arc<DbFile>,
        connection: Connection,
        log: Arc<WalCheckpointer>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            group_commit: GroupCommit::new(GROUP_LOAD_MAX, LEAD_TIME_MAX),
            writer: Mutex::new(Writer::new(Arc::clone(&file), connection, log)?),
            readers: Readers::new(Arc::clone(&file)),
            file,
        })
    }

    /// Commits `txns` in one or more groups, each shared with concurrent callers, and returns one
    /// outcome per transaction.
    pub(crate) fn commit(&self, txns: Vec<Txn>) -> Vec<Outcome> {
        // Set once a group timed out on the lock of another process: the call waits for at most
        // one `busy_timeout`, however many groups it has.
        let mut timed_out = None;
        // The usual case: one transaction, nothing to sort out.
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
        let job = Job { txns, outcomes: Vec::with_capacity(count), not_begun: None };
        match self.group_commit.submit(job, load, |jobs| self.commit_batch(jobs)) {
            Some(job) => {
                *timed_out = job.not_begun;
                job.outcomes
            }
            // Whoever drove panicked, perhaps before, perhaps after the commit.
            None => vec![Ok(CommitOutcome::Unknown); count],
        }
    }

    fn commit_batch(&self, jobs: &mut [Job]) {
        let group: Vec<&Txn> = jobs.iter().flat_map(|job| &job.txns).collect();
        // The writer puts itself in order before each group, also after a panic.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Committed { outcomes, not_begun } = writer.commit(&group);
        assert_eq!(outcomes.len(), group.len(), "each transaction has an outcome");
        let mut outcomes = outcomes.into_iter();
        for job in jobs {
            job.outcomes.extend(outcomes.by_ref().take(job.txns.len()));
            job.not_begun.clone_from(&not_begun);
        }
    }

    /// Returns the answers to `reads`, all from one snapshot.
    pub(crate) fn read(&self, reads: &[Read]) -> Result<Vec<Answer>, InfraError> {
        self.readers.read(reads, LIMITS.page)
    }

    #[cfg(test)]
    pub(crate) fn log_frames(&self) -> i32 {
        self.writer.lock().unwrap().log().frames()
    }

    #[cfg(test)]
    pub(crate) fn forbid_writing(&self) {
        let mut writer = self.writer.lock().unwrap();
        let connection = writer.connection().as_ref().unwrap();
        connection.pragma_update(None, "query_only", true).unwrap();
    }

    /// Calls `hook` after every commit, when the file is let go.
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

    /// A connection of its own for whoever reads long, so that nobody waits for it.
    pub(crate) fn visit(&self) -> rusqlite::Result<Connection> {
        self.file.connect(Role::Read)
    }

    pub(crate) fn file(&self) -> &DbFile {
        &self.file
    }
}

/// How much work a transaction is.
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
