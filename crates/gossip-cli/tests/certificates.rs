//! Certificates at the real command line: what they must not let through.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use self::support::{Ran, Scratch};

/// Goes through `source` with a command that does nothing, and writes the certificate `cert`.
fn export(scratch: &Scratch, source: &[&str]) -> Ran {
    let args = [&["exec", "-o", "jsonl"], source, &["--", "true"]].concat();
    let ran = scratch.run(&args);
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    scratch.run(&["run", "export", &run, "--to", "cert"]);
    ran
}

/// A certificate over less than was asked for is an honest one over something else: whoever checks
/// it says what was asked for.
#[test]
fn options_that_were_not_asked_for_are_refused() {
    let scratch = Scratch::new();
    for name in ["seen", ".env", "secret", ".gitignore"] {
        scratch.file(name, "secret\n");
    }
    export(&scratch, &["tree", "--ignore"]);
    let honest = scratch.run(&["verify", "cert", "--source", "tree", "--ignore"]);
    assert_eq!(honest.code, Some(0), "{}", honest.stderr);
    assert!(honest.stdout.contains("--ignore") && honest.stdout.contains("hidden files"));
    let less = scratch.run(&["verify", "cert", "--source", "tree"]);
    assert_eq!(less.code, Some(1), "{}", less.stderr);
    assert!(less.stderr.contains("options") && less.stderr.contains("--ignore"), "{}", less.stderr);
}

/// A link that leads nowhere is listed by the run and by whoever checks it.
#[test]
fn a_link_that_leads_nowhere_is_unread_and_counted() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    std::os::unix::fs::symlink("nowhere", scratch.tree().join("link")).unwrap();
    let ran = export(&scratch, &["tree", "--follow-links"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let checked = scratch.run(&["verify", "cert", "--source", "tree", "--follow-links"]);
    assert_eq!(checked.code, Some(3), "{}", checked.stderr);
    assert!(checked.stderr.contains("1 unread"), "{}", checked.stderr);
}
