//! Applies one transaction of the store layer on a connection that holds the file's write lock.
//!
//! Every compare is checked before the first write, so a conflict changes nothing and needs no
//! savepoint. After any other failure the caller rolls back.
//!
//! Transactions of one group compare the same keys repeatedly: every operation on a shard compares
//! the head of its run. A [`Group`] caches the revisions it has read, which cannot change while the
//! lock is held.

use std::collections::BTreeMap;
use std::sync::Arc;

use gossip_coordination::store::{
    CommitOutcome, Compare, Conflict, Key, KeyBytes, KeyRange, Txn, Versioned, Write,
};
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::failure::{corruption, foreign_key, infra};

/// The operation name in errors.
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

/// SQLite integers are signed. Only a damaged file has a revision beyond this.
const REVISION_MAX: u64 = i64::MAX.cast_unsigned();

/// Applies transactions one after the other under one hold of the write lock.
pub(crate) struct Group<'c> {
    connection: &'c Connection,
    cache: RevisionCache,
    /// The prepared statement of a [`SingleUpdate`], which most transactions are: looking it up in
    /// the statement cache costs as much as binding its values.
    single_update: Option<CachedStatement<'c>>,
}

impl<'c> Group<'c> {
    /// Returns an empty group. `connection` must hold the file's write lock.
    pub(crate) const fn new(connection: &'c Connection) -> Self {
        Self { connection, cache: RevisionCache::new(), single_update: None }
    }

    /// Applies `txn` if all its compares hold, and returns the revision of its writes. Otherwise
    /// writes nothing and returns a conflict with the present values of the keys that differ.
    ///
    /// After an error some of the writes may have been done, so the caller must roll back.
    pub(crate) fn apply(&mut self, txn: &Txn) -> Result<CommitOutcome, InfraError> {
        // The usual case needs one statement: a conflict on the updated key shows in its row count.
        if let Some(update) = SingleUpdate::of(txn)
            && self.other_compares_hold(txn, &update)?
        {
            return self.apply_single(&update);
        }
        // All compares are checked, also after a broken one: the caller gets every value that
        // changed and need not load them.
        let mut broken = Vec::new();
        for compare in txn.compares() {
            broken.extend(self.check(compare)?);
        }
        if let Some(conflict) = Conflict::new(broken) {
            return Ok(CommitOutcome::Conflict(conflict));
        }
        self.write_all(txn).map(|revision| CommitOutcome::Applied { revision })
    }

    /// Returns whether all compares hold except that of the updated key.
    fn other_compares_hold(
        &mut self,
        txn: &Txn,
        update: &SingleUpdate<'_>,
    ) -> Result<bool, InfraError> {
        let own = Compare::At { key: *update.key, revision: update.revision };
        for compare in txn.compares().iter().filter(|compare| **compare != own) {
            if self.check(compare)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the value at the next revision if the key has the expected one. Otherwise returns a
    /// conflict with its present value. Other compares are the caller's.
    fn apply_single(&mut self, update: &SingleUpdate<'_>) -> Result<CommitOutcome, InfraError> {
        let (next, key) = (update.revision + 1, update.key.to_bytes());
        let values = params![key.as_bytes(), signed(next)?, update.value, signed(update.revision)?];
        if self.update_at(values)? == 1 {
            self.cache.update(update.key, &key, next);
            return Ok(CommitOutcome::Applied { revision: next });
        }
        let found = (*update.key, get(self.connection, update.key, COMMIT)?);
        let conflict = Conflict::new(vec![found]).expect("the conflict names a key");
        Ok(CommitOutcome::Conflict(conflict))
    }

    /// Runs the statement of a single update and returns how many rows it changed.
    fn update_at(&mut self, values: impl rusqlite::Params) -> Result<usize, InfraError> {
        let statement = match &mut self.single_update {
            Some(statement) => statement,
            none => {
                let statement = self.connection.prepare_cached(UPDATE_AT);
                none.insert(statement.map_err(|error| infra(COMMIT, &error))?)
            }
        };
        statement.execute(values).map_err(|error| infra(COMMIT, &error))
    }

    /// Returns `None` if `compare` holds, otherwise the key and its present value, `None` for an
    /// absent key. For a range that should be empty this is its first key.
    fn check(&mut self, compare: &Compare) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
        let (key, expected) = match compare {
            Compare::At { key, revision } => (key, Some(*revision)),
            Compare::Value { key, value } => return self.check_value(key, value),
            Compare::Absent(key) => (key, None),
            Compare::Empty(range) => return first_of(self.connection, range),
        };
        if self.revision(key)? == expected {
            return Ok(None);
        }
        Ok(Some((*key, get(self.connection, key, COMMIT)?)))
    }

    /// Returns `None` if the key has `value`, otherwise the key and its present value.
    fn check_value(
        &mut self,
        key: &Key,
        value: &Arc<Vec<u8>>,
    ) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
        let revision = self.revision(key)?;
        // Many transactions of a group compare the same value, mostly the head of a run, so it is
        // read once per revision of its key.
        let known = (*key, revision);
        if self.cache.held.as_ref().is_some_and(|held| (held.0, &held.1) == (known, value)) {
            return Ok(None);
        }
        let found = get(self.connection, key, COMMIT)?;
        if found.as_ref().is_some_and(|found| found.bytes == **value) {
            self.cache.held = Some((known, Arc::clone(value)));
            return Ok(None);
        }
        Ok(Some((*key, found)))
    }

