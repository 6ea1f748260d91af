//! Commands of users, and what their programs answer.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use gossip_scanner_runtime::ItemResult;
use gossip_scanner_runtime::exec::{
    ItemText, MAX_LINE_BYTES, MAX_MESSAGE_BYTES, Template, parse_answers,
};
use serde_json::{Value, json};

/// Reading a command line never panics, and every key of a batch is in its arguments.
pub(crate) fn command_template(data: &[u8]) -> bool {
    let words = data.split(|byte| *byte == 0);
    let words: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
    let Ok(template) = Template::parse(&words) else { return false };
    // Base name, directory and stem of this text contain the key, too.
    let item = ItemText { text: b"key/key", number: 0 };
    let filled = template.arguments(&[item]).expect("no source, no columns");
    let has_key = |word: &OsString| word.as_encoded_bytes().windows(3).any(|part| part == b"key");
    assert!(filled.iter().any(has_key), "the key is in no argument");
    true
}

/// The lines of a program are split as a naive reader does it, a line that is understood says
/// what its JSON says, and no message is kept that is longer than allowed.
pub(crate) fn stream_answer(data: &[u8]) -> bool {
    let answers = parse_answers(data);
    let lines = naive_lines(data);
    assert_eq!(answers.len(), lines.len(), "another number of lines");
    for (answer, line) in answers.iter().zip(lines) {
        let Some((id, result)) = answer else { continue };
        let said: Value = serde_json::from_slice(line).expect("a parsed line is JSON");
        assert_eq!(said["id"].as_u64(), Some(*id), "an answer for another item");
        check_verdict(result, &said);
    }
    answers.iter().any(Option::is_some)
}

/// Every line with its line feed; the first that is too long is the last.
fn naive_lines(data: &[u8]) -> Vec<&[u8]> {
    let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
    let long = lines.iter().position(|line| line.len() > MAX_LINE_BYTES);
    lines[..long.map_or(lines.len(), |at| at + 1)].to_vec()
}

fn check_verdict(result: &ItemResult, said: &Value) {
    let (message, retry) = match result {
        ItemResult::Done => return check_findings(0, said),
        ItemResult::Found(findings) => return check_findings(findings.get(), said),
        ItemResult::Failed(failure) => (&failure.message, said["retry"] != json!(false)),
        ItemResult::Hopeless(failure) => (&failure.message, said["retry"] == json!(false)),
        other => panic!("no program can say {other:?}"),
    };
    assert_eq!(said["type"], json!("error"));
    assert!(retry, "an item is given up that may succeed, or the other way round");
    assert!(message.len() <= MAX_MESSAGE_BYTES, "a message that is too long");
    let whole = said["message"].as_str().unwrap_or("no message");
    assert!(whole.starts_with(&**message), "another message");
    assert!(whole.len() - message.len() < 4 || message.len() > MAX_MESSAGE_BYTES - 4);
}

/// A `done` line reports the number of findings; a number that is too large saturates.
fn check_findings(findings: u32, said: &Value) {
    assert_eq!(said["type"], json!("done"));
    let whole = said.get("findings").map_or(Some(0), Value::as_u64).expect("a number");
    assert_eq!(u64::from(findings), whole.min(u64::from(u32::MAX)), "another number of findings");
}
