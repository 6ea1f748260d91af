//! Instructions per operation, counted by valgrind.
//!
//! A crate whose operations are counted has a benchmark target named [`TARGET`] without a harness.
//! With `--list` it prints the names of its operations, one per line; with `NAME COUNT` it runs one
//! of them COUNT times. It is run with n and with 2n operations: start-up is part of both counts,
//! so the difference divided by n is the cost of one operation.

use std::process::Command;

use serde_json::Value;

use super::Figure;
use crate::failure::Failure;
use crate::process;
use crate::workspace::{Package, Workspace};

/// The name of the benchmark target in each crate.
pub(super) const TARGET: &str = "instructions";

/// The n above: large enough to make rounding negligible, small enough for valgrind, which slows a
/// program down about fifty times.
const OPERATIONS: u64 = 1_000;

/// Counts the operations whose names contain the filter.
pub(super) fn measure(workspace: &Workspace, filter: Option<&str>) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for package in workspace.packages.iter().filter(|package| has_target(package)) {
        let program = build(&package.name)?;
        let next = format!("make `{} {TARGET}` accept --list", package.name);
        let list = process::capture(Command::new(&program).arg("--list"), &next)?;
        let is_wanted = |name: &&str| filter.is_none_or(|filter| name.contains(filter));
        for name in list.lines().filter(is_wanted) {
            let instructions = per_operation(
                count(&program, name, OPERATIONS)?,
                count(&program, name, 2 * OPERATIONS)?,
            );
            figures.push(Figure {
                package: package.name.clone(),
                name: name.to_owned(),
                nanoseconds: None,
                instructions: Some(instructions),
            });
        }
    }
    Ok(figures)
}

fn has_target(package: &Package) -> bool {
    package.targets.iter().any(|target| target.kind == "bench" && target.name == TARGET)
}

/// Compiles the target as `cargo bench` does and returns the path of the program.
fn build(package: &str) -> Result<String, Failure> {
    let mut command = process::cargo();
    command.args(["bench", "--no-run", "--all-features", "--package", package]);
    command.args(["--bench", TARGET, "--message-format", "json-render-diagnostics"]);
    let messages = process::capture(&mut command, "fix the benchmark named above")?;
    messages.lines().find_map(executable).ok_or_else(|| {
        let what = format!("cargo built no `{TARGET}` of {package}");
        Failure::new(what, "none of its messages names the program", "run the command by hand")
    })
}

/// Returns the program that one of cargo's messages reports.
fn executable(message: &str) -> Option<String> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_target = message["target"]["name"] == TARGET;
    let path = message["executable"].as_str()?;
    is_target.then(|| path.to_owned())
}

/// Returns the instructions of the program while it runs an operation `operations` times.
fn count(program: &str, name: &str, operations: u64) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", program, name]);
    command.arg(operations.to_string());
    let output = command.output().map_err(|error| failed(name, &error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(failed(name, &format!("it ended with {}:\n{text}", output.status)));
    }
    collected(&text).ok_or_else(|| failed(name, "valgrind printed no line `Collected`"))
}

fn failed(name: &str, why: &str) -> Failure {
    let next = "cargo xtask setup bench, then run the benchmark by hand";
    Failure::new(format!("the instructions of `{name}` were not counted"), why, next)
}

/// Parses `==123== Collected : 4567`.
fn collected(text: &str) -> Option<u64> {
    let number = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    number.trim().parse().ok()
}

fn per_operation(once: u64, twice: u64) -> f64 {
    // Counts stay far below 2^52, so the conversion is exact.
    (twice as f64 - once as f64) / OPERATIONS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_output_of_valgrind() {
        let text = "==1== Events    : Ir\n==1== Collected : 162043\n==1== \n";
        assert_eq!(collected(text), Some(162_043));
        assert_eq!(collected("==1== nothing"), None);
        assert_eq!(collected("==1== Collected : many"), None);
    }

    #[test]
    fn start_up_cancels_out() {
        let start_up = 1_000_000;
        let cost = |operations| start_up + 37 * operations;
        assert_eq!(per_operation(cost(OPERATIONS), cost(2 * OPERATIONS)), 37.0);
    }

    #[test]
    fn the_program_is_found_among_the_messages_of_cargo() {
        let message = r#"{"target":{"name":"instructions"},"executable":"/t/i-1"}"#;
        assert_eq!(executable(message).as_deref(), Some("/t/i-1"));
        assert_eq!(executable(&message.replace("name\":\"i", "name\":\"x")), None);
        assert_eq!(executable(r#"{"reason":"build-finished"}"#), None);
        assert_eq!(executable("no json"), None);
    }
}
