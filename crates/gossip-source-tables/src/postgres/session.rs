//! Connections, the retries of a statement, and values on the wire.

use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use gossip_contracts::connector::ConnectorError;
use gossip_coordination_postgres::{ConnectError, PostgresConfig};
use gossip_frontier::{ColumnKind, ColumnValue};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row};

/// How long one statement may take. A page takes milliseconds; one behind many dead rows, which
/// vacuum has not removed, takes longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a statement is tried that the server cancelled or whose connection was lost.
const TRIES: u32 = 5;
/// The wait before the second try; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Begins the transaction of one statement, with its settings.
///
/// Of the transaction and not of the connection: behind a pooler the next statement may be executed
/// by another one. The planner may think that reading the whole table and sorting it is cheaper
/// than the index; for one page it may be, for all pages it is not. With `row_security` off a table
/// whose rows are hidden by a policy is an error instead of a shorter table. The server ends a
/// statement that is no longer waited for ([`STATEMENT_TIMEOUT`]). The rest makes the JSON of a row
/// independent of the role's settings.
const BEGIN: &str = "BEGIN READ ONLY; \
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_sort = off; SET LOCAL max_parallel_workers_per_gather = 0; \
    SET LOCAL jit = off; SET LOCAL row_security = off; SET LOCAL statement_timeout = '120s'; \
    SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'postgres'; \
    SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1";

/// Why there is no answer.
pub(super) enum Failure {
    /// The table or the text is unusable, in words for the user.
    Refused(String),
    /// No connection could be made.
    Connect(ConnectError),
    /// The server reported an error with this code.
    Server(String),
    /// The connection was lost, or the answer was not understood.
    Lost,
    /// No answer in time.
    Timeout,
    /// There is no thread.
    NoThread(io::Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => Self::Server(error.code().code().to_owned()),
            None => Self::Lost,
        }
    }
}

impl Failure {
    /// Returns whether the same statement may succeed: a standby cancelled it because it applies a
    /// change (40001), a user cancelled it, or the server was restarted.
    fn is_transient(&self) -> bool {
        match self {
            Self::Server(code) => {
                ["40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03"].contains(&&**code)
                    || code.starts_with("08")
            }
            Self::Lost | Self::Timeout => true,
            Self::Refused(_) | Self::Connect(_) | Self::NoThread(_) => false,
        }
    }

    pub(super) fn into_error(self) -> ConnectorError {
        let unavailable = |kind| ConnectorError::Unavailable { kind };
        match self {
            Self::Refused(_) => ConnectorError::SourceChanged,
            Self::Server(code) => match &*code {
                "42501" | "28000" | "28P01" => ConnectorError::PermissionDenied,
                "42P01" | "42703" | "3F000" | "3D000" => ConnectorError::SourceChanged,
                "XX001" | "XX002" => ConnectorError::Malformed { position: 0 },
                _ => unavailable(io::ErrorKind::Other),
            },
            Self::Connect(_) => unavailable(io::ErrorKind::NotConnected),
            Self::Lost => unavailable(io::ErrorKind::ConnectionAborted),
            Self::Timeout => unavailable(io::ErrorKind::TimedOut),
            Self::NoThread(error) => unavailable(error.kind()),
        }
    }

    /// Returns the cause in words. Texts of the server are not repeated: they may quote values.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Refused(text) => text.clone(),
            Self::Connect(error) => error.to_string(),
            Self::Server(code) => match &**code {
                "42501" => "the role may not read the table, or row security hides rows from it \
                            (GRANT SELECT, or a role with BYPASSRLS)"
                    .to_owned(),
                code => format!("PostgreSQL reported error {code}"),
            },
            Self::Lost => "the connection to PostgreSQL was lost".to_owned(),
            Self::Timeout => "PostgreSQL did not answer in time".to_owned(),
            Self::NoThread(error) => format!("no thread could be started ({error})"),
        }
    }
}

/// The connections to one database.
pub(super) struct Sessions {
    config: PostgresConfig,
    /// Connections that are not in use.
    idle: Mutex<Vec<Arc<Client>>>,
}

