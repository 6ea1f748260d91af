//! A file layer below SQLite that records writes and syncs, in order.
//!
//! [`Recorder::start`] registers hooks in front of SQLite's own file layer (its VFS) for the whole
//! process, and records the files of one directory. Everything else in the process, and every other
//! directory, is untouched, so code under test opens its database as usual. The record is enough to
//! compute every state in which a power cut may leave the files.
//!
//! A recorded sync does not reach the disk: only the record counts, and a real sync would make each
//! commit a hundred times slower. [`Recorder::fail_syncs`] makes syncs fail.
//!
//! The hooks replace four entries in the method table of a file that SQLite has opened, so locks,
//! shared memory and reads are SQLite's own. Memory-mapped writes would bypass them; SQLite has
//! none.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use rusqlite::ffi::{
    SQLITE_IOERR, SQLITE_IOERR_FSYNC, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_MAIN_JOURNAL,
    SQLITE_OPEN_SUPER_JOURNAL, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_int64, sqlite3_io_methods,
    sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

/// One step of the record. Files are named by the last part of their path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a judge must handle every step")]
pub enum Step {
    /// Bytes were written at an offset.
    Write {
        /// The file.
        file: String,
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The length of the file was set.
    Truncate {
        /// The file.
        file: String,
        /// The new length.
        len: u64,
    },
    /// All earlier steps of the file became durable, or, if the sync failed, perhaps never will.
    Sync {
        /// The file.
        file: String,
        /// Whether the sync succeeded.
        succeeded: bool,
        /// Whether the directory was synced too, so that earlier deletions are durable: SQLite does
        /// so with the first sync of a log or journal that it may have created.
        with_directory: bool,
    },
    /// The file was deleted.
    Delete {
        /// The file.
        file: String,
        /// Whether the deletion was made durable at once.
        is_durable: bool,
    },
    /// A remark of the test: [`Recorder::mark`].
    Mark(String),
}

/// Records the files of one directory until it is dropped or [finished](Self::finish).
#[derive(Clone, Debug)]
pub struct Recorder {
    record: Arc<Record>,
}

#[derive(Debug)]
struct Record {
    directory: PathBuf,
    steps: Mutex<Vec<Step>>,
    /// One sync in so many fails; zero for none.
    sync_failure_period: AtomicU64,
    sync_count: AtomicU64,
}

impl Recorder {
    /// Starts a record of the files in `directory`, which must exist. Files that are open already
    /// are not recorded.
    ///
    /// # Panics
    ///
    /// If the directory does not exist, or SQLite has no file layer.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        install();
        let directory = directory.canonicalize().expect("the directory exists");
        let record = Arc::new(Record {
            directory,
            steps: Mutex::default(),
            sync_failure_period: AtomicU64::new(0),
            sync_count: AtomicU64::new(0),
        });
        locked(&RECORDS).push(Arc::clone(&record));
        Self { record }
    }

    /// Adds a remark at the present end of the record.
    pub fn mark(&self, remark: impl Into<String>) {
        self.record.add(Step::Mark(remark.into()));
    }

    /// Makes every sync fail whose number is a multiple of `period`; zero ends that.
    pub fn fail_syncs(&self, period: u64) {
        self.record.sync_failure_period.store(period, Ordering::SeqCst);
    }

    /// Ends the record and returns its steps. Close the database before.
    #[must_use]
    pub fn finish(self) -> Vec<Step> {
        locked(&RECORDS).retain(|other| !Arc::ptr_eq(other, &self.record));
        std::mem::take(&mut locked(&self.record.steps))
    }
}

impl Record {
    fn add(&self, step: Step) {
        locked(&self.steps).push(step);
    }

    /// Records a sync and returns whether it succeeds.
    fn sync(&self, file: String, with_directory: bool) -> bool {
        let number = self.sync_count.fetch_add(1, Ordering::SeqCst) + 1;
        let period = self.sync_failure_period.load(Ordering::SeqCst);
        let succeeded = period == 0 || !number.is_multiple_of(period);
        self.add(Step::Sync { file, succeeded, with_directory });
        succeeded
    }
}

/// The records in progress.
static RECORDS: Mutex<Vec<Arc<Record>>> = Mutex::new(Vec::new());

/// The recorded files that are open, by the address of SQLite's structure.
static FILES: Mutex<BTreeMap<usize, OpenFile>> = Mutex::new(BTreeMap::new());

