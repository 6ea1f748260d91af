//! Searches every configuration of the model to its end and prints the results as Markdown.
//!
//! `cargo xtask check-model` builds and runs it. The exit code is 1 if a rule was broken, a queue
//! was not emptied, or an outcome did not occur.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program: its output is its use")]

#[path = "../src/bin/simulate/time.rs"]
mod time;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use gossip_sim::model::{
    Config, Finding, Op, Report, Scale, Strictness, configurations, coverage, search,
};

const USAGE: &str = "usage: check_model [--config NAME] [--max-states N] [--short]";

/// The parsed options.
struct Wanted {
    config: Option<String>,
    states_max: usize,
    scale: Scale,
}

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program reads its own arguments")]
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if check(&wanted) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[String]) -> Option<Wanted> {
    let scale = Scale::Campaign;
    let mut wanted = Wanted { config: None, states_max: usize::MAX, scale };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--config" => wanted.config = Some(rest.next()?.clone()),
            "--max-states" => wanted.states_max = rest.next()?.parse().ok()?,
            "--short" => wanted.scale = Scale::Short,
            _ => return None,
        }
    }
    let known = configurations(wanted.scale);
    let named = |name: &String| known.iter().any(|config| config.name == *name);
    wanted.config.as_ref().is_none_or(named).then_some(wanted)
}

/// Runs the searches. Returns whether everything holds.
fn check(wanted: &Wanted) -> bool {
    println!("## States\n");
    println!(
        "| configuration | purpose | distinct states | moves | depth | processor time | queue empty |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut good = true;
    let (mut states, mut moves) = (0, 0);
    let mut reached: BTreeSet<(Op, String)> = BTreeSet::new();
    for config in configurations(wanted.scale) {
        if wanted.config.as_ref().is_some_and(|name| config.name != *name) {
            continue;
        }
        let run = || search(config, Strictness::Records, wanted.states_max);
        let (report, time) = timed(run);
        print_row(&config, &report, time);
        good &= report.exhausted;
        states += report.states;
        moves += report.moves;
        if let Some(finding) = &report.finding {
            print_finding(finding);
        }
        reached.extend(report.reached);
    }
    println!("| all | | {states} | {moves} | | | {} |", yes(good));
    // A broken rule was printed above, with the shortest path to it.
    println!(
        "\n{}\n",
        if good { "No rule was broken." } else { "**A rule was broken**: see above." }
    );
    if wanted.config.is_none() { print_coverage(&reached) && good } else { good }
}

fn print_row(config: &Config, report: &Report, time: Duration) {
    let Report { states, moves, depth, exhausted, .. } = report;
    let (name, purpose, empty) = (config.name, config.purpose, yes(*exhausted));
    let seconds = time.as_secs_f64();
    println!("| {name} | {purpose} | {states} | {moves} | {depth} | {seconds:.1} s | {empty} |");
}

fn print_finding(finding: &Finding) {
    println!();
    println!("{:?}: {}", finding.violation.rule, finding.violation.why);
    for line in &finding.trace {
        println!("  {line}");
    }
}

/// Prints the table of operations and outcomes. Returns whether every outcome occurred.
fn print_coverage(reached: &BTreeSet<(Op, String)>) -> bool {
    let table = coverage(reached);
    println!("## Outcomes\n");
    println!("| operation | outcomes reached |");
    println!("|---|---|");
    for op in Op::ALL {
        let of_op = table.expected.iter().filter(|(other, _)| *other == op);
        let met: Vec<&str> =
            of_op.filter(|pair| !table.missing.contains(pair)).map(|(_, name)| *name).collect();
        println!("| {op:?} | {} |", met.join(", "));
    }
    println!();
    let (met, all) = (table.expected.len() - table.missing.len(), table.expected.len());
    println!("{met} of {all} pairs of operation and outcome were reached.");
    if !table.missing.is_empty() || !table.surprising.is_empty() {
        println!("Missing: {:?}. Reached but not listed: {:?}.", table.missing, table.surprising);
    }
    print_unreachable(&table.unreachable);
    table.missing.is_empty() && table.surprising.is_empty()
}

/// Prints the pairs that no search can reach, grouped by name and reason.
fn print_unreachable(pairs: &[(Op, &str, &str)]) {
    println!("\n## Unreachable outcomes\n");
    println!("| outcome | of | why |\n|---|---|---|");
    let mut result = BTreeSet::new();
    for (_, name, why) in pairs {
        if result.insert((name, why)) {
            let same = pairs.iter().filter(|(_, other, reason)| other == name && reason == why);
            let ops: Vec<String> = same.map(|(op, ..)| format!("{op:?}")).collect();
            println!("| {name} | {} | {why} |", ops.join(", "));
        }
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = time::processor();
    let result = work();
    (result, time::processor().saturating_sub(start))
}

const fn yes(condition: bool) -> &'static str {
    if condition { "yes" } else { "**no**" }
}
