//! Reports as lines, and the fingerprint of a build.

use std::time::Duration;

use super::command::{Options, Verdict, run_simulator, write_report};
use super::op::{Label, Verb};
use super::{FINGERPRINT, Plan, Report, Simulator, fingerprint};

#[test]
fn the_fingerprint_is_the_same_in_every_build() {
    let found = fingerprint(&Simulator::new()).expect("the simulation breaks no rule");
    assert_eq!(found, FINGERPRINT, "{found:016x}");
}

#[test]
fn a_report_is_read_back_from_its_line() {
    let simulator = Simulator::new();
    let mut sum = Report::default();
    for seed in 1..=2 {
        let report = simulator.run(&Plan::of_seed(seed, 300, None));
        sum.add(&report.expect("the simulation breaks no rule"));
    }
    let line = sum.to_line();
    let read = Report::from_line(&line).expect("a line that was just written");
    assert_eq!(read.to_line(), line);
    assert_eq!((read.operations, read.trace_hash), (sum.operations, sum.trace_hash));
    assert_eq!(read.coverage.pair_count(), sum.coverage.pair_count());
}

#[test]
fn a_truncated_line_is_rejected() {
    let line = Report::default().to_line();
    assert!(Report::from_line(&line).is_some());
    for length in 0..line.len() - 1 {
        let cut = &line[..length];
        assert!(Report::from_line(cut).is_none(), "{length} bytes");
    }
}

#[test]
fn unknown_options_are_rejected() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let known = Options::parse(&words("--seed 7 --seeds 3 --ops 50 --faults none"));
    assert_eq!(known.expect("they are known").seeds(), 7..10);
    for unknown in ["--sed 7", "--seed", "--seed x", "--faults everything", "--bug None"] {
        assert!(Options::parse(&words(unknown)).is_none(), "{unknown}");
    }
}

#[test]
fn a_failure_ends_with_the_command_of_its_simulator() {
    let words: Vec<String> = "--seed 5 --ops 600 --faults none --bug CheckpointLost --trace"
        .split(' ')
        .map(str::to_owned)
        .collect();
    let options = Options::parse(&words).expect("they are known");
    let (simulator, mut out) = (Simulator::new().with_command("simulate"), Vec::new());
    let verdict = run_simulator(&simulator, &options, &|| Duration::ZERO, &mut out);
    assert_eq!(verdict.expect("a vector takes everything"), Verdict::Broken);
    let text = String::from_utf8(out).expect("text");
    let mut lines = text.lines().rev();
    let replay = lines.next().and_then(|line| line.strip_prefix("simulate "));
    let again = replay.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert!(again.and_then(|words| Options::parse(&words)).is_some(), "{text}");
    assert!(lines.next().is_some_and(|line| line.contains("fingerprint")), "{text}");
}

#[test]
fn a_plan_without_a_command_is_printed() {
    let plan = Plan::of_seed(1, 300, None);
    assert!(plan.command().starts_with("cargo xtask sim --seed 1 "));
    for odd in [
        Plan { alone: Some(0), ..plan.clone() },
        Plan { paired_until: Some(9), ..plan.clone() },
        Plan { calm_ticks: 1, ..plan },
    ] {
        assert!(odd.command().starts_with("no command"), "{}", odd.command());
    }
}

/// `cargo xtask sim --save` finds the tables by these headings.
#[test]
fn a_report_has_a_heading_for_each_table_and_commas_between_thousands() {
    let mut report = Report { worlds: 1_234, operations: 1_234_567, ..Report::default() };
    report.coverage.add(Verb::Claim, Label::named("Executed"), 9_876);
    let mut written = Vec::new();
    write_report(&report, Duration::from_millis(2_345_678), &mut written).unwrap();
    let written = String::from_utf8(written).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    let expected = [
        "## Figures",
        "| simulations (seeds) without a violation | 1,234 |",
        "| operations checked against every rule | 1,234,567 |",
        "| time | 2,345.7 s |",
        "## Faults",
        "Floor: 123 of each kind; below it: drop, duplicate",
        "## Outcomes",
        "| Claim | Executed 9,876 |",
        "1 pairs of operation and outcome.",
    ];
    let mut rest = lines.iter();
    for line in expected {
        assert!(rest.any(|other| other.starts_with(line)), "{line}\n{written}");
    }
}
