use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use gossip_contracts::connector::{Connector, MemoryConnector, PageItem};
use gossip_contracts::identity::{FenceEpoch, RunId, ShardId, ShardKey};
use rstest::rstest;

use super::{
    BatchProcessor, CommandOutput, ExecConfig, MAX_BATCH, Rendering, StreamProcessor, Template,
};
use crate::command_finding::CommandFinding;
use crate::connectors::test_support::TempDir;
use crate::connectors::{KeyFormat, Source, SourceOptions};
use crate::job::StreamFormat;
use crate::processor::{Broken, ItemResult, Processor, Report, Work};
use crate::worker::Drain;

/// No program of these tests takes longer, on the slowest machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

pub(super) fn command(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

pub(super) fn config(batch: usize, timeout: Option<u64>) -> ExecConfig {
    let timeout = timeout.map(Duration::from_millis);
    ExecConfig {
        batch,
        timeout,
        ok_statuses: Vec::new(),
        found_status: None,
        found_text_max: CommandFinding::TEXT_MAX,
        output: CommandOutput::Inherited,
        keeps_stdout: false,
        drain: Drain::new(),
    }
}

pub(super) fn batch(words: &[&str], config: ExecConfig) -> BatchProcessor {
    BatchProcessor::new(
        Template::parse(&command(words)).unwrap(),
        Rendering::Key(KeyFormat::Bytes),
        config,
    )
}

pub(super) fn stream(script: &str, config: ExecConfig) -> StreamProcessor {
    let rendering = Rendering::Key(KeyFormat::Bytes);
    StreamProcessor::new(command(&["sh", "-c", script]), StreamFormat::Json, rendering, config)
}

/// Gives all keys to a processor, as often as it says undone, and returns the results.
pub(super) fn process(
    processor: &mut dyn Processor,
    keys: &[&[u8]],
) -> Result<Vec<ItemResult>, Broken> {
    let connector = MemoryConnector::try_new(keys.iter().map(|key| (*key, *b""))).unwrap();
    let mut waiting: Vec<usize> = (0..keys.len()).rev().collect();
    let (mut submitted, mut reports) = (0, Vec::new());
    let mut verdicts = BTreeMap::new();
    let begun = Instant::now();
    while verdicts.len() < keys.len() {
        assert!(begun.elapsed() < MAX_WAIT, "the processor does not end");
        while submitted < processor.capacity()
            && let Some(ticket) = waiting.pop()
        {
            processor.submit(work(&connector, keys[ticket], ticket))?;
            submitted += 1;
        }
        processor.collect(Duration::from_millis(50), &mut reports)?;
        for Report { ticket, result } in reports.drain(..) {
            submitted -= 1;
            match result {
                ItemResult::Undone => waiting.push(ticket),
                result => drop(verdicts.insert(ticket, result)),
            }
        }
    }
    Ok(verdicts.into_values().collect())
}

pub(super) fn work<'a>(connector: &'a dyn Connector, key: &'a [u8], ticket: usize) -> Work<'a> {
    Work {
        ticket,
        item: PageItem::new(key),
        shard: ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2)),
        fence: FenceEpoch::from_raw(3),
        connector,
    }
}

pub(super) fn is_failed(result: &ItemResult, needle: &str) -> bool {
    matches!(result, ItemResult::Failed(failure) if failure.message.contains(needle))
}

#[rstest]
#[case::alone(1)]
#[case::together(3)]
fn a_program_that_succeeds_finishes_its_keys(#[case] size: usize) {
    let mut processor = batch(&["true"], config(size, None));
    assert_eq!(process(&mut processor, &[b"a", b"b", b"c", b"d"]), Ok(vec![ItemResult::Done; 4]));
}

/// Whatever bytes they have, and with the fence beside them.
#[test]
fn a_program_gets_keys_and_fence() {
    let script = "test \"$#\" = 3 && test \"$1\" = 'a b' && test \"$2\" = 'b\n' \
                  && test \"$3\" = '$(c)' && test \"$GOSSIP_FENCE\" = 3 \
                  && test \"$GOSSIP_SHARD\" = 0000000000000002";
    let mut processor = batch(&["sh", "-c", script, "sh", "{}"], config(3, None));
    let keys: [&[u8]; 3] = [b"$(c)", b"a b", b"b\n"];
    // Keys of a source come sorted; the order given here is that of their tickets.
    let ordered = [keys[1], keys[2], keys[0]];
    assert_eq!(process(&mut processor, &ordered), Ok(vec![ItemResult::Done; 3]));
}

#[test]
fn of_a_failed_batch_only_the_bad_key_is_reported() {
    let script = "for key; do test \"$key\" != bad || exit 3; done";
    let mut processor = batch(&["sh", "-c", script, "sh", "{}"], config(8, None));
    let verdicts = process(&mut processor, &[b"a", b"b", b"bad", b"c", b"d"]).unwrap();
    assert!(is_failed(&verdicts[2], "exit status 3"), "{:?}", verdicts[2]);
    assert_eq!(verdicts.iter().filter(|result| **result == ItemResult::Done).count(), 4);
}

