use std::time::{Duration, Instant};

use gossip_contracts::connector::{MemoryConnector, PageItem};
use gossip_contracts::identity::{FenceEpoch, RunId, ShardId, ShardKey};

use crate::processor::{INLINE_BATCH_TIME, Inline, ItemResult, Processor, Work};

fn submit(processor: &mut dyn Processor, ticket: usize) {
    let connector = MemoryConnector::try_new([(*b"a", *b"")]).unwrap();
    let work = Work {
        ticket,
        item: PageItem::new(b"a"),
        shard: ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2)),
        fence: FenceEpoch::from_raw(3),
        connector: &connector,
    };
    processor.submit(work).unwrap();
}

fn collect(processor: &mut dyn Processor) -> Vec<usize> {
    let mut reports = Vec::new();
    processor.collect(Duration::ZERO, &mut reports).unwrap();
    reports.into_iter().map(|report| report.ticket).collect()
}

#[test]
fn a_closure_reports_its_batch_in_order() {
    let mut inline = Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done);
    assert_eq!(inline.capacity(), 1);
    inline = inline.with_batch(4);
    (0..4).for_each(|ticket| submit(&mut inline, ticket));
    assert_eq!(collect(&mut inline), [0, 1, 2, 3]);
    assert!(collect(&mut inline).is_empty());
    submit(&mut inline, 5);
    inline.abandon();
    assert_eq!((collect(&mut inline), inline.capacity()), (vec![], 4));
}

/// Requests and the lease are looked at before the next item starts.
#[test]
fn a_slow_item_ends_its_batch() {
    let slow = |_: Work<'_>, _: &mut Vec<u8>| {
        let begun = Instant::now();
        while begun.elapsed() < INLINE_BATCH_TIME {
            std::hint::spin_loop();
        }
        ItemResult::Done
    };
    let mut inline = Inline::new(slow).with_batch(4);
    submit(&mut inline, 0);
    assert_eq!(inline.capacity(), 1, "no room beside the one that it has");
    assert_eq!(collect(&mut inline), [0]);
    assert_eq!(inline.capacity(), 4);
}
