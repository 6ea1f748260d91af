//! Tables of PostgreSQL: `postgres://USER@HOST/DATABASE?table=t`.
//!
//! Connections are those of a store: the same settings, passwords and TLS. Each statement is a
//! transaction that reads only, is planned with the index of the key, and fails instead of leaving
//! out rows that row security hides.

mod key;
mod session;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use gossip_contracts::connector::{Connector, ConnectorError, OpenError};
use gossip_coordination_postgres::{PostgresConfig, PostgresEnvironment};
use gossip_frontier::{ColumnBound, ColumnKind, ColumnValue, text_at_or_above};
use gossip_scanner_runtime::connectors::{KeyFormat, SourceFamily, SourceRefusal, SourceStamp};
use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};

use self::key::Key;
use self::session::{Driver, Failure, Json, Param, Sessions, column};
use crate::batch::{KEPT_BODY_LEN, Row};
use crate::connector::{Reading, Table, TableConnector, Wanted};
use crate::name::TableName;
use crate::span::Span;

/// The scheme with what precedes the user.
const SCHEME: &str = "postgres:";

/// Blocks of a table that are read for a sample; each holds some dozens of rows.
const SAMPLE_BLOCKS: i64 = 512;
/// Rows of these blocks that are used at most.
const SAMPLE_ROWS: usize = 100_000;

/// The longest row that is read.
const ROW_LEN_MAX: usize = 64 << 20;

/// The family of `postgres://…?table=t`.
#[derive(Clone, Debug, Default)]
pub struct PostgresTables {
    environment: PostgresEnvironment,
}

impl PostgresTables {
    /// Returns the family. Passwords are read from the URL's `password_file` and from these places.
    #[must_use]
    pub const fn new(environment: PostgresEnvironment) -> Self {
        Self { environment }
    }

    fn connect(&self, name: &OsStr) -> Result<PostgresTable, Failure> {
        let (config, place) = self.split(name).map_err(|it| Failure::Refused(it.to_string()))?;
        let driver = Arc::new(Driver::start()?);
        let sessions = Arc::new(Sessions::new(config));
        let shared = Arc::clone(&sessions);
        let key = driver.run(async move {
            let place = &place;
            shared
                .with(|client| async move { Key::of(&client, &place.schema, &place.table).await })
                .await
        })?;
        Ok(PostgresTable { inner: Arc::new(Inner { sessions, key }), driver })
    }

    /// Returns the settings of the connection, and the table.
    fn split(&self, name: &OsStr) -> Result<(PostgresConfig, Place), SourceRefusal> {
        let refused = SourceRefusal::new;
        let text = name.to_str().ok_or_else(|| refused("the URL is no text"))?;
        let parsed = TableName::parse(text)?;
        let url = format!("{SCHEME}{}?{}", parsed.place, parsed.rest.join("&"));
        let config = PostgresConfig::from_url(&url);
        let mut config = config.map_err(|error| SourceRefusal::new(error.to_string()))?;
        if config.is_pooled {
            return Err(refused("a table is not read through a pooler; name the server itself"));
        }
        config.environment = self.environment.clone();
        let schema = parsed.schema.unwrap_or_else(|| "public".to_owned());
        Ok((config, Place { schema, table: parsed.table }))
    }
}

/// A table of a database.
struct Place {
    schema: String,
    table: String,
}

impl SourceFamily for PostgresTables {
    fn open(&self, name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        let table = self.connect(name).map_err(Failure::into_error)?;
        Ok(Box::new(TableConnector::new(table)))
    }

    fn resolve(&self, name: &OsStr) -> Result<OsString, SourceRefusal> {
        let checked = self.connect(name).and_then(|table| table.check_plan());
        checked.map_err(|failure| SourceRefusal::new(failure.message()))?;
        Ok(name.to_owned())
    }

    fn key_format(&self, _name: &OsStr) -> KeyFormat {
        KeyFormat::Columns
    }

    fn is_content(&self, _name: &OsStr) -> bool {
        true
    }

    fn columns(&self, name: &OsStr) -> Result<Option<Vec<String>>, ConnectorError> {
        let table = self.connect(name).map_err(Failure::into_error)?;
        let inner = Arc::clone(&table.inner);
        let names = table.driver.run(async move { inner.columns().await });
        names.map(Some).map_err(Failure::into_error)
    }

