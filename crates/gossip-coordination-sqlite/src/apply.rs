//! One transaction of the store layer on a connection that holds the file's write lock.
//!
//! Every compare is checked before anything is written, so a conflict leaves no trace and needs no
//! savepoint. What fails halfway is the caller's to roll back.
//!
//! Transactions of one group look at the same keys again and again: every operation on a shard
//! compares the head of its run. A [`Group`] remembers what they found, which nobody else can
//! change while the lock is held.

use std::collections::BTreeMap;

use gossip_coordination::store::{
    CommitOutcome, Compare, Conflict, Key, KeyBytes, KeyRange, Txn, Versioned, Write,
};
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::failure::{corruption, foreign_key, infra};

/// The step that errors name.
pub(crate) const COMMIT: &str = "sqlite.commit";

const REVISION: &str = "SELECT revision FROM kv WHERE key = ?1";
const INSERT: &str = "INSERT INTO kv(key, revision, value) VALUES (?1, ?2, ?3)";
const UPDATE: &str = "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1";
const UPDATE_AT: &str = "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1 AND revision = ?4";
const DELETE: &str = "DELETE FROM kv WHERE key = ?1";
const FLOOR: &str = "SELECT value FROM meta WHERE name = 'floor'";
const RAISE_FLOOR: &str = "UPDATE meta SET value = ?1 WHERE name = 'floor'";
pub(crate) const GET: &str = "SELECT revision, value FROM kv WHERE key = ?1";
pub(crate) const SCAN: &str = "SELECT key, revision, value FROM kv \
                               WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";

/// SQLite has no unsigned numbers. No store gets there by counting, only by damage.
const REVISION_MAX: u64 = i64::MAX.cast_unsigned();

/// Transactions that are applied under one lock of the file, one after the other.
pub(crate) struct Group<'c> {
    connection: &'c Connection,
    seen: Seen,
    /// The statement of a [`Step`], which most transactions are: to look it up for each costs as
    /// much as to bind its values.
    step: Option<CachedStatement<'c>>,
}

impl<'c> Group<'c> {
    /// Nothing yet. Whoever holds `connection` holds the file's write lock.
    pub(crate) const fn new(connection: &'c Connection) -> Self {
        Self { connection, seen: Seen::new(), step: None }
    }

    /// Does what `txn` says if everything is as it expects.
    pub(crate) fn apply(&mut self, txn: &Txn) -> Result<CommitOutcome, InfraError> {
        if let Some(step) = Step::of(txn)
            && self.others_hold(txn, &step)?
        {
            return self.take(&step);
        }
        let mut broken = Vec::new();
        for compare in txn.compares() {
            broken.extend(self.check(compare)?);
        }
        if let Some(conflict) = Conflict::new(broken) {
            return Ok(CommitOutcome::Conflict(conflict));
        }
        self.write_all(txn).map(|revision| CommitOutcome::Applied { revision })
    }

    /// Whether everything holds that is compared beside the key of `step`.
    fn others_hold(&mut self, txn: &Txn, step: &Step<'_>) -> Result<bool, InfraError> {
        let own = Compare::At { key: *step.key, revision: step.revision };
        for compare in txn.compares().iter().filter(|compare| **compare != own) {
            if self.check(compare)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the value at the next revision if the key is as expected.
    fn take(&mut self, step: &Step<'_>) -> Result<CommitOutcome, InfraError> {
        let (next, key) = (step.revision + 1, step.key.to_bytes());
        let values = params![key.as_bytes(), signed(next)?, step.value, signed(step.revision)?];
        if self.update_at(values)? == 1 {
            self.seen.follow(step.key, &key, next);
            return Ok(CommitOutcome::Applied { revision: next });
        }
        let found = (*step.key, get(self.connection, step.key, COMMIT)?);
        let conflict = Conflict::new(vec![found]).expect("it names a key");
        Ok(CommitOutcome::Conflict(conflict))
    }

    /// How many rows the statement of a step changed.
    fn update_at(&mut self, values: impl rusqlite::Params) -> Result<usize, InfraError> {
        let statement = match &mut self.step {
            Some(statement) => statement,
            none => {
                let statement = self.connection.prepare_cached(UPDATE_AT);
                none.insert(statement.map_err(|error| infra(COMMIT, &error))?)
            }
        };
        statement.execute(values).map_err(|error| infra(COMMIT, &error))
    }

    /// What is there instead, if `compare` does not hold.
    fn check(&mut self, compare: &Compare) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
        let (key, expected) = match compare {
            Compare::At { key, revision } => (key, Some(*revision)),
            Compare::Absent(key) => (key, None),
            Compare::Empty(range) => return first_of(self.connection, range),
        };
        if self.revision(key)? == expected {
            return Ok(None);
        }
        Ok(Some((*key, get(self.connection, key, COMMIT)?)))
    }

    /// Writes everything at one revision, and answers it.
    fn write_all(&mut self, txn: &Txn) -> Result<u64, InfraError> {
        let (mut highest, mut is_birth, mut is_death) = (0, txn.writes().is_empty(), false);
        let mut rows = Vec::with_capacity(txn.writes().len());
        for write in txn.writes() {
            let before = self.revision(write.key())?;
            highest = highest.max(before.unwrap_or(0));
            match write {
                Write::Put(..) | Write::Bind(..) => is_birth |= before.is_none(),
                Write::Delete(_) => is_death |= before.is_some(),
            }
            rows.push((before.is_some(), write));
        }
        if is_birth || is_death {
            highest = highest.max(floor(self.connection)?);
        }
        let next = highest + 1;
        let stored = signed(next)?;
        for (is_there, write) in rows {
            let key = write.key().to_bytes();
            let is_left = write_one(self.connection, &key, write, is_there, stored)?;
            self.seen.learn(write.key(), key, is_left.then_some(next));
        }
        if is_death {
            run(self.connection, RAISE_FLOOR, params![stored])?;
        }
        Ok(next)
    }

    /// The revision of a key as the group has left it so far.
    fn revision(&mut self, key: &Key) -> Result<Option<u64>, InfraError> {
        if let Some(known) = self.seen.latest(key) {
            return Ok(known);
        }
        let bytes = key.to_bytes();
        let found = match self.seen.revisions.get(&bytes) {
            Some(known) => *known,
            None => stored_revision(self.connection, &bytes)?,
        };
        self.seen.learn(key, bytes, found);
        Ok(found)
    }
}

/// Revisions of keys as the group has left them so far; `None` for a key that is not there. Good
/// until the group ends.
struct Seen {
    revisions: BTreeMap<KeyBytes, Option<u64>>,
    /// The last one that was looked up or written, also found without its bytes: mostly the head of
    /// a run, which every operation on its shards compares.
    latest: Option<(Key, Option<u64>)>,
}

impl Seen {
    const fn new() -> Self {
        Self { revisions: BTreeMap::new(), latest: None }
    }

