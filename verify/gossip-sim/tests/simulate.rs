//! The command line of `simulate`: exit codes, the report, and invalid arguments.

use std::process::{Command, Output};

use rstest::rstest;

fn simulate(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_simulate");
    Command::new(program).args(words).output().expect("the program was built with this test")
}

#[rstest]
#[case::without_faults(&["--seed", "7", "--ops", "2000", "--faults", "none"])]
#[case::with_faults(&["--seed", "7", "--ops", "2000"])]
fn a_passing_simulation_is_reported(#[case] words: &[&str]) {
    let ran = simulate(words);
    let report = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(ran.status.code(), Some(0), "{report}");
    for heading in ["## Figures", "## Faults", "## Outcomes"] {
        assert!(report.contains(heading), "{heading} in {report}");
    }
}

#[test]
fn a_failing_simulation_ends_with_its_reproduction_command() {
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
fn invalid_arguments_are_rejected_with_the_usage(#[case] words: &[&str]) {
    let ran = simulate(words);
    let said = String::from_utf8(ran.stderr).expect("text");
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.starts_with("usage: simulate [--seed N]") && ran.stdout.is_empty(), "{said}");
}
