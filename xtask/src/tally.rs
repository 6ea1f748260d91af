//! Counts tests by the summary lines of cargo's test programs.

use std::fmt;

/// Start of the line that a test prints if the machine cannot run it. The test passes by the count
/// of its program, and counts as skipped here.
pub(crate) const NOT_RUN: &str = "NOT RUN: ";

/// Tests passed, failed and skipped, over any number of test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Those that their programs call passed, [`Self::not_run`] included.
    passed: u64,
    failed: u64,
    /// Ignored tests, of which there are none by policy.
    ignored: u64,
    /// Tests that said that they could not run.
    not_run: u64,
}

impl Tally {
    /// Adds a line of output if it is a summary or reports a test that was not run; any other line
    /// changes nothing.
    pub(crate) fn add_line(&mut self, line: &str) {
        self.not_run += u64::from(line.starts_with(NOT_RUN));
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            self.add_count(count);
        }
    }

    /// Adds one `12 passed`. Other words do not count tests: `measured`, `filtered out`.
    fn add_count(&mut self, count: &str) {
        let (number, word) = count.split_once(' ').unwrap_or_default();
        // A count that does not parse is not from a test program; then the line was not a summary.
        let number: u64 = number.parse().unwrap_or_default();
        match word {
            "passed" => self.passed += number,
            "failed" => self.failed += number,
            "ignored" => self.ignored += number,
            _ => {}
        }
    }

    /// Counts a failed stage. If none of its tests failed (a test program crashed, a clippy
    /// warning, bad formatting), the stage itself counts as the failure, so that the closing line
    /// never reports `0 failed` for a failed run.
    pub(crate) fn add_failed_stage(&mut self) {
        self.failed = self.failed.max(1);
    }

    /// Counts a passed stage that is one test.
    pub(crate) fn add_passed_stage(&mut self) {
        self.passed += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, not_run } = self;
        let passed = passed.saturating_sub(*not_run);
        write!(f, "{passed} passed, {failed} failed, {} skipped", ignored + not_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> String {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add_line(line));
        tally.to_string()
    }

    const OK: &str = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; \
                      3 filtered out; finished in 0.01s";
    const BAD: &str = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; \
                       0 filtered out; finished in 0.01s";

    #[test]
    fn summaries_add_up() {
        assert_eq!(tally(&[OK, "test a ... ok", BAD]), "13 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn other_lines_change_nothing() {
        let lines = [
            "",
            "running 3 tests",
            "test result",
            "test result: odd",
            " test result: ok. 1 passed",
        ];
        assert_eq!(tally(&lines), "0 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_test_that_was_not_run_counts_as_skipped() {
        let line = "NOT RUN: packets were not dropped: only root may";
        assert_eq!(tally(&[OK, line]), "11 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_stage_that_is_one_test_counts_as_one() {
        let mut tally = Tally::default();
        tally.add_passed_stage();
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_failed_stage_is_never_zero_failed() {
        let mut silent = Tally::default();
        silent.add_failed_stage();
        assert_eq!(silent.to_string(), "0 passed, 1 failed, 0 skipped");
        let mut counted = Tally { passed: 1, failed: 2, ..Tally::default() };
        counted.add_failed_stage();
        assert_eq!(counted.to_string(), "1 passed, 2 failed, 0 skipped");
    }
}
