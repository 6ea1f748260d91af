//! `scan`, `findings` and `rules` with real processes.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use gossip::secrets::RuleSet;
use support::{Ran, Scratch, finish};
use terminal::Terminal;

/// A key that is no secret.
const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// Returns a valid token of a kind; no token is ever written down.
fn minted(rule: &str, seed: u64) -> String {
    let sample = RuleSet::built_in().rule(rule).unwrap().mint_secret(seed).unwrap();
    String::from_utf8(sample).unwrap()
}

/// Returns a directory for a test, with a key.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let key = scratch.path().join("key");
    std::fs::write(&key, format!("{KEY}\n")).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    scratch
}

fn scan(scratch: &Scratch, args: &[&str]) -> Ran {
    let words = ["scan", "tree", "--secret-key-file", "key", "--jobs", "2"];
    scratch.run(&[&words, args].concat())
}

/// Returns the lines of findings in text form.
fn lines(ran: &Ran) -> Vec<&str> {
    ran.stdout.lines().collect()
}

fn run_of(ran: &Ran) -> String {
    let at = ran.stderr.find("run ").unwrap() + 4;
    ran.stderr[at..at + 16].to_owned()
}

#[test]
fn findings_are_printed_with_place_and_without_the_secret() {
    let scratch = scratch();
    let token = minted("npm-token", 1);
    scratch.file("a/notes.txt", &format!("first\n  token {token}\n"));
    scratch.file("b.txt", "nothing\n");
    let ran = scan(&scratch, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        lines(&ran),
        ["a/notes.txt:2:9: npm-token (high, checksum valid) npm_…(40 bytes)"],
        "{}",
        ran.stderr
    );
    assert!(!(ran.stdout + &ran.stderr).contains(&token));
    let store = std::fs::read(scratch.store()).unwrap();
    assert!(
        !store.windows(token.len()).any(|it| it == token.as_bytes()),
        "the store has the secret"
    );
}

#[test]
fn the_same_command_prints_the_same_report_without_scanning_again() {
    let scratch = scratch();
    scratch.file("x", &minted("npm-token", 2));
    let (first, again) = (scan(&scratch, &["-o", "jsonl"]), scan(&scratch, &["-o", "jsonl"]));
    assert_eq!(first.stdout, again.stdout);
    assert!(again.stderr.contains("already done"), "{}", again.stderr);
    let shown = scratch.run(&["findings", &run_of(&first), "-o", "jsonl"]);
    assert_eq!((shown.code, shown.stdout), (Some(0), first.stdout));
}

