//! The table of figures, and its place in `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;

use super::Figure;
use crate::failure::Failure;
use crate::process;

const DOCUMENT: &str = "docs/benchmarks.md";
/// Everything between these two lines belongs to `--save`; the rest of the page to people.
const BEGIN: &str = "<!-- figures: begin -->";
const END: &str = "<!-- figures: end -->";

/// The figures as a Markdown table.
pub(super) fn render(figures: &[Figure]) -> String {
    let mut table =
        String::from("| crate | benchmark | time | instructions |\n|---|---|---:|---:|\n");
    for figure in figures {
        let Figure { package, name, .. } = figure;
        let time = figure.nanoseconds.map_or_else(none, duration);
        let instructions = figure.instructions.map_or_else(none, |count| format!("{count:.0}"));
        writeln!(table, "| {package} | {name} | {time} | {instructions} |")
            .expect("writing to a String never fails");
    }
    table
}

/// Replaces the figures in the document by these.
pub(super) fn save(root: &Path, table: &str) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new(format!("{DOCUMENT} was not written"), why, format!("git checkout {DOCUMENT}"))
    };
    let path = root.join(DOCUMENT);
    let old = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let figures = format!("{}\n\n{table}", machine()?);
    let new = replace(&old, &figures)
        .ok_or_else(|| failed(format!("it has no lines `{BEGIN}` and `{END}`")))?;
    fs::write(&path, new).map_err(|error| failed(error.to_string()))
}

fn none() -> String {
    "–".to_owned()
}

/// A duration in the unit that leaves one to three digits before the point.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// The document with other figures between its two marks.
fn replace(document: &str, figures: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{figures}{END}{after}"))
}

/// The machine in two sentences: what changes the figures, and nothing that identifies it.
fn machine() -> Result<String, Failure> {
    // Not on every system; a table without the processor is still a table.
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

/// Tells the reader how far to trust the times: one is ourselves, what exceeds it are others.
fn load(loadavg: &str) -> Option<&str> {
    loadavg.split_whitespace().nth(2)
}

/// All cores have the same name on the machines we use, so the first will do.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_were_not_taken_are_shown_as_missing() {
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
    fn only_what_stands_between_the_marks_is_replaced() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\nnew\n{END}\nafter\n");
        assert_eq!(replace(&document, "new\n").as_deref(), Some(expected.as_str()));
        assert_eq!(replace(&expected, "new\n").as_deref(), Some(expected.as_str()));
        assert_eq!(replace("no marks", "new\n"), None);
    }

    #[test]
    fn the_document_has_the_marks() {
        let root = crate::workspace::Workspace::load().unwrap().root;
        let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        assert!(replace(&document, "").is_some());
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
