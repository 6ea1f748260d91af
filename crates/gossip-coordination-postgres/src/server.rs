//! The state that the handles of a store share: settings, idle sessions and the incarnation.
//!
//! # Incarnation
//!
//! The server loses the row of the incarnation when it loses commits that it acknowledged, and in
//! some cases in which it loses none (docs/postgres.md). Every commit compares it. A client that
//! finds it missing begins a new one: in one transaction it inserts the row and raises the fence
//! floors of all runs (DESIGN Q32), so that no fence of a lost grant is issued again. Until that
//! transaction commits, every other commit is refused.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::store::{
    Answer, AsyncStore, AsyncStoreCoordinator, CommitOutcome, Read, StoreConfig, StoreLimits, Txn,
};
use gossip_coordination::{GetRunError, InfraError};
use tokio::sync::Semaphore;
use tokio_postgres::Row;

use crate::backend::ConnectError;
use crate::batch::{Batch, CommitAnswer, CommitCall, Outcome};
use crate::config::PostgresConfig;
use crate::error::Failure;
use crate::locks::{self, LockPlan};
use crate::read::{ReadAnswers, ReadCall};
use crate::schema;
use crate::session::Session;

/// Limits of one transaction. The server has none; these bound its memory and its locks.
pub(crate) const LIMITS: StoreLimits =
    StoreLimits { txn_ops: 10_000, txn_bytes: 16 << 20, page: 1_000 };

/// Reads of a process at a time, each on its own session. More wait: every session is a process of
/// the server.
const READERS_MAX: usize = 4;

/// How often a request that certainly had no effect is sent before its caller is involved: a read,
/// or a commit that lost a deadlock.
const ATTEMPTS_MAX: usize = 4;

/// Transactions of a failed batch that may each wait for a lock until the server ends the wait. The
/// others would wait for the same lock, one after the other, and all callers of the process behind
/// them.
const WAITS_MAX: usize = 2;

/// How often a connection is tried. Once more, because a server or a pooler that restarts closes
/// connections that it has just accepted.
const CONNECTS_MAX: usize = 2;

/// Ticks of the coordinator's clock per second.
const TICKS: u64 = 1_000;

/// The shared state.
pub(crate) struct Server {
    config: PostgresConfig,
    idle: Mutex<Vec<Session>>,
    readers: Semaphore,
    /// The last incarnation that this process has seen.
    incarnation: Mutex<i64>,
    /// Held while the incarnation is looked up.
    entering: tokio::sync::Mutex<()>,
    /// See [`locks::seed`].
    seed: u64,
}

impl Server {
    /// Connects, creates the schema if it is missing, and enters the incarnation.
    pub(crate) async fn connect(config: PostgresConfig) -> Result<Self, ConnectError> {
        config.validate()?;
        let seed = locks::seed(&config.schema);
        let mut session = Session::open(&config).await?;
        schema::prepare(&session, &config, seed).await?;
        session.prepare(&config).await?;
        let server = Self {
            config,
            idle: Mutex::new(vec![session]),
            readers: Semaphore::new(READERS_MAX),
            incarnation: Mutex::new(0),
            entering: tokio::sync::Mutex::default(),
            seed,
        };
        // Floors that cannot be raised keep the store closed: fences of lost grants could be
        // issued again.
        server.enter(0).await.map_err(ConnectError::Store)?;
        Ok(server)
    }

    /// Returns the settings.
    pub(crate) const fn config(&self) -> &PostgresConfig {
        &self.config
    }

