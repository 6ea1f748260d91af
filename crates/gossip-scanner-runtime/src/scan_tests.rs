use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Mutex;

use crate::connectors::{Source, SourceOptions};
use crate::processor::Verdict;
use crate::scan::{ScanOptions, scan};
use crate::test_support::World;
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
    let again = |drain: &Drain| scan(&source, &options, &handles, drain, &(), &process).unwrap();
    for _ in 0..2 {
        let later = again(&Drain::new());
        assert_eq!((later.run, later.finish), (first.run, Finish::Complete));
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (500, 500));
}