impl Sessions {
    pub(super) const fn new(config: PostgresConfig) -> Self {
        Self { config, idle: Mutex::new(Vec::new()) }
    }

    /// Runs statements that change nothing, again if the server cancels them.
    pub(super) async fn with<R, F>(&self, run: impl Fn(Arc<Client>) -> F) -> Result<R, Failure>
    where
        F: Future<Output = Result<R, Failure>>,
    {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match self.once(&run).await {
                Err(failure) if failure.is_transient() => {}
                result => return result,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.once(&run).await
    }

    async fn once<R, F>(&self, run: &impl Fn(Arc<Client>) -> F) -> Result<R, Failure>
    where
        F: Future<Output = Result<R, Failure>>,
    {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let client = match idle.filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => Arc::new(self.connect().await?),
        };
        let result = tokio::time::timeout(STATEMENT_TIMEOUT, run(Arc::clone(&client))).await;
        // Without its connection the server ends a statement that is no longer waited for.
        let result = result.map_err(|_| Failure::Timeout)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        result
    }

    async fn connect(&self) -> Result<Client, Failure> {
        self.config.connect_client().await.map_err(Failure::Connect)
    }
}

/// Executes one statement in a transaction of its own, in one round trip.
pub(super) async fn query(
    client: &Client,
    sql: &str,
    params: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Failure> {
    // Requests are sent in the order in which these futures are first polled. If the first one
    // fails, the rows were read with other settings and are dropped.
    let (begun, rows, ended) = tokio::join!(
        client.batch_execute(BEGIN),
        client.query_typed(sql, params),
        client.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended?;
    Ok(rows)
}

/// The runtime. `None` only while it is dropped.
pub(super) struct Driver(Option<Runtime>);

impl Driver {
    pub(super) fn start() -> Result<Self, Failure> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("gossip-tables").enable_all();
        Ok(Self(Some(builder.build().map_err(Failure::NoThread)?)))
    }

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.0.as_ref().expect("it is taken only when it is dropped");
        drop(runtime.spawn(future));
    }

    /// Runs a future on the thread of the runtime and waits for it.
    pub(super) fn run<R: Send + 'static>(
        &self,
        future: impl Future<Output = Result<R, Failure>> + Send + 'static,
    ) -> Result<R, Failure> {
        let (sender, receiver) = sync_channel(1);
        self.spawn(async move { drop(sender.send(future.await)) });
        receiver.recv().unwrap_or(Err(Failure::Lost))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A runtime waits for its threads when it is dropped, which panics within another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A value as a parameter.
#[derive(Debug)]
pub(super) struct Param(pub(super) ColumnValue);

impl Param {
    pub(super) const fn of_type(&self) -> Type {
        match self.0.kind() {
            // Wider than the column may be: the index compares integers of different widths.
            ColumnKind::Integer => Type::INT8,
            ColumnKind::Uuid => Type::UUID,
            ColumnKind::Text => Type::TEXT,
            ColumnKind::Bytes => Type::BYTEA,
        }
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            ColumnValue::Integer(value) => out.extend_from_slice(&value.to_be_bytes()),
            ColumnValue::Uuid(bytes) => out.extend_from_slice(bytes),
            ColumnValue::Text(bytes) | ColumnValue::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT8, Type::UUID, Type::TEXT, Type::BYTEA].contains(ty)
    }

    to_sql_checked!();
}

/// The bytes of a uuid.
struct Uuid([u8; 16]);

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// A text of JSON.
pub(super) struct Json(pub(super) serde_json::Value);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(serde_json::from_slice(raw)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

/// Returns a column of a key.
pub(super) fn column(row: &Row, index: usize, kind: ColumnKind) -> Result<ColumnValue, Failure> {
    Ok(match kind {
        ColumnKind::Integer => ColumnValue::Integer(row.try_get(index)?),
        ColumnKind::Uuid => ColumnValue::Uuid(row.try_get::<_, Uuid>(index)?.0),
        ColumnKind::Text => ColumnValue::Text(row.try_get::<_, String>(index)?.into_bytes()),
        ColumnKind::Bytes => ColumnValue::Bytes(row.try_get(index)?),
    })
}
