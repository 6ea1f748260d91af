//! The engine alone: a record compared and written by one statement in one `BEGIN IMMEDIATE …
//! COMMIT`, as a direct compare-and-swap on SQLite would be written. The caller remembers the
//! revision of its record, as ours does. No protocol, no codec, no checksum.
//!
//! Table, page size, cache and syncs are those of ours. What ours adds for safety and has to pay
//! for (`cell_size_check`, `trusted_schema`) is left at SQLite's defaults.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::Thread;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use crate::VALUE_LEN;
use crate::aside::Aside;
use crate::group_commit::GroupCommit;

/// What each connection of ours may cache, in KiB (`schema.rs` of the crate).
const CACHE_KIB: i32 = -4_096;

const TABLE: &str = "CREATE TABLE kv (key BLOB PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, \
                     value BLOB NOT NULL) STRICT, WITHOUT ROWID";
const INSERT: &str = "INSERT INTO kv VALUES (?1, 0, ?2)";
const SWAP: &str = "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1 AND revision = ?4";

/// How the engine is used: who copies the log back into the file, and who commits for several
/// callers.
#[derive(Clone, Copy, Debug)]
pub enum Custom {
    /// As one would without us. The commit that finds a thousand pages in the log copies it, as
    /// SQLite does by default; a thread commits what several callers hand it, all that
    /// waits as one transaction, and wakes them.
    Usual,
    /// The same with a thread of its own that copies the log, as ours has.
    Aside,
    /// As ours is: the log is copied aside, and callers are grouped by the same group commit.
    Alike,
}

/// The bare engine. A single caller commits its own transactions.
pub struct Bare {
    way: Way,
    callers: Vec<Mutex<Record>>,
}

enum Way {
    Alone(Mutex<Writer>),
    Handed(mpsc::Sender<Request>),
    GroupCommit(GroupCommit<Swap>, Mutex<Writer>),
}

/// As for ours.
const GROUP_MAX: usize = 4_096;
const LEAD_TIME_MAX: Duration = Duration::from_millis(20);

/// The record of a caller, as it left it.
struct Record {
    key: [u8; KEY_LEN],
    revision: i64,
    done: Arc<AtomicBool>,
}

/// One change, and who waits for it.
struct Request {
    swap: Swap,
    done: Arc<AtomicBool>,
    caller: Thread,
}

struct Swap {
    key: [u8; KEY_LEN],
    /// What the record is expected at.
    revision: i64,
    value: [u8; VALUE_LEN],
}

struct Writer {
    connection: Connection,
    aside: Option<Aside>,
}

/// As long as a key of ours.
const KEY_LEN: usize = 102;

impl Bare {
    pub fn new(
        directory: &Path,
        callers: usize,
        records: usize,
        synchronous: &str,
        custom: Custom,
    ) -> Self {
        let path = directory.join(format!("bare-{custom:?}"));
        let way = Way::new(Writer::new(path, records, synchronous, custom), callers, custom);
        let stride = records / callers;
        let record = |caller| Mutex::new(Record::new((caller * stride) as u64));
        Self { way, callers: (0..callers).map(record).collect() }
    }

    /// What one caller repeats: it changes its record, durably.
    pub fn caller(&self, caller: usize) -> impl FnMut() + Send + '_ {
        let record = &self.callers[caller];
        // Uncontended, so its cost is negligible beside a commit.
        move || self.way.change(&mut record.lock().unwrap())
    }
}

impl Record {
    fn new(row: u64) -> Self {
        Self { key: key(row), revision: 0, done: Arc::default() }
    }

    /// The next change of the record, which always succeeds: no other caller changes it.
    fn next(&mut self) -> Swap {
        let mut value = [0; VALUE_LEN];
        value[..8].copy_from_slice(&self.revision.to_be_bytes());
        self.revision += 1;
        Swap { key: self.key, revision: self.revision - 1, value }
    }
}

impl Way {
    fn new(writer: Writer, callers: usize, custom: Custom) -> Self {
        match custom {
            _ if callers == 1 => Self::Alone(Mutex::new(writer)),
            Custom::Usual | Custom::Aside => {
                let (requests, waiting) = mpsc::channel();
                std::thread::spawn(move || writer.write_groups(&waiting));
                Self::Handed(requests)
            }
            Custom::Alike => {
                Self::GroupCommit(GroupCommit::new(GROUP_MAX, LEAD_TIME_MAX), Mutex::new(writer))
            }
        }
    }

    fn change(&self, record: &mut Record) {
        let swap = record.next();
        match self {
            Self::Alone(writer) => writer.lock().unwrap().commit([&swap]),
            Self::GroupCommit(group_commit, writer) => {
                let commit_batch = |swaps: &mut [Swap]| writer.lock().unwrap().commit(&*swaps);
                group_commit.submit(swap, 1, commit_batch).unwrap();
            }
            Self::Handed(requests) => {
                record.done.store(false, Ordering::Relaxed);
                let (done, caller) = (Arc::clone(&record.done), std::thread::current());
                requests.send(Request { swap, done, caller }).unwrap();
                while !record.done.load(Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

impl Writer {
    fn new(path: PathBuf, records: usize, synchronous: &str, custom: Custom) -> Self {
        let mut connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "synchronous", synchronous).unwrap();
        connection.pragma_update(None, "cache_size", CACHE_KIB).unwrap();
        connection.execute_batch(TABLE).unwrap();
        connection.execute_batch("BEGIN").unwrap();
        for row in 0..records as u64 {
            connection.execute(INSERT, params![key(row), [0_u8; VALUE_LEN]]).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        let aside = match custom {
            Custom::Usual => None,
            Custom::Aside | Custom::Alike => Some(Aside::start(&path, &mut connection)),
        };
        Self { connection, aside }
    }

    /// Commits queued requests until all senders are dropped.
    fn write_groups(mut self, waiting: &mpsc::Receiver<Request>) {
        while let Ok(first) = waiting.recv() {
            let group: Vec<Request> = std::iter::once(first).chain(waiting.try_iter()).collect();
            self.commit(group.iter().map(|request| &request.swap));
            for request in group {
                request.done.store(true, Ordering::Release);
                request.caller.unpark();
            }
        }
    }

    fn commit<'s>(&mut self, swaps: impl IntoIterator<Item = &'s Swap>) {
        if let Some(aside) = &mut self.aside {
            aside.before_commit(&self.connection);
        }
        let immediate = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(immediate).unwrap();
        swaps.into_iter().for_each(|swap| swap.make(&transaction));
        transaction.commit().unwrap();
        if let Some(aside) = &mut self.aside {
            aside.after_commit();
        }
    }
}

impl Swap {
    fn make(&self, connection: &Connection) {
        let mut statement = connection.prepare_cached(SWAP).unwrap();
        let values = params![self.key, self.revision + 1, self.value, self.revision];
        assert_eq!(statement.execute(values).unwrap(), 1);
    }
}

fn key(row: u64) -> [u8; KEY_LEN] {
    let mut key = [b'0'; KEY_LEN];
    key[KEY_LEN - 8..].copy_from_slice(&row.to_be_bytes());
    key
}
