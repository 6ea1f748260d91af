//! The primary key of a table, and what makes it unusable.

use gossip_contracts::connector::ConnectorError;
use gossip_frontier::ColumnKind;
use gossip_scanner_runtime::connectors::SourceRefusal;
use rusqlite::{Connection, OptionalExtension as _};

use super::{failed, table_name};
use crate::name::quoted;

/// The columns by which a table is listed.
pub(super) struct Key {
    /// The table, for statements.
    pub(super) table: String,
    /// Its columns, for statements.
    pub(super) columns: Vec<String>,
    /// Their kinds.
    pub(super) kinds: Vec<ColumnKind>,
    /// The name by which rows have numbers, if they have any.
    rowid: Option<String>,
    /// Whether the schema guarantees the kinds.
    is_certain: bool,
}

/// Why a table cannot be listed.
pub(super) enum KeyProblem {
    /// In words for the user.
    Unusable(String),
    /// The file cannot be read.
    Failed(ConnectorError),
}

impl KeyProblem {
    pub(super) fn into_error(self) -> ConnectorError {
        match self {
            Self::Unusable(_) => ConnectorError::SourceChanged,
            Self::Failed(error) => error,
        }
    }

    pub(super) fn into_refusal(self) -> SourceRefusal {
        match self {
            Self::Unusable(text) => SourceRefusal::new(text),
            Self::Failed(error) => SourceRefusal::new(error.to_string()),
        }
    }
}

impl From<rusqlite::Error> for KeyProblem {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(failed(&error))
    }
}

fn unusable<T>(text: impl Into<String>) -> Result<T, KeyProblem> {
    Err(KeyProblem::Unusable(text.into()))
}

/// One column of a primary key.
struct KeyColumn {
    name: String,
    declared: String,
    is_not_null: bool,
}

impl Key {
    /// Reads the key of a table from the schema.
    pub(super) fn of(connection: &Connection, table: &str) -> Result<Self, KeyProblem> {
        let encoding: String = connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
        if encoding != "UTF-8" {
            return unusable(format!(
                "the file stores texts in {encoding}, whose order is another one; copy it into a \
                 file in UTF-8 (PRAGMA encoding = 'UTF-8')"
            ));
        }
        let (name, without_rowid, is_strict) = table_of(connection, table)?;
        let columns = columns_of(connection, &name)?;
        if columns.is_empty() {
            return unusable("the table has no primary key, so its rows have no keys");
        }
        let index = index_of(connection, &name)?;
        // Without an index of its own the key is the number of the row.
        let is_rowid = index.is_none() && !without_rowid;
        if let Some(index) = index {
            check_index(connection, &index)?;
        }
        let table = table_name(&name);
        let mut kinds = Vec::with_capacity(columns.len());
        for column in &columns {
            kinds.push(kind_of(connection, &table, column)?);
        }
        // A strict table excludes other types, except in columns that are declared as ANY.
        let is_typed = |column: &KeyColumn| {
            (column.is_not_null || without_rowid) && !column.declared.eq_ignore_ascii_case("ANY")
        };
        let is_certain = is_rowid || is_strict && columns.iter().all(is_typed);
        let rowid = if without_rowid { None } else { free_rowid_name(connection, &name)? };
        let columns = columns.iter().map(|column| quoted(&column.name)).collect();
        Ok(Self { table, columns, kinds, rowid, is_certain })
    }

    /// Refuses a table with a `NULL`, or with several kinds of values, in its key. Reads the whole
    /// index, unless the schema excludes both.
    pub(super) fn check_values(&self, connection: &Connection) -> Result<(), KeyProblem> {
        if self.is_certain {
            return Ok(());
        }
        let pairs = self.columns.iter().zip(&self.kinds);
        let others: Vec<String> = pairs
            .map(|(column, kind)| format!("typeof({column}) <> '{}'", type_of(*kind)))
            .collect();
        let (table, others) = (&self.table, others.join(" OR "));
        let sql = format!("SELECT 1 FROM {table} WHERE {others} LIMIT 1");
        match connection.query_row(&sql, [], |_| Ok(())).optional()? {
            None => Ok(()),
            Some(()) => unusable(
                "a row has NULL, or another type of value than the others, in its primary key; \
                 SQLite sorts such rows apart, and they would be skipped",
            ),
        }
    }

    /// Returns the name by which rows have numbers, if they have any.
    pub(super) fn rowid(&self) -> Option<&str> {
        self.rowid.as_deref()
    }

