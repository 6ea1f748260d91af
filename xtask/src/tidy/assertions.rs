//! Requires assertions in the flights and in the kernel.
//!
//! A flight is the code between a rule and the store: retries, conflicts, lost replies and caches
//! meet there. Its assertions state what holds between two of its states, in every build, so a
//! mistake panics before anything is stored. Those of the kernel state what a decision and a record
//! guarantee. There are at least [`ASSERTIONS_MIN`] of them per 100 lines of code in each file of a
//! flight, in the record, and in the protocol as a whole: its files share their checks, and a file
//! with one rule has few lines of its own.

use super::Finding;
use crate::source::{Token, tokens};
use crate::workspace::File;

/// Where the flights are. The slash keeps directories with longer names out.
const DIRECTORY: &str = "crates/gossip-coordination/src/store/";

/// Part of the name of each file of a flight.
const FLIGHT: &str = "flight";

/// The shard record.
const RECORD: &str = "crates/gossip-coordination/src/record.rs";

/// The rules.
const PROTOCOL: &str = "crates/gossip-coordination/src/protocol/";

/// Minimum number of assertions per 100 lines with code.
const ASSERTIONS_MIN: usize = 5;

/// The macros that panic in every build. `debug_assert` is none of them.
const ASSERTIONS: [&str; 3] = ["assert", "assert_eq", "assert_ne"];

/// The function that panics with a broken invariant of a record.
const ASSERT_HOLDS: [&str; 2] = ["assert_holds", "("];

/// Checks the files of the flights and of the kernel. Without any the rule would pass unnoticed
/// after a move.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let sources: Vec<&File> =
        files.iter().filter(|file| file.is_rust() && !file.is_test()).collect();
    let under = |place: &str| -> Vec<&File> {
        sources.iter().copied().filter(|file| file.path.starts_with(place)).collect()
    };
    let flights: Vec<&File> = sources.iter().copied().filter(|file| is_flight(file)).collect();
    let mut findings = Vec::new();
    if flights.is_empty() {
        findings.push(moved(DIRECTORY));
    }
    findings.extend(flights.into_iter().filter_map(|file| too_few(&file.path, &[file])));
    for place in [RECORD, PROTOCOL] {
        match under(place).as_slice() {
            [] => findings.push(moved(place)),
            files => findings.extend(too_few(place, files)),
        }
    }
    findings
}

fn moved(place: &str) -> Finding {
    Finding::new(place, "no code is there; name its new place in tidy")
}

fn is_flight(file: &File) -> bool {
    let name = file.path.strip_prefix(DIRECTORY).unwrap_or_default();
    name.contains(FLIGHT)
}

/// Returns a finding if some files together have too few assertions.
fn too_few(place: &str, files: &[&File]) -> Option<Finding> {
    // Comments are blanked in `code`, so a line of them is empty.
    let lines_of = |file: &File| file.code.lines().filter(|line| !line.trim().is_empty()).count();
    let lines: usize = files.iter().map(|file| lines_of(file)).sum();
    let found: usize = files.iter().map(|file| assertions(file)).sum();
    let what = format!(
        "{found} assertions in {lines} lines of code, at least {ASSERTIONS_MIN} per 100; \
         state what holds between two states"
    );
    (found * 100 < lines * ASSERTIONS_MIN).then(|| Finding::new(place, what))
}

fn assertions(file: &File) -> usize {
    let tokens = tokens(&file.code);
    let is_assertion = |it: &[Token<'_>]| {
        let [before, name, next] = [0, 1, 2].map(|index| it[index].text);
        ASSERTIONS.contains(&name) && next == "!" || [name, next] == ASSERT_HOLDS && before != "fn"
    };
    // The first token of a file is no assertion: an item or an attribute comes first.
    tokens.windows(3).filter(|three| is_assertion(three)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code with so many assertions and other lines.
    fn code(assertions: usize, others: usize) -> String {
        "x();\n".repeat(others)
            + &"assert!(x);\n".repeat(assertions)
            + &"// assert!(x)\n\n".repeat(100)
    }

    /// Findings about a flight, a record and files of the protocol with this code.
    fn findings(flight: &str, record: &str, protocol: &[&str]) -> Vec<String> {
        let mut files =
            vec![File::new(format!("{DIRECTORY}run_flight.rs"), flight), File::new(RECORD, record)];
        let numbered = protocol.iter().enumerate();
        files.extend(numbered.map(|(at, code)| File::new(format!("{PROTOCOL}r{at}.rs"), *code)));
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn five_assertions_per_hundred_lines_of_code_are_enough() {
        let (enough, few) = (code(5, 95), code(4, 96));
        assert_eq!(findings(&enough, &enough, &[&enough]), Vec::<String>::new());
        for (place, found) in [
            (DIRECTORY, findings(&few, &enough, &[&enough])),
            (RECORD, findings(&enough, &few, &[&enough])),
            (PROTOCOL, findings(&enough, &enough, &[&few])),
        ] {
            assert_eq!(found.len(), 1, "{place}: {found:?}");
            assert!(found[0].contains("4 assertions in 100 lines of code"), "{found:?}");
            assert!(found[0].contains(place), "{place}: {found:?}");
        }
    }

    #[test]
    fn files_of_the_protocol_count_together() {
        let enough = code(5, 95);
        assert_eq!(findings(&enough, &enough, &[&code(9, 91), &code(1, 99)]), Vec::<String>::new());
        let found = findings(&enough, &enough, &[&code(9, 91), &code(0, 100)]);
        assert!(found[0].contains("9 assertions in 200 lines"), "{found:?}");
    }

    #[test]
    fn broken_invariants_of_a_record_count_where_they_panic() {
        let enough = code(5, 95);
        let record =
            "x();\n".repeat(94) + "fn assert_holds() {}\n" + &"assert_holds(x);\n".repeat(5);
        assert_eq!(findings(&enough, &record, &[&enough]), Vec::<String>::new());
    }

    #[test]
    fn assertions_of_debug_builds_and_in_strings_do_not_count() {
        let text = "debug_assert!(x);\nlet x = \"assert!(x)\";\n".repeat(10);
        let enough = code(5, 95);
        assert_eq!(findings(&text, &enough, &[&enough]).len(), 1);
    }

    #[test]
    fn only_flights_and_the_kernel_are_counted_and_their_absence_is_found() {
        let enough = code(5, 95);
        let counted = [format!("{DIRECTORY}flight.rs"), RECORD.into(), format!("{PROTOCOL}a.rs")];
        let others = [format!("{DIRECTORY}core.rs"), format!("{PROTOCOL}a_tests.rs")];
        let counted = counted.map(|path| File::new(path, enough.clone()));
        let others = others.map(|path| File::new(path, "x();\n"));
        let files: Vec<File> = counted.into_iter().chain(others).collect();
        assert_eq!(check(&files), []);
        assert_eq!(check(&[File::new("a.rs", "x();\n")]).len(), 3);
    }
}
