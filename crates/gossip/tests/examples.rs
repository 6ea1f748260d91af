//! Every example runs. They are programs beside this test; `cargo xtask test` builds them first.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

use std::path::PathBuf;
use std::process::Command;

use gossip_testkit::test_support::TestDirectory;

/// Runs an example; returns its exit code, standard output and standard error.
fn run(name: &str, args: &[&str]) -> (Option<i32>, String, String) {
    // This test lies in `deps`, beside the directory of the examples.
    let test: PathBuf = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.is_file(), "run cargo build -p gossip-engine --examples first");
    let ran = Command::new(program).args(args).env_remove("GOSSIP_STORE").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

#[test]
fn closure_prints_every_item_once_over_two_runs() {
    let directory = TestDirectory::new("example-closure");
    let store = format!("sqlite:{}", directory.path().join("state.db").display());
    let (code, first, said) = run("closure", &["range:0..20", &store]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let mut lines: Vec<_> = first.lines().collect();
    assert_eq!(lines.pop(), Some("Complete, 20 items"));
    lines.sort_unstable_by_key(|line| line.parse::<u64>().unwrap());
    assert_eq!(lines, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    let (_, again, _) = run("closure", &["range:0..20", &store]);
    assert_eq!(again, "Complete, 20 items\n");
}

/// The goal of the crate: a user names one crate and writes at most 12 lines.
#[test]
fn closure_has_at_most_twelve_lines_of_code() {
    let source = include_str!("../examples/closure.rs");
    let main = source.split_once("fn main").unwrap().1;
    assert!(main.lines().count() <= 12, "{main}");
    assert_eq!(source.lines().filter(|line| line.starts_with("use ")).count(), 1);
}

#[test]
fn async_handler_waits_for_every_future() {
    let (code, said, _) = run("async_handler", &["range:0..40"]);
    assert_eq!(code, Some(0));
    assert_eq!(said.lines().filter(|line| line.ends_with(" bytes")).count(), 40);
    assert_eq!(said.lines().last(), Some("Complete, 40 items"));
}

#[test]
fn own_connector_lists_every_word_and_refuses_other_names() {
    let (code, said, _) = run("own_connector", &["words:3"]);
    assert_eq!(code, Some(0));
    assert_eq!(said.lines().last(), Some("Complete, 64 items"));
    let (code, _, said) = run("own_connector", &["words:many"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("Connect(NotFound)"), "{said}");
}

#[test]
fn sink_with_fence_counts_the_bytes_of_a_directory() {
    let directory = TestDirectory::new("example-sink");
    for (name, text) in [("a", "12345"), ("b", ""), ("c", "123")] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let (code, said, _) = run("sink_with_fence", &[directory.path().to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (Some(0), "Complete: 3 files, 8 bytes\n"));
}

#[test]
fn coordinator_only_resumes_under_a_higher_fence_and_refuses_the_first_worker() {
    let (code, said, error) = run("coordinator_only", &[]);
    assert_eq!(code, Some(0), "{error}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..2], ["resumes after m", "fence 3 after 2"]);
    assert!(lines[2].starts_with("the first worker: "), "{said}");
    assert_eq!(lines[3..], ["complete"]);
}

#[test]
fn store_by_url_names_the_kinds_it_has_and_shows_no_password() {
    let (code, said, _) = run("store_by_url", &["memory:"]);
    assert_eq!(code, Some(0));
    assert!(said.ends_with("Complete, 1000 items\n"), "{said}");
    let (code, _, said) = run("store_by_url", &["mysql://user:secret@host/db"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("sqlite:PATH") && !said.contains("secret"), "{said}");
    let (code, _, said) = run("store_by_url", &["postgres://user:secret@host/db"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("password_file") && !said.contains("secret"), "{said}");
}

#[test]
fn secrets_are_found_once_over_two_runs_and_not_shown() {
    let directory = TestDirectory::new("example-secrets");
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let sample = gossip::secrets::RuleSet::built_in().rule("npm-token").unwrap().mint(3).unwrap();
    let sample = String::from_utf8(sample).unwrap();
    std::fs::write(tree.join("notes.txt"), format!("first\ntoken: {sample}\n")).unwrap();
    let store = format!("sqlite:{}", directory.path().join("state.db").display());
    for _ in 0..2 {
        let (code, said, error) = run("secrets", &[tree.to_str().unwrap(), &store]);
        assert_eq!((code, error.as_str()), (Some(0), ""));
        assert_eq!(said, "notes.txt:2 npm-token npm_…(40 bytes)\nComplete, 1 findings\n");
        assert!(!said.contains(&sample));
    }
}
