//! The table of figures, and its block in `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::fs;
use std::thread;

use super::Figure;
use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

/// Returns the figures as a Markdown table.
pub(super) fn render(figures: &[Figure]) -> String {
    let mut table =
        String::from("| crate | benchmark | time | instructions |\n|---|---|---:|---:|\n");
    for figure in figures {
        let Figure { package, name, .. } = figure;
        let time = figure.nanoseconds.map_or_else(none, duration);
        let instructions = figure.instructions.map_or_else(none, |count| format!("{count:.0}"));
        writeln!(table, "| {package} | {name} | {time} | {instructions} |")
            .expect("writing to a String is infallible");
    }
    table
}

/// Replaces the figures in the document.
pub(super) fn save(table: &str, made: &Made) -> Result<(), Failure> {
    saved::BENCHMARKS.save(&format!("{}\n\n{}", machine()?, grouped_in(table)), made)
}

fn none() -> String {
    "–".to_owned()
}

/// Formats a duration in the unit that leaves one to three digits before the point.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Describes the machine in two sentences: properties that affect the figures, and none that
/// identify it.
fn machine() -> Result<String, Failure> {
    // Not available on every system; the table is still useful without the processor.
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu_model(&cpus).unwrap_or("unknown processor");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut rustc = std::process::Command::new("rustc");
    let rustc = process::capture(rustc.arg("--version"), "install a Rust toolchain")?;
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load(&loads).unwrap_or("unknown");
    Ok(format!(
        "Measured on {cpu}, {cores} core(s), {}. Load of the last 15 minutes: {load}.",
        rustc.trim()
    ))
}

/// Returns the load average, which shows how far to trust the times: 1 is this run, the rest are
/// other processes.
fn load(loadavg: &str) -> Option<&str> {
    loadavg.split_whitespace().nth(2)
}

/// Returns the model of the first core; all cores are equal on the machines in use.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_figures_are_shown_as_missing() {
        let figure = Figure {
            package: "a".into(),
            name: "x".into(),
            nanoseconds: None,
            instructions: Some(41.6),
        };
        assert!(render(&[figure]).ends_with("| a | x | – | 42 |\n"));
    }

    #[test]
    fn durations_choose_their_unit() {
        assert_eq!(duration(0.25), "0.2 ns");
        assert_eq!(duration(999.0), "999.0 ns");
        assert_eq!(duration(1_500.0), "1.50 µs");
        assert_eq!(duration(2_000_000.0), "2.00 ms");
        assert_eq!(duration(3e9), "3.00 s");
    }

    #[test]
    fn the_load_is_that_of_a_whole_run() {
        assert_eq!(load("8.31 8.72 7.35 3/200 12345\n"), Some("7.35"));
        assert_eq!(load(""), None);
    }

    #[test]
    fn the_processor_is_read_without_the_rest() {
        let text = "processor : 0\nmodel name\t: Some CPU @ 2 GHz\nflags : x\n";
        assert_eq!(cpu_model(text), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
