use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Mutex;

use gossip_coordination::{RunManagement as _, ShardFilter};

use crate::connectors::test_support::TempDir;
use crate::connectors::{Source, SourceOptions};
use crate::job::Job;
use crate::processor::Verdict;
use crate::scan::{DEFAULT_TENANT, ScanError, ScanOptions, Scanned, scan};
use crate::test_support::{World, at};
use crate::worker::{Drain, Finish};

#[test]
fn a_scan_touches_every_key_once_goes_on_and_is_not_repeated() {
    let (world, seen) = (World::new(), Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
    let source = Source::parse(OsStr::new("range:0..500"), SourceOptions::NONE).unwrap();
    let drain = Drain::new();
    let process = |work: crate::processor::Work<'_>, _: &mut Vec<u8>| {
        let mut seen = seen.lock().unwrap();
        *seen.entry(work.key().to_vec()).or_default() += 1;
        if seen.len() == 200 {
            drain.ask();
        }
        Verdict::Done
    };
    let options = ScanOptions { threads: 2, ..ScanOptions::new("count", 7) };
    let handles = || world.handle();
    let first = scan(&source, &options, &handles, &drain, &(), &process).unwrap();
    assert_eq!(first.finish, Finish::Drained);
    // What others read of the run: they cannot do what the closure does.
    let (mut roots, filter) = (Vec::new(), ShardFilter::all().roots());
    world.handle().list_shards_into(at(1), DEFAULT_TENANT, first.run, filter, &mut roots).unwrap();
    assert!(Job::decode(&roots[0].metadata).unwrap().command.is_empty());
    let again = |drain: &Drain| scan(&source, &options, &handles, drain, &(), &process).unwrap();
    for _ in 0..2 {
        let later = again(&Drain::new());
        assert_eq!((later.run, later.finish), (first.run, Finish::Complete));
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (500, 500));
}

/// Rows put in at the top move all others: what was done is not what the keys say now.
#[test]
fn a_scan_does_not_go_on_over_a_file_that_has_changed() {
    let (world, directory, drain) = (World::new(), TempDir::new(), Drain::new());
    let rows: String = (0..100).map(|row| format!("{row}\n")).collect();
    let path = directory.write("rows.jsonl", &rows);
    let source = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    let options = ScanOptions { threads: 1, ..ScanOptions::new("load", 7) };
    let handles = || world.handle();
    let stop = |_: crate::processor::Work<'_>, _: &mut Vec<u8>| {
        drain.ask();
        Verdict::Done
    };
    let first = scan(&source, &options, &handles, &drain, &(), &stop).unwrap();
    assert_eq!(first.finish, Finish::Drained);
    let scan = || scan(&source, &options, &handles, &Drain::new(), &(), &|_, _| Verdict::Done);
    let changed = Err(ScanError::SourceChanged { run: first.run });
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    directory.write("rows.jsonl", format!("\"new\"\n{rows}"));
    assert_eq!(scan(), changed);
    // As it was, it goes on; and when it is over, a file that has grown since is not done.
    directory.write("rows.jsonl", &rows);
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(scan(), Ok(Scanned { run: first.run, finish: Finish::Complete }));
    assert_eq!(scan(), Ok(Scanned { run: first.run, finish: Finish::Complete }));
    directory.write("rows.jsonl", format!("{rows}100\n"));
    assert_eq!(scan(), changed);
}
