//! One transaction of the store layer on a connection that holds the file's write lock.
//!
//! Every compare is checked before anything is written, so a conflict leaves no trace and needs no
//! savepoint. What fails halfway is the caller's to roll back.

use std::collections::BTreeMap;

use gossip_coordination::store::{
    CommitOutcome, Compare, Conflict, Key, KeyBytes, KeyRange, Txn, Versioned, Write,
};
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::{Connection, OptionalExtension, params};

use crate::failure::{corruption, foreign_key, infra};

/// The step that errors name.
pub(crate) const COMMIT: &str = "sqlite.commit";

const REVISION: &str = "SELECT revision FROM kv WHERE key = ?1";
const INSERT: &str = "INSERT INTO kv(key, revision, value) VALUES (?1, ?2, ?3)";
const UPDATE: &str = "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1";
const DELETE: &str = "DELETE FROM kv WHERE key = ?1";
const FLOOR: &str = "SELECT value FROM meta WHERE name = 'floor'";
const RAISE_FLOOR: &str = "UPDATE meta SET value = ?1 WHERE name = 'floor'";
pub(crate) const GET: &str = "SELECT revision, value FROM kv WHERE key = ?1";
pub(crate) const SCAN: &str = "SELECT key, revision, value FROM kv \
                               WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";

/// Does what `txn` says if everything is as it expects.
pub(crate) fn apply(connection: &Connection, txn: &Txn) -> Result<CommitOutcome, InfraError> {
    let mut seen = Seen::new();
    let mut broken = Vec::new();
    for compare in txn.compares() {
        broken.extend(check(connection, compare, &mut seen)?);
    }
    if let Some(conflict) = Conflict::new(broken) {
        return Ok(CommitOutcome::Conflict(conflict));
    }
    write_all(connection, txn, &mut seen).map(|revision| CommitOutcome::Applied { revision })
}

/// Revisions of keys as they are before the transaction; `None` for a key that is not there.
type Seen = BTreeMap<KeyBytes, Option<u64>>;

/// What is there instead, if `compare` does not hold.
fn check(
    connection: &Connection,
    compare: &Compare,
    seen: &mut Seen,
) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
    let (key, expected) = match compare {
        Compare::At { key, revision } => (key, Some(*revision)),
        Compare::Absent(key) => (key, None),
        Compare::Empty(range) => return first_of(connection, range),
    };
    if revision(connection, key, seen)? == expected {
        return Ok(None);
    }
    Ok(Some((*key, get(connection, key, COMMIT)?)))
}

fn first_of(
    connection: &Connection,
    range: &KeyRange,
) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
    let page = scan(connection, range, 1, COMMIT)?;
    Ok(page.into_iter().next().map(|(key, value)| (key, Some(value))))
}

/// Writes everything at one revision, and answers it.
fn write_all(connection: &Connection, txn: &Txn, seen: &mut Seen) -> Result<u64, InfraError> {
    let (mut highest, mut is_birth, mut is_death) = (0, txn.writes().is_empty(), false);
    for write in txn.writes() {
        let before = revision(connection, write.key(), seen)?;
        highest = highest.max(before.unwrap_or(0));
        match write {
            Write::Put(..) | Write::Bind(..) => is_birth |= before.is_none(),
            Write::Delete(_) => is_death |= before.is_some(),
        }
    }
    if is_birth || is_death {
        highest = highest.max(floor(connection)?);
    }
    let next = highest + 1;
    // SQLite has no unsigned numbers. No store gets there by counting, only by damage.
    let stored = i64::try_from(next)
        .map_err(|_| corruption(COMMIT, "a revision is out of range".to_owned()))?;
    for write in txn.writes() {
        let before = revision(connection, write.key(), seen)?;
        write_one(connection, write, before.is_some(), stored)?;
    }
    if is_death {
        run(connection, RAISE_FLOOR, params![stored])?;
    }
    Ok(next)
}

