//! Tables of SQLite files: `sqlite:FILE?table=t`.
//!
//! The file is opened for reading only, by one connection for each statement that runs at a time.
//! A connection never holds a transaction between two statements, so a checkpoint of the file's
//! log is held back by a page at most.

mod json;
mod key;

#[cfg(test)]
mod sqlite_tests;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gossip_contracts::connector::{Connector, ConnectorError, OpenError};
use gossip_frontier::{ColumnKind, ColumnValue, column_bound, encode_columns};
use gossip_scanner_runtime::connectors::{KeyFormat, SourceFamily, SourceRefusal, SourceStamp};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row as SqlRow, params_from_iter};

use self::json::{NoJson, row_json};
use self::key::{Key, KeyProblem};
use crate::batch::{KEPT_BODY_LEN, Row};
use crate::connector::{Reading, Table, TableConnector, Wanted};
use crate::name::{TableName, quoted, refused};
use crate::span::Span;

/// How long a statement waits for a writer that has the file locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest row: far more than a row of data, and less than the memory of a worker.
const ROW_LEN_MAX: usize = 64 << 20;

/// Places that are looked at for a sample: each is one search in an index.
const PROBES: u32 = 512;

/// The family of `sqlite:FILE?table=t`.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no settings")]
pub struct SqliteTables;

impl SourceFamily for SqliteTables {
    fn open(&self, name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        let (_, table) = split(name).map_err(|_| ConnectorError::NotFound)?;
        Ok(Box::new(TableConnector::new(SqliteTable::open(&table.0, &table.1)?)))
    }

    fn resolve(&self, name: &OsStr) -> Result<OsString, SourceRefusal> {
        let (query, (path, table)) = split(name)?;
        let path = std::fs::canonicalize(path)
            .map_err(|error| SourceRefusal::new(format!("the file cannot be read ({error})")))?;
        SqliteTable::check(&path, &table)?;
        Ok(OsString::from_vec([path.as_os_str().as_bytes(), b"?", query.as_bytes()].concat()))
    }

    fn key_format(&self, _name: &OsStr) -> KeyFormat {
        KeyFormat::Columns
    }

    fn is_content(&self, _name: &OsStr) -> bool {
        true
    }

    fn columns(&self, name: &OsStr) -> Result<Option<Vec<String>>, ConnectorError> {
        let (_, (path, table)) = split(name).map_err(|_| ConnectorError::NotFound)?;
        let table = SqliteTable::open(&path, &table)?;
        let sql = format!("SELECT * FROM {} LIMIT 0", table.key.table);
        let names = table.with(|connection| {
            let statement = connection.prepare(&sql)?;
            Ok(statement.column_names().map(str::to_owned).collect())
        })?;
        Ok(Some(names))
    }

    /// Identifies the columns of the key, not the rows: rows may change during a run.
    fn stamp(&self, name: &OsStr) -> Result<Option<SourceStamp>, ConnectorError> {
        let (_, (path, table)) = split(name).map_err(|_| ConnectorError::NotFound)?;
        let key = Key::of(&connect(&path)?, &table).map_err(KeyProblem::into_error)?;
        let hash = blake3::hash(key.description().as_bytes());
        let (len, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        Ok(Some(SourceStamp { len: u64::from_be_bytes(*len), modified: 0 }))
    }
}

/// Returns the text behind the `?`, and the file and the table.
fn split(name: &OsStr) -> Result<(String, (PathBuf, String)), SourceRefusal> {
    let not_text = || refused("the name of the file is no text; give it a name in UTF-8");
    let text = name.to_str().ok_or_else(not_text)?;
    let parsed = TableName::parse(text)?;
    if let (Some(_), _) | (_, [_, ..]) = (&parsed.schema, &*parsed.rest) {
        return Err(refused("a SQLite table has no other settings than ?table=NAME"));
    }
    let query = &text[parsed.place.len() + 1..];
    Ok((query.to_owned(), (PathBuf::from(parsed.place), parsed.table)))
}

fn connect(path: &Path) -> Result<Connection, ConnectorError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| failed(&error))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| failed(&error))?;
    Ok(connection)
}

