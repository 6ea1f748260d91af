//! Golden scripts of the command line: commands, their output and exit codes.
//!
//! Each file of `tests/golden` is a session in a directory of its own:
//!
//! ```text
//! # Purpose of these commands.
//! $ gossip exec range:0..2 --jobs 1 -- echo {}
//! 0
//! 1
//! ! run 0123456789abcdef: new
//! ! run 0123456789abcdef: complete: 2 keys
//! = 0
//! ```
//!
//! Lines of standard output are unchanged, lines of standard error begin with `! `, and the exit
//! code with `= `. A line of output that begins with one of these marks is prefixed by `| `.
//! `sh` runs the commands. Times and the directory of the session are replaced by placeholders.
//!
//! `GOSSIP_REWRITE=1 cargo test -p gossip-cli --test golden` rewrites the files.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Scratch, finish, piped};

/// Environment variable that makes the test rewrite the files.
const REWRITE: &str = "GOSSIP_REWRITE";

/// Marks of lines that are not standard output.
const MARKS: [&str; 5] = ["$ ", "! ", "= ", "| ", "#"];

/// Milliseconds since 1970, for the next two hundred years.
const TIME_DIGITS: usize = 13;

#[test]
fn every_script_has_its_recorded_output() {
    let mut wrong = Vec::new();
    for path in scripts() {
        let script = fs::read_to_string(&path).unwrap();
        let actual = execute(&script);
        if actual == script {
            continue;
        }
        if std::env::var_os(REWRITE).is_some() {
            fs::write(&path, &actual).unwrap();
        } else {
            wrong.push(format!("{}:\n{}", path.display(), difference(&script, &actual)));
        }
    }
    assert!(wrong.is_empty(), "{}\nset {REWRITE}=1 to rewrite them", wrong.join("\n"));
}

/// A command without a script could change unnoticed.
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
        assert!(all.contains(&line), "no script has {line}");
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
    assert!(!paths.is_empty(), "the directory has scripts");
    paths
}

/// Runs the commands of a script and returns the script with their actual output.
fn execute(script: &str) -> String {
    let scratch = Scratch::new();
    let mut actual = String::new();
    for line in script.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            writeln!(actual, "{line}\n{}", output_of(&scratch, command)).unwrap();
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(actual, "{line}").unwrap();
        }
    }
    actual
}

fn output_of(scratch: &Scratch, script: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_gossip")).parent().unwrap().to_path_buf();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(programs).chain(std::env::split_paths(&usual));
    let mut command = Command::new("sh");
    piped(&mut command).args(["-c", script]).current_dir(scratch.path()).env_clear();
    command.env("PATH", std::env::join_paths(path).unwrap()).env("HOME", scratch.path());
    let ran = finish(command.spawn().unwrap());
    let mut text = String::new();
    for line in ran.stdout.lines().map(without_rate).map(str::trim_end) {
        // Output must not look like a mark, nor an empty line like a gap in the script.
        let is_odd = line.is_empty() || MARKS.iter().any(|mark| line.starts_with(mark));
        let line = format!("{}{line}", if is_odd { "| " } else { "" });
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    for line in ran.stderr.lines().map(without_rate) {
        writeln!(text, "{}", format!("! {line}").trim_end()).unwrap();
    }
    let code = ran.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
    write!(text, "= {code}").unwrap();
    let text = text.replace(&*scratch.path().to_string_lossy(), "<dir>");
    let text = text.replace(env!("GOSSIP_VERSION"), "<version>");
    let lines: Vec<String> = text.lines().map(without_age).collect();
    without_times(&lines.join("\n"))
}

/// Replaces an age in a table, and the padding around it, which depends on its width.
fn without_age(line: &str) -> String {
    let fields: Vec<&str> = line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
    let is_age = |field: &&&str| {
        let words: Vec<&str> = field.split(' ').collect();
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        match words[..] {
            ["now" | "AGE"] => true,
            [number, "s" | "min", "ago"] | ["in", number, "s" | "min"] => is_number(number),
            _ => false,
        }
    };
    match fields.iter().find(is_age) {
        Some(age) => {
            let shown = fields
                .iter()
                .map(|field| if field == age && *age != "AGE" { "<age>" } else { field });
            shown.collect::<Vec<_>>().join("  ")
        }
        None => line.to_owned(),
    }
}

/// Removes the time and the rate from the line of a receipt.
fn without_rate(line: &str) -> &str {
    const BEFORE: &str = " here in";
    line.find(BEFORE).map_or(line, |at| &line[..at + BEFORE.len()])
}

/// Replaces times, which are recognized by their form or their number of digits.
fn without_times(text: &str) -> String {
    let text = without_dates(text);
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

/// Replaces times like `2026-11-16T09:12:04.007Z`.
fn without_dates(text: &str) -> String {
    const FORM: &str = "dddd-dd-ddTdd:dd:dd.dddZ";
    let fits = |place: &[u8]| {
        place.len() == FORM.len()
            && place.iter().zip(FORM.bytes()).all(|(letter, form)| match form {
                b'd' => letter.is_ascii_digit(),
                form => *letter == form,
            })
    };
    let mut out = text.to_owned();
    while let Some(at) = out.as_bytes().windows(FORM.len()).position(fits) {
        out.replace_range(at..at + FORM.len(), "<time>");
    }
    out
}

/// Returns the first line that differs, with its command.
fn difference(recorded: &str, actual: &str) -> String {
    let mut command = "";
    let mut pairs = recorded.lines().chain(std::iter::repeat("(nothing)")).zip(actual.lines());
    for (recorded, actual) in &mut pairs {
        if actual.starts_with("$ ") {
            command = actual;
        }
        if recorded != actual {
            return format!("{command}\n  recorded: {recorded}\n  actual:   {actual}");
        }
    }
    "  lines are missing at its end".to_owned()
}
