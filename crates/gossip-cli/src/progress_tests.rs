//! Texts of the progress line.

use gossip::identity::LogicalTime;
use gossip::runtime::{Eta, Progress as RunProgress, ProgressKind};

use super::line;

fn run() -> RunProgress {
    RunProgress {
        at: LogicalTime::from_raw(1),
        keys: 1200,
        unread: 0,
        total: Some(4000),
        kind: ProgressKind::Estimated,
        fraction: Some(0.309),
        percent: Some(30),
        shards_done: 1,
        shards_parked: 0,
        shards_damaged: 0,
        shards_leased: 4,
        shards_waiting: 3,
        paused: false,
        eta: None,
    }
}

fn printed(run: Option<&RunProgress>) -> String {
    line(run, 0, "0/s here")
}

#[test]
fn total_is_printed_with_its_accuracy() {
    let estimated = printed(Some(&run()));
    assert_eq!(
        estimated,
        "1,200 of about 4,000 keys (30 %, estimated), ETA unknown; 0/s here; \
         1 shard done, 4 in progress"
    );
    let exact = printed(Some(&RunProgress { kind: ProgressKind::Exact, ..run() }));
    assert!(exact.starts_with("1,200 of 4,000 keys (30 %), ETA unknown;"), "{exact}");
    let unknown = RunProgress { kind: ProgressKind::Unknown, total: None, fraction: None, ..run() };
    let unknown = RunProgress { percent: None, ..unknown };
    let unknown = printed(Some(&unknown));
    assert!(unknown.starts_with("1,200 keys (total unknown);"), "{unknown}");
    assert_eq!(printed(None), "0 keys, 0/s here");
}

#[test]
fn unread_keys_are_printed_beside_the_done_ones() {
    let unread = printed(Some(&RunProgress { unread: 2, kind: ProgressKind::Exact, ..run() }));
    assert!(unread.starts_with("1,200 of 4,000 keys (30 %), 2 unread, ETA unknown; "), "{unread}");
}

#[test]
fn time_left_has_an_error_and_a_pause_is_printed() {
    let eta = Some(Eta { left: 190_000, error: 20_000 });
    let going = printed(Some(&RunProgress { eta, ..run() }));
    assert!(going.contains(", 3 m 10 s left ± 20 s; "), "{going}");
    let paused = printed(Some(&RunProgress { eta, paused: true, shards_parked: 2, ..run() }));
    assert!(paused.contains("± 20 s, paused; ") && paused.ends_with(", 2 parked"), "{paused}");
}