/// Classifies an error of SQLite. Its text is not kept: it may quote values.
fn failed(error: &rusqlite::Error) -> ConnectorError {
    let unavailable = |kind| ConnectorError::Unavailable { kind };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable(std::io::ErrorKind::TimedOut)
        }
        Some(ErrorCode::CannotOpen) => ConnectorError::NotFound,
        Some(ErrorCode::PermissionDenied) => ConnectorError::PermissionDenied,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            ConnectorError::Malformed { position: 0 }
        }
        // A table or a column that is gone.
        Some(ErrorCode::Unknown) => ConnectorError::SourceChanged,
        _ => unavailable(std::io::ErrorKind::Other),
    }
}

/// One table.
struct SqliteTable {
    path: PathBuf,
    key: Key,
    /// Connections that are not in use.
    idle: Mutex<Vec<Connection>>,
}

impl SqliteTable {
    fn open(path: &Path, table: &str) -> Result<Self, ConnectorError> {
        let connection = connect(path)?;
        let key = Key::of(&connection, table).map_err(KeyProblem::into_error)?;
        Ok(Self { path: path.to_owned(), key, idle: Mutex::new(vec![connection]) })
    }

    /// Refuses a table that cannot be listed by its key, with the reason.
    fn check(path: &Path, table: &str) -> Result<(), SourceRefusal> {
        let unreadable = |error: ConnectorError| SourceRefusal::new(error.to_string());
        let connection = connect(path).map_err(unreadable)?;
        let key = Key::of(&connection, table).map_err(KeyProblem::into_refusal)?;
        key.check_values(&connection).map_err(KeyProblem::into_refusal)?;
        let opened = Self { path: path.to_owned(), key, idle: Mutex::new(vec![connection]) };
        opened.check_plan()
    }

    /// Refuses a page that SQLite would not read from the index of the key.
    fn check_plan(&self) -> Result<(), SourceRefusal> {
        let first = self.key.kinds.iter().map(|kind| match kind {
            ColumnKind::Integer => ColumnValue::Integer(0),
            ColumnKind::Text => ColumnValue::Text(Vec::new()),
            ColumnKind::Uuid | ColumnKind::Bytes => ColumnValue::Bytes(Vec::new()),
        });
        let first = encode_columns(&first.collect::<Vec<_>>());
        let span = Span { lower: column_bound(&self.key.kinds, &first), upper: None };
        let sql = format!("EXPLAIN QUERY PLAN {}", self.page_sql(&span, Wanted::Rows));
        let plan = self.with(|connection| {
            let mut statement = connection.prepare(&sql)?;
            let values = span.condition(&self.key.columns, '?').values;
            let bound = params_from_iter(values.iter().map(Bound).chain([Bound(&LIMIT_OF_PLAN)]));
            let steps = statement.query_map(bound, |row| row.get::<_, String>(3))?;
            steps.collect::<Result<Vec<_>, _>>()
        });
        let plan = plan.map_err(|error| SourceRefusal::new(error.to_string()))?;
        match plan.iter().all(|step| step.starts_with("SEARCH ")) {
            true => Ok(()),
            false => Err(refused("SQLite does not read pages of this table from its primary key")),
        }
    }

    /// Runs a statement on a connection that is not in use.
    fn with<R>(
        &self,
        run: impl FnOnce(&Connection) -> rusqlite::Result<R>,
    ) -> Result<R, ConnectorError> {
        let idle = self.idle().pop();
        let connection = idle.map_or_else(|| connect(&self.path), Ok)?;
        let result = run(&connection).map_err(|error| failed(&error))?;
        self.idle().push(connection);
        Ok(result)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statement of a page. Its parameters are those of the span, then the limit.
    fn page_sql(&self, span: &Span, wanted: Wanted) -> String {
        let (Key { columns, table, .. }, condition) =
            (&self.key, span.condition(&self.key.columns, '?'));
        let (keys, clause, limit) =
            (columns.join(", "), condition.clause(), condition.values.len() + 1);
        let all = if wanted == Wanted::Rows { ", *" } else { "" };
        format!("SELECT {keys}{all} FROM {table}{clause} ORDER BY {keys} LIMIT ?{limit}")
    }

    fn page(&self, span: &Span, limit: usize, wanted: Wanted) -> Result<Vec<Row>, ConnectorError> {
        let sql = self.page_sql(span, wanted);
        let limit = ColumnValue::Integer(i64::try_from(limit).unwrap_or(i64::MAX));
        let values = span.condition(&self.key.columns, '?').values;
        let rows = self.with(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let bound = params_from_iter(values.iter().map(Bound).chain([Bound(&limit)]));
            let (mut rows, mut read) = (statement.query(bound)?, Vec::new());
            let mut names = None;
            while let Some(row) = rows.next()? {
                let names = names.get_or_insert_with(|| names_of(row, self.key.kinds.len()));
                read.push(self.read_row(row, names, wanted)?);
            }
            Ok(read)
        })?;
        // A value of another kind than its column's: it was stored during the run.
        let rows: Option<Vec<Row>> = rows.into_iter().collect();
        rows.ok_or(ConnectorError::Malformed { position: 0 })
    }