    /// Identifies the columns of the key, their types, and the versions of their collations. Rows
    /// may change during a run.
    fn stamp(&self, name: &OsStr) -> Result<Option<SourceStamp>, ConnectorError> {
        let table = self.connect(name).map_err(Failure::into_error)?;
        let hash = blake3::hash(table.inner.key.description().as_bytes());
        let (len, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        Ok(Some(SourceStamp { len: u64::from_be_bytes(*len), modified: 0 }))
    }
}

/// One table.
struct PostgresTable {
    inner: Arc<Inner>,
    driver: Arc<Driver>,
}

struct Inner {
    sessions: Arc<Sessions>,
    key: Key,
}

impl PostgresTable {
    /// Refuses a page that the server would not read from the index of the key.
    fn check_plan(&self) -> Result<(), Failure> {
        let inner = Arc::clone(&self.inner);
        self.driver.run(async move {
            let first = inner.key.kinds.iter().map(|kind| match kind {
                ColumnKind::Integer => ColumnValue::Integer(0),
                ColumnKind::Uuid => ColumnValue::Uuid([0; 16]),
                ColumnKind::Text => ColumnValue::Text(Vec::new()),
                ColumnKind::Bytes => ColumnValue::Bytes(Vec::new()),
            });
            let lower = ColumnBound { values: first.collect(), is_after: false };
            let page = inner.page_of(&Span { lower, upper: None }, 1, Wanted::Rows);
            let sql = format!("EXPLAIN (COSTS OFF, FORMAT JSON) {}", page.sql);
            let rows = inner.sessions.with(|client| page.query_as(client, &sql)).await?;
            let plan = rows.first().map(|row| row.try_get::<_, Json>(0)).transpose()?;
            match plan.is_some_and(|Json(plan)| reads_index(&plan)) {
                true => Ok(()),
                false => Err(Failure::Refused(
                    "the server does not read pages of this table from an index of its key; \
                     check that the index of the primary key is valid (REINDEX)"
                        .to_owned(),
                )),
            }
        })
    }
}

/// Returns whether a plan reads rows in the order of an index, from a place that a condition gives.
/// By the kinds of its steps: a name in it may be any text.
fn reads_index(plan: &Value) -> bool {
    let (mut has_condition, mut is_ordered) = (false, true);
    let mut steps = vec![&plan[0]["Plan"]];
    while let Some(step) = steps.pop() {
        has_condition |= step.get("Index Cond").is_some();
        let kind = step["Node Type"].as_str().unwrap_or_default();
        is_ordered &=
            !matches!(kind, "Sort" | "Incremental Sort" | "Seq Scan" | "Bitmap Heap Scan");
        steps.extend(step["Plans"].as_array().into_iter().flatten());
    }
    has_condition && is_ordered
}

/// A statement with its parameters.
struct Page {
    sql: String,
    params: Vec<Param>,
}

impl Page {
    async fn query(
        &self,
        client: Arc<tokio_postgres::Client>,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        self.query_as(client, &self.sql).await
    }

    async fn query_as(
        &self,
        client: Arc<tokio_postgres::Client>,
        sql: &str,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .params
            .iter()
            .map(|param| (param as &(dyn ToSql + Sync), param.of_type()))
            .collect();
        session::query(&client, sql, &params).await
    }
}

impl Inner {
    /// Returns the statement of a page. The row is made into JSON once, and a long one is not sent.
    fn page_of(&self, span: &Span, limit: usize, wanted: Wanted) -> Page {
        let compared: Vec<String> = self.key.compared();
        let condition = in_utf8(span).condition(&compared, '$');
        let clause = condition.clause();
        let (selected, order) = (self.key.selected().join(", "), compared.join(", "));
        let table = &self.key.table;
        let rows = |row: &str| {
            format!(
                "SELECT {selected}{row} FROM ONLY {table} AS \"~\"{clause} ORDER BY {order} LIMIT {limit}"
            )
        };
        let sql = match wanted {
            Wanted::Keys => rows(""),
            Wanted::Rows => {
                let names = (0..self.key.kinds.len()).map(|index| format!("k{index}"));
                let names = names.collect::<Vec<_>>().join(", ");
                let rows = rows(", row_to_json(\"~\")::text AS body");
                format!(
                    "SELECT {names}, octet_length(body), \
                     CASE WHEN octet_length(body) <= {KEPT_BODY_LEN} THEN body END FROM ({rows}) AS page"
                )
            }
        };
        Page { sql, params: condition.values.into_iter().map(Param).collect() }
    }

    async fn read(&self, span: Span, limit: usize, wanted: Wanted) -> Result<Vec<Row>, Failure> {
        let span = in_utf8(&span);
        if span.is_empty() {
            return Ok(Vec::new());
        }
        let page = self.page_of(&span, limit, wanted);
        let rows = self.sessions.with(|client| page.query(client)).await?;
        rows.iter().map(|row| self.row_of(row, wanted)).collect()
    }

    fn row_of(&self, row: &tokio_postgres::Row, wanted: Wanted) -> Result<Row, Failure> {
        let mut key = Vec::new();
        for (index, kind) in self.key.kinds.iter().enumerate() {
            column(row, index, *kind)?.encode_into(&mut key);
        }
        if wanted == Wanted::Keys {
            return Ok(Row { key, body: None, len: None });
        }
        let width = self.key.kinds.len();
        let len: i32 = row.try_get(width)?;
        let body: Option<&str> = row.try_get(width + 1)?;
        let body = body.map(|body| body.as_bytes().to_vec());
        Ok(Row { key, body, len: u64::try_from(len).ok() })
    }