    /// Returns what must not change during a run, as text.
    pub(super) fn description(&self) -> String {
        format!("sqlite {:?} {:?}", self.columns, self.kinds)
    }
}

const fn type_of(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Integer => "integer",
        ColumnKind::Text => "text",
        ColumnKind::Bytes | ColumnKind::Uuid => "blob",
    }
}

/// Returns the name of a table as it was created, whether it has no row numbers, and whether it is
/// strict.
fn table_of(connection: &Connection, table: &str) -> Result<(String, bool, bool), KeyProblem> {
    let sql = "SELECT name, type, wr, strict FROM pragma_table_list \
               WHERE schema = 'main' AND name = ?1 COLLATE NOCASE";
    let found = connection.query_row(sql, [table], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?))
    });
    match found.optional()? {
        None => unusable("the file has no such table"),
        Some((_, kind, ..)) if kind != "table" => {
            unusable(format!("a {kind} has no primary key; name the table behind it"))
        }
        Some((name, _, without_rowid, is_strict)) => Ok((name, without_rowid, is_strict)),
    }
}

/// Returns the columns of the primary key in its order.
fn columns_of(connection: &Connection, table: &str) -> Result<Vec<KeyColumn>, KeyProblem> {
    let sql = "SELECT name, type, \"notnull\" FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk";
    let mut statement = connection.prepare(sql)?;
    let columns = statement.query_map([table], |row| {
        Ok(KeyColumn { name: row.get(0)?, declared: row.get(1)?, is_not_null: row.get(2)? })
    })?;
    Ok(columns.collect::<Result<_, _>>()?)
}

/// Returns the index of the primary key, unless it is the number of the row.
fn index_of(connection: &Connection, table: &str) -> Result<Option<String>, KeyProblem> {
    let sql = "SELECT name FROM pragma_index_list(?1) WHERE origin = 'pk'";
    Ok(connection.query_row(sql, [table], |row| row.get(0)).optional()?)
}

/// Refuses an index that is not in the order of bytes.
fn check_index(connection: &Connection, index: &str) -> Result<(), KeyProblem> {
    let sql = "SELECT \"desc\", coll FROM pragma_index_xinfo(?1) WHERE key = 1";
    let mut statement = connection.prepare(sql)?;
    let parts = statement
        .query_map([index], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?)))?;
    for part in parts {
        let (is_descending, collation) = part?;
        if is_descending {
            return unusable("the primary key is descending; only ascending ones are listed");
        }
        let collation = collation.unwrap_or_default();
        if !collation.eq_ignore_ascii_case("BINARY") {
            return unusable(format!(
                "the primary key is sorted by collation {collation}, not by bytes (BINARY)"
            ));
        }
    }
    Ok(())
}

/// Returns the kind of a column: by its declared type, or by its first value where that says
/// nothing.
fn kind_of(
    connection: &Connection,
    table: &str,
    column: &KeyColumn,
) -> Result<ColumnKind, KeyProblem> {
    let declared = column.declared.to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    // The rules of SQLite for the affinity of a column, in their order.
    if has(&["INT"]) {
        return Ok(ColumnKind::Integer);
    }
    if has(&["CHAR", "CLOB", "TEXT"]) {
        return Ok(ColumnKind::Text);
    }
    if has(&["BLOB"]) {
        return Ok(ColumnKind::Bytes);
    }
    let column = quoted(&column.name);
    let sql = format!("SELECT typeof({column}) FROM {table} LIMIT 1");
    let first: Option<String> = connection.query_row(&sql, [], |row| row.get(0)).optional()?;
    match first.as_deref() {
        Some("integer") => Ok(ColumnKind::Integer),
        Some("blob") => Ok(ColumnKind::Bytes),
        // Without a row every kind lists the same.
        Some("text") | None => Ok(ColumnKind::Text),
        Some(other) => unusable(format!(
            "column {column} of the primary key holds a value of type {other}; keys are integers, \
             texts or blobs"
        )),
    }
}

/// Returns a name of the number of rows that no column has taken.
fn free_rowid_name(connection: &Connection, table: &str) -> Result<Option<String>, KeyProblem> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2 COLLATE NOCASE";
    for name in ["rowid", "_rowid_", "oid"] {
        let taken: i64 = connection.query_row(sql, [table, name], |row| row.get(0))?;
        if taken == 0 {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}