/// Method tables with hooks, by the address of the original table. SQLite has a few, and tables are
/// never freed, because a file may be open for as long as the process lives.
static TABLES: Mutex<BTreeMap<usize, &'static sqlite3_io_methods>> = Mutex::new(BTreeMap::new());

/// SQLite's own file layer.
static ORIGINAL: OnceLock<Layer> = OnceLock::new();

/// A file layer that lives as long as the process.
struct Layer(&'static sqlite3_vfs);

// SAFETY: SQLite calls a layer from any thread, and never changes it after its registration.
unsafe impl Send for Layer {}
// SAFETY: as above.
unsafe impl Sync for Layer {}

/// A recorded file.
#[derive(Clone)]
struct OpenFile {
    name: String,
    record: Arc<Record>,
    methods: &'static sqlite3_io_methods,
    /// Whether the next sync also syncs the directory.
    syncs_directory: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the hooks, once for the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a null name requests the default layer, which lives as long as the process.
        let original = unsafe { sqlite3_vfs_find(std::ptr::null()).as_ref() };
        let original: &'static sqlite3_vfs = original.expect("SQLite has a file layer");
        let mut hooked = *original;
        hooked.zName = c"recording".as_ptr();
        hooked.pNext = std::ptr::null_mut();
        hooked.xOpen = Some(open);
        hooked.xDelete = Some(delete);
        assert!(ORIGINAL.set(Layer(original)).is_ok(), "installed once");
        // SQLite keeps the pointer for as long as the process lives, so it is never freed.
        let hooked = Box::into_raw(Box::new(hooked));
        // SAFETY: `hooked` is a complete file layer that is never freed.
        let registered = unsafe { sqlite3_vfs_register(hooked, 1) };
        assert_eq!(registered, SQLITE_OK, "SQLite refused the file layer");
    });
}

/// Returns the record of the directory that holds `path`, and the name of the file.
fn record_of(path: *const c_char) -> Option<(Arc<Record>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite passes null or a path that ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(path.to_str().ok()?);
    let name = path.file_name()?.to_str()?.to_owned();
    let records = locked(&RECORDS);
    let record = records.iter().find(|record| Some(record.directory.as_path()) == path.parent())?;
    Some((Arc::clone(record), name))
}

/// Opens a file with SQLite's own layer, and hooks its methods if it is to be recorded.
unsafe extern "C" fn open(
    _layer: *mut sqlite3_vfs,
    path: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let Some(Layer(original)) = ORIGINAL.get() else { return SQLITE_IOERR };
    let Some(open) = original.xOpen else { return SQLITE_IOERR };
    let layer = std::ptr::from_ref::<sqlite3_vfs>(*original).cast_mut();
    // SAFETY: the arguments are those that SQLite passed for a layer with the same file size.
    let result = unsafe { open(layer, path, file, flags, flags_out) };
    if result != SQLITE_OK {
        return result;
    }
    let Some((record, name)) = record_of(path) else { return result };
    // SAFETY: SQLite's layer opened the file, so it set a method table, which is static.
    let methods = unsafe { (*file).pMethods.as_ref() };
    let Some(methods) = methods else { return SQLITE_IOERR };
    // SAFETY: the file is open and no other thread has it yet.
    unsafe { (*file).pMethods = hooked(methods) };
    let is_journal =
        flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL);
    let syncs_directory = flags & SQLITE_OPEN_CREATE != 0 && is_journal != 0;
    locked(&FILES).insert(file.addr(), OpenFile { name, record, methods, syncs_directory });
    result
}