    /// Applies all writes at one revision, above every earlier revision of their keys, and returns
    /// it. The compares were checked before.
    fn write_all(&mut self, txn: &Txn) -> Result<u64, InfraError> {
        // Without writes there is no key to take a revision from; the floor is used then.
        let (mut highest, mut creates, mut deletes) = (0, txn.writes().is_empty(), false);
        let mut rows = Vec::with_capacity(txn.writes().len());
        for write in txn.writes() {
            let before = self.revision(write.key())?;
            // All writes get one revision, so it must lie above that of each key.
            highest = highest.max(before.unwrap_or(0));
            match write {
                Write::Put(..) | Write::Bind(..) => creates |= before.is_none(),
                Write::Delete(_) => deletes |= before.is_some(),
            }
            rows.push((before.is_some(), write));
        }
        // A created key may have had any revision up to the floor, and its new one must be higher.
        // A deletion sets the floor to its own revision, which must not lower it.
        if creates || deletes {
            highest = highest.max(floor(self.connection)?);
        }
        let next = highest + 1;
        let stored = signed(next)?;
        for (exists_before, write) in rows {
            let key = write.key().to_bytes();
            let exists = write_one(self.connection, &key, write, exists_before, stored)?;
            self.cache.insert(write.key(), key, exists.then_some(next));
        }
        // So that the key's revisions keep increasing if it is created again.
        if deletes {
            run(self.connection, RAISE_FLOOR, params![stored])?;
        }
        Ok(next)
    }

    /// Returns the revision of a key after the transactions applied so far.
    fn revision(&mut self, key: &Key) -> Result<Option<u64>, InfraError> {
        if let Some(known) = self.cache.latest(key) {
            return Ok(known);
        }
        let bytes = key.to_bytes();
        let found = match self.cache.revisions.get(&bytes) {
            Some(known) => *known,
            None => stored_revision(self.connection, &bytes)?,
        };
        self.cache.insert(key, bytes, found);
        Ok(found)
    }
}

/// A key and its revision; `None` for an absent key.
type KeyAt = (Key, Option<u64>);

/// Revisions of keys after the transactions applied so far; `None` for an absent key. Valid until
/// the group ends.
struct RevisionCache {
    revisions: BTreeMap<KeyBytes, Option<u64>>,
    /// The key that was read or written last, found without encoding it: mostly the head of a run,
    /// which every operation on its shards compares.
    latest: Option<KeyAt>,
    /// The last compared value that was found, with the key's revision.
    held: Option<(KeyAt, Arc<Vec<u8>>)>,
}

