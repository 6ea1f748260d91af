use std::time::Duration;

use gossip_contracts::connector::MemoryConnector;
use rstest::rstest;

use super::batch_tests::{command, config, is_failed, process, stream, work};
use super::{ExecConfig, MAX_LINE_BYTES, MAX_MESSAGE_BYTES, Rendering, StreamProcessor};
use crate::command_finding::CommandFinding;
use crate::connectors::KeyFormat;
use crate::job::StreamFormat;
use crate::processor::{Broken, ItemResult, Processor as _};

/// A handler in sh: answers every item with what `answer` makes of its number and line.
fn handler(answer: &str) -> String {
    format!(
        "while read -r line; do case $line in *drain*) exit 0;; esac; \
         id=${{line#*\\\"id\\\":}}; id=${{id%%[!0-9]*}}; {answer}; done"
    )
}

const DONE: &str = "echo \"{\\\"type\\\":\\\"done\\\",\\\"id\\\":$id}\"";

#[rstest]
#[case::one(1)]
#[case::several(4)]
fn a_handler_answers_items(#[case] window: usize) {
    let mut processor = stream(&handler(DONE), config(window, None));
    let keys: Vec<Vec<u8>> = (0..50).map(|number| format!("k{number:02}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert_eq!(process(&mut processor, &keys), Ok(vec![ItemResult::Done; 50]));
}

#[test]
fn a_handler_may_answer_in_any_order() {
    let script = "read -r a; read -r b; echo '{\"type\":\"done\",\"id\":2}'; \
        echo '{\"type\":\"error\",\"id\":1,\"message\":\"no\"}'; cat >/dev/null";
    let mut processor = stream(script, config(2, None));
    let verdicts = process(&mut processor, &[b"a", b"b"]).unwrap();
    assert_eq!(verdicts, [ItemResult::Failed("no".into()), ItemResult::Done]);
}

#[test]
fn an_error_without_retry_is_hopeless() {
    let answer = "echo \"{\\\"type\\\":\\\"error\\\",\\\"id\\\":$id,\\\"retry\\\":false}\"";
    let mut processor = stream(&handler(answer), config(1, None));
    assert_eq!(
        process(&mut processor, &[b"a"]),
        Ok(vec![ItemResult::Hopeless("no message".into())])
    );
}

/// Alone, the item is at fault; of several it is unknown which, and each is given alone.
#[test]
fn a_handler_that_dies_fails_the_item_it_died_of() {
    let answer = format!("case $line in *bad*) exit 7;; esac; {DONE}");
    let mut processor = stream(&handler(&answer), config(4, None));
    let verdicts = process(&mut processor, &[b"a", b"b", b"bad", b"c", b"d"]).unwrap();
    assert!(is_failed(&verdicts[2], "exit status 7"), "{:?}", verdicts[2]);
    assert_eq!(verdicts.iter().filter(|result| **result == ItemResult::Done).count(), 4);
}

/// Something that the handler started holds its output open, so that no end of it is seen there.
#[test]
fn a_handler_that_dies_is_noticed_though_its_output_stays_open() {
    let answer = format!("case $line in *bad*) sleep 600 & exit 7;; esac; {DONE}");
    let mut processor = stream(&handler(&answer), config(1, None));
    let verdicts = process(&mut processor, &[b"a", b"bad", b"c"]).unwrap();
    assert!(is_failed(&verdicts[1], "exit status 7"), "{:?}", verdicts[1]);
    assert_eq!((&verdicts[0], &verdicts[2]), (&ItemResult::Done, &ItemResult::Done));
}

/// Sixteen items are out at once, and the last is answered long after the timeout.
#[test]
fn the_time_of_an_item_is_not_that_of_those_before_it() {
    let answer = format!("sleep 0.2; {DONE}");
    let mut processor = stream(&handler(&answer), config(16, Some(1_500)));
    let keys: Vec<[u8; 1]> = (b'a'..=b'p').map(|letter| [letter]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 1]>::as_slice).collect();
    assert_eq!(process(&mut processor, &keys), Ok(vec![ItemResult::Done; 16]));
}

#[rstest]
#[case::alone(1)]
#[case::among_others(4)]
fn a_handler_that_hangs_fails_the_item_it_hangs_on(#[case] window: usize) {
    let answer = format!("case $line in *bad*) sleep 600;; esac; {DONE}");
    let mut processor = stream(&handler(&answer), config(window, Some(300)));
    let verdicts = process(&mut processor, &[b"a", b"bad", b"c"]).unwrap();
    assert!(is_failed(&verdicts[1], "timed out"), "{:?}", verdicts[1]);
    assert_eq!((&verdicts[0], &verdicts[2]), (&ItemResult::Done, &ItemResult::Done));
}

#[rstest]
#[case::no_json("echo hello".to_owned(), "invalid JSON: `hello`")]
#[case::other_number("echo '{\"type\":\"done\",\"id\":99}'".to_owned(), "invalid reply: `{")]
#[case::other_type("echo '{\"type\":\"maybe\",\"id\":1}'".to_owned(), "invalid reply: `{")]
#[case::flood(format!("head -c {} /dev/zero", 4 * MAX_LINE_BYTES), "more than 65536 bytes")]
#[case::silence("exit 0".to_owned(), "closed its output")]
#[case::bad_exit("exit 9".to_owned(), "exit status 9")]
fn a_handler_that_never_makes_sense_breaks_the_processor(
    #[case] answer: String,
    #[case] needle: &str,
) {
    let mut processor = stream(&handler(&answer), config(1, None));
    let mut outcome = Ok(vec![]);
    // Whatever the item, the handler ends; a worker would continue in the same way.
    for item in 0..10 {
        outcome = process(&mut processor, &[&[item]]);
        if outcome.is_err() {
            break;
        }
    }
    let Err(Broken::Failed(message)) = outcome else { panic!("it made sense: {outcome:?}") };
    assert!(message.contains(needle), "{message}");
}

/// Four of them with nothing between them, each tried often: they fail, and the worker continues.
#[test]
fn a_few_keys_that_kill_their_handler_do_not_break_the_processor() {
    let answer = format!("case $line in *bad*) exit 7;; esac; {DONE}");
    let mut processor = stream(&handler(&answer), config(1, None));
    for _ in 0..4 {
        let verdicts = process(&mut processor, &[b"bad1", b"bad2", b"bad3", b"bad4"]).unwrap();
        assert!(verdicts.iter().all(|result| is_failed(result, "exit status 7")), "{verdicts:?}");
    }
    assert_eq!(process(&mut processor, &[b"good"]), Ok(vec![ItemResult::Done]));
}

#[test]
fn a_handler_that_is_not_there_breaks_the_processor() {
    let words = command(&["no-such-program-at-all"]);
    let rendering = Rendering::Key(KeyFormat::Bytes);
    let mut processor = StreamProcessor::new(words, StreamFormat::Json, rendering, config(1, None));
    let ended = process(&mut processor, &[b"a"]);
    let Err(Broken::NotExecutable(message)) = ended else { panic!("it ran: {ended:?}") };
    assert!(message.contains("not found"), "{message}");
}

/// Bytes that are not text come as digits.
#[test]
fn any_key_reaches_the_handler() {
    let answer = format!("case $line in *'\"key_hex\":\"ff0a\"'*) {DONE};; esac");
    let mut processor = stream(&handler(&answer), config(1, Some(20_000)));
    assert_eq!(process(&mut processor, &[b"\xFF\n"]), Ok(vec![ItemResult::Done]));
}

#[test]
fn a_handler_is_drained_when_it_is_no_longer_needed() {
    let directory = std::env::temp_dir().join(format!("gossip-drain-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let marker = directory.join("drained");
    let script = format!(
        "while read -r line; do case $line in *drain*) : > {};; *) {};; esac; done",
        marker.display(),
        "echo '{\"type\":\"done\",\"id\":1}'",
    );
    let mut processor = stream(&script, config(1, None));
    assert_eq!(process(&mut processor, &[b"a"]), Ok(vec![ItemResult::Done]));
    drop(processor);
    let drained = marker.exists();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(drained);
}

#[test]
fn fields_have_the_documented_order() {
    let first =
        r#"'{"type":"item","id":1,"key":"a","text":"a","run":"0'*'","shard":"0'*'","fence":'*"#;
    let answer = format!("case $line in {first}) {DONE};; *) exit 7;; esac");
    let mut processor = stream(&handler(&answer), config(1, None));
    assert_eq!(process(&mut processor, &[b"a"]), Ok(vec![ItemResult::Done]));
}

/// Gives one item to a processor, and calls `until` after each wait for a reply.
fn wait_for<T>(
    processor: &mut StreamProcessor,
    mut until: impl FnMut(&mut StreamProcessor, Result<(), Broken>) -> Option<T>,
) -> T {
    let connector = MemoryConnector::try_new([(*b"a", *b"")]).unwrap();
    processor.submit(work(&connector, b"a", 0)).unwrap();
    loop {
        let collected = processor.collect(Duration::from_millis(20), &mut Vec::new());
        if let Some(found) = until(processor, collected) {
            return found;
        }
    }
}

#[test]
fn silence_is_reported_once() {
    let mut processor = stream("cat > /dev/null", config(1, None));
    let silence = wait_for(&mut processor, |processor, _| processor.silence());
    assert!(silence.is_first && silence.lasted >= Duration::from_secs(5), "{silence:?}");
    assert_eq!((silence.ticket, processor.silence()), (0, None));
}

/// A program that buffers, as most do when they write into a pipe.
#[test]
fn replies_that_were_held_back_are_written_when_a_drain_closes_the_input() {
    let script = r#"n=0; while read -r line; do case $line in *'"item"'*) n=$((n + 1));; esac; done;
        i=0; while [ $i -lt $n ]; do i=$((i + 1)); echo "{\"type\":\"done\",\"id\":$i}"; done"#;
    let config = config(2, None);
    config.drain.ask();
    let mut processor = stream(script, config);
    assert_eq!(process(&mut processor, &[b"a", b"b"]), Ok(vec![ItemResult::Done; 2]));
    // An item that is submitted later is given to a new process, which counts from one again and
    // so leaves this item without a reply.
    assert_eq!(process(&mut processor, &[b"c"]), Err(Broken::NoReply));
}

#[rstest]
#[case::exits("cat > /dev/null")]
#[case::stays("exec sleep 600")]
fn a_drain_does_not_wait_for_a_handler_that_never_replies(#[case] script: &str) {
    let config = config(1, None);
    let drain = config.drain.clone();
    let mut processor = stream(script, config);
    drain.ask();
    let ended = wait_for(&mut processor, |_, collected| collected.err());
    assert_eq!(ended, Broken::NoReply);
}

/// It answers each item with more than a pipe holds, and reads the next one only after that. The
/// items together are more than a pipe holds, too, so one side must read while its writes wait.
#[test]
fn two_full_pipes_do_not_lock_each_other() {
    let answer = "printf '{\"type\":\"done\",\"id\":%s,\"pad\":\"%s\"}\\n' $id $pad";
    let script = format!("pad=$(head -c 60000 /dev/zero | tr '\\0' x); {}", handler(answer));
    let mut processor = stream(&script, config(64, Some(30_000)));
    let keys: Vec<Vec<u8>> =
        (0..64).map(|number| [vec![b'k'; 4000], vec![number]].concat()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert_eq!(process(&mut processor, &keys), Ok(vec![ItemResult::Done; 64]));
}

/// A handler in sh that reads plain lines.
fn lines(script: &str, window: usize) -> StreamProcessor {
    let words = command(&["sh", "-c", script]);
    let rendering = Rendering::Key(KeyFormat::Bytes);
    StreamProcessor::new(words, StreamFormat::Lines, rendering, config(window, Some(20_000)))
}

/// Returns the result of a reply with findings.
fn found(number: u32, message: &str) -> ItemResult {
    let found = CommandFinding::of_reply(number.try_into().unwrap(), message, MAX_MESSAGE_BYTES);
    ItemResult::CommandFound(Box::new(found))
}

/// A longer message is cut, and a reply without findings has none.
#[test]
fn message_of_a_reply_with_findings_is_kept() {
    let script = r#"while read -r line; do id=${line#*\"id\":}; id=${id%%,*}
        case $line in *'"key":"a"'*) found=3;; *) found=0;; esac
        echo "{\"type\":\"done\",\"id\":$id,\"findings\":$found,\"message\":\"line 7\"}"; done"#;
    let config = ExecConfig { found_text_max: 4, ..config(1, None) };
    let verdicts = process(&mut stream(script, config), &[b"a", b"b"]);
    let cut = CommandFinding::of_reply(3.try_into().unwrap(), "line 7", 4);
    assert!(cut.is_cut);
    assert_eq!(verdicts, Ok(vec![ItemResult::CommandFound(Box::new(cut)), ItemResult::Done]));
}

#[rstest]
#[case::one(1)]
#[case::several(8)]
fn plain_lines_are_answered_in_their_order(#[case] window: usize) {
    let script = "while read -r line; do case $line in
        a) echo;; b) echo ok;; c) echo found 2;; d) echo retry later;; e) echo error no such thing;;
        f) echo error;; g) echo found 1 two words;; esac; done";
    let verdicts = process(&mut lines(script, window), &[b"a", b"b", b"c", b"d", b"e", b"f", b"g"]);
    let expected = [
        ItemResult::Done,
        ItemResult::Done,
        found(2, ""),
        ItemResult::Failed("later".into()),
        ItemResult::Hopeless("no such thing".into()),
        ItemResult::Hopeless("no message".into()),
        found(1, "two words"),
    ];
    assert_eq!(verdicts, Ok(expected.into()));
}