    /// Returns a row of a page; `None` if a column of its key has another kind of value.
    fn read_row(
        &self,
        row: &SqlRow<'_>,
        names: &[String],
        wanted: Wanted,
    ) -> rusqlite::Result<Option<Row>> {
        let mut key = Vec::new();
        for (index, kind) in self.key.kinds.iter().enumerate() {
            let Some(value) = value_of(row.get_ref(index)?, *kind) else { return Ok(None) };
            value.encode_into(&mut key);
        }
        if wanted == Wanted::Keys {
            return Ok(Some(Row { key, body: None, len: None }));
        }
        let body = row_json(row, self.key.kinds.len(), names, KEPT_BODY_LEN)?.ok();
        let len = body.as_ref().map(|body| body.len() as u64);
        Ok(Some(Row { key, body, len }))
    }
}

/// Returns the names of a row's columns behind the first ones. Of a row and not of the statement
/// before its first step, which compiles it anew if the table was changed.
fn names_of(row: &SqlRow<'_>, skipped: usize) -> Vec<String> {
    row.as_ref().column_names().skip(skipped).map(str::to_owned).collect()
}

/// The parameter of a limit in a plan.
const LIMIT_OF_PLAN: ColumnValue = ColumnValue::Integer(1);

impl Table for SqliteTable {
    const READS_AHEAD: bool = false;

    fn kinds(&self) -> &[ColumnKind] {
        &self.key.kinds
    }

    fn read(&self, span: Span, limit: usize, wanted: Wanted) -> Reading {
        Reading::Ready(self.page(&span, limit, wanted))
    }

    fn row(&self, key: Vec<ColumnValue>) -> Result<Option<Vec<u8>>, OpenError> {
        let Key { columns, table, .. } = &self.key;
        let marks: Vec<String> = (1..=key.len()).map(|number| format!("?{number}")).collect();
        let (columns, marks) = (columns.join(", "), marks.join(", "));
        let sql = format!("SELECT * FROM {table} WHERE ({columns}) = ({marks})");
        let body = self.with(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(key.iter().map(Bound)))?;
            let row = rows.next()?;
            row.map(|row| row_json(row, 0, &names_of(row, 0), ROW_LEN_MAX)).transpose()
        })?;
        body.transpose().map_err(|problem| match problem {
            NoJson::TooLong => OpenError::TooLong { max: ROW_LEN_MAX },
            NoJson::NotText => OpenError::Malformed,
        })
    }

    fn probe(&self, span: &Span) -> Result<Vec<Vec<u8>>, ConnectorError> {
        match self.key.rowid() {
            // Rows by number are spread like the rows, whatever the key is.
            Some(rowid) => self.probe_rowids(rowid),
            None => self.probe_keys(span),
        }
    }
}

