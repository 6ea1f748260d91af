use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gossip_contracts::connector::MemoryConnector;
use rstest::rstest;

use super::batch_tests::{batch, config, process, work};
use super::capture::{LEFTOVER_PATIENCE, MEMORY_MAX};
use super::{CommandOutput, ExecConfig, OutputCapture, OutputGroup, OutputSink};
use crate::connectors::test_support::TempDir;
use crate::processor::{Broken, CommandStatus, ItemFailure, ItemResult, Processor as _};

/// What a sink received of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Printed {
    item: Vec<u8>,
    items: usize,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    left_processes: bool,
}

/// Records each group, and fails with `error` if there is one.
#[derive(Default)]
struct Sink {
    groups: Mutex<Vec<Printed>>,
    error: Option<io::ErrorKind>,
}

impl OutputSink for Sink {
    fn print(&self, group: &mut OutputGroup<'_>) -> io::Result<()> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        group.stdout.for_each_chunk(&mut |chunk| {
            stdout.extend_from_slice(chunk);
            Ok(())
        })?;
        group.stderr.for_each_chunk(&mut |chunk| {
            stderr.extend_from_slice(chunk);
            Ok(())
        })?;
        assert_eq!(
            (group.stdout.len(), group.stderr.len()),
            (stdout.len() as u64, stderr.len() as u64)
        );
        let (item, items) = (group.item.to_vec(), group.items);
        let left_processes = group.left_processes;
        let printed = Printed { item, items, stdout, stderr, left_processes };
        self.groups.lock().unwrap().push(printed);
        self.error.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

fn captured(sink: &Arc<Sink>, config: ExecConfig) -> ExecConfig {
    captured_in(&std::env::temp_dir(), sink, config)
}

fn captured_in(directory: &Path, sink: &Arc<Sink>, config: ExecConfig) -> ExecConfig {
    let output = CommandOutput::Captured(OutputCapture {
        sink: Arc::clone(sink) as Arc<dyn OutputSink>,
        spill_directory: directory.into(),
        is_colored: false,
    });
    ExecConfig { output, ..config }
}

/// Runs a script for each key, in batches of `size`; returns the results and the groups.
fn run(
    script: &str,
    keys: &[&[u8]],
    size: usize,
    timeout: Option<u64>,
) -> (Vec<ItemResult>, Vec<Printed>) {
    let sink = Arc::new(Sink::default());
    let words = ["sh", "-c", script, "sh", "{}"];
    let mut processor = batch(&words, captured(&sink, config(size, timeout)));
    let results = process(&mut processor, keys).unwrap();
    let groups = sink.groups.lock().unwrap().clone();
    (results, groups)
}

