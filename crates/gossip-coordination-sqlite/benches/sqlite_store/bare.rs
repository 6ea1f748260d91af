//! The engine alone: SQLite with the same settings, a record read, checked, changed and written in
//! one synced transaction. No protocol, no codec, no checksum.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::Thread;

use rusqlite::{Connection, TransactionBehavior, params};

use crate::VALUE_LEN;

/// The bare engine. One caller commits by itself. Several hand their changes to a writer, which
/// takes all that wait, commits them as one transaction, and wakes their callers.
pub struct Bare {
    way: Way,
    /// From the record of one caller to that of the next.
    stride: u64,
}

enum Way {
    Alone(Mutex<Connection>),
    Grouped(mpsc::Sender<Request>),
}

/// One change, and who waits for it.
struct Request {
    row: u64,
    done: Arc<AtomicBool>,
    caller: Thread,
}

impl Bare {
    pub fn new(directory: &Path, callers: usize, records: usize, synchronous: &str) -> Self {
        let stride = (records / callers) as u64;
        let way = Way::new(fill(directory, records, synchronous), callers);
        Self { way, stride }
    }

    /// Changes the record of a caller, durably.
    pub fn change(&self, caller: usize) {
        self.way.change(caller as u64 * self.stride);
    }
}

fn fill(directory: &Path, records: usize, synchronous: &str) -> Connection {
    let connection = Connection::open(directory.join("bare")).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", synchronous).unwrap();
    let table = "CREATE TABLE kv (key BLOB PRIMARY KEY, revision INTEGER NOT NULL, \
                     value BLOB NOT NULL) WITHOUT ROWID";
    connection.execute_batch(table).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    for row in 0..records as u64 {
        let insert = "INSERT INTO kv VALUES (?1, 0, ?2)";
        connection.execute(insert, params![key(row), vec![0_u8; VALUE_LEN]]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    connection
}

impl Way {
    fn new(connection: Connection, callers: usize) -> Self {
        if callers == 1 {
            return Self::Alone(Mutex::new(connection));
        }
        let (requests, waiting) = mpsc::channel();
        std::thread::spawn(move || write_groups(connection, &waiting));
        Self::Grouped(requests)
    }

    fn change(&self, row: u64) {
        match self {
            Self::Alone(connection) => commit(&mut connection.lock().unwrap(), [row]),
            Self::Grouped(requests) => {
                let done = Arc::new(AtomicBool::new(false));
                let caller = std::thread::current();
                requests.send(Request { row, done: Arc::clone(&done), caller }).unwrap();
                while !done.load(Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

/// Commits whatever waits, until nobody can ask any more.
fn write_groups(mut connection: Connection, waiting: &mpsc::Receiver<Request>) {
    while let Ok(first) = waiting.recv() {
        let group: Vec<Request> = std::iter::once(first).chain(waiting.try_iter()).collect();
        commit(&mut connection, group.iter().map(|request| request.row));
        for request in group {
            request.done.store(true, Ordering::Release);
            request.caller.unpark();
        }
    }
}

fn commit(connection: &mut Connection, rows: impl IntoIterator<Item = u64>) {
    let immediate = TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(immediate).unwrap();
    rows.into_iter().for_each(|row| change(&transaction, row));
    transaction.commit().unwrap();
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
fn key(row: u64) -> [u8; 102] {
    let mut key = [b'0'; 102];
    key[94..].copy_from_slice(&row.to_be_bytes());
    key
}
