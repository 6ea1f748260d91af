//! The engine alone: SQLite with the same settings, a record read, checked, changed and written in
//! one synced transaction. No protocol, no codec, no checksum.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, TransactionBehavior, params};

use crate::VALUE_LEN;

/// The bare engine. Callers that wait while another commits are committed together by the next one
/// that gets the connection, which is how ours groups them too.
pub struct Bare {
    connection: Mutex<Connection>,
    waiting: Mutex<Vec<Arc<Request>>>,
}

struct Request {
    row: u64,
    done: AtomicBool,
}

impl Bare {
    pub fn new(directory: &Path, rows: usize, synchronous: &str) -> Self {
        let connection = Connection::open(directory.join("bare")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "synchronous", synchronous).unwrap();
        let table = "CREATE TABLE kv (key BLOB PRIMARY KEY, revision INTEGER NOT NULL, \
                     value BLOB NOT NULL) WITHOUT ROWID";
        connection.execute_batch(table).unwrap();
        for row in 0..rows as u64 {
            let insert = "INSERT INTO kv VALUES (?1, 0, ?2)";
            connection.execute(insert, params![key(row), vec![0_u8; VALUE_LEN]]).unwrap();
        }
        Self { connection: Mutex::new(connection), waiting: Mutex::default() }
    }

    /// Changes a record, durably.
    pub fn change(&self, row: u64) {
        let request = Arc::new(Request { row, done: AtomicBool::new(false) });
        self.waiting.lock().unwrap().push(Arc::clone(&request));
        let mut connection = self.connection.lock().unwrap();
        if request.done.load(Ordering::Acquire) {
            return;
        }
        let group = std::mem::take(&mut *self.waiting.lock().unwrap());
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        for request in &group {
            change(&transaction, request.row);
        }
        transaction.commit().unwrap();
        group.iter().for_each(|request| request.done.store(true, Ordering::Release));
    }
}

fn change(connection: &Connection, row: u64) {
    let mut read =
        connection.prepare_cached("SELECT revision, value FROM kv WHERE key = ?1").unwrap();
    let (revision, mut value): (i64, Vec<u8>) =
        read.query_row([key(row)], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(value.len(), VALUE_LEN);
    value[0] = value[0].wrapping_add(1);
    let update = "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1 AND revision = ?4";
    let mut write = connection.prepare_cached(update).unwrap();
    let changed = write.execute(params![key(row), revision + 1, value, revision]).unwrap();
    assert_eq!(changed, 1);
}

/// As long as a key of ours.
fn key(row: u64) -> Vec<u8> {
    format!("hot/{:064x}/{:016x}/{row:016x}", 7, 1).into_bytes()
}