/// Returns the failure of an only item.
fn failure(results: &[ItemResult]) -> &ItemFailure {
    match results {
        [ItemResult::Failed(failure)] => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn output_of_each_item_is_one_group() {
    let (results, groups) = run("echo \"$1\"; echo error >&2; printf b", &[b"x", b"y"], 1, None);
    assert_eq!(results, [ItemResult::Done, ItemResult::Done]);
    let group = |item: &[u8]| Printed {
        item: item.to_vec(),
        items: 1,
        stdout: [item, b"\nb"].concat(),
        stderr: b"error\n".to_vec(),
        left_processes: false,
    };
    assert_eq!(groups, [group(b"x"), group(b"y")]);
}

#[test]
fn output_of_a_batch_is_one_group() {
    let (_, groups) = run("echo \"$@\"", &[b"x", b"y"], 2, None);
    let printed: Vec<_> =
        groups.iter().map(|group| (group.items, group.stdout.as_slice())).collect();
    assert_eq!(printed, [(2, &b"x y\n"[..])]);
}

/// It is stored with the first item, because it is unknown which has the finding.
#[test]
fn end_of_the_output_is_kept_with_a_finding() {
    let sink = Arc::new(Sink::default());
    let words = ["sh", "-c", "echo begin; echo \"$@\"; exit 7", "sh", "{}"];
    let mut settings = captured(&sink, config(2, None));
    (settings.found_status, settings.found_text_max) = (Some(7), 4);
    let results = process(&mut batch(&words, settings), &[b"x", b"y"]).unwrap();
    let [ItemResult::CommandFound(found), ItemResult::Done] = &results[..] else {
        panic!("{results:?}");
    };
    assert_eq!((found.status, found.items, found.findings.get()), (Some(7), 2, 1));
    assert_eq!((&*found.text, found.is_cut), (&b"x y\n"[..], true));
}

#[test]
fn silent_command_prints_no_group() {
    assert_eq!(run("exit 0", &[b"x"], 1, None), (vec![ItemResult::Done], vec![]));
}

#[rstest]
#[case::in_memory(MEMORY_MAX - 1)]
#[case::at_the_bound(MEMORY_MAX)]
#[case::spilled(MEMORY_MAX + 1)]
#[case::far_beyond(20 * MEMORY_MAX + 7)]
fn output_is_whole_wherever_it_is_kept(#[case] len: usize) {
    let lines = "0123456789abcde\n".repeat(len / 16 + 1);
    let scratch = TempDir::new();
    let path = scratch.path().join("lines");
    std::fs::write(&path, &lines.as_bytes()[..len]).unwrap();
    let script = format!("cat {0}; cat {0} >&2; exit 7", path.display());
    let (results, groups) = run(&script, &[b"x"], 1, None);
    assert!(groups[0].stdout == lines.as_bytes()[..len] && groups[0].stderr == groups[0].stdout);
    let failure = failure(&results);
    assert_eq!(*failure.stderr, groups[0].stderr[len - ItemFailure::STDERR_MAX..]);
    assert_eq!(failure.status, Some(CommandStatus::Exited(7)));
}

#[test]
fn failure_has_the_signal_and_the_output_before_it() {
    let (results, groups) = run("echo out; echo why >&2; kill -KILL $$", &[b"x"], 1, None);
    let failure = failure(&results);
    assert_eq!(
        (&*failure.stderr, failure.status),
        (&b"why\n"[..], Some(CommandStatus::Signaled(9)))
    );
    assert_eq!(groups[0].stdout, b"out\n");
}

#[test]
fn timeout_keeps_the_output_before_it() {
    let (results, groups) = run("echo out; echo why >&2; sleep 600", &[b"x"], 1, Some(300));
    let failure = failure(&results);
    assert_eq!((&*failure.message, &*failure.stderr), ("timed out and was killed", &b"why\n"[..]));
    assert_eq!(groups[0].stdout, b"out\n");
}

/// A daemon keeps the pipe: the exit of the command ends the item, not the end of its output.
#[test]
fn process_that_was_left_behind_does_not_delay_the_item() {
    let begun = Instant::now();
    let (results, groups) = run("echo before; sleep 60 & echo after", &[b"x"], 1, None);
    assert!(begun.elapsed() >= LEFTOVER_PATIENCE && begun.elapsed() < Duration::from_secs(50));
    assert_eq!(results, [ItemResult::Done]);
    assert_eq!(groups[0].stdout, b"before\nafter\n");
    assert!(groups[0].left_processes);
}

/// One that closes its output, as a daemon should, costs nothing.
#[test]
fn process_that_closed_the_output_is_not_left_behind() {
    let (_, groups) = run("echo x; sleep 60 >/dev/null 2>&1 &", &[b"x"], 1, None);
    assert_eq!(groups[0].stdout, b"x\n");
    assert!(!groups[0].left_processes);
}

/// A process that was left behind writes all the time: only the first of it is read.
#[test]
fn flood_of_a_process_that_was_left_behind_is_bounded_in_time() {
    let begun = Instant::now();
    let (results, groups) = run("timeout 60 yes & sleep 0.05", &[b"x"], 1, None);
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert_eq!(results, [ItemResult::Done]);
    assert!(groups[0].left_processes);
}

#[test]
fn command_that_closes_its_output_is_waited_for() {
    let scratch = TempDir::new();
    let path = scratch.path().join("ended");
    let script = format!("exec >&- 2>&-; sleep 0.3; echo done > {}", path.display());
    let (results, groups) = run(&script, &[b"x"], 1, None);
    assert_eq!((results, groups), (vec![ItemResult::Done], vec![]));
    assert!(path.exists(), "it ended before its command");
}

#[test]
fn output_that_cannot_be_kept_fails_the_item() {
    let sink = Arc::new(Sink::default());
    let words = ["sh", "-c", "yes", "sh", "{}"];
    let config = captured_in(Path::new("/dev/null/none"), &sink, config(1, None));
    let results = process(&mut batch(&words, config), &[b"x"]).unwrap();
    let message = &failure(&results).message;
    assert!(message.starts_with("its output could not be kept: "), "{message}");
}

#[rstest]
#[case::closed(io::ErrorKind::BrokenPipe, Broken::OutputClosed)]
#[case::full(io::ErrorKind::StorageFull, Broken::Failed("the output of a command cannot be written: no storage space".into()))]
fn item_whose_output_is_lost_is_not_reported(
    #[case] kind: io::ErrorKind,
    #[case] expected: Broken,
) {
    let sink = Arc::new(Sink { error: Some(kind), ..Sink::default() });
    let mut processor = batch(&["echo"], captured(&sink, config(1, None)));
    assert_eq!(process(&mut processor, &[b"x"]), Err(expected));
}

#[rstest]
#[case::shell("read answer < /dev/tty", true)]
#[case::sudo("echo 'sudo: a terminal is required to read the password' >&2; exit 1", true)]
#[case::other("echo 'no such file' >&2; exit 1", false)]
fn failure_says_that_a_command_asked_for_a_terminal(#[case] script: &str, #[case] asked: bool) {
    let (results, _) = run(script, &[b"x"], 1, None);
    let message = &failure(&results).message;
    assert_eq!(
        message.contains("asked for a terminal, and commands have none"),
        asked,
        "{message}"
    );
}

/// The next item is submitted after the lease was lost; the output of the killed command is gone.
#[test]
fn abandoned_output_is_not_printed() {
    let sink = Arc::new(Sink::default());
    let words = ["sh", "-c", "echo \"$1\"; test $1 != a || sleep 600", "sh", "{}"];
    let mut processor = batch(&words, captured(&sink, config(1, None)));
    let connector = MemoryConnector::try_new([b"a"].map(|key| (*key, *b""))).unwrap();
    processor.submit(work(&connector, b"a", 0)).unwrap();
    processor.collect(Duration::from_millis(50), &mut Vec::new()).unwrap();
    processor.abandon();
    process(&mut processor, &[b"b"]).unwrap();
    let groups = sink.groups.lock().unwrap();
    assert_eq!(groups.iter().map(|group| &*group.stdout).collect::<Vec<_>>(), [b"b\n"]);
}
