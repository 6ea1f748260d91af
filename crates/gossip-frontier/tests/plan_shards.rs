//! The example reports invalid input as an error with the right exit code and never panics.

#[path = "../examples/plan_shards.rs"]
#[expect(dead_code, reason = "a test has its own entry point")]
mod plan_shards;

use std::ffi::OsString;
use std::io::{self, Write};

use gossip_contracts::coordination::MAX_KEY_SIZE;
use plan_shards::{Failure, Limits, run};

fn planned(args: &[&str], stdin: &[u8]) -> Result<String, Failure> {
    planned_within(Limits::REAL, args, stdin)
}

fn planned_within(limits: Limits, args: &[&str], stdin: &[u8]) -> Result<String, Failure> {
    let mut out = Vec::new();
    run(args.iter().map(OsString::from), stdin, limits, &mut out)?;
    Ok(String::from_utf8(out).expect("keys are shown escaped"))
}

#[track_caller]
fn assert_fails(args: &[&str], stdin: &[u8], code: u8, text: &str) {
    assert_failure(planned(args, stdin), code, text);
}

#[track_caller]
fn assert_failure(result: Result<String, Failure>, code: u8, text: &str) {
    let failure = result.expect_err("the input is invalid");
    assert_eq!(failure.exit_code(), code);
    assert!(failure.message().contains(text), "{}", failure.message());
}

#[test]
fn the_demonstration_shows_that_density_matters() {
    let shown = planned(&[], b"").unwrap();
    assert!(shown.contains("by density     12501 keys, 1.00 times a fair share"), "{shown}");
    assert!(shown.contains("even split     70321 keys, 5.63 times a fair share"), "{shown}");
}

#[test]
fn keys_are_bytes_and_empty_lines_are_skipped() {
    let shown = planned(&["3"], b"b\n\n\xFF\xFE\na\nb").unwrap();
    assert!(shown.contains("4 sampled keys"), "{shown}");
    assert!(shown.contains(r"\xff\xfe\x00"), "{shown}");
}

#[test]
fn long_keys_are_shortened_at_byte_boundaries() {
    let keys = [vec![0xAB; MAX_KEY_SIZE], vec![b'k'; 500]].join(&b'\n');
    let shown = planned(&["2", "-"], &keys).unwrap();
    assert!(shown.contains(r"\xab\xab\xab..\xab\xab"), "{shown}");
    assert!(shown.contains("kkkkkkkkkkkkkk..kkkkkkkk"), "{shown}");
}

#[test]
fn one_key_makes_one_shard() {
    let shown = planned(&["8"], b"k\nk\nk\n").unwrap();
    assert_eq!(shown.matches("100.0%").count(), 2, "{shown}");
}

#[test]
fn an_invalid_command_line_prints_the_usage() {
    for number in ["0", "257", "-1", "x", "", "99999999999999999999"] {
        assert_fails(&[number], b"a\n", 2, "is not a number of shards\nusage:");
    }
    assert_fails(&["2", "-", "more"], b"", 2, "too many arguments\nusage:");
}

#[test]
fn invalid_keys_are_reported_by_line_and_length() {
    assert_fails(&["2"], b"\n\n", 1, "no keys");
    let long = [&b"ok\n"[..], &[b'x'; MAX_KEY_SIZE + 1]].concat();
    assert_fails(&["2"], &long, 1, "line 2: a key of 4097 bytes, at most 4096 fit");
    assert_fails(&["2"], &[0xFF; MAX_KEY_SIZE], 1, "greatest possible key");
    assert_fails(&["2", "/no/such/file"], b"", 1, "/no/such/file");
}

#[test]
fn more_keys_than_the_limit_are_rejected() {
    let limits = Limits { keys: 3, ..Limits::REAL };
    // Empty lines are not keys, at any position.
    let shown = planned_within(limits, &["2"], b"\n\nc\n\nb\na\n\n").unwrap();
    assert!(shown.contains("3 sampled keys"), "{shown}");
    // Equal keys have weight, so each of them counts.
    let refused = planned_within(limits, &["2"], b"a\na\na\na");
    assert_failure(refused, 1, "more than 3 keys; use a sample");
}

#[test]
fn more_bytes_than_the_limit_are_rejected() {
    let limits = Limits { bytes: 4, ..Limits::REAL };
    assert!(planned_within(limits, &["2"], b"a\nb\n").is_ok());
    let text = "standard input: more than 4 bytes; use a sample";
    assert_failure(planned_within(limits, &["2"], b"a\nb\n\n"), 1, text);
    // The same limit applies to a file.
    let this_file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plan_shards.rs");
    let refused = planned_within(limits, &["2", this_file], b"");
    assert_failure(refused, 1, "plan_shards.rs\": more than 4 bytes");
    // Infinite input is not read to its end.
    let mut out = Vec::new();
    let args = ["2"].map(OsString::from).into_iter();
    let endless = run(args, io::repeat(b'\n'), limits, &mut out);
    assert_failure(endless.map(|()| String::new()), 1, text);
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let failure = run(std::iter::empty(), io::empty(), Limits::REAL, &mut Closed).unwrap_err();
    assert_eq!(failure.exit_code(), 0);
}
