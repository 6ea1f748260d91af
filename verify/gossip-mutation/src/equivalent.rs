//! Mutants that change nothing which a caller can observe, each with the reason.
//!
//! ```text
//! mutant crates/a/src/b.rs: Type::function: `x < y`: `<` becomes `<=`
//! reason Why no caller can observe it.
//! ```
//!
//! They count apart. One that a test catches, or that no longer exists, fails the campaign.

use std::collections::BTreeMap;

/// Reads the list: reasons by mutant.
///
/// # Errors
///
/// The first line that is not understood.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut list = BTreeMap::new();
    let mut mutant = None;
    for (index, line) in text.lines().enumerate() {
        let refused = || format!("equivalent.txt:{}: it is not understood", index + 1);
        match (line.split_once(' ').unwrap_or((line, "")), mutant.take()) {
            (("" | "#", _), None) => {}
            (("mutant", identity), None) if !identity.is_empty() => mutant = Some(identity),
            (("reason", reason), Some(identity)) if !reason.is_empty() => {
                list.insert(identity.to_owned(), reason.to_owned());
            }
            _ => return Err(refused()),
        }
    }
    match mutant {
        Some(identity) => Err(format!("equivalent.txt: {identity} has no reason")),
        None => Ok(list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_without_a_reason_is_refused() {
        assert_eq!(parse("# a\n\nmutant a: b\nreason c\n").unwrap()["a: b"], "c");
        assert!(parse("mutant a: b\n").is_err());
        assert!(parse("mutant a: b\nmutant c\n").is_err());
        assert!(parse("reason c\n").is_err());
        assert!(parse("mutants a\n").is_err());
    }
}
