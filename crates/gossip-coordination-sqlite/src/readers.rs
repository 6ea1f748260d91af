//! Connections that read, a few of them, shared by all callers of a process.
//!
//! A read waits for no writer. All questions of one read are answered within one transaction, which
//! sees one instant and everything that was committed before it began.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, KeyRange, Page, Read};
use rusqlite::{Connection, params};

use crate::apply::{get, scan};
use crate::failure::{corruption, infra};
use crate::place::Place;
use crate::schema::Role;

/// Connections that are open at once. Reads do not wait for the disk as a rule, so more than there
/// are cores would not help; each costs its cache.
const CONNECTIONS_MAX: usize = 4;

/// The step that errors name.
const READ: &str = "sqlite.read";

const COUNT: &str = "SELECT count(*) FROM kv WHERE key >= ?1 AND key < ?2";

/// The connections.
#[derive(Debug)]
pub(crate) struct Readers {
    place: Arc<Place>,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug)]
struct Pool {
    idle: Vec<Connection>,
    /// Open connections, idle or lent out; never more than [`CONNECTIONS_MAX`].
    open: usize,
}

impl Readers {
    pub(crate) const fn new(place: Arc<Place>) -> Self {
        let pool = Mutex::new(Pool { idle: Vec::new(), open: 0 });
        Self { place, pool, returned: Condvar::new() }
    }

    /// Answers each of `batches`, all of one instant.
    pub(crate) fn read(
        &self,
        batches: &[Vec<Read>],
        page_max: usize,
    ) -> Result<Vec<Result<Vec<Answer>, InfraError>>, InfraError> {
        let lent = self.lend().map_err(|error| infra(READ, &error))?;
        let connection = lent.connection();
        let answer = |batch: &Vec<Read>| {
            batch.iter().map(|read| answer(connection, read, page_max)).collect()
        };
        // One statement is one instant by itself.
        if let [batch] = batches
            && batch.len() <= 1
        {
            return Ok(vec![answer(batch)]);
        }
        let run = |sql: &str| -> rusqlite::Result<()> {
            connection.prepare_cached(sql)?.execute([]).map(|_| ())
        };
        run("BEGIN").map_err(|error| infra(READ, &error))?;
        let answers = answer_each(batches, answer);
        run("COMMIT").map_err(|error| infra(READ, &error))?;
        Ok(answers)
    }

    fn lend(&self) -> rusqlite::Result<Lent<'_>> {
        let mut pool = self.pool();
        loop {
            if let Some(connection) = pool.idle.pop() {
                return Ok(Lent { readers: self, connection: Some(connection) });
            }
            if pool.open < CONNECTIONS_MAX {
                pool.open += 1;
                break;
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pool);
        // From here on the guard gives the place back, whatever happens.
        let mut lent = Lent { readers: self, connection: None };
        lent.connection = Some(self.place.connect(Role::Read)?);
        Ok(lent)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that goes back to its pool.
struct Lent<'r> {
    readers: &'r Readers,
    /// `None` only while it is being opened.
    connection: Option<Connection>,
}

impl Lent<'_> {
    const fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is lent after it was opened")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // A panic or a failure may have left a transaction open, which would hold the log back.
        let clean = self.connection.take().filter(Connection::is_autocommit);
        let mut pool = self.readers.pool();
        match clean {
            Some(connection) => pool.idle.push(connection),
            None => pool.open -= 1,
        }
        self.readers.returned.notify_one();
    }
}

/// Answers for each of `batches`. Behind one that waited in vain for the file nobody waits again.
pub(crate) fn answer_each<B, A>(
    batches: &[B],
    mut answer: impl FnMut(&B) -> Result<A, InfraError>,
) -> Vec<Result<A, InfraError>> {
    let mut held: Option<InfraError> = None;
    let one = |batch| match &held {
        Some(error) => Err(error.clone()),
        None => answer(batch).inspect_err(|error| {
            held = error.is_retryable().then(|| error.clone());
        }),
    };
    batches.iter().map(one).collect()
}

fn answer(connection: &Connection, read: &Read, page_max: usize) -> Result<Answer, InfraError> {
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

/// The first page that is not empty.
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