    /// Returns the last incarnation that this process has seen.
    pub(crate) fn incarnation(&self) -> i64 {
        *self.incarnation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers reads from one snapshot, and the incarnation in which they were answered.
    pub(crate) async fn read(&self, reads: &[Read]) -> Result<(Vec<Answer>, i64), InfraError> {
        // Only for as long as the store exists, which holds the semaphore.
        let _permit = self.readers.acquire().await;
        let call = ReadCall::new(reads, LIMITS.page);
        let mut failure = Failure::Lost;
        for _ in 0..ATTEMPTS_MAX {
            // Read before the call: `enter` compares it, and asks the server only if no other task
            // of this process has done so since.
            let known = self.incarnation();
            let session = self.session().await.map_err(|it| it.into_infra("postgres.read"))?;
            let read = session.read(&call).await;
            let rows = match self.put_back(session, read) {
                Ok(rows) => rows,
                // An idle session may have been closed without our notice.
                Err(Failure::Lost) => continue,
                Err(other) => {
                    failure = other;
                    break;
                }
            };
            let found = ReadAnswers::read(reads, &rows)?;
            match found.incarnation {
                Some(incarnation) if incarnation == known => return Ok((found.answers, known)),
                // Entered before anything is reported: the floors may have to be raised first.
                Some(_) | None => _ = self.enter(known).await?,
            }
        }
        Err(failure.into_infra("postgres.read"))
    }

    /// Commits a batch and returns an outcome for each of its transactions. `incarnation` is the
    /// one in which the callers have read.
    pub(crate) async fn commit<N: Send>(
        &self,
        incarnation: i64,
        batch: Batch<N>,
    ) -> Vec<(N, Outcome)> {
        // An error of the whole batch is certain, because an unknown end is an outcome of each
        // transaction.
        let failure = match self.commit_together(incarnation, &batch).await {
            Ok(outcomes) => return batch.answer(outcomes).collect(),
            Err(failure) => failure,
        };
        // Certainly not applied, and perhaps because of one of them.
        if batch.len() == 1 || !failure.concerns_one() {
            let error = failure.into_infra("postgres.commit");
            return batch.answer(std::iter::repeat(Err(error))).collect();
        }
        let (mut outcomes, mut waits) = (Vec::with_capacity(batch.len()), 0);
        for (txn, note) in batch.apart() {
            let single = Batch::of(txn, note);
            let committed = match waits < WAITS_MAX {
                true => self.commit_together(incarnation, &single).await,
                false => Err(failure.clone()),
            };
            let outcome = committed.unwrap_or_else(|failure| {
                waits += usize::from(failure.is_wait());
                vec![Err(failure.into_infra("postgres.commit"))]
            });
            outcomes.extend(single.answer(outcome));
        }
        outcomes
    }

    /// Sends a batch in one call. An error means that nothing of it was applied.
    async fn commit_together<N>(
        &self,
        incarnation: i64,
        batch: &Batch<N>,
    ) -> Result<Vec<Outcome>, Failure> {
        let unknown = || batch.txns().map(|_| Ok(CommitOutcome::Unknown)).collect();
        let mut plan = LockPlan::default();
        batch.txns().for_each(|txn| plan.add(self.seed, txn));
        let call = CommitCall::new(incarnation, plan, batch.txns());
        for attempt in 1.. {
            let session = self.session().await?;
            let answer = session.commit(&call).await;
            match self.put_back(session, answer) {
                // Acknowledged with a warning: committed here and perhaps not on the standby.
                Ok(None) => return Ok(unknown()),
                Ok(Some(rows)) => match CommitAnswer::read(batch.txns(), &rows) {
                    Some(CommitAnswer::Outcomes(outcomes)) => return Ok(outcomes),
                    None => return Ok(unknown()),
                    Some(CommitAnswer::OtherIncarnation) => {
                        let error = match self.enter(incarnation).await {
                            Ok(_) => restarted(),
                            Err(error) => error,
                        };
                        return Ok(batch.txns().map(|_| Err(error.clone())).collect());
                    }
                },
                Err(failure) if !failure.is_certain() => return Ok(unknown()),
                Err(failure) if failure.is_contention() && attempt < ATTEMPTS_MAX => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(unknown())
    }

    /// Returns the present incarnation if this process still knows `known`, and begins a new one if
    /// the server lost it.
    async fn enter(&self, known: i64) -> Result<i64, InfraError> {
        // One task looks, and those that waited for it adopt what it found instead of a call each.
        let _entering = self.entering.lock().await;
        let present = self.incarnation();
        if present != known {
            return Ok(present);
        }
        let session = self.session().await.map_err(|it| it.into_infra("postgres.enter"))?;
        // A session that fails within the transaction is dropped, which ends the transaction.
        let entered = self.enter_on(&session).await?;
        *self.incarnation.lock().unwrap_or_else(PoisonError::into_inner) = entered;
        self.idle().push(session);
        Ok(entered)
    }

    async fn enter_on(&self, session: &Session) -> Result<i64, InfraError> {
        let fail = |failure: Failure| failure.into_infra("postgres.enter");
        // The row and the raised floors commit together: a row without its floors would let lost
        // fences be issued again.
        session.execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(fail)?;
        let sql = format!("SELECT id, raises, unix_seconds FROM {}.enter()", self.config.schema);
        let rows = session.query(&sql).await.map_err(fail)?;
        let row = rows.first().ok_or(Failure::Lost).map_err(fail)?;
        let lost = |_| fail(Failure::Lost);
        let incarnation: i64 = row.try_get(0).map_err(lost)?;
        let raises: bool = row.try_get(1).map_err(lost)?;
        let unix_seconds: i64 = row.try_get(2).map_err(lost)?;
        if raises {
            let unix_seconds = u64::try_from(unix_seconds).unwrap_or(0);
            // By the server's clock: those of the clients differ, and a floor of a slow one could
            // lie below a lost fence.
            raise_floors(Locked { session, incarnation }, unix_seconds).await?;
        }
        session.execute("COMMIT").await.map_err(fail)?;
        Ok(incarnation)
    }

    /// Executes a statement without parameters.
    pub(crate) async fn query(&self, statement: &str) -> Result<Vec<Row>, Failure> {
        let session = self.session().await?;
        let rows = session.query(statement).await;
        self.put_back(session, rows)
    }

    /// Returns an idle session or a new one.
    async fn session(&self) -> Result<Session, Failure> {
        loop {
            // In a statement of its own: the lock must not be held across the connection.
            let idle = self.idle().pop();
            match idle {
                Some(session) if session.is_closed() => {}
                Some(session) => return Ok(session),
                None => break,
            }
        }
        // A refusal by the server, as of a wrong password, is not retried: it would only be
        // repeated.
        for _ in 1..CONNECTS_MAX {
            match self.open().await {
                Err(Failure::Lost | Failure::NotConnected { .. }) => {}
                opened => return opened,
            }
        }
        self.open().await
    }

    async fn open(&self) -> Result<Session, Failure> {
        let mut session = Session::open(&self.config).await?;
        session.prepare(&self.config).await?;
        Ok(session)
    }

    /// Keeps a session for the next call, unless the call has left it in an unknown state.
    fn put_back<T>(&self, session: Session, answer: Result<T, Failure>) -> Result<T, Failure> {
        if answer.as_ref().map_or_else(Failure::keeps_session, |_| true) {
            self.idle().push(session);
        }
        answer
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a commit that another incarnation refused. Its caller has read before the change.
fn restarted() -> InfraError {
    let message = "the server has recovered from a crash or was promoted; load again".to_owned();
    InfraError::Transient { operation: "postgres.commit", message }
}

/// Raises the floors of all runs.
async fn raise_floors(locked: Locked<'_>, unix_seconds: u64) -> Result<(), InfraError> {
    let now = LogicalTime::from_raw(unix_seconds.saturating_mul(TICKS).max(1));
    // No grant is made here, so the nonce is never stored.
    let mut coordinator = AsyncStoreCoordinator::new(locked, StoreConfig::new(0));
    let mut failed = Ok(());
    let at_least = fence_floor_at(unix_seconds);
    let mut each = |_, _, raised| match raised {
        // A damaged head: no shard of its run can be granted or written.
        Err(GetRunError::BackendError(error)) if error.is_of_record() => {}
        Err(GetRunError::BackendError(error)) => failed = Err(error),
        Ok(_) | Err(_) => {}
    };
    coordinator.raise_fence_floors(now, None, at_least, &mut each).await?;
    failed
}

/// A store on a session whose open transaction has locked the table against other writers, so
/// nothing changes between two calls. Needs no further locks, and takes none: a transaction over
/// all runs would need more than the server has.
struct Locked<'s> {
    session: &'s Session,
    incarnation: i64,
}

impl AsyncStore for Locked<'_> {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let rows = self.session.read(&ReadCall::new(&reads, LIMITS.page)).await;
        let rows = rows.map_err(|failure| failure.into_infra("postgres.enter"))?;
        Ok(ReadAnswers::read(&reads, &rows)?.answers)
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(txns.len());
        for txn in &txns {
            let txns = || std::iter::once(txn);
            let call = CommitCall::new(self.incarnation, LockPlan::default(), txns());
            // Whatever fails here fails the whole transaction, so nothing is unknown.
            let rows = match self.session.commit(&call).await {
                Ok(rows) => rows.unwrap_or_default(),
                Err(failure) => {
                    outcomes.push(Err(failure.into_infra("postgres.enter")));
                    continue;
                }
            };
            match CommitAnswer::read(txns(), &rows) {
                Some(CommitAnswer::Outcomes(applied)) => outcomes.extend(applied),
                Some(CommitAnswer::OtherIncarnation) | None => outcomes.push(Err(restarted())),
            }
        }
        outcomes
    }

    /// Not reached: no other caller can cause a conflict.
    async fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        LIMITS
    }
}
