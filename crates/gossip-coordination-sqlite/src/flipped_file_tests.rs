//! Files with one flipped bit, judged one by one.
//!
//! SQLite keeps no checksums of pages; every value has one that is bound to its key. A flipped bit
//! is *detected* if opening, reading, writing or a check reports it, and *harmless* if the file has
//! the same rows, passes all checks and accepts writes. A file that is neither is a failure.
//!
//! A flipped bit in the log is the exception: SQLite takes the log to end where the damage begins,
//! so the file has the state of an earlier commit. It must be one of those, and none in between.
//!
//! | detected by | |
//! |---|---|
//! | open | `SqliteDatabase::open`, with `PRAGMA quick_check` |
//! | read | an error of a listing, or a shard that it marks as damaged |
//! | check | `SqliteDatabase::check_integrity` |
//! | values | a pass over all values, as `gossip store upgrade` makes it: a value does not fit its key |
//! | write | an error of an acquire |

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gossip_coordination::store::{Answer, Key, KeyRange, Read, Store, fly, upgrade_page};
use gossip_testkit::Rng;

use crate::fault_tests::{SHARDS, acquire, create_run, list};
use crate::test_support::{Scratch, applied, put, raw_connection};
use crate::{OpenCheck, SqliteDatabase, SqliteOptions, SqliteStore};

/// Flipped bits in each kind of page.
const BITS_PER_KIND: usize = 150;

/// The file's header, each byte of which is flipped once.
const HEADER_LEN: usize = 100;

/// Commits in the log.
const COMMITS: u64 = 20;

/// Values in one page of a pass.
const PAGE: usize = 100;

/// How a file with a flipped bit was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Detected(&'static str),
    Harmless,
    /// Rows are missing or changed, and nothing reports it.
    Silent,
}

/// Returns all rows. Their revisions are not part of it: a revision has no checksum, and no answer
/// shows it. A handle that has cached a higher one reports corruption; for the others a value with
/// another revision is the same value.
fn rows(store: &mut SqliteStore) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut all = BTreeMap::new();
    for range in [KeyRange::all_tenants(), KeyRange::operator()] {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let read = store.read(vec![Read::Scan { range, limit: PAGE }]);
            let mut answers = read.map_err(|error| error.to_string())?;
            let Some(Answer::Page(page)) = answers.pop() else { panic!("a page was asked for") };
            rest = page.last().filter(|_| page.len() >= PAGE).map(|(key, _)| range.after(key));
            all.extend(
                page.into_iter()
                    .map(|(key, value)| (key.to_bytes().as_bytes().to_vec(), value.bytes)),
            );
        }
    }
    Ok(all)
}

/// Returns whether every value fits its key.
fn values_fit(store: &mut SqliteStore) -> bool {
    [KeyRange::all_tenants(), KeyRange::operator()].into_iter().all(|range| {
        let mut rest = Some(range);
        while let Some(range) = rest {
            match fly(store, upgrade_page(range, PAGE)) {
                Ok(page) if page.unreadable == 0 => rest = page.rest,
                Ok(_) | Err(_) => return false,
            }
        }
        true
    })
}

fn judge(path: &Path, check: OpenCheck, original: &BTreeMap<Vec<u8>, Vec<u8>>) -> Verdict {
    let options = SqliteOptions { check, ..SqliteOptions::default() };
    let Ok(database) = SqliteDatabase::open(path, options.relaxed()) else {
        return Verdict::Detected("open");
    };
    let mut coordinator = database.coordinator();
    match list(&mut coordinator) {
        Ok(rows) if rows.iter().all(|row| row.damage.is_none()) => {}
        Ok(_) | Err(_) => return Verdict::Detected("read"),
    }
    let Ok(found) = rows(&mut database.store()) else { return Verdict::Detected("read") };
    if database.check_integrity().is_err() {
        return Verdict::Detected("check");
    }
    if !values_fit(&mut database.store()) {
        return Verdict::Detected("values");
    }
    if found != *original {
        return Verdict::Silent;
    }
    if (1..SHARDS).any(|shard| acquire(&mut coordinator, shard).is_err()) {
        return Verdict::Detected("write");
    }
    match database.check_integrity() {
        Ok(()) => Verdict::Harmless,
        Err(_) => Verdict::Silent,
    }
}

/// Returns the kind of a page by its first byte.
fn kind_of(page: &[u8], is_first: bool) -> &'static str {
    match page[if is_first { HEADER_LEN } else { 0 }] {
        _ if is_first => "schema page",
        2 | 5 => "interior page",
        10 | 13 => "leaf page",
        _ => "overflow or free page",
    }
}