/// Each part of the batch fails before a process is started, and is divided.
#[test]
fn a_long_batch_of_rows_without_their_column_fails_row_by_row() {
    let directory = TempDir::new();
    let path = directory.path().join("rows.csv");
    std::fs::write(&path, "name,size\n").unwrap();
    let source = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    let template = Template::parse_for(&command(&["true", "{size}"]), &source).unwrap();
    let rendering = Rendering::Key(KeyFormat::Bytes);
    let mut processor = BatchProcessor::new(template, rendering, config(MAX_BATCH, None));
    let rows: Vec<String> = (0..MAX_BATCH - 1).map(|row| format!("b{row:05}")).collect();
    let mut keys: Vec<&[u8]> = vec![b"a,1"];
    keys.extend(rows.iter().map(|row| row.as_bytes()));
    let results = process(&mut processor, &keys).unwrap();
    assert_eq!(results[0], ItemResult::Done);
    assert!(results[1..].iter().all(|result| is_failed(result, "no column 2")));
}

#[test]
fn a_program_that_hangs_is_ended_with_all_it_started() {
    let mut processor = batch(&["sh", "-c", "sleep 600; true"], config(1, Some(200)));
    let begun = Instant::now();
    let verdicts = process(&mut processor, &[b"a"]).unwrap();
    assert!(is_failed(&verdicts[0], "timed out"), "{:?}", verdicts[0]);
    assert!(begun.elapsed() < MAX_WAIT);
}

#[test]
fn a_program_that_is_killed_fails_its_key() {
    let mut processor = batch(&["sh", "-c", "kill -9 $$"], config(1, None));
    assert!(is_failed(&process(&mut processor, &[b"a"]).unwrap()[0], "signal 9"));
}

#[test]
fn a_program_that_is_not_there_breaks_the_processor() {
    let mut processor = batch(&["no-such-program-at-all"], config(1, None));
    let ended = process(&mut processor, &[b"a"]);
    let Err(Broken::NotExecutable(message)) = ended else { panic!("it ran: {ended:?}") };
    assert!(message.contains("not found"), "{message}");
}

#[test]
fn a_key_that_no_argument_can_hold_is_hopeless() {
    let mut processor = batch(&["true"], config(4, None));
    let verdicts = process(&mut processor, &[b"a", b"b\0", b"c"]).unwrap();
    assert!(matches!(verdicts[1], ItemResult::Hopeless(_)));
    assert_eq!((&verdicts[0], &verdicts[2]), (&ItemResult::Done, &ItemResult::Done));
}

#[test]
fn abandoning_ends_the_program() {
    let mut processor = batch(&["sh", "-c", "sleep 600"], config(1, None));
    let connector = MemoryConnector::try_new([(*b"a", *b"")]).unwrap();
    processor.submit(work(&connector, b"a", 0)).unwrap();
    let mut reports = Vec::new();
    processor.collect(Duration::from_millis(20), &mut reports).unwrap();
    let begun = Instant::now();
    processor.abandon();
    assert!(reports.is_empty() && begun.elapsed() < MAX_WAIT);
    processor.collect(Duration::ZERO, &mut reports).unwrap();
    assert!(reports.is_empty(), "no report may follow");
}

/// Between two batches a directory may have become a link, so it is checked again.
#[test]
fn directories_of_the_item_after_abandoned_ones_are_checked_again() {
    let directory = TempDir::new();
    ["a/one", "a/two", "b/two"].iter().for_each(|name| drop(directory.write(name, "")));
    let source = Source::parse(directory.path().as_os_str(), SourceOptions::NONE).unwrap();
    let connector = source.open().unwrap();
    let template = Template::parse(&command(&["true", "{}"])).unwrap();
    let rendering = Rendering::Path(directory.path().into());
    let mut processor = BatchProcessor::new(template, rendering, config(8, None));
    processor.submit(work(&*connector, b"a/one", 0)).unwrap();
    processor.abandon();
    std::fs::rename(directory.path().join("a"), directory.path().join("c")).unwrap();
    std::os::unix::fs::symlink("b", directory.path().join("a")).unwrap();
    processor.submit(work(&*connector, b"a/two", 1)).unwrap();
    let mut reports = Vec::new();
    processor.collect(MAX_WAIT, &mut reports).unwrap();
    let [Report { ticket: 1, result }] = &reports[..] else { panic!("one report") };
    assert!(matches!(result, ItemResult::Unopened(_)), "{result:?}");
}

/// A batch of paths fails because files were deleted after they were listed: they are reported, and
/// the others are processed together once more.
#[test]
fn deleted_files_of_a_batch_are_reported_and_the_others_done() {
    let directory = TempDir::new();
    ["a", "b", "d"].iter().for_each(|name| drop(directory.write(name, "")));
    let script = "echo $# >> \"$0\"; for path; do test -e \"$path\" || exit 3; done";
    let log = directory.path().join("log");
    let words = ["sh", "-c", script, log.to_str().unwrap(), "{}"];
    let rendering = Rendering::Path(directory.path().into());
    let template = Template::parse(&command(&words)).unwrap();
    let mut processor = BatchProcessor::new(template, rendering, config(8, None));
    assert!(!processor.opens_items());
    let verdicts = process(&mut processor, &[b"a", b"b", b"c", b"d", b"e"]).unwrap();
    let failed: Vec<_> = verdicts.iter().map(|result| is_failed(result, "exit status 3")).collect();
    assert_eq!(failed, [false, false, true, false, true]);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "5\n3\n");
}
