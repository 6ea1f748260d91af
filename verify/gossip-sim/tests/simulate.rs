//! The command line of `simulate`: exit codes, the report, and words that it does not know.

use std::process::{Command, Output};

use rstest::rstest;

fn simulate(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_simulate");
    Command::new(program).args(words).output().expect("the program was built with this test")
}

#[rstest]
#[case::without_faults(&["--seed", "7", "--ops", "2000", "--faults", "none"])]
#[case::with_faults(&["--seed", "7", "--ops", "2000"])]
fn a_world_that_holds_is_reported(#[case] words: &[&str]) {
    let ran = simulate(words);
    let report = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(ran.status.code(), Some(0), "{report}");
    for heading in ["## Figures", "## Faults", "## Outcomes"] {
        assert!(report.contains(heading), "{heading} in {report}");
    }
}

#[test]
fn a_world_that_breaks_a_rule_fails_and_ends_with_its_replay() {
    let words = ["--seed", "5", "--ops", "600", "--faults", "none", "--bug", "CheckpointLost"];
    let ran = simulate(&words);
    let report = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(ran.status.code(), Some(1), "{report}");
    let last = report.lines().last().unwrap_or_default();
    assert!(last.starts_with("cargo xtask sim --seed 5 "), "{last}");
}

#[rstest]
#[case::faults(&["--faults", "rain"])]
#[case::number(&["--seed", "x"])]
#[case::flag(&["--sed", "7"])]
fn unknown_words_are_refused_with_the_usage(#[case] words: &[&str]) {
    let ran = simulate(words);
    let said = String::from_utf8(ran.stderr).expect("text");
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.starts_with("usage: simulate [--seed N]") && ran.stdout.is_empty(), "{said}");
}