/// Returns the positions of each kind.
fn positions(bytes: &[u8], page_len: usize) -> BTreeMap<&'static str, Vec<usize>> {
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (nth, page) in bytes.chunks(page_len).enumerate() {
        let kind = kind_of(page, nth == 0);
        let start = nth * page_len;
        let from = if nth == 0 { start + HEADER_LEN } else { start };
        places.entry(kind).or_default().extend(from..start + page.len());
    }
    places
}

#[test]
fn a_flipped_bit_in_the_file_is_detected_or_harmless() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let (original, page_len) = {
        let database = scratch.database();
        create_run(&mut database.coordinator());
        let engine = raw_connection(&database);
        // Free pages, and pages of more than one level.
        engine
            .execute_batch(
                "CREATE TABLE t(x); INSERT INTO t VALUES (zeroblob(40000)); DROP TABLE t",
            )
            .unwrap();
        let page_len: i64 = engine.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        (rows(&mut database.store()).unwrap(), usize::try_from(page_len).unwrap())
    };
    let whole = fs::read(&path).unwrap();
    assert!(original.contains_key(Key::SchemaVersion.to_bytes().as_bytes()) || original.len() > 24);
    let mut rng = Rng::seeded(1);
    let mut cases: Vec<(&str, usize)> = (0..HEADER_LEN).map(|byte| ("header", byte)).collect();
    for (kind, places) in positions(&whole, page_len) {
        cases.extend((0..BITS_PER_KIND).map(|_| (kind, places[rng.index(places.len())])));
    }
    let mut table: BTreeMap<(&str, Verdict), u32> = BTreeMap::new();
    let mut silent = Vec::new();
    for (kind, byte) in cases {
        let (mut bytes, bit) = (whole.clone(), rng.index(8));
        bytes[byte] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        // Half of the files are large ones to the check on open.
        let check = if rng.index(2) == 0 { OpenCheck::Header } else { OpenCheck::default() };
        let verdict = judge(&path, check, &original);
        *table.entry((kind, verdict)).or_default() += 1;
        if verdict == Verdict::Silent {
            silent.push((kind, byte, bit));
        }
        for companion in ["store.db-wal", "store.db-shm"] {
            let _ = fs::remove_file(scratch.file(companion));
        }
    }
    for ((kind, verdict), count) in &table {
        println!("{kind}: {count} {verdict:?}");
    }
    assert_eq!(silent, [], "kind of page, byte, bit");
    let by = |wanted: &'static str| {
        table.keys().any(|(_, verdict)| *verdict == Verdict::Detected(wanted))
    };
    assert!(by("open") && by("read"), "{table:?}");
}

#[test]
fn a_flipped_bit_in_the_log_goes_back_to_an_earlier_commit() {
    let (scratch, damaged) = (Scratch::new(), Scratch::new());
    let database = scratch.database();
    let mut store = database.store();
    let mut states = vec![BTreeMap::new(), rows(&mut store).unwrap()];
    for number in 0..COMMITS {
        applied(&mut store, put(number, &[7; 500]));
        states.push(rows(&mut store).unwrap());
    }
    // Copied while the database is open: closing it would empty the log.
    let file = fs::read(scratch.file("store.db")).unwrap();
    let log = fs::read(scratch.file("store.db-wal")).unwrap();
    let (mut rng, mut earlier, mut detected) = (Rng::seeded(2), 0, 0);
    for _ in 0..BITS_PER_KIND {
        let (mut log, bit) = (log.clone(), rng.index(8 * log.len()));
        log[bit / 8] ^= 1 << (bit % 8);
        fs::write(damaged.file("store.db"), &file).unwrap();
        fs::write(damaged.file("store.db-wal"), &log).unwrap();
        let _ = fs::remove_file(damaged.file("store.db-shm"));
        let opened =
            SqliteDatabase::open(damaged.file("store.db"), SqliteOptions::default().relaxed());
        let Ok(opened) = opened else {
            detected += 1;
            continue;
        };
        let found = rows(&mut opened.store()).unwrap();
        let place = states.iter().position(|state| *state == found);
        let place = place.unwrap_or_else(|| panic!("bit {bit}: the state of no commit"));
        earlier += u32::from(place + 1 < states.len());
        opened.check_integrity().unwrap();
    }
    println!("{earlier} went back, {detected} were detected, of {BITS_PER_KIND}");
    assert!(earlier > 0, "no bit of a commit was flipped");
}