impl SqliteTable {
    /// Returns the keys of rows whose numbers are spread evenly.
    fn probe_rowids(&self, rowid: &str) -> Result<Vec<Vec<u8>>, ConnectorError> {
        let Key { columns, table, .. } = &self.key;
        let ends = format!("SELECT (SELECT min({rowid}) FROM {table}), max({rowid}) FROM {table}");
        let keys = columns.join(", ");
        let probe =
            format!("SELECT {keys} FROM {table} WHERE {rowid} >= ?1 ORDER BY {rowid} LIMIT 1");
        let found = self.with(|connection| {
            let ends = connection.query_row(&ends, [], |row| {
                Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?))
            })?;
            let Some((first, last)) = ends else { return Ok(Vec::new()) };
            let width = i128::from(last) - i128::from(first);
            let mut statement = connection.prepare(&probe)?;
            let mut found = Vec::new();
            for step in 0..PROBES {
                let at = i128::from(first) + width * i128::from(step) / i128::from(PROBES);
                let at = i64::try_from(at).expect("between two numbers of rows");
                let mut rows = statement.query([at])?;
                if let Some(row) = rows.next()? {
                    found.extend(self.read_row(row, &[], Wanted::Keys)?);
                }
            }
            Ok(found)
        })?;
        Ok(found.into_iter().map(|row| row.key).collect())
    }

    /// Returns keys near places that are spread evenly between the first and the last key.
    fn probe_keys(&self, span: &Span) -> Result<Vec<Vec<u8>>, ConnectorError> {
        let first = self.page(span, 1, Wanted::Keys)?;
        let Some(last) = self.last_key(span)? else { return Ok(Vec::new()) };
        let Some(first) = first.into_iter().next() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for place in places_between(&first.key, &last) {
            let lower = column_bound(&self.key.kinds, &place);
            let span = Span { lower, upper: span.upper.clone() };
            found.extend(self.page(&span, 1, Wanted::Keys)?.into_iter().map(|row| row.key));
        }
        Ok(found)
    }

    fn last_key(&self, span: &Span) -> Result<Option<Vec<u8>>, ConnectorError> {
        let (Key { columns, table, .. }, condition) =
            (&self.key, span.condition(&self.key.columns, '?'));
        let (keys, clause) = (columns.join(", "), condition.clause());
        let down: Vec<String> = columns.iter().map(|column| format!("{column} DESC")).collect();
        let down = down.join(", ");
        let sql = format!("SELECT {keys} FROM {table}{clause} ORDER BY {down} LIMIT 1");
        let last = self.with(|connection| {
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(condition.values.iter().map(Bound)))?;
            rows.next()?.map(|row| self.read_row(row, &[], Wanted::Keys)).transpose()
        })?;
        Ok(last.flatten().map(|row| row.key))
    }
}

/// Returns places that are spread evenly between two keys, by the eight bytes behind what both
/// begin with.
fn places_between(first: &[u8], last: &[u8]) -> Vec<Vec<u8>> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut raw = [0; 8];
        let rest = &key[common..];
        let len = rest.len().min(raw.len());
        raw[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(raw)
    };
    let (low, high) = (number(first), number(last));
    let width = u128::from(high.saturating_sub(low));
    let places = (0..PROBES).map(|step| {
        let offset = width * u128::from(step) / u128::from(PROBES);
        let at = low + u64::try_from(offset).expect("less than the width");
        [&first[..common], &at.to_be_bytes()].concat()
    });
    places.collect()
}

/// Returns a value of a key; `None` if it has another kind.
fn value_of(value: ValueRef<'_>, kind: ColumnKind) -> Option<ColumnValue> {
    match (value, kind) {
        (ValueRef::Integer(value), ColumnKind::Integer) => Some(ColumnValue::Integer(value)),
        (ValueRef::Text(text), ColumnKind::Text) => Some(ColumnValue::Text(text.to_vec())),
        (ValueRef::Blob(bytes), ColumnKind::Bytes) => Some(ColumnValue::Bytes(bytes.to_vec())),
        _ => None,
    }
}

/// A value as a parameter.
struct Bound<'a>(&'a ColumnValue);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            ColumnValue::Integer(value) => ValueRef::Integer(*value),
            // Also if it is no UTF-8: SQLite compares texts by their bytes.
            ColumnValue::Text(text) => ValueRef::Text(text),
            ColumnValue::Bytes(bytes) => ValueRef::Blob(bytes),
            ColumnValue::Uuid(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Returns a name of the table in quotes.
fn table_name(table: &str) -> String {
    format!("main.{}", quoted(table))
}
