//! `watch`, `map`, `demo` and the page of a certificate, with real processes.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

#[allow(dead_code, reason = "this file uses a part of it")]
#[path = "../src/screen/emulator.rs"]
mod emulator;
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::time::{Duration, Instant};

use emulator::Emulator;
use support::{Ran, Scratch, finish, is_alive, signal, wait_until};
use terminal::{CTRL_C, Terminal};

/// The longest demo.
const DEMO_MAX: Duration = Duration::from_secs(40);

const GOSSIP: &str = env!("CARGO_BIN_EXE_gossip");

fn run_id(scratch: &Scratch) -> String {
    let listed = scratch.run(&["run", "list", "-o", "jsonl"]);
    let run: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    run["run"].as_str().unwrap().to_owned()
}

/// Starts a run of items that wait until the file `go` exists.
fn waiting_run(scratch: &Scratch) -> (std::process::Child, String) {
    let wait = "while ! test -e go; do sleep 0.05; done; echo >> begun";
    let args = ["exec", "range:0..8", "-j", "2", "--", "sh", "-c", wait, "sh"];
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("the run", || {
        scratch.run(&["run", "list", "-o", "jsonl"]).stdout.contains("\"leased\":2")
    });
    let run = run_id(scratch);
    (child, run)
}

fn go(scratch: &Scratch) {
    fs::write(scratch.path().join("go"), "").unwrap();
}

/// Reads lines until one contains a text.
fn wait_for(lines: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "{text} does not come");
    }
}