/// Returns a copy of a method table with our hooks.
fn hooked(methods: &'static sqlite3_io_methods) -> &'static sqlite3_io_methods {
    let mut tables = locked(&TABLES);
    tables.entry(std::ptr::from_ref(methods).addr()).or_insert_with(|| {
        Box::leak(Box::new(sqlite3_io_methods {
            xClose: Some(close),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            ..*methods
        }))
    })
}

unsafe extern "C" fn delete(
    _layer: *mut sqlite3_vfs,
    path: *const c_char,
    sync_directory: c_int,
) -> c_int {
    let Some(Layer(original)) = ORIGINAL.get() else { return SQLITE_IOERR };
    let Some(delete) = original.xDelete else { return SQLITE_IOERR };
    let layer = std::ptr::from_ref::<sqlite3_vfs>(*original).cast_mut();
    // SAFETY: the arguments are those that SQLite passed.
    let result = unsafe { delete(layer, path, sync_directory) };
    if result == SQLITE_OK
        && let Some((record, file)) = record_of(path)
    {
        record.add(Step::Delete { file, is_durable: sync_directory != 0 });
    }
    result
}

/// Returns the entry of a file that was opened with hooks.
fn entry(file: *mut sqlite3_file) -> Option<OpenFile> {
    locked(&FILES).get(&file.addr()).cloned()
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let Some(open) = locked(&FILES).remove(&file.addr()) else { return SQLITE_IOERR };
    let Some(close) = open.methods.xClose else { return SQLITE_IOERR };
    // SAFETY: the file is open, and this is the method that its layer set.
    unsafe { close(file) }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    len: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let Some(open) = entry(file) else { return SQLITE_IOERR };
    let Some(write) = open.methods.xWrite else { return SQLITE_IOERR };
    // SAFETY: the file is open, and this is the method that its layer set.
    let result = unsafe { write(file, bytes, len, offset) };
    if result == SQLITE_OK {
        let (Ok(len), Ok(offset)) = (usize::try_from(len), u64::try_from(offset)) else {
            return SQLITE_IOERR;
        };
        // SAFETY: SQLite passes the address of that many bytes.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
        open.record.add(Step::Write { file: open.name, offset, bytes });
    }
    result
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: sqlite3_int64) -> c_int {
    let Some(open) = entry(file) else { return SQLITE_IOERR };
    let Some(truncate) = open.methods.xTruncate else { return SQLITE_IOERR };
    // SAFETY: the file is open, and this is the method that its layer set.
    let result = unsafe { truncate(file, len) };
    if result == SQLITE_OK {
        let Ok(len) = u64::try_from(len) else { return SQLITE_IOERR };
        open.record.add(Step::Truncate { file: open.name, len });
    }
    result
}

/// Recorded before it returns, and without a call of the original: a write that another thread
/// finishes meanwhile comes later in the record, and is not covered.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    let Some(open) = entry(file) else { return SQLITE_IOERR };
    if !open.record.sync(open.name, open.syncs_directory) {
        return SQLITE_IOERR_FSYNC;
    }
    if let Some(open) = locked(&FILES).get_mut(&file.addr()) {
        open.syncs_directory = false;
    }
    SQLITE_OK
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::test_support::TestDirectory;

    const SETUP: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t(n)";

    fn insert(connection: &Connection) -> rusqlite::Result<()> {
        connection.execute_batch("INSERT INTO t VALUES (1)")
    }

    #[test]
    fn a_commit_is_written_then_synced_in_the_log() {
        let directory = TestDirectory::new("recording");
        let recorder = Recorder::start(directory.path());
        let connection = Connection::open(directory.path().join("a.db")).unwrap();
        connection.execute_batch(SETUP).unwrap();
        recorder.mark("before");
        insert(&connection).unwrap();
        recorder.mark("after");
        drop(connection);
        let steps = recorder.finish();
        let place = |mark: &str| {
            steps.iter().position(|step| *step == Step::Mark(mark.to_owned())).unwrap()
        };
        let commit = &steps[place("before") + 1..place("after")];
        let file = "a.db-wal".to_owned();
        let last = Step::Sync { file, succeeded: true, with_directory: false };
        assert_eq!(commit.last(), Some(&last));
        assert!(
            commit
                .iter()
                .any(|step| matches!(step, Step::Write { file, .. } if file == "a.db-wal"))
        );
        let deleted = Step::Delete { file: "a.db-wal".to_owned(), is_durable: false };
        assert!(steps.contains(&deleted), "the last connection removes the log");
    }

    #[test]
    fn a_failing_sync_fails_the_commit() {
        let directory = TestDirectory::new("recording");
        let recorder = Recorder::start(directory.path());
        let connection = Connection::open(directory.path().join("a.db")).unwrap();
        connection.execute_batch(SETUP).unwrap();
        recorder.fail_syncs(1);
        insert(&connection).unwrap_err();
        recorder.fail_syncs(0);
        insert(&connection).unwrap();
        let rows: i64 =
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
    }

    #[test]
    fn files_of_other_directories_are_not_recorded() {
        let (directory, other) = (TestDirectory::new("recording"), TestDirectory::new("recording"));
        let recorder = Recorder::start(directory.path());
        let connection = Connection::open(other.path().join("a.db")).unwrap();
        connection.execute_batch(SETUP).unwrap();
        assert_eq!(recorder.finish(), []);
    }
}