fn write_one(
    connection: &Connection,
    write: &Write,
    is_there: bool,
    revision: i64,
) -> Result<(), InfraError> {
    let key = write.key().to_bytes();
    match write {
        Write::Put(_, value) => {
            let sql = if is_there { UPDATE } else { INSERT };
            run(connection, sql, params![key.as_bytes(), revision, value])
        }
        Write::Delete(_) if is_there => run(connection, DELETE, params![key.as_bytes()]),
        Write::Delete(_) => Ok(()),
        // Nothing here dies with a process, and the store says so (`binding` is none).
        Write::Bind(..) => Err(InfraError::Refused {
            operation: COMMIT,
            why: StoreRefusal::Unusable,
            message: "a file binds no keys to a process".to_owned(),
        }),
    }
}

/// The revision of `key` before this transaction.
fn revision(
    connection: &Connection,
    key: &Key,
    seen: &mut Seen,
) -> Result<Option<u64>, InfraError> {
    let bytes = key.to_bytes();
    if let Some(known) = seen.get(&bytes) {
        return Ok(*known);
    }
    let found: Option<i64> = connection
        .prepare_cached(REVISION)
        .and_then(|mut statement| {
            statement.query_row(params![bytes.as_bytes()], |row| row.get(0)).optional()
        })
        .map_err(|error| infra(COMMIT, &error))?;
    let found = found.map(|found| unsigned(found, COMMIT)).transpose()?;
    seen.insert(bytes, found);
    Ok(found)
}

/// The value of `key`.
pub(crate) fn get(
    connection: &Connection,
    key: &Key,
    operation: &'static str,
) -> Result<Option<Versioned>, InfraError> {
    let row: Option<(i64, Vec<u8>)> = connection
        .prepare_cached(GET)
        .and_then(|mut statement| {
            let key = key.to_bytes();
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            statement.query_row(params![key.as_bytes()], read).optional()
        })
        .map_err(|error| infra(operation, &error))?;
    row.map(|(revision, bytes)| Ok(Versioned { revision: unsigned(revision, operation)?, bytes }))
        .transpose()
}

/// The first `limit` keys of `range` with their values.
pub(crate) fn scan(
    connection: &Connection,
    range: &KeyRange,
    limit: usize,
    operation: &'static str,
) -> Result<Vec<(Key, Versioned)>, InfraError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bounds = params![range.start().as_bytes(), range.end().as_bytes(), limit];
    let fail = |error: rusqlite::Error| infra(operation, &error);
    let mut statement = connection.prepare_cached(SCAN).map_err(fail)?;
    let mut rows = statement.query(bounds).map_err(fail)?;
    let mut page = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let key = row.get_ref(0).map_err(fail)?.as_blob();
        let key = key.map_err(|error| corruption(operation, error.to_string()))?;
        let key = Key::parse(key).map_err(|malformed| foreign_key(operation, malformed))?;
        let revision = unsigned(row.get(1).map_err(fail)?, operation)?;
        page.push((key, Versioned { revision, bytes: row.get(2).map_err(fail)? }));
    }
    Ok(page)
}

fn floor(connection: &Connection) -> Result<u64, InfraError> {
    let floor: Option<i64> = connection
        .prepare_cached(FLOOR)
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)).optional())
        .map_err(|error| infra(COMMIT, &error))?;
    let floor = floor.ok_or_else(|| corruption(COMMIT, "the floor is missing".to_owned()))?;
    unsigned(floor, COMMIT)
}

fn run(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<(), InfraError> {
    let done = connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
    match done.map_err(|error| infra(COMMIT, &error))? {
        1 => Ok(()),
        // The row was looked up under the same lock, so a tree that lost it is damaged.
        count => Err(corruption(COMMIT, format!("a write changed {count} rows, expected 1"))),
    }
}

fn unsigned(revision: i64, operation: &'static str) -> Result<u64, InfraError> {
    u64::try_from(revision)
        .map_err(|_| corruption(operation, "a revision is out of range".to_owned()))
}
