//! What is said of progress, and how sure it is.

use std::sync::Arc;

use gossip::identity::LogicalTime;
use gossip::runtime::{Eta, Progress as RunProgress, ProgressKind};

use super::{Progress, line};
use crate::console::Console;

fn run() -> RunProgress {
    RunProgress {
        at: LogicalTime::from_raw(1),
        keys: 1200,
        unread: 0,
        total: Some(4000),
        kind: ProgressKind::Estimated,
        fraction: Some(0.309),
        shards_done: 1,
        shards_parked: 0,
        shards_leased: 4,
        shards_waiting: 3,
        paused: false,
        eta: None,
    }
}

fn said(run: Option<&RunProgress>) -> String {
    let here = Progress::new(Arc::new(Console::new(true, false)));
    line(run, &here)
}

#[test]
fn a_total_is_told_with_how_it_is_known() {
    let estimated = said(Some(&run()));
    assert_eq!(
        estimated,
        "1200 of about 4000 keys (30 %, estimated); 0/s here; 1 shard done, 4 under way"
    );
    let exact = said(Some(&RunProgress { kind: ProgressKind::Exact, ..run() }));
    assert!(exact.starts_with("1200 of 4000 keys (30 %);"), "{exact}");
    let unknown = RunProgress { kind: ProgressKind::Unknown, total: None, fraction: None, ..run() };
    let unknown = said(Some(&unknown));
    assert!(unknown.starts_with("1200 keys of an unknown number;"), "{unknown}");
    assert_eq!(said(None), "0 keys, 0/s here");
}

#[test]
fn it_is_not_all_before_it_is_all() {
    let nearly = said(Some(&RunProgress { fraction: Some(0.9999), ..run() }));
    assert!(nearly.contains("99 %"), "{nearly}");
}

#[test]
fn time_left_comes_with_its_error_and_a_pause_is_told() {
    let eta = Some(Eta { left: 190_000, error: 20_000 });
    let going = said(Some(&RunProgress { eta, ..run() }));
    assert!(going.contains(", 3 m 10 s left ± 20 s; "), "{going}");
    let paused = said(Some(&RunProgress { eta, paused: true, shards_parked: 2, ..run() }));
    assert!(paused.contains("± 20 s, paused; ") && paused.ends_with(", 2 set aside"), "{paused}");
}