#[test]
fn watch_ends_with_its_run_and_returns_its_outcome() {
    let scratch = Scratch::new();
    let (child, run) = waiting_run(&scratch);
    let watching = scratch.gossip(&["watch", &run]).spawn().unwrap();
    let all = scratch.gossip(&["watch"]).spawn().unwrap();
    go(&scratch);
    assert_eq!(finish(child).code, Some(0));
    let watched = finish(watching);
    assert_eq!(watched.code, Some(0), "{}", watched.stderr);
    assert!(watched.stderr.contains(": complete: 8 keys"), "{}", watched.stderr);
    let all = finish(all);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert!(
        all.stderr.contains("1 run ended") || all.stderr.contains("no unfinished run"),
        "{all:?}"
    );
    let unknown = scratch.run(&["watch", "0123456789abcdef"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
}

/// A run with only parked shards stays active, so each listing has it again.
#[test]
fn outcome_of_a_parked_run_is_printed_once() {
    let scratch = Scratch::new();
    let (child, _) = waiting_run(&scratch);
    let fail = |source: &str| {
        let ran = scratch.run(&["exec", source, "--tries", "1", "--", "false"]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    };
    fail("range:0..1");
    let mut watching = scratch.gossip(&["watch"]).spawn().unwrap();
    let mut errors = BufReader::new(watching.stderr.take().unwrap());
    wait_for(&mut errors, ": incomplete: ");
    // The outcome of a newer run comes after the next listing.
    fail("range:0..2");
    let (mut line, mut outcomes) = (String::new(), 0);
    while outcomes == 0 {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "no second outcome");
        outcomes += line.matches(": incomplete: ").count();
    }
    go(&scratch);
    assert_eq!(finish(child).code, Some(0));
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    outcomes += rest.matches(": incomplete: ").count();
    assert_eq!((outcomes, rest.contains("3 runs ended")), (1, true), "{rest}");
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}

/// The store is moved away while it is watched, and comes back.
#[test]
fn store_that_vanishes_is_reported_and_read_again() {
    let scratch = Scratch::new();
    let (child, run) = waiting_run(&scratch);
    let mut watching = scratch.gossip(&["watch", &run]).spawn().unwrap();
    let mut errors = BufReader::new(watching.stderr.take().unwrap());
    wait_for(&mut errors, "of 8 keys");
    let away = scratch.path().join("away.db");
    fs::rename(scratch.store(), &away).unwrap();
    wait_for(&mut errors, "no such file; retrying");
    fs::rename(&away, scratch.store()).unwrap();
    wait_for(&mut errors, "readable again");
    go(&scratch);
    wait_for(&mut errors, ": complete: 8 keys");
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    assert_eq!(finish(child).code, Some(0));
}

#[test]
fn map_shows_done_and_failed_parts_as_text_json_and_drawing() {
    let scratch = Scratch::new();
    let command = ["sh", "-c", "test $1 != 50", "sh", "{}"];
    let settings = ["exec", "range:0..100", "-j", "2", "--tries", "1", "--"];
    assert_eq!(scratch.run(&[&settings, &command[..]].concat()).code, Some(3));
    let run = run_id(&scratch);
    let Ran { code, stdout, stderr } = scratch.run(&["map", &run]);
    assert_eq!(code, Some(0), "{stderr}");
    let line = stdout.lines().next().unwrap();
    // One item in a hundred may lie in two of the cells.
    let (done, failed) = (line.matches('#').count(), line.matches('!').count());
    assert!(done + failed == 79 && (1..=2).contains(&failed), "{stdout}");
    assert!(stdout.contains("99 of 100 keys"), "{stdout}");
    let json = scratch.run(&["map", &run, "-o", "jsonl"]).stdout;
    assert!(json.contains("\"state\":\"failed\"") && json.contains("\"state\":\"done\""), "{json}");
    assert_eq!(scratch.run(&["map", &run, "--svg", "map.svg"]).code, Some(0));
    let svg = fs::read_to_string(scratch.path().join("map.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.matches("<rect").count() >= 3, "{svg}");
}

#[test]
fn page_is_self_contained_and_escaped() {
    let scratch = Scratch::new();
    scratch.file("<b>&\"'\u{202e}x", "");
    scratch.file("plain", "");
    let command = ["--", "true", "<script>alert(1)</script>", "{}"];
    assert_eq!(scratch.run(&[&["exec", "tree"], &command[..]].concat()).code, Some(0));
    let run = run_id(&scratch);
    let exported = scratch.run(&["run", "export", &run, "--html", "proof.html"]);
    assert_eq!((exported.code, exported.stdout.as_str()), (Some(0), ""), "{}", exported.stderr);
    let page = fs::read_to_string(scratch.path().join("proof.html")).unwrap();
    for text in ["Complete: 2 keys", &run, "&lt;script&gt;alert(1)&lt;/script&gt;", "Hash of the"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for bad in ["<script", "http://", "https://", "src=", "\u{202e}", "<b>"] {
        assert!(!page.contains(bad), "{bad}: {page}");
    }
}

/// Returns the directories that demos have left behind.
fn left_behind(scratch: &Scratch) -> Vec<String> {
    let names = fs::read_dir(scratch.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("gossip-demo")).collect()
}

fn demo(scratch: &Scratch) -> Terminal {
    let mut command = scratch.command(GOSSIP);
    command.env("LANG", "C.UTF-8").env("TMPDIR", scratch.path());
    Terminal::start(&command, &[GOSSIP, "demo"])
}

#[test]
fn demo_kills_a_worker_and_proves_that_nothing_is_missing() {
    let scratch = Scratch::new();
    let started = Instant::now();
    let terminal = demo(&scratch);
    wait_until("its directory", || !left_behind(&scratch).is_empty());
    let (code, bytes) = terminal.finish();
    assert_eq!(code, Some(0), "{bytes}");
    // A promise to its spectators, kept on any machine: its items sleep.
    assert!(started.elapsed() < DEMO_MAX, "{} s", started.elapsed().as_secs());
    for text in ["kill -9 ", "was split", "continues shard", "complete: 20,000 of 20,000 keys", "░"]
    {
        assert!(bytes.contains(text), "{text}: {bytes}");
    }
    let mut emulator = Emulator::new(80, 24);
    emulator.write(bytes.as_bytes());
    assert!(emulator.is_at_rest());
    let text = emulator.text();
    assert!(text.contains("missing   0") && !text.contains('█'), "{text}");
    assert_eq!(left_behind(&scratch), [""; 0]);
}

#[test]
fn interrupted_demo_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let mut terminal = demo(&scratch);
    wait_until("its workers", || terminal.screen().contains("are at work"));
    let pids: Vec<String> = terminal
        .screen()
        .lines()
        .find(|line| line.contains("are at work"))
        .map(|line| {
            line.split(|letter: char| !letter.is_ascii_digit()).map(str::to_owned).collect()
        })
        .unwrap();
    let pids: Vec<_> = pids.into_iter().filter(|digits| digits.len() > 1).collect();
    assert!(pids.len() >= 3, "{pids:?}");
    terminal.press(CTRL_C);
    let (code, bytes) = terminal.finish();
    assert_eq!(code, Some(130), "{bytes}");
    assert_eq!(left_behind(&scratch), [""; 0]);
    wait_until("the end of the workers", || !pids.iter().any(|pid| is_alive(pid)));
}

/// Workers of a demo end with it, however it ends.
#[test]
fn killed_demo_takes_its_workers_with_it() {
    let scratch = Scratch::new();
    let terminal = demo(&scratch);
    wait_until("its workers", || terminal.screen().contains("are at work"));
    signal(&terminal.child, rustix::process::Signal::KILL);
    // The terminal is closed when the last of them has ended.
    terminal.finish();
}
