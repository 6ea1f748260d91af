//! One connection to the server, with its prepared statements and the warnings that it received.
//!
//! A session executes one call at a time, so a warning that arrives during a call belongs to it.
//! No cancel request is ever sent: a cancelled wait for a standby would report an unreplicated
//! commit as a success.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Row, Statement};

use crate::batch::CommitCall;
use crate::config::{PostgresConfig, PostgresTls};
use crate::error::Failure;
use crate::password::password;
use crate::read::ReadCall;
use crate::tls::Verified;

/// How long the server keeps a transaction whose client does not continue it. Only a change of the
/// incarnation has more than one statement.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(60);

/// After this time without traffic the connection is probed: a firewall drops idle ones silently.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// A connection.
pub(crate) struct Session {
    client: Client,
    /// `None` behind a pooler, which gives each transaction another server session.
    prepared: Option<Prepared>,
    sql: Sql,
    warning_count: Arc<AtomicU64>,
    request_timeout: Duration,
}

struct Prepared {
    commit: Statement,
    read: Statement,
}

/// The calls of the functions of a schema.
#[derive(Clone, Debug)]
struct Sql {
    commit: String,
    read: String,
}

impl Sql {
    fn new(schema: &str) -> Self {
        let list = |count: usize| {
            let numbers: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
            numbers.join(", ")
        };
        let commit = list(CommitCall::TYPES.len());
        let read = list(ReadCall::TYPES.len());
        Self {
            commit: format!("SELECT * FROM {schema}.commit({commit})"),
            read: format!("SELECT * FROM {schema}.read({read})"),
        }
    }
}

impl Session {
    /// Connects. The functions of the schema need not exist yet ([`Session::prepare`]).
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self, Failure> {
        let warning_count = Arc::<AtomicU64>::default();
        let client = connect(config, &warning_count).await?;
        let (sql, request_timeout) = (Sql::new(&config.schema), config.request_timeout);
        let session = Self { client, prepared: None, sql, warning_count, request_timeout };
        if !config.is_pooled {
            // Behind a pooler a setting of the session would stay with a server session that
            // another client uses next.
            session.set_timeouts().await?;
        }
        Ok(session)
    }

    /// Prepares the statements, unless a pooler is in between.
    pub(crate) async fn prepare(&mut self, config: &PostgresConfig) -> Result<(), Failure> {
        if config.is_pooled || self.prepared.is_some() {
            return Ok(());
        }
        let commit = self.client.prepare_typed(&self.sql.commit, &CommitCall::TYPES);
        let commit = self.within(commit).await?;
        let read = self.client.prepare_typed(&self.sql.read, &ReadCall::TYPES);
        let read = self.within(read).await?;
        self.prepared = Some(Prepared { commit, read });
        Ok(())
    }

    /// Calls `commit`. `Ok(None)` if the server acknowledged it with a warning.
    pub(crate) async fn commit(&self, call: &CommitCall<'_>) -> Result<Option<Vec<Row>>, Failure> {
        // A session executes one call at a time, so a warning between the two loads belongs to
        // this commit.
        let before = self.warning_count.load(Ordering::SeqCst);
        let statement = self.prepared.as_ref().map(|it| &it.commit);
        let rows =
            self.call(statement, &self.sql.commit, &call.params(), &CommitCall::TYPES).await?;
        // The function raises no warning. The only one that a commit can cause says that the wait
        // for a standby was cancelled, and its text depends on the language of the server.
        let is_warned = self.warning_count.load(Ordering::SeqCst) != before;
        Ok((!is_warned).then_some(rows))
    }

    /// Calls `read`.
    pub(crate) async fn read(&self, call: &ReadCall) -> Result<Vec<Row>, Failure> {
        let statement = self.prepared.as_ref().map(|it| &it.read);
        self.call(statement, &self.sql.read, &call.params(), &ReadCall::TYPES).await
    }

    /// Executes statements without parameters and without results.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.within(self.client.batch_execute(sql)).await
    }

    /// Executes a query without parameters.
    pub(crate) async fn query(&self, sql: &str) -> Result<Vec<Row>, Failure> {
        self.within(self.client.query_typed(sql, &[])).await
    }

    /// Returns whether the connection is known to be lost.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the rows once the server is ready for the next statement. Rows arrive before the
    /// commit, so none may be used earlier.
    async fn call(
        &self,
        statement: Option<&Statement>,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
        types: &[Type],
    ) -> Result<Vec<Row>, Failure> {
        match statement {
            Some(statement) => self.within(self.client.query(statement, params)).await,
            None => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                self.within(self.client.query_typed(sql, &typed)).await
            }
        }
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let limit = self.request_timeout;
        match tokio::time::timeout(limit, request).await {
            Ok(answer) => answer.map_err(|error| Failure::of(&error)),
            // The statement is not cancelled: a cancelled wait for a standby would report success
            // for a commit that a failover loses.
            Err(_) => Err(Failure::Timeout { millis: millis(limit) }),
        }
    }

    /// Bounds the time that a statement runs after its client has given up, and pins the isolation.
    async fn set_timeouts(&self) -> Result<(), Failure> {
        let statement = millis(self.request_timeout);
        let idle = millis(IDLE_IN_TRANSACTION);
        self.execute(&format!(
            "SET statement_timeout = {statement}; \
             SET idle_in_transaction_session_timeout = {idle}; \
             SET default_transaction_isolation = 'read committed'"
        ))
        .await
    }
}

/// Connects and drives the connection on a task, which counts the warnings of the server.
pub(crate) async fn connect(
    config: &PostgresConfig,
    warning_count: &Arc<AtomicU64>,
) -> Result<Client, Failure> {
    let fail = |what: &str, error: &std::io::Error| Failure::NotConnected {
        why: format!("{what}: {error}"),
    };
    let mut settings = Config::new();
    settings.host(&config.host).port(config.port).user(&config.user).dbname(&config.database);
    settings.connect_timeout(config.connect_timeout).keepalives_idle(KEEPALIVE_IDLE);
    // The operator finds our sessions by this name in `pg_stat_activity`.
    settings.application_name("gossip");
    if let Some(password) = password(config).map_err(|error| fail("password file", &error))? {
        settings.password(password);
    }
    let connect = async {
        match &config.tls {
            PostgresTls::LoopbackOnly | PostgresTls::Off => {
                let connected = settings.ssl_mode(SslMode::Disable).connect(NoTls).await;
                let (client, connection) = connected.map_err(|it| Failure::of_connect(&it))?;
                receive(connection, warning_count);
                Ok(client)
            }
            PostgresTls::Verified(files) => {
                let tls = Verified::read(files).map_err(|error| fail("TLS files", &error))?;
                let connected = settings.ssl_mode(SslMode::Require).connect(tls).await;
                let (client, connection) = connected.map_err(|it| Failure::of_connect(&it))?;
                receive(connection, warning_count);
                Ok(client)
            }
        }
    };
    // The timeout of the library covers the TCP connection and not what follows it.
    let limit = config.connect_timeout;
    let late = || Failure::NotConnected { why: "timeout".to_owned() };
    tokio::time::timeout(limit, connect).await.map_err(|_| late())?
}

/// Drives a connection until it ends, and counts the warnings of the server.
fn receive<S, T>(mut connection: Connection<S, T>, warning_count: &Arc<AtomicU64>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let warning_count = Arc::clone(warning_count);
    // Ends with the client, or with the connection.
    drop(tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity().is_none_or(|severity| severity == Severity::Warning)
            {
                // Before the answer that follows is passed on, so its receiver sees the count.
                warning_count.fetch_add(1, Ordering::SeqCst);
            }
        }
    }));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
