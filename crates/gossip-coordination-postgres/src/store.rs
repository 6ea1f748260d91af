//! The store layer on PostgreSQL.
//!
//! # Never
//! - knows a rule of the protocol, or decodes a value;
//! - reports an unresolved commit as an error: a lost reply is [`CommitOutcome::Unknown`];
//! - binds a key to the life of a process: a takeover waits for the deadline of the lease.
//!
//! [`CommitOutcome::Unknown`]: gossip_coordination::store::CommitOutcome::Unknown

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Read, StoreLimits, Txn};
use gossip_coordination::{InfraError, StoreRefusal};
use tokio_postgres::Row;

use crate::backend::ConnectError;
use crate::config::PostgresConfig;
use crate::error::Failure;
use crate::group_commit::GroupCommit;
use crate::server::{LIMITS, Server};

/// A handle on a schema of a database. Clones share the connections and the group commit.
#[derive(Clone)]
pub struct PostgresStore {
    server: Arc<Server>,
    group_commit: GroupCommit,
    /// The incarnation of the last read: what the caller has decided is void in another one.
    incarnation: Option<i64>,
}

impl PostgresStore {
    /// Connects, creates or upgrades the schema if it is missing or old, and enters the
    /// incarnation of the server.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, ConnectError> {
        let server = Arc::new(Server::connect(config.clone()).await?);
        let group_commit = GroupCommit::start(&server);
        Ok(Self { server, group_commit, incarnation: None })
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &PostgresConfig {
        self.server.config()
    }

    /// Executes a statement of the operator, outside of the functions that workers call.
    pub(crate) async fn query(&self, statement: &str) -> Result<Vec<Row>, Failure> {
        self.server.query(statement).await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("config", self.config()).finish_non_exhaustive()
    }
}

impl AsyncStore for PostgresStore {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let (answers, incarnation) = self.server.read(&reads).await?;
        self.incarnation = Some(incarnation);
        Ok(answers)
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let incarnation = self.incarnation.unwrap_or_else(|| self.server.incarnation());
        // The server has no such limits: without this check a large transaction could exhaust its
        // memory or its table of locks.
        let (fit, too_large): (Vec<_>, Vec<_>) =
            txns.into_iter().enumerate().partition(|(_, txn)| LIMITS.admit(txn));
        let mut outcomes: Vec<_> =
            too_large.into_iter().map(|(place, txn)| (place, Err(refuse(&txn)))).collect();
        let (places, fit): (Vec<usize>, Vec<Txn>) = fit.into_iter().unzip();
        let committed = self.group_commit.commit(incarnation, fit).await;
        if committed.iter().any(Result::is_err) {
            // The operation ends here, and the next one begins in the present incarnation.
            self.incarnation = None;
        }
        outcomes.extend(places.into_iter().zip(committed));
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn wait(&mut self, ticks: u64) {
        tokio::time::sleep(Duration::from_millis(ticks)).await;
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }
}

fn refuse(txn: &Txn) -> InfraError {
    let message = format!(
        "a transaction of {} operations and {} bytes exceeds {} and {}",
        txn.op_count(),
        txn.byte_count(),
        LIMITS.txn_ops,
        LIMITS.txn_bytes
    );
    InfraError::Refused { operation: "postgres.commit", why: StoreRefusal::TooLarge, message }
}