#[test]
fn a_plain_line_that_is_no_answer_fails_the_item_it_came_for() {
    let script = "while read -r line; do case $line in bad) echo processing;; *) echo;; esac; done";
    let verdicts = process(&mut lines(script, 1), &[b"a", b"bad", b"c"]).unwrap();
    assert!(is_failed(&verdicts[1], "an invalid reply: `processing`"), "{:?}", verdicts[1]);
    assert_eq!((&verdicts[0], &verdicts[2]), (&ItemResult::Done, &ItemResult::Done));
}

/// The handler dies in the middle of a line. The rest of it would fail the item for good, or count
/// findings that were never reported.
#[rstest]
#[case::failure("error no such fi")]
#[case::findings("found 1")]
#[case::done("ok")]
fn a_plain_line_that_the_end_of_the_handler_cut_off_is_no_answer(#[case] cut: &str) {
    let script = format!("read -r line; printf '{cut}'; kill -KILL $$");
    let verdicts = process(&mut lines(&script, 1), &[b"a"]).unwrap();
    assert!(is_failed(&verdicts[0], "killed by signal 9"), "{:?}", verdicts[0]);
}

/// The lines of a text with a line feed would be answered twice.
#[test]
fn a_text_with_a_line_feed_is_not_given_as_a_plain_line() {
    let script = "while read -r line; do echo; done";
    let verdicts = process(&mut lines(script, 4), &[b"a", b"b\nc", b"d"]).unwrap();
    let refused = ItemResult::Hopeless("the text contains a line feed; use --stream=json".into());
    assert_eq!(verdicts, [ItemResult::Done, refused, ItemResult::Done]);
}

/// Answers to items of a lost lease come late and are not taken for those of the next items.
#[test]
fn late_plain_answers_belong_to_the_items_that_were_abandoned() {
    let script = "while read -r line; do case $line in a) sleep 0.2; echo error late;; \
        *) echo;; esac; done";
    let mut processor = lines(script, 2);
    let connector = MemoryConnector::try_new([(*b"a", *b"")]).unwrap();
    processor.submit(work(&connector, b"a", 0)).unwrap();
    processor.collect(Duration::ZERO, &mut Vec::new()).unwrap();
    processor.abandon();
    assert_eq!(process(&mut processor, &[b"b", b"c"]), Ok(vec![ItemResult::Done; 2]));
}
