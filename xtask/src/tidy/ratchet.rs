//! Counts that may only fall, area by area.
//!
//! A list holds the present count of each area, one `AREA COUNT` per line:
//!
//! ```text
//! crates/gossip-cli 12
//! docs 40
//! ```
//!
//! A count above its entry fails, and so does an entry above its count. `cargo xtask tidy --lower`
//! rewrites entries that are too high, and never raises one.

use std::collections::BTreeMap;

use super::Finding;

/// One ratchet: its list, what it counts and what to do about a count that is too high.
pub(super) struct Ratchet {
    /// The file with the entries.
    pub(super) list: &'static str,
    /// The things that are counted, in the plural.
    pub(super) counted: &'static str,
    /// The advice of a finding, with the rule it comes from.
    pub(super) advice: &'static str,
}

impl Ratchet {
    /// Compares the count of every area with its entry.
    pub(super) fn check(&self, mut counts: BTreeMap<String, usize>, list: &str) -> Vec<Finding> {
        let Self { counted, advice, .. } = self;
        let mut findings = Vec::new();
        for (line, number) in list.lines().zip(1..) {
            let Some((area, allowed)) = entry(line) else {
                findings.push(Finding::at(self.list, number, "expected `AREA COUNT`"));
                continue;
            };
            let count = counts.remove(area).unwrap_or(0);
            let what = match count {
                _ if count > allowed => {
                    format!("`{area}` has {count} {counted}, {allowed} allowed; {advice}")
                }
                _ if count < allowed || count == 0 => {
                    format!("`{area}` has {count} {counted}; run `cargo xtask tidy --lower`")
                }
                _ => continue,
            };
            findings.push(Finding::at(self.list, number, what));
        }
        let unlisted = counts.into_iter().filter(|(_, count)| *count > 0);
        findings.extend(
            unlisted
                .map(|(area, count)| Finding::new(area, format!("{count} {counted}; {advice}"))),
        );
        findings
    }
}

/// The list with every entry lowered to its count, and without entries of zero.
pub(super) fn lowered(counts: &BTreeMap<String, usize>, list: &str) -> String {
    let mut out = String::new();
    for (area, allowed) in list.lines().filter_map(entry) {
        let count = counts.get(area).copied().unwrap_or(0).min(allowed);
        if count > 0 {
            out.push_str(&format!("{area} {count}\n"));
        }
    }
    out
}

/// One line of a list.
fn entry(line: &str) -> Option<(&str, usize)> {
    let (area, count) = line.trim().split_once(' ')?;
    Some((area, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATCHET: Ratchet = Ratchet { list: "list", counted: "words", advice: "use fewer" };

    fn counts(area: &str, count: usize) -> BTreeMap<String, usize> {
        BTreeMap::from([(area.to_owned(), count)])
    }

    fn complaints(counts: BTreeMap<String, usize>, list: &str) -> Vec<String> {
        RATCHET.check(counts, list).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_count_equal_to_its_entry_passes() {
        assert_eq!(complaints(counts("docs", 2), "docs 2\n"), Vec::<String>::new());
        assert_eq!(complaints(counts("docs", 0), ""), Vec::<String>::new());
    }

    #[test]
    fn a_count_above_its_entry_or_without_one_fails() {
        let found = complaints(counts("docs", 2), "docs 1\n");
        assert_eq!(found, ["list:1: `docs` has 2 words, 1 allowed; use fewer"]);
        assert_eq!(complaints(counts("docs", 2), ""), ["docs: 2 words; use fewer"]);
    }

    #[test]
    fn an_entry_above_its_count_fails_and_is_lowered() {
        let found = complaints(counts("docs", 1), "docs 2\n");
        assert_eq!(found, ["list:1: `docs` has 1 words; run `cargo xtask tidy --lower`"]);
        assert_eq!(lowered(&counts("docs", 1), "docs 2\ncrates/a 3\n"), "docs 1\n");
        assert_eq!(lowered(&counts("docs", 3), "docs 2\n"), "docs 2\n");
    }

    #[test]
    fn a_line_that_is_no_entry_is_found() {
        assert_eq!(complaints(BTreeMap::new(), "docs"), ["list:1: expected `AREA COUNT`"]);
    }
}