#[test]
fn findings_fail_the_command_only_if_asked_and_not_accepted() {
    let scratch = scratch();
    scratch.file("x", &minted("npm-token", 3));
    assert_eq!(scan(&scratch, &[]).code, Some(0));
    assert_eq!(scan(&scratch, &["--fail-on", "findings"]).code, Some(10));
    let written = scan(&scratch, &["--write-baseline", "known"]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let known = scan(&scratch, &["--baseline", "known", "--fail-on", "findings"]);
    assert_eq!((known.code, known.stdout.as_str()), (Some(0), ""), "{}", known.stderr);
    scratch.file("y", &minted("npm-token", 4));
    let new = scan(&scratch, &["--baseline", "known", "--fail-on", "findings", "--restart"]);
    assert_eq!(new.code, Some(10), "{}", new.stderr);
    assert_eq!(lines(&new).len(), 1);
    assert!(new.stdout.starts_with("y:1:1: "), "{}", new.stdout);
}

#[test]
fn a_baseline_fits_a_copy_of_the_directory() {
    let scratch = scratch();
    scratch.file("sub/x", &minted("npm-token", 5));
    scan(&scratch, &["--write-baseline", "known"]);
    let copy = scratch.path().join("elsewhere/checkout/sub");
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::write(copy.join("x"), format!("\n\n{}", minted("npm-token", 5))).unwrap();
    let ran = scratch.run(&[
        "scan",
        "elsewhere/checkout",
        "--secret-key-file",
        "key",
        "--baseline",
        "known",
        "--fail-on",
        "findings",
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
}

#[test]
fn an_allow_list_of_the_source_applies_to_a_finished_scan() {
    let scratch = scratch();
    scratch.file("tests/x", &minted("npm-token", 6));
    scratch.file("src/x", &minted("npm-token", 7));
    assert_eq!(lines(&scan(&scratch, &[])).len(), 2);
    scratch.file(".gossip-allow.toml", "[[allow]]\npath = \"tests/*\"\nreason = \"samples\"\n");
    let ran = scan(&scratch, &["--fail-on", "findings"]);
    assert_eq!((ran.code, lines(&ran).len()), (Some(10), 1));
    assert!(ran.stdout.starts_with("src/x:"), "{}", ran.stdout);
    let all = scan(&scratch, &["--show-accepted"]);
    assert!(all.stdout.contains("accepted by allow-list: samples"), "{}", all.stdout);
    scratch.file(".gossip-allow.toml", "[[allow]]\npath = \"tests/*\"\n");
    let broken = scan(&scratch, &[]);
    assert_eq!(broken.code, Some(2));
    assert!(broken.stderr.contains(".gossip-allow.toml:1:1"), "{}", broken.stderr);
}

#[test]
fn findings_that_a_comment_accepts_are_counted_and_marked() {
    let scratch = scratch();
    scratch.file("x", &format!("{} # gossip:allow a sample\n", minted("npm-token", 20)));
    scratch.file("y", &format!("{} # gossip:allow\n", minted("npm-token", 21)));
    let ran = scan(&scratch, &["--fail-on", "findings"]);
    // A marker without a reason accepts nothing.
    assert_eq!((ran.code, lines(&ran).len()), (Some(10), 1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("y:1:1: "), "{}", ran.stdout);
    assert!(ran.stderr.contains("1 finding, 1 accepted"), "{}", ran.stderr);
    let all = scan(&scratch, &["--show-accepted"]);
    assert!(all.stdout.contains("accepted by comment: gossip:allow on its line"), "{}", all.stdout);
    let json = scan(&scratch, &["-o", "jsonl"]);
    assert!(json.stdout.contains("\"accepted\":{\"by\":\"comment\""), "{}", json.stdout);
    assert!(
        json.stdout.contains("{\"accepted\":1,\"exit_code\":0,\"findings\":1,"),
        "{}",
        json.stdout
    );
    let sarif = scan(&scratch, &["-o", "sarif"]);
    let document: serde_json::Value = serde_json::from_str(&sarif.stdout).unwrap();
    let results = &document["runs"][0]["results"];
    assert_eq!(results[0]["suppressions"][0]["kind"], "inSource");
    assert!(results[1]["suppressions"].is_null());
    scratch.file("y", "");
    assert_eq!(scan(&scratch, &["--fail-on", "findings", "--restart"]).code, Some(0));
}

#[test]
fn other_rules_options_or_keys_are_another_run() {
    let scratch = scratch();
    scratch.file("x", "nothing");
    let other = scratch.path().join("other");
    std::fs::write(&other, format!("{}\n", KEY.replace('7', "8"))).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(
        scratch.path().join("rules.toml"),
        "version = 1\n[[disable]]\nid = \"jwt\"\nreason = \"noise\"\n",
    )
    .unwrap();
    let base = ["scan", "tree", "--jobs", "1"];
    let mut runs = BTreeSet::new();
    for args in [
        &["--secret-key-file", "key"][..],
        &["--secret-key-file", "other"],
        &["--secret-key-file", "key", "--binaries"],
        &["--secret-key-file", "key", "--no-archives"],
        &["--secret-key-file", "key", "--structured-only"],
        &["--secret-key-file", "key", "--rules", "rules.toml"],
    ] {
        runs.insert(run_of(&scratch.run(&[&base, args].concat())));
    }
    assert_eq!(runs.len(), 6);
}

#[test]
fn the_key_is_made_once_and_only_for_its_owner() {
    let scratch = scratch();
    scratch.file("x", "nothing");
    let home = scratch.path().join("home");
    let mut first = scratch.gossip(&["scan", "tree"]);
    first.env("HOME", &home);
    let ran = finish(first.spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("made the key"), "{}", ran.stderr);
    let key = home.join(".config/gossip/secret-key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&key).unwrap();
    assert_eq!(text.trim().len(), 64);
    let mut again = scratch.gossip(&["scan", "tree"]);
    let again = finish(again.env("HOME", &home).spawn().unwrap());
    assert!(again.stderr.contains("already done"), "{}", again.stderr);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut open = scratch.gossip(&["scan", "tree"]);
    let open = finish(open.env("HOME", &home).spawn().unwrap());
    assert_eq!(open.code, Some(2));
    assert!(open.stderr.contains("chmod 600"), "{}", open.stderr);
    assert!(!open.stderr.contains(text.trim()));
}

#[test]
fn secrets_are_shown_on_a_terminal_only() {
    let scratch = scratch();
    scratch.file("x", &minted("npm-token", 8));
    let ran = scan(&scratch, &["--show-secrets"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("needs a terminal"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    let program = env!("CARGO_BIN_EXE_gossip");
    let words = [program, "scan", "tree", "--secret-key-file", "key", "--show-secrets"];
    let (code, screen) = Terminal::start(&scratch.gossip(&[""]), &words).finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains(&minted("npm-token", 8)), "{screen}");
}

#[test]
fn sarif_has_results_places_and_fingerprints() {
    let scratch = scratch();
    scratch.file("a b/é.txt", &format!("\n {}\n", minted("npm-token", 9)));
    let ran = scan(&scratch, &["-o", "sarif"]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let run = &document["runs"][0];
    let result = &run["results"][0];
    assert_eq!((&document["version"], &result["ruleId"]), (&"2.1.0".into(), &"npm-token".into()));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20b/%C3%A9.txt");
    assert_eq!(place["region"]["startLine"], 2);
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "npm-token");
    assert_eq!(result["partialFingerprints"]["gossipFindingId/v1"].as_str().unwrap().len(), 64);
    let refused = scratch.run(&["run", "list", "-o", "sarif"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

#[test]
fn history_is_scanned_with_commit_and_path_of_first_appearance() {
    let scratch = scratch();
    let git = |args: &[&str]| {
        let mut command = scratch.command("git");
        command.args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-C", "tree"]);
        let ran = finish(command.args(args).spawn().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    };
    git(&["init", "--quiet"]);
    scratch.file("config.ini", &format!("[x]\nkey = {}\n", minted("npm-token", 10)));
    git(&["add", "-A"]);
    git(&["commit", "--quiet", "-m", "leak"]);
    let leak = git(&["rev-parse", "HEAD"]);
    scratch.file("config.ini", "[x]\n");
    git(&["commit", "--quiet", "-am", "remove it"]);
    let ran = scratch.run(&["scan", "git:tree", "--secret-key-file", "key", "-o", "jsonl"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let finding: serde_json::Value =
        serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&finding["commit"], &finding["path"]), (&leak.into(), &"config.ini".into()));
    assert_eq!((&finding["line"], &finding["rule"]), (&2.into(), &"npm-token".into()));
}

#[test]
fn awkward_files_neither_stop_a_scan_nor_hide_findings() {
    let scratch = scratch();
    let tree = scratch.tree();
    let token = minted("npm-token", 11);
    // A line of four mebibytes around a token, and a token across the edge of a chunk.
    scratch.file("line", &format!("{} {token} {}", "x".repeat(3 << 20), "y".repeat(1 << 20)));
    scratch.file("edge", &format!("{}\n{token}\n", "z".repeat((1 << 20) - 20)));
    let deep = "d/".repeat(100);
    scratch.file(format!("{deep}x"), &token);
    std::fs::write(tree.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), &token).unwrap();
    symlink(".", tree.join("loop")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    let fifo = scratch.command("mkfifo").arg(tree.join("pipe")).spawn().unwrap();
    assert_eq!(finish(fifo).code, Some(0));
    std::fs::write(tree.join("binary"), [b"\0\0", token.as_bytes()].concat()).unwrap();
    let ran = scan(&scratch, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found: Vec<_> =
        lines(&ran).iter().map(|it| it.split(": ").next().unwrap().to_owned()).collect();
    let column = (3 << 20) + 2;
    assert_eq!(
        found,
        [
            format!("{deep}x:1:1"),
            "edge:2:1".to_owned(),
            format!("line:1:{column}"),
            "\\xff\\xfe:1:1".to_owned(),
        ]
    );
    assert!(ran.stderr.contains("1 binary content not searched"), "{}", ran.stderr);
    let binaries = scan(&scratch, &["--binaries"]);
    assert_eq!(lines(&binaries).len(), 5, "{}", binaries.stdout);
}

#[test]
fn what_was_not_read_completely_is_named_and_the_scan_incomplete() {
    let scratch = scratch();
    std::fs::write(scratch.tree().join("damaged.gz"), b"\x1f\x8b\x08\0\0\0\0\0\0\0broken").unwrap();
    scratch.file("x", &minted("npm-token", 12));
    let ran = scan(&scratch, &["--fail-on", "findings"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("not read completely: damaged.gz: it is damaged"),
        "{}",
        ran.stderr
    );
    assert_eq!(lines(&ran).len(), 1);
    let again = scan(&scratch, &["-o", "jsonl"]);
    assert_eq!(again.code, Some(3));
    assert!(again.stdout.contains("\"type\":\"unread\""), "{}", again.stdout);
    let allow = "[[allow]]\npath = \"*.gz\"\nrule = \"unread\"\nreason = \"test data\"\n";
    scratch.file(".gossip-allow.toml", allow);
    let accepted = scan(&scratch, &["--fail-on", "findings"]);
    assert_eq!(accepted.code, Some(10), "{}", accepted.stderr);
}

#[test]
fn a_broken_rule_is_named_with_its_place() {
    let scratch = scratch();
    for (text, expected) in [
        ("version = 1\n[[rule]]\nid = 7\n", "rules.toml:3:6"),
        ("version = 9\n", "format version 9, expected 1"),
        (
            "version = 1\n[[rule]]\nid = \"a\"\nname = \"A\"\nanchors = [\"ab\"]\n\
             regex = 'ab[0-9]{4}'\nmax_len = 6\nconfidence = \"high\"\n",
            "rule `a`",
        ),
    ] {
        std::fs::write(scratch.path().join("rules.toml"), text).unwrap();
        for words in [
            &["rules", "check", "rules.toml"][..],
            &["scan", "tree", "--secret-key-file", "key", "--rules", "rules.toml"],
        ] {
            let ran = scratch.run(words);
            assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(expected), "{words:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn every_built_in_rule_finds_its_samples() {
    let ran = scratch().run(&["rules", "test"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(" tested, 0 failed"), "{}", ran.stderr);
    assert!(Path::new(env!("CARGO_BIN_EXE_gossip")).is_file());
}

#[test]
fn an_etcd_store_is_refused_with_the_reason() {
    // Without a server: the URL alone decides.
    let scratch = scratch();
    scratch.file("x", "nothing");
    let mut command = scratch.gossip(&["scan", "tree", "--secret-key-file", "key"]);
    command.env("GOSSIP_STORE", "etcd://127.0.0.1:1/x");
    let ran = finish(command.spawn().unwrap());
    assert!(matches!(ran.code, Some(2)), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot keep findings"), "{}", ran.stderr);
}