impl RevisionCache {
    const fn new() -> Self {
        Self { revisions: BTreeMap::new(), latest: None, held: None }
    }

    fn latest(&self, key: &Key) -> Option<Option<u64>> {
        self.latest.filter(|(latest, _)| latest == key).map(|(_, revision)| revision)
    }

    fn insert(&mut self, key: &Key, bytes: KeyBytes, revision: Option<u64>) {
        self.revisions.insert(bytes, revision);
        self.latest = Some((*key, revision));
    }

    /// Updates the cached revision of a written key. An uncached key is not inserted: most are
    /// written once per group, and a later lookup reads the table.
    fn update(&mut self, key: &Key, bytes: &KeyBytes, revision: u64) {
        if let Some(known) = self.revisions.get_mut(bytes) {
            *known = Some(revision);
        }
        if let Some((_, known)) = self.latest.as_mut().filter(|(latest, _)| latest == key) {
            *known = Some(revision);
        }
    }
}

/// A transaction with one write, to a key that it compares with a revision, such as a checkpoint.
/// Compare and write are then one statement.
struct SingleUpdate<'t> {
    key: &'t Key,
    /// The expected revision of the key.
    revision: u64,
    value: &'t [u8],
}

impl<'t> SingleUpdate<'t> {
    /// Returns the update if `txn` is one. `None` sends it down the general path, which takes every
    /// transaction. Compares of other keys are neither checked nor a reason for `None`.
    fn of(txn: &'t Txn) -> Option<Self> {
        let [Write::Put(key, value)] = txn.writes() else { return None };
        let expected = txn.compares().iter().find_map(|compare| match compare {
            // `apply_single` stores `revision + 1`, which must fit a SQLite integer. The general
            // path reports any other revision as a conflict, or as damage if the file has it.
            Compare::At { key: other, revision } if other == key && *revision < REVISION_MAX => {
                Some(*revision)
            }
            Compare::At { .. } | Compare::Value { .. } | Compare::Absent(_) | Compare::Empty(_) => {
                None
            }
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

/// Applies one write and returns whether the row exists afterwards. Refuses a bound key.
fn write_one(
    connection: &Connection,
    key: &KeyBytes,
    write: &Write,
    exists_before: bool,
    revision: i64,
) -> Result<bool, InfraError> {
    match write {
        Write::Put(_, value) => {
            let sql = if exists_before { UPDATE } else { INSERT };
            run(connection, sql, params![key.as_bytes(), revision, value])?;
            Ok(true)
        }
        Write::Delete(_) => {
            // Otherwise the statement changes no row, which `run` takes for damage.
            if exists_before {
                run(connection, DELETE, params![key.as_bytes()])?;
            }
            Ok(false)
        }
        // A file cannot delete keys when a process ends; `Store::binding` is `None`.
        Write::Bind(..) => Err(InfraError::Refused {
            operation: COMMIT,
            why: StoreRefusal::Unusable,
            message: "a SQLite store cannot bind keys to a process".to_owned(),
        }),
    }
}

/// Returns the stored revision of a key; `None` if it is absent.
fn stored_revision(connection: &Connection, key: &KeyBytes) -> Result<Option<u64>, InfraError> {
    let found: Option<i64> = connection
        .prepare_cached(REVISION)
        .and_then(|mut statement| {
            statement.query_row(params![key.as_bytes()], |row| row.get(0)).optional()
        })
        .map_err(|error| infra(COMMIT, &error))?;
    found.map(|found| unsigned(found, COMMIT)).transpose()
}

/// Returns the value and the revision of `key`; `None` if it is absent.
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

/// Returns the first `limit` keys of `range` with their values.
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

/// Runs a statement that must change one row; any other number is corruption.
fn run(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<(), InfraError> {
    match changed(connection, sql, values)? {
        1 => Ok(()),
        // The row was read under the same lock, so a missing row means a damaged tree.
        count => Err(corruption(COMMIT, format!("a write changed {count} rows, expected 1"))),
    }
}

/// Runs a statement and returns how many rows it changed.
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
