//! The asynchronous handle: two couriers and an alarm carry what a task must not wait for.
//!
//! No runtime is named: the futures are woken through their wakers, whoever polls them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Read, StoreLimits, Txn};

use crate::alarm::Alarm;
use crate::core::{Core, LIMITS, Patience, group_len};
use crate::courier::Courier;
use crate::database::SqliteDatabase;
use crate::one_shot::{Sender, one_shot};
use crate::writer::Outcome;

/// A handle of a database for tasks. Clones are cheap, and each task has one.
///
/// Dropping a future gives up waiting, not the commit: it may happen all the same. Dropping the
/// last handle of a database waits: what was posted is still committed, which takes as long as the
/// file is held by others, and then the file is closed. So let it go where waiting does no harm, as
/// with the other things of a program that ends.
#[derive(Clone, Debug)]
pub struct AsyncSqliteStore {
    database: SqliteDatabase,
}

/// The threads behind the asynchronous handles of one database.
#[derive(Debug)]
pub(crate) struct Couriers {
    /// Everything that waits is committed as one group.
    commits: Courier<CommitJob>,
    /// Apart, so that reads do not wait for the disk.
    reads: Courier<ReadJob>,
    alarm: Alarm,
}

#[derive(Debug)]
struct CommitJob {
    txns: Vec<Txn>,
    reply: Sender<Vec<Outcome>>,
}

#[derive(Debug)]
struct ReadJob {
    reads: Vec<Read>,
    reply: Sender<Result<Vec<Answer>, InfraError>>,
}

impl AsyncSqliteStore {
    pub(crate) const fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }

    /// The database behind it.
    #[must_use]
    pub const fn database(&self) -> &SqliteDatabase {
        &self.database
    }
}

impl AsyncStore for AsyncSqliteStore {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let (reply, answer) = one_shot();
        if !self.database.couriers().reads.post(ReadJob { reads, reply }) {
            return Err(crowded("sqlite.read"));
        }
        answer.await.unwrap_or_else(|| Err(crowded("sqlite.read")))
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let (count, (reply, answer)) = (txns.len(), one_shot());
        if !self.database.couriers().commits.post(CommitJob { txns, reply }) {
            return vec![Err(crowded("sqlite.commit")); count];
        }
        // The courier broke down on the way, perhaps behind the commit.
        answer.await.unwrap_or_else(|| vec![Ok(CommitOutcome::Unknown); count])
    }

    /// A tick is a millisecond.
    async fn wait(&mut self, ticks: u64) {
        let _ = self.database.couriers().alarm.after(Duration::from_millis(ticks)).await;
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }
}

impl Couriers {
    pub(crate) fn start(core: &Arc<Core>) -> io::Result<Self> {
        let (writing, reading) = (Arc::clone(core), Arc::clone(core));
        Ok(Self {
            commits: Courier::start("gossip-sqlite-commit", move |jobs| commit(&writing, jobs))?,
            reads: Courier::start("gossip-sqlite-read", move |jobs| read(&reading, jobs))?,
            alarm: Alarm::start()?,
        })
    }

    /// Commits that no courier has taken yet.
    #[cfg(test)]
    pub(crate) fn waiting_commits(&self) -> usize {
        self.commits.waiting_count()
    }
}

/// Commits in groups, and answers each group before the next one, which may have to wait for the
/// file: its tasks hold leases that run out meanwhile.
fn commit(core: &Core, mut jobs: Vec<CommitJob>) {
    let mut patience = Patience::default();
    while !jobs.is_empty() {
        let count = group_len(jobs.iter().map(|job| job.txns.as_slice()));
        let rest = jobs.split_off(count);
        commit_group(core, std::mem::replace(&mut jobs, rest), &mut patience);
    }
}

fn commit_group(core: &Core, jobs: Vec<CommitJob>, patience: &mut Patience) {
    let (mut txns, mut replies) = (Vec::new(), Vec::with_capacity(jobs.len()));
    for job in jobs {
        replies.push((job.txns.len(), job.reply));
        txns.extend(job.txns);
    }
    let mut outcomes = core.commit(txns, patience).into_iter();
    for (count, reply) in replies {
        reply.send(outcomes.by_ref().take(count).collect());
    }
}

fn read(core: &Core, jobs: Vec<ReadJob>) {
    let (batches, replies): (Vec<_>, Vec<_>) =
        jobs.into_iter().map(|job| (job.reads, job.reply)).unzip();
    match core.read(&batches) {
        Ok(answers) => {
            replies.into_iter().zip(answers).for_each(|(reply, answer)| reply.send(answer));
        }
        Err(error) => replies.into_iter().for_each(|reply| reply.send(Err(error.clone()))),
    }
}

fn crowded(operation: &'static str) -> InfraError {
    let message = "too many callers wait for this database; come back later".to_owned();
    InfraError::Transient { operation, message }
}
