//! The log is checkpointed concurrently with commits, and restarts.

use std::fs;

use crate::test_support::{Scratch, applied, put, raw_connection, stored};
use crate::wal_checkpointer::{FRAMES_HARD, FRAMES_SOFT};

/// Commits that fill the log several times over, each a frame or more.
const COMMITS: u64 = 8 * FRAMES_SOFT as u64;

#[test]
fn a_log_under_commits_that_never_pause_starts_over() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    let mut started_over = 0;
    let mut before = 0;
    // As long as it takes; a checkpointer that never ran would be noticed at the hard limit.
    for nth in 0..4 * FRAMES_HARD as u64 {
        applied(&mut store, put(nth % 50, &[7; 600]));
        let frames = database.core().log_frames();
        started_over += u32::from(frames < before);
        before = frames;
        if started_over == 3 {
            return;
        }
    }
    panic!("the log started over {started_over} times");
}

#[test]
fn a_reader_that_does_not_end_holds_the_log_back_and_breaks_nothing() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"first"));
    let reader = raw_connection(&database);
    reader.execute_batch("BEGIN; SELECT count(*) FROM kv").unwrap();
    for nth in 0..COMMITS / 4 {
        applied(&mut store, put(nth % 50, &nth.to_be_bytes()));
    }
    assert!(database.core().log_frames() > FRAMES_SOFT);
    let seen: i64 = reader.query_row("SELECT count(*) FROM kv", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 1, "its instant is long ago");
    reader.execute_batch("COMMIT").unwrap();
    for nth in 0..COMMITS {
        applied(&mut store, put(nth % 50, &nth.to_be_bytes()));
        if database.core().log_frames() < FRAMES_SOFT {
            return;
        }
    }
    panic!("the log did not start over when its reader had ended");
}

#[test]
fn the_last_handle_closes_the_file_and_leaves_no_log() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    drop(database);
    applied(&mut store, put(1, b"two"));
    assert!(scratch.file("store.db-wal").exists());
    drop(store);
    assert!(!scratch.file("store.db-wal").exists(), "the log was copied back and removed");
    assert!(fs::metadata(scratch.file("store.db")).unwrap().len() > 0);
    assert_eq!(stored(&mut scratch.database().store(), 1).unwrap().bytes, b"two");
}
