//! Golden scripts of the command line: what is typed, what is written, how it ends.
//!
//! Each file of `tests/golden` is a session in a directory of its own:
//!
//! ```text
//! # Why these commands stand here.
//! $ gossip exec range:0..2 --jobs 1 -- echo {}
//! 0
//! 1
//! ! run 0123456789abcdef: new
//! ! run 0123456789abcdef: complete: 2 keys
//! = 0
//! ```
//!
//! Lines of standard output stand as they are, lines of standard error behind `! `, and the exit
//! code behind `= `. A line of output that begins with one of these marks is indented by `| `.
//! Commands go through `sh`. Times, ids that are drawn, and the directory of the session are
//! replaced by their names.
//!
//! `GOSSIP_REWRITE=1 cargo test -p gossip-cli --test golden` writes down what happens now.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Scratch, finish, piped};

/// Says that the files are to be written anew.
const REWRITE: &str = "GOSSIP_REWRITE";

/// What lines of a script begin with that are no output.
const MARKS: [&str; 5] = ["$ ", "! ", "= ", "| ", "#"];

/// Milliseconds since 1970, for the next two hundred years.
const TIME_DIGITS: usize = 13;

#[test]
fn every_script_happens_as_it_is_written() {
    let mut wrong = Vec::new();
    for path in scripts() {
        let script = fs::read_to_string(&path).unwrap();
        let happened = play(&script);
        if happened == script {
            continue;
        }
        if std::env::var_os(REWRITE).is_some() {
            fs::write(&path, &happened).unwrap();
        } else {
            wrong.push(format!("{}:\n{}", path.display(), difference(&script, &happened)));
        }
    }
    assert!(wrong.is_empty(), "{}\nset {REWRITE}=1 to write them anew", wrong.join("\n"));
}

/// A command without a script would change without anybody seeing it.
#[test]
fn every_command_has_its_help_in_a_script() {
    let all: String = scripts().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let scratch = Scratch::new();
    let mut waiting = vec![String::new()];
    let mut seen = BTreeSet::new();
    while let Some(command) = waiting.pop() {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = scratch.run(&words).stdout;
        let line = format!("$ gossip {}\n", words.join(" "));
        assert!(all.contains(&line), "no script types {line}");
        let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let names = listed.lines().take_while(|line| !line.is_empty());
        let names = names.filter_map(|line| line.trim().split(' ').next());
        waiting
            .extend(names.filter(|name| *name != "help").map(|name| format!("{command} {name}")));
        seen.insert(command);
    }
    assert!(seen.len() >= 20, "{seen:?}");
}

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are scripts");
    paths
}

/// What happens when the commands of a script are typed, written down as a script.
fn play(script: &str) -> String {
    let scratch = Scratch::new();
    let mut happened = String::new();
    for line in script.lines() {
        if let Some(typed) = line.strip_prefix("$ ") {
            writeln!(happened, "{line}\n{}", answer(&scratch, typed)).unwrap();
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(happened, "{line}").unwrap();
        }
    }
    happened
}

fn answer(scratch: &Scratch, typed: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_gossip")).parent().unwrap().to_path_buf();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(programs).chain(std::env::split_paths(&usual));
    let mut command = Command::new("sh");
    piped(&mut command).args(["-c", typed]).current_dir(scratch.path()).env_clear();
    command.env("PATH", std::env::join_paths(path).unwrap()).env("HOME", scratch.path());
    let ran = finish(command.spawn().unwrap());
    let mut text = String::new();
    for line in ran.stdout.lines().map(str::trim_end) {
        // So that no line of output is taken for something else, nor an empty one for a gap.
        let is_odd = line.is_empty() || MARKS.iter().any(|mark| line.starts_with(mark));
        let line = format!("{}{line}", if is_odd { "| " } else { "" });
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    for line in ran.stderr.lines() {
        writeln!(text, "{}", format!("! {line}").trim_end()).unwrap();
    }
    let code = ran.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
    write!(text, "= {code}").unwrap();
    let text = text.replace(&*scratch.path().to_string_lossy(), "<dir>");
    without_times(&text)
}

/// Replaces what is a time by its length.
fn without_times(text: &str) -> String {
    let (mut out, mut digits) = (String::new(), String::new());
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let is_time = digits.len() == TIME_DIGITS && !letter.is_ascii_alphanumeric();
        out.push_str(if is_time { "<time>" } else { &digits });
        digits.clear();
        out.push(letter);
    }
    out.pop();
    out
}

/// The first line that differs, with the command it belongs to.
fn difference(written: &str, happened: &str) -> String {
    let mut command = "";
    let mut pairs = written.lines().chain(std::iter::repeat("(nothing)")).zip(happened.lines());
    for (written, happened) in &mut pairs {
        if happened.starts_with("$ ") {
            command = happened;
        }
        if written != happened {
            return format!("{command}\n  written:  {written}\n  happened: {happened}");
        }
    }
    "  lines are missing at its end".to_owned()
}