    /// Reads the names of the columns, as `row_to_json` writes them.
    async fn columns(&self) -> Result<Vec<String>, Failure> {
        let literal = self.key.table.replace('\'', "''");
        let sql = format!(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '{literal}'::regclass \
             AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        );
        let page = Page { sql, params: Vec::new() };
        let rows = self.sessions.with(|client| page.query(client)).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Reads one row; `Some(None)` if it is too long.
    async fn one(&self, key: Vec<ColumnValue>) -> Result<Option<Option<Vec<u8>>>, Failure> {
        let compared = self.key.compared();
        let marks: Vec<String> = (1..=key.len()).map(|number| format!("${number}")).collect();
        let (compared, marks) = (compared.join(", "), marks.join(", "));
        let table = &self.key.table;
        let sql = format!(
            "SELECT CASE WHEN octet_length(body) <= {ROW_LEN_MAX} THEN body END FROM (\
             SELECT row_to_json(\"~\")::text AS body FROM ONLY {table} AS \"~\" \
             WHERE ({compared}) = ({marks})) AS page"
        );
        let page = Page { sql, params: key.into_iter().map(Param).collect() };
        let rows = self.sessions.with(|client| page.query(client)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let body: Option<&str> = row.try_get(0)?;
        Ok(Some(body.map(|body| body.as_bytes().to_vec())))
    }

    /// Returns the keys of the rows in some blocks of the table, which are spread over it. The same
    /// blocks each time: a start that was interrupted finds the same cuts again.
    async fn probe(&self, span: &Span) -> Result<Vec<Vec<u8>>, Failure> {
        let span = in_utf8(span);
        let condition = span.condition(&self.key.compared(), '$');
        let (clause, selected) = (condition.clause(), self.key.selected().join(", "));
        let (table, literal) = (&self.key.table, self.key.table.replace('\'', "''"));
        let sql = format!(
            "SELECT {selected} FROM ONLY {table} AS \"~\" TABLESAMPLE SYSTEM ((\
             SELECT least(100.0, 100.0 * {SAMPLE_BLOCKS} / greatest(1, \
             pg_relation_size('{literal}'::regclass) / current_setting('block_size')::int8))\
             )::float4) REPEATABLE (0){clause} LIMIT {SAMPLE_ROWS}"
        );
        let page = Page { sql, params: condition.values.into_iter().map(Param).collect() };
        let rows = self.sessions.with(|client| page.query(client)).await?;
        let keys = rows.iter().map(|row| self.row_of(row, Wanted::Keys).map(|row| row.key));
        keys.collect()
    }
}

/// Returns the same span for a database whose texts are UTF-8 without zero bytes: it does not
/// accept others as parameters.
fn in_utf8(span: &Span) -> Span {
    Span { lower: bound_in_utf8(&span.lower), upper: span.upper.as_ref().map(bound_in_utf8) }
}

fn bound_in_utf8(bound: &ColumnBound) -> ColumnBound {
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    let mut values = Vec::with_capacity(bound.values.len());
    for value in &bound.values {
        match value {
            ColumnValue::Text(bytes) if !is_text(bytes) => {
                // No text is equal, so what follows does not matter.
                let next = text_at_or_above(bytes);
                let is_after = next.is_none();
                values.extend(next.map(|next| ColumnValue::Text(next.into_bytes())));
                return ColumnBound { values, is_after };
            }
            other => values.push(other.clone()),
        }
    }
    ColumnBound { values, is_after: bound.is_after }
}

impl Table for PostgresTable {
    const READS_AHEAD: bool = true;

    fn kinds(&self) -> &[ColumnKind] {
        &self.inner.key.kinds
    }

    fn read(&self, span: Span, limit: usize, wanted: Wanted) -> Reading {
        let inner = Arc::clone(&self.inner);
        let (sender, receiver) = sync_channel(1);
        self.driver.spawn(async move {
            let rows = inner.read(span, limit, wanted).await.map_err(Failure::into_error);
            // A listing that was dropped needs no rows.
            drop(sender.send(rows));
        });
        Reading::Later(receiver)
    }

    fn row(&self, key: Vec<ColumnValue>) -> Result<Option<Vec<u8>>, OpenError> {
        // A text that the database cannot hold.
        let bound = ColumnBound { values: key.clone(), is_after: false };
        if bound_in_utf8(&bound) != bound {
            return Ok(None);
        }
        let inner = Arc::clone(&self.inner);
        let row = self.driver.run(async move { inner.one(key).await });
        match row.map_err(Failure::into_error)? {
            None => Ok(None),
            Some(None) => Err(OpenError::TooLong { max: ROW_LEN_MAX }),
            Some(Some(body)) => Ok(Some(body)),
        }
    }

    fn probe(&self, span: &Span) -> Result<Vec<Vec<u8>>, ConnectorError> {
        let (inner, span) = (Arc::clone(&self.inner), span.clone());
        let keys = self.driver.run(async move { inner.probe(&span).await });
        keys.map_err(Failure::into_error)
    }
}
