//! Progress on a real pseudo-terminal, and as lines and JSON elsewhere.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

#[allow(dead_code, reason = "this file uses a part of it")]
#[path = "../src/screen/emulator.rs"]
mod emulator;
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::Value;

use emulator::Emulator;
use support::{Scratch, wait_until};
use terminal::{CTRL_C, Terminal};

const GOSSIP: &str = env!("CARGO_BIN_EXE_gossip");

/// Marks the begin of a frame: synchronized output.
const FRAME: &str = "\x1b[?2026h";

fn start(scratch: &Scratch, variables: &[(&str, &str)], args: &[&str]) -> Terminal {
    let mut command = scratch.command(GOSSIP);
    command.envs([("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]);
    command.envs(variables.iter().copied());
    Terminal::start(&command, &[&[GOSSIP], args].concat())
}

/// Returns the lines that remain on a terminal of 80 columns.
fn shown(bytes: &str) -> (Vec<String>, Emulator) {
    let mut emulator = Emulator::new(80, 24);
    emulator.write(bytes.as_bytes());
    (emulator.text().lines().map(str::to_owned).collect(), emulator)
}

/// Items that fail are printed while frames are drawn: every line stays whole, once, and no part of
/// a frame remains.
#[test]
fn messages_and_frames_do_not_collide() {
    let scratch = Scratch::new();
    let fails = ["sh", "-c", "sleep 0.03; exit 7", "sh", "{}"];
    let settings = ["exec", "range:0..120", "-j", "4", "--tries", "1", "--max-parked", "200", "--"];
    let terminal = start(&scratch, &[], &[&settings, &fails[..]].concat());
    let (code, bytes) = terminal.finish();
    assert_eq!(code, Some(3), "{bytes}");
    assert!(bytes.matches(FRAME).count() >= 3, "frames were drawn: {bytes}");
    let (lines, emulator) = shown(&bytes);
    assert!(emulator.is_at_rest());
    let failed: BTreeSet<String> =
        lines.iter().filter(|line| line.starts_with("failed: ")).cloned().collect();
    let expected = (0..120).map(|number| format!("failed: {number}: exit status 7"));
    assert_eq!(failed, expected.collect(), "{lines:#?}");
    for line in &lines {
        let is_text = ["failed: ", "run ", "  ", "this "].iter().any(|it| line.starts_with(it));
        assert!(is_text || line.is_empty(), "{line:?} remains of {bytes}");
    }
    assert!(!lines.iter().any(|line| line.contains('━')), "{lines:#?}");
}

#[test]
fn no_color_and_locale_are_respected() {
    let run = |variables: &[(&str, &str)], more: &[&str]| {
        let scratch = Scratch::new();
        let settings = ["exec", "range:0..120", "-j", "2"];
        let command = ["--", "sh", "-c", "sleep 0.03", "sh"];
        let args = [&settings, more, &command].concat();
        let (code, bytes) = start(&scratch, variables, &args).finish();
        assert_eq!(code, Some(0), "{bytes}");
        assert!(bytes.contains(FRAME), "{bytes}");
        bytes
    };
    let colored = run(&[], &[]);
    assert!(colored.contains("\x1b[32m") && colored.contains('█'), "{colored}");
    assert!(colored.contains(" of 120 keys"), "{colored}");
    assert!(colored.contains("ETA ") && colored.contains(" ± "), "{colored}");
    for (variables, more) in [(&[("NO_COLOR", "1")][..], &[][..]), (&[], &["--color", "never"])] {
        let plain = run(variables, more);
        let sequences = plain.split("\x1b[").skip(1);
        for sequence in sequences {
            let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).unwrap();
            assert_ne!(&sequence[end..=end], "m", "{plain}");
        }
        assert!(plain.contains('█'), "{plain}");
    }
    let ascii = run(&[("LC_ALL", "C"), ("NO_COLOR", "")], &[]);
    assert!(ascii.is_ascii() && ascii.contains("\x1b[32m##"), "{ascii}");
}

/// A terminal that becomes one column wide, and wide again, while frames are drawn.
#[test]
fn resizing_to_one_column_and_back_does_no_harm() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..5000", "-j", "2", "--", "sh", "-c", "sleep 0.01", "sh"];
    let mut terminal = start(&scratch, &[], &args);
    let frames = |terminal: &Terminal| terminal.screen().matches(FRAME).count();
    for columns in [120, 20, 1, 7, 200, 80] {
        terminal.resize(columns, 24);
        let before = frames(&terminal);
        // At one column nothing fits, so only its disappearance is drawn.
        wait_until("a frame of that width", || frames(&terminal) > before);
    }
    terminal.press(CTRL_C);
    let (code, bytes) = terminal.finish();
    assert_eq!(code, Some(130), "{bytes}");
    assert!(bytes.contains("stopped: "), "{bytes}");
}

/// Nothing restores a terminal after SIGKILL, so nothing may need to be restored.
#[test]
fn killed_process_leaves_a_usable_terminal() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..5000", "-j", "2", "--", "sh", "-c", "sleep 0.01", "sh"];
    let terminal = start(&scratch, &[], &args);
    wait_until("some frames", || terminal.screen().matches(FRAME).count() >= 5);
    support::signal(&terminal.child, rustix::process::Signal::KILL);
    let (_, bytes) = terminal.finish();
    // The kernel copies a write to the terminal as a whole, or not at all.
    let (_, emulator) = shown(&bytes);
    assert!(emulator.is_at_rest(), "{bytes}");
}

#[rstest]
#[case::dumb_terminal(&[("TERM", "dumb")], &[])]
#[case::asked_for(&[], &["--progress", "plain"])]
#[case::none(&[], &["--progress", "none"])]
fn no_frame_is_drawn(#[case] variables: &[(&str, &str)], #[case] more: &[&str]) {
    let scratch = Scratch::new();
    let settings = ["exec", "range:0..60", "-j", "2"];
    let args = [&settings, more, &["--", "sh", "-c", "sleep 0.03", "sh"]].concat();
    let (code, bytes) = start(&scratch, variables, &args).finish();
    assert_eq!(code, Some(0), "{bytes}");
    assert!(!bytes.contains(FRAME) && bytes.contains("complete: 60 keys"), "{bytes}");
}

#[test]
fn json_progress_is_one_value_per_line() {
    let scratch = Scratch::new();
    let command = ["sh", "-c", "sleep 0.05; test $1 != 7", "sh", "{}"];
    let settings = ["exec", "range:0..60", "-j", "2", "--tries", "1", "--progress", "json", "--"];
    let ran = scratch.run(&[&settings, &command[..]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let events: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(events[0]["type"], "message", "{}", ran.stderr);
    let [started] = of("start")[..] else { panic!("{}", ran.stderr) };
    assert_eq!((&started["jobs"], started["run"].as_str().unwrap().len()), (&2.into(), 16));
    let progress = of("progress");
    let last = progress.last().unwrap();
    assert_eq!((&last["total"], &last["total_kind"]), (&60.into(), &"exact".into()), "{last}");
    let [failed] = of("item_failed")[..] else { panic!("{}", ran.stderr) };
    assert_eq!((&failed["item"], &failed["message"]), (&"7".into(), &"exit status 1".into()));
    assert_eq!(failed["status"], 1, "{failed}");
    let [summary] = of("summary")[..] else { panic!("{}", ran.stderr) };
    assert_eq!((&summary["keys"], &summary["exit_code"]), (&59.into(), &3.into()));
    assert_eq!(events.last().unwrap()["type"], "summary");
}
