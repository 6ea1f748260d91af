//! Leaving at once closes a whole process, so this test has one of its own.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gossip_contracts::connector::{MemoryConnector, PageItem};
use gossip_contracts::identity::{FenceEpoch, RunId, ShardId, ShardKey};
use gossip_scanner_runtime::connectors::KeyFormat;
use gossip_scanner_runtime::exec::{
    BatchProcessor, CommandOutput, ExecConfig, Rendering, Template, end_all_programs,
};
use gossip_scanner_runtime::{Drain, Processor as _, Work};

/// Nothing here takes longer, on the slowest machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// A batch that was ended is tried again in halves; not by a process that leaves.
#[test]
fn no_program_is_started_after_all_were_ended() {
    let log = std::env::temp_dir().join(format!("gossip-leaving-{}", std::process::id()));
    let script = format!("echo started >> {}; sleep 600", log.display());
    let words = ["sh", "-c", &script, "sh", "{}"].map(std::ffi::OsString::from);
    let drain = Drain::new();
    let config = ExecConfig {
        batch: 2,
        timeout: None,
        ok_statuses: Vec::new(),
        found_status: None,
        found_text_max: 0,
        output: CommandOutput::Inherited,
        keeps_stdout: false,
        drain,
    };
    let mut processor = BatchProcessor::new(
        Template::parse(&words).unwrap(),
        Rendering::Key(KeyFormat::Bytes),
        config,
    );
    let connector = MemoryConnector::try_new([b"a", b"b"].map(|key| (*key, *b""))).unwrap();
    for (ticket, key) in [b"a", b"b"].into_iter().enumerate() {
        let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2));
        let fence = FenceEpoch::from_raw(3);
        let item = PageItem::new(key);
        processor.submit(Work { ticket, item, shard, fence, connector: &connector }).unwrap();
    }
    let (begun, mut reports) = (Instant::now(), Vec::new());
    while lines(&log) == 0 {
        assert!(begun.elapsed() < MAX_WAIT, "the program was not started");
        processor.collect(Duration::from_millis(10), &mut reports).unwrap();
    }
    end_all_programs();
    let refused = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        processor.collect(Duration::from_millis(10), &mut reports).is_err()
    });
    let started = lines(&log);
    let _ = std::fs::remove_file(&log);
    assert!(refused && reports.is_empty(), "{reports:?}");
    assert_eq!(started, 1);
}
