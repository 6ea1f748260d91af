//! The pages for users: the commands in their `console` blocks are run, and print what the page
//! shows.
//!
//! A page is one session in an empty home directory. In a block, lines that begin with `$ ` are
//! commands, further lines of a command begin with `> `, and the rest is output: standard output
//! and standard error as a terminal shows them. Ids, times and rates are compared by their form,
//! and a line `…` matches any lines. `<!-- run: COMMAND -->` runs a hidden command.
//!
//! `GOSSIP_REWRITE=1 cargo test -p gossip-cli --test pages` writes the output into the pages.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gossip_testkit::test_support::EtcdServer;

use support::{Scratch, finish, piped};

/// Environment variable that makes the test rewrite the pages.
const REWRITE: &str = "GOSSIP_REWRITE";

/// Any lines of output.
const GAP: &str = "…";

/// The cluster of the pages; the test has its own.
const CLUSTER: &str = "10.0.0.1:2379";

const OPEN: &str = "```console";
const CLOSE: &str = "```";
const HIDDEN: &str = "<!-- run: ";

#[test]
fn pages_show_what_their_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = vec![root.join("tutorial.md")];
    let how_to = fs::read_dir(root.join("how-to")).unwrap();
    pages.extend(how_to.map(|entry| entry.unwrap().path()));
    pages.sort();
    assert!(pages.len() >= 7, "{pages:?}");
    let mut wrong = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let (actual, differences) = execute(&text);
        if differences.is_empty() {
            continue;
        }
        match std::env::var_os(REWRITE).is_some() {
            true => fs::write(&page, actual).unwrap(),
            false => wrong.push(format!("{}:\n{}", page.display(), differences.join("\n"))),
        }
    }
    assert!(wrong.is_empty(), "{}\nset {REWRITE}=1 to rewrite them", wrong.join("\n"));
}

/// Runs the commands of a page. Returns the page with their output, and what differs.
fn execute(page: &str) -> (String, Vec<String>) {
    let session = Session::new(page.contains(CLUSTER));
    let (mut actual, mut differences) = (String::new(), Vec::new());
    let mut lines = page.lines().peekable();
    let mut is_console = false;
    while let Some(line) = lines.next() {
        if let Some(command) = line.strip_prefix(HIDDEN).and_then(|it| it.strip_suffix(" -->")) {
            session.run(command);
        }
        let Some(first) = line.strip_prefix("$ ").filter(|_| is_console) else {
            is_console = if is_console { line != CLOSE } else { line == OPEN };
            actual.push_str(line);
            actual.push('\n');
            continue;
        };
        let mut command = first.to_owned();
        actual.push_str(&format!("{line}\n"));
        while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
            command.push('\n');
            command.push_str(&more[2..]);
            actual.push_str(&format!("{more}\n"));
        }
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| *line != CLOSE && !line.starts_with("$ ")) {
            expected.push(line);
        }
        let printed = session.run(&command);
        let printed: Vec<&str> = printed.lines().collect();
        let fits = is_same(&expected, &printed);
        if !fits {
            let shown = printed.join("\n");
            differences.push(format!("$ {command}\n{shown}"));
        }
        let kept = if fits { &expected } else { &printed };
        kept.iter().for_each(|line| actual.push_str(&format!("{line}\n")));
    }
    (actual, differences)
}

/// Returns whether the output is the expected one, apart from what differs from run to run.
fn is_same(expected: &[&str], printed: &[&str]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&GAP, rest)), _) => {
            (0..=printed.len()).any(|skipped| is_same(rest, &printed[skipped..]))
        }
        (Some((one, expected)), Some((other, printed))) => {
            form_of(one) == form_of(other) && is_same(expected, printed)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Replaces ids, hashes and numbers of a moment by their kind, and blanks by one.
fn form_of(line: &str) -> String {
    let mut form = String::new();
    for word in line.split_whitespace() {
        let is_id = |part: &str| {
            part.len() >= 8
                && part.bytes().all(|byte| byte.is_ascii_hexdigit())
                && part.bytes().any(|byte| byte.is_ascii_digit())
        };
        let parts = word.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
        for part in parts {
            let bare = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let rest = &part[bare.len()..];
            form.push_str(if is_id(bare) { "ID" } else { bare });
            form.push_str(rest);
        }
        form.push(' ');
    }
    // `3 s ago`, `2026-11-18T…Z`, `12/s`, a pid: a number before a unit of time.
    let words: Vec<&str> = form.split(' ').collect();
    let mut out = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let next = words.get(index + 1).copied().unwrap_or_default();
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_unit =
            ["s", "ms", "min", "h", "d", "m", "KiB"].contains(&next.trim_end_matches([',', ';']));
        let is_date = word.len() > 18 && word.contains('T') && word.contains(':');
        let is_rate = word.contains("/s") && word.starts_with(|it: char| it.is_ascii_digit());
        out.push(match () {
            () if (is_number && is_unit) || *word == "now" => "TIME",
            () if is_number && word.len() >= 4 => "NUMBER",
            () if is_date => "DATE",
            () if is_rate => "RATE",
            () => word,
        });
    }
    out.join(" ").replace("in TIME s", "TIME").replace("TIME s ago", "TIME").trim().to_owned()
}

#[test]
fn moments_are_compared_by_form() {
    let same = |one: &str, other: &str| assert_eq!(form_of(one), form_of(other));
    same("run 9b85cafa7800b1df: new", "run 0123456789abcdef: new");
    same("9b85cafa  done  3 s ago", "0b85cafb  done   12 s ago");
    same("started  2026-11-18T10:00:00.000Z", "started 2027-01-18T10:00:00.123Z");
    assert_ne!(form_of("10 keys"), form_of("11 keys"));
    assert!(is_same(&["a", GAP, "z"], &["a", "b", "c", "z"]));
    assert!(!is_same(&["a", GAP, "z"], &["a", "b"]));
}

/// A shell in an empty home directory.
struct Session {
    scratch: Scratch,
    home: PathBuf,
    etcd: Option<EtcdServer>,
}

impl Session {
    fn new(with_cluster: bool) -> Self {
        let scratch = Scratch::new();
        let home = scratch.path().join("home");
        fs::create_dir(&home).unwrap();
        let etcd = with_cluster.then(EtcdServer::single);
        Self { scratch, home, etcd }
    }

    /// Runs a command and returns its output as a page shows it.
    fn run(&self, script: &str) -> String {
        let programs = Path::new(env!("CARGO_BIN_EXE_gossip")).parent().unwrap().to_path_buf();
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(programs).chain(std::env::split_paths(&usual));
        let cluster = self.etcd.as_ref().map(|etcd| format!("127.0.0.1:{}", etcd.client_port()));
        let own = cluster.as_deref().unwrap_or(CLUSTER);
        let mut command = Command::new("sh");
        // One stream, so that lines have the order of a terminal.
        let script = format!("exec 2>&1\n{}", script.replace(CLUSTER, own));
        piped(&mut command).args(["-c", &script]).current_dir(&self.home).env_clear();
        command.env("PATH", std::env::join_paths(path).unwrap()).env("HOME", &self.home);
        let ran = finish(command.spawn().unwrap());
        let _ = &self.scratch;
        let text = ran.stdout.replace(own, CLUSTER);
        text.replace(&*self.home.to_string_lossy(), "/home/you")
    }
}
