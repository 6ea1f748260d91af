//! Requires assertions in the flights.
//!
//! A flight is the code between a rule and the store: retries, conflicts, lost replies and caches
//! meet there. Its assertions state what holds between two of its states, in every build, so a
//! mistake panics before anything is stored. Each file of a flight has at least
//! [`ASSERTIONS_MIN`] of them per 100 lines of code.

use super::Finding;
use crate::source::{Token, tokens};
use crate::workspace::File;

/// Where the flights are. The slash keeps directories with longer names out.
const DIRECTORY: &str = "crates/gossip-coordination/src/store/";

/// Part of the name of each file of a flight.
const FLIGHT: &str = "flight";

/// Minimum number of assertions per 100 lines with code.
const ASSERTIONS_MIN: usize = 5;

/// The macros that panic in every build. `debug_assert` is none of them.
const ASSERTIONS: [&str; 3] = ["assert", "assert_eq", "assert_ne"];

/// Checks the files of the flights. Without any the rule would pass unnoticed after a move.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let flights: Vec<&File> = files.iter().filter(|file| is_flight(file)).collect();
    if flights.is_empty() {
        return vec![Finding::new(DIRECTORY, "no flight is there; name their new place in tidy")];
    }
    flights.into_iter().filter_map(too_few).collect()
}

fn is_flight(file: &File) -> bool {
    let name = file.path.strip_prefix(DIRECTORY).unwrap_or_default();
    file.is_rust() && !file.is_test() && name.contains(FLIGHT)
}

fn too_few(file: &File) -> Option<Finding> {
    // Comments are blanked in `code`, so a line of them is empty.
    let lines = file.code.lines().filter(|line| !line.trim().is_empty()).count();
    let tokens = tokens(&file.code);
    let is_assertion =
        |pair: &[Token<'_>]| ASSERTIONS.contains(&pair[0].text) && pair[1].text == "!";
    let found = tokens.windows(2).filter(|pair| is_assertion(pair)).count();
    let what = format!(
        "{found} assertions in {lines} lines of code, at least {ASSERTIONS_MIN} per 100; \
         state what holds between two states"
    );
    (found * 100 < lines * ASSERTIONS_MIN).then(|| Finding::new(&file.path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flight with so many assertions and other lines.
    fn complaints(name: &str, assertions: usize, others: usize) -> Vec<String> {
        let text = "assert!(x);\n".repeat(assertions)
            + &"x();\n".repeat(others)
            + &"// assert!(x)\n\n".repeat(100);
        let file = File::new(format!("{DIRECTORY}{name}"), text);
        check(&[file]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn five_assertions_per_hundred_lines_of_code_are_enough() {
        assert_eq!(complaints("run_flight.rs", 5, 95), Vec::<String>::new());
        let found = complaints("run_flight.rs", 4, 96);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("4 assertions in 100 lines of code"), "{found:?}");
    }

    #[test]
    fn assertions_of_debug_builds_and_in_strings_do_not_count() {
        let text = "debug_assert!(x);\nlet x = \"assert!(x)\";\n".repeat(10);
        let file = File::new(format!("{DIRECTORY}flight.rs"), text);
        assert_eq!(check(&[file]).len(), 1);
    }

    #[test]
    fn only_flights_are_counted_and_their_absence_is_found() {
        let flight = File::new(format!("{DIRECTORY}flight.rs"), "assert!(x);\n");
        let other = File::new(format!("{DIRECTORY}core.rs"), "x();\n");
        let tests = File::new(format!("{DIRECTORY}flight_tests.rs"), "x();\n");
        assert_eq!(check(&[flight, other, tests]), []);
        assert_eq!(check(&[File::new("a.rs", "x();\n")]).len(), 1);
    }
}