    fn latest(&self, key: &Key) -> Option<Option<u64>> {
        self.latest.filter(|(latest, _)| latest == key).map(|(_, revision)| revision)
    }

    fn learn(&mut self, key: &Key, bytes: KeyBytes, revision: Option<u64>) {
        self.revisions.insert(bytes, revision);
        self.latest = Some((*key, revision));
    }

    /// A key was written. Who looks for it later finds it in the table; only what was remembered
    /// must follow.
    fn follow(&mut self, key: &Key, bytes: &KeyBytes, revision: u64) {
        if let Some(known) = self.revisions.get_mut(bytes) {
            *known = Some(revision);
        }
        if let Some((_, known)) = self.latest.as_mut().filter(|(latest, _)| latest == key) {
            *known = Some(revision);
        }
    }
}

/// A transaction that writes one value, over one that it compares: a checkpoint is one. Looking and
/// writing are then one statement.
struct Step<'t> {
    key: &'t Key,
    /// What the key is expected at.
    revision: u64,
    value: &'t [u8],
}

impl<'t> Step<'t> {
    fn of(txn: &'t Txn) -> Option<Self> {
        let [Write::Put(key, value)] = txn.writes() else { return None };
        let expected = txn.compares().iter().find_map(|compare| match compare {
            // What no store counts up to is a conflict, and not for the one statement.
            Compare::At { key: other, revision } if other == key && *revision < REVISION_MAX => {
                Some(*revision)
            }
            Compare::At { .. } | Compare::Absent(_) | Compare::Empty(_) => None,
        });
        expected.map(|revision| Self { key, revision, value })
    }
}

fn first_of(
    connection: &Connection,
    range: &KeyRange,
) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
    let page = scan(connection, range, 1, COMMIT)?;
    Ok(page.into_iter().next().map(|(key, value)| (key, Some(value))))
}

/// Writes a row, and answers whether it is there then.
fn write_one(
    connection: &Connection,
    key: &KeyBytes,
    write: &Write,
    is_there: bool,
    revision: i64,
) -> Result<bool, InfraError> {
    match write {
        Write::Put(_, value) => {
            let sql = if is_there { UPDATE } else { INSERT };
            run(connection, sql, params![key.as_bytes(), revision, value])?;
            Ok(true)
        }
        Write::Delete(_) => {
            if is_there {
                run(connection, DELETE, params![key.as_bytes()])?;
            }
            Ok(false)
        }
        // Nothing here dies with a process, and the store says so (`binding` is none).
        Write::Bind(..) => Err(InfraError::Refused {
            operation: COMMIT,
            why: StoreRefusal::Unusable,
            message: "a file binds no keys to a process".to_owned(),
        }),
    }
}

/// The revision under which a key is stored.
fn stored_revision(connection: &Connection, key: &KeyBytes) -> Result<Option<u64>, InfraError> {
    let found: Option<i64> = connection
        .prepare_cached(REVISION)
        .and_then(|mut statement| {
            statement.query_row(params![key.as_bytes()], |row| row.get(0)).optional()
        })
        .map_err(|error| infra(COMMIT, &error))?;
    found.map(|found| unsigned(found, COMMIT)).transpose()
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
    match changed(connection, sql, values)? {
        1 => Ok(()),
        // The row was looked up under the same lock, so a tree that lost it is damaged.
        count => Err(corruption(COMMIT, format!("a write changed {count} rows, expected 1"))),
    }
}

/// How many rows a statement changed.
fn changed(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<usize, InfraError> {
    let done = connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
    done.map_err(|error| infra(COMMIT, &error))
}

fn signed(revision: u64) -> Result<i64, InfraError> {
    i64::try_from(revision).map_err(|_| corruption(COMMIT, "a revision is out of range".to_owned()))
}

fn unsigned(revision: i64, operation: &'static str) -> Result<u64, InfraError> {
    u64::try_from(revision)
        .map_err(|_| corruption(operation, "a revision is out of range".to_owned()))
}
