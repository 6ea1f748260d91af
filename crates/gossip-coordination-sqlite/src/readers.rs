//! A small pool of reading connections, shared by all callers of a process.
//!
//! Readers never wait for a writer (WAL mode). All reads of one call run in one transaction, which
//! sees one snapshot that includes every commit acknowledged before it began.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, KeyRange, Page, Read};
use rusqlite::{Connection, params};

use crate::apply::{get, scan};
use crate::db_file::DbFile;
use crate::failure::{corruption, infra};
use crate::schema::Role;

/// Connections in the pool. Reads are mostly served from memory, so more connections than cores
/// would not help, and each has its own page cache.
const CONNECTIONS_MAX: usize = 4;

/// The operation name in errors.
const READ: &str = "sqlite.read";

const COUNT: &str = "SELECT count(*) FROM kv WHERE key >= ?1 AND key < ?2";

/// The pool.
#[derive(Debug)]
pub(crate) struct Readers {
    file: Arc<DbFile>,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug)]
struct Pool {
    idle: Vec<Connection>,
    /// Open connections, idle or in use; at most [`CONNECTIONS_MAX`].
    open: usize,
}

impl Readers {
    pub(crate) const fn new(file: Arc<DbFile>) -> Self {
        let pool = Mutex::new(Pool { idle: Vec::new(), open: 0 });
        Self { file, pool, returned: Condvar::new() }
    }

    /// Returns the answers to `reads` in their order, all from one snapshot; a page holds at most
    /// `page_max` entries. The first failing read is the error of all. Waits while all connections
    /// of the pool are in use.
    pub(crate) fn read(&self, reads: &[Read], page_max: usize) -> Result<Vec<Answer>, InfraError> {
        let pooled = self.checkout().map_err(|error| infra(READ, &error))?;
        let answers = read_on(pooled.connection(), reads, page_max);
        // After the read: an answer from a file that was moved before could settle an unresolved
        // commit that no other process will ever find.
        self.file.check().map_err(|error| infra(READ, &error))?;
        answers
    }

    /// Takes an idle connection, opens one, or waits until one is returned.
    fn checkout(&self) -> rusqlite::Result<Pooled<'_>> {
        let mut pool = self.pool();
        loop {
            if let Some(connection) = pool.idle.pop() {
                return Ok(Pooled { readers: self, connection: Some(connection) });
            }
            if pool.open < CONNECTIONS_MAX {
                pool.open += 1;
                break;
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pool);
        // Opening takes a while, so other callers may use the pool meanwhile. If it fails, dropping
        // `pooled` corrects `open`.
        let mut pooled = Pooled { readers: self, connection: None };
        pooled.connection = Some(self.file.connect(Role::Read)?);
        Ok(pooled)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that returns to its pool on drop.
struct Pooled<'r> {
    readers: &'r Readers,
    /// `None` only while it is being opened.
    connection: Option<Connection>,
}

impl Pooled<'_> {
    const fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("a connection is used only after it was opened")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        // A panic or a failure may have left a transaction open. It would keep the log from
        // restarting, so such a connection is closed.
        let clean = self.connection.take().filter(Connection::is_autocommit);
        let mut pool = self.readers.pool();
        match clean {
            Some(connection) => pool.idle.push(connection),
            None => pool.open -= 1,
        }
        self.readers.returned.notify_one();
    }
}

/// Returns the answers to `reads` on `connection`, all from one snapshot.
fn read_on(
    connection: &Connection,
    reads: &[Read],
    page_max: usize,
) -> Result<Vec<Answer>, InfraError> {
    let answer = |read| answer(connection, read, page_max);
    // A single statement reads from one snapshot without an explicit transaction.
    if is_single_statement(reads) {
        return reads.iter().map(answer).collect();
    }
    let run = |sql: &str| -> rusqlite::Result<()> {
        connection.prepare_cached(sql)?.execute([]).map(|_| ())
    };
    run("BEGIN").map_err(|error| infra(READ, &error))?;
    let answers = reads.iter().map(answer).collect();
    // Also after a failed read: an open transaction would keep the log from starting over.
    run("COMMIT").map_err(|error| infra(READ, &error))?;
    answers
}

/// Returns whether all reads together take at most one statement.
fn is_single_statement(reads: &[Read]) -> bool {
    match reads {
        [] => true,
        // A statement for each range.
        [Read::ScanFirst { ranges, .. }] => ranges.len() <= 1,
        [Read::Get(_) | Read::Scan { .. } | Read::Count(_)] => true,
        [_, _, ..] => false,
    }
}

/// Answers one query on `connection`, with at most `page_max` entries in a page.
pub(crate) fn answer(
    connection: &Connection,
    read: &Read,
    page_max: usize,
) -> Result<Answer, InfraError> {
    Ok(match read {
        Read::Get(key) => Answer::Value(get(connection, key, READ)?),
        Read::Scan { range, limit } => {
            Answer::Page(scan(connection, range, (*limit).min(page_max), READ)?)
        }
        Read::Count(range) => Answer::Count(count(connection, range)?),
        Read::ScanFirst { ranges, limit } => {
            Answer::Page(scan_first(connection, ranges, (*limit).min(page_max))?)
        }
    })
}

/// Returns up to `limit` entries of the first range that has any; an empty page if none has.
fn scan_first(
    connection: &Connection,
    ranges: &[KeyRange],
    limit: usize,
) -> Result<Page, InfraError> {
    for range in ranges {
        let page = scan(connection, range, limit, READ)?;
        if !page.is_empty() {
            return Ok(page);
        }
    }
    Ok(Page::new())
}

fn count(connection: &Connection, range: &KeyRange) -> Result<u64, InfraError> {
    let bounds = params![range.start().as_bytes(), range.end().as_bytes()];
    let count: i64 = connection
        .prepare_cached(COUNT)
        .and_then(|mut statement| statement.query_row(bounds, |row| row.get(0)))
        .map_err(|error| infra(READ, &error))?;
    u64::try_from(count).map_err(|_| corruption(READ, "a count is negative".to_owned()))
}
