//! Certificates with the real binary: what verification must reject.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use self::support::{Ran, Scratch};

/// Processes `source` with a command that does nothing, and writes the certificate `cert`.
fn export(scratch: &Scratch, source: &[&str]) -> Ran {
    let args = [&["exec", "-o", "jsonl"], source, &["--", "true"]].concat();
    let ran = scratch.run(&args);
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    scratch.run(&["run", "export", &run, "--to", "cert"]);
    ran
}

/// A certificate over less than was required is valid for another request, so the verifier states
/// the options that were required.
#[test]
fn options_that_were_not_required_are_rejected() {
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

/// A dangling link is listed by the run and by the verifier.
#[test]
fn dangling_link_is_unread_and_counted() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    std::os::unix::fs::symlink("nowhere", scratch.tree().join("link")).unwrap();
    let ran = export(&scratch, &["tree", "--follow-links"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let checked = scratch.run(&["verify", "cert", "--source", "tree", "--follow-links"]);
    assert_eq!(checked.code, Some(3), "{}", checked.stderr);
    assert!(checked.stderr.contains("1 unread"), "{}", checked.stderr);
}

/// An auditor sees what ran, when, and what wrote the certificate; nothing of the environment.
#[test]
fn certificate_states_command_times_version_and_host() {
    let scratch = Scratch::new();
    let command = ["--", "sh", "-c", "true", "an argument", "{}"];
    let mut exec = scratch.gossip(&[&["exec", "-o", "jsonl", "range:0..3"], &command[..]].concat());
    let ran = support::finish(exec.env("TOKEN", "a-secret").spawn().unwrap());
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    let mut export = scratch.gossip(&["run", "export", &run]);
    let exported = support::finish(export.env("TOKEN", "a-secret").spawn().unwrap()).stdout;
    let stated: serde_json::Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let words: Vec<_> = stated["command"].as_array().unwrap().iter().collect();
    assert_eq!(words, ["sh", "-c", "true", "an argument", "{}"]);
    let settings = &stated["settings"];
    assert_eq!(settings["version"], env!("CARGO_PKG_VERSION"));
    assert!(settings["host"].as_str().is_some_and(|host| !host.is_empty()), "{settings}");
    for time in ["started", "completed"] {
        let time = settings[time].as_str().unwrap();
        assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    assert!(settings["started"].as_str() <= settings["completed"].as_str(), "{settings}");
    assert!(!exported.contains("a-secret"), "{exported}");
    std::fs::write(scratch.path().join("cert"), &exported).unwrap();
    let verified = scratch.run(&["verify", "cert"]);
    assert!(verified.stdout.contains(r#"["sh","-c","true","an argument","{}"]"#), "{verified:?}");
}

/// The arguments of a command may hold secrets; the rest of the certificate stays.
#[test]
fn certificate_without_the_command_is_verified() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["exec", "range:0..3", "--", "sh", "-c", "true", "a-secret", "{}"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let words = ["run", "export", "@last", "--no-command-in-proof"];
    let files = ["--to", "cert", "--html", "page.html"];
    assert_eq!(scratch.run(&[&words[..], &files].concat()).code, Some(0));
    for file in ["cert", "page.html"] {
        let text = std::fs::read_to_string(scratch.path().join(file)).unwrap();
        assert!(!text.contains("a-secret"), "{file}: {text}");
    }
    let verified = scratch.run(&["verify", "cert", "--source", "range:0..3"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.stdout.contains("3"), "{verified:?}");
    // Without the option it is stated.
    assert!(scratch.run(&["run", "export", "@last"]).stdout.contains("a-secret"));
}

/// The terminal receives no raw control characters.
#[test]
fn control_characters_are_not_printed() {
    let scratch = Scratch::new();
    let answer = r#"read -r l; printf '{"type":"error","id":1,"message":"\\u001b[2J"}\n'; cat"#;
    let args = ["exec", "range:0..1", "--stream", "--tries", "1", "--", "sh", "-c", answer];
    let ran = scratch.run(&args);
    assert!(ran.stderr.contains("u{1b}[2J") && !ran.stderr.contains('\u{1b}'), "{ran:?}");
}

/// The files of a run may be on another machine or deleted; only a comparison needs them.
#[test]
fn certificate_is_written_without_the_files() {
    let scratch = Scratch::new();
    scratch.file("a", "");
    let ran = scratch.run(&["exec", "-o", "jsonl", "tree", "--", "true"]);
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    std::fs::rename(scratch.tree(), scratch.path().join("moved")).unwrap();
    let verified = scratch.run(&["run", "verify", &run]);
    assert_eq!(verified.code, Some(0), "{}", verified.stderr);
    assert_eq!(scratch.run(&["run", "export", &run, "--to", "cert"]).code, Some(0));
    assert_eq!(scratch.run(&["verify", "cert"]).code, Some(0));
    let shown = scratch.run(&["run", "show", &run]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let compared = scratch.run(&["run", "verify", &run, "--source"]);
    assert_eq!(compared.code, Some(2), "{}", compared.stderr);
    assert!(compared.stderr.contains("machine that has the same files"), "{}", compared.stderr);
}

/// A pipe receives the whole certificate, and no temporary file is left behind.
#[test]
fn certificate_is_written_to_a_pipe() {
    let scratch = Scratch::new();
    let ran = export(&scratch, &["range:0..3"]);
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    for to in [&["--to", "/dev/stdout"][..], &[]] {
        let mut command = scratch.gossip(&[&["run", "export", &run], to].concat());
        let printed = support::finish(command.env("TMPDIR", scratch.tree()).spawn().unwrap());
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert!(printed.stdout.starts_with("{\"gossip-certificate\":2,"), "{printed:?}");
        assert!(printed.stdout.ends_with("\"}\n"), "{printed:?}");
    }
    assert_eq!(std::fs::read_dir(scratch.tree()).unwrap().count(), 0);
}

/// A certificate is written completely or not at all.
#[test]
fn failed_write_of_a_certificate_leaves_no_file() {
    let scratch = Scratch::new();
    let ran = export(&scratch, &["range:0..3"]);
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    let link = scratch.path().join("link");
    std::fs::hard_link(scratch.path().join("cert"), &link).unwrap();
    // The second certificate replaces the first file and does not overwrite its content.
    std::fs::write(scratch.path().join("key"), "a secret of enough bytes").unwrap();
    let signed = ["run", "export", &run, "--to", "cert", "--key-file", "key"];
    assert_eq!(scratch.run(&signed).code, Some(0));
    assert!(!std::fs::read_to_string(&link).unwrap().contains("signature"));
    let nowhere = scratch.run(&["run", "export", &run, "--to", "no/such/place"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains(".tmp")));
}

/// Every range that differs is printed, with both counts.
#[test]
fn ranges_that_differ_from_the_source_are_printed() {
    let scratch = Scratch::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        scratch.file(format!("{name}/1"), "");
        scratch.file(format!("{name}/2"), "");
    }
    export(&scratch, &["tree", "--shards", "3", "-j", "1", "--no-split"]);
    std::fs::remove_file(scratch.tree().join("a/1")).unwrap();
    std::fs::rename(scratch.tree().join("f/2"), scratch.tree().join("f/3")).unwrap();
    let run = scratch.run(&["run", "verify", "@last", "--source"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(
        run.stderr,
        "up to c/1: 4 items then, 3 now\n\
         from e/1 to the last key: 4 items as then, but others\n\
         gossip: the source is not the one that the run has processed\n  \
         why:  it now has 1 item fewer, in 2 ranges\n  \
         next: if that is right, repeat the command of the run with --restart\n"
    );
    let file = scratch.run(&["verify", "cert", "--source", "tree"]);
    assert_eq!(file.code, Some(1), "{file:?}");
    let lines: Vec<&str> = file.stderr.lines().collect();
    let [first, second, rest @ ..] = &lines[..] else { panic!("{file:?}") };
    assert_eq!(*first, "leaf 1, up to c/1: 4 keys stated, 3 in the source");
    assert_eq!(*second, "leaf 3, from e/1 to the last key: 4 keys as stated, but others");
    let expected = "why:  the source has other keys in 2 leaves";
    assert!(rest.concat().contains(expected), "{file:?}");
}
