//! Limits the size of files and functions.
//!
//! A file has at most [`FILE_LINES_MAX`] lines, including tests. A function has at most
//! [`FUNCTION_LINES_MAX`], except in tests. Longer ones are listed in `xtask/size_exceptions.txt`
//! with their present length and a reason:
//!
//! ```text
//! crates/a/src/b.rs 950 one table, cut nowhere
//! crates/a/src/b.rs::decide 84 the ladder of rules reads best in one piece
//! ```
//!
//! The list is a ratchet: a file or function longer than its entry fails, and so does an entry that
//! is larger than necessary.

use super::Finding;
use crate::items::{Kind, items};
use crate::workspace::File;

/// Maximum number of lines of a file.
const FILE_LINES_MAX: usize = 800;
/// A screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Something with a length: a file, or a function of a file.
struct Measured {
    /// `path` or `path::function`.
    place: String,
    lines: usize,
    /// The limit without an exception.
    max: usize,
}

/// One line of the list of exceptions.
struct Exception<'a> {
    place: &'a str,
    /// The length it had when the line was written, and may not exceed.
    lines: usize,
}

/// Checks every Rust file against the limits and the exceptions.
pub(super) fn check(files: &[File], list: &str, exceptions: &str) -> Vec<Finding> {
    let measured: Vec<Measured> =
        files.iter().filter(|file| file.is_rust()).flat_map(measure).collect();
    let mut findings = Vec::new();
    // Exceptions that were read, right or wrong: their places are not reported a second time.
    let mut known = Vec::new();
    for (line, number) in exceptions.lines().zip(1..) {
        match parse(line) {
            Ok(exception) => {
                let problem = exception.as_ref().and_then(|it| ratchet(it, &measured));
                findings.extend(problem.map(|what| Finding::at(list, number, what)));
                known.extend(exception);
            }
            Err(what) => findings.push(Finding::at(list, number, what)),
        }
    }
    let unlisted = measured.iter().filter(|it| known.iter().all(|known| known.place != it.place));
    findings.extend(unlisted.filter(|it| it.lines > it.max).map(too_long));
    findings
}

/// The file itself, and its functions unless they are tests.
fn measure(file: &File) -> Vec<Measured> {
    let lines = file.text.lines().count();
    let mut measured = vec![Measured { place: file.path.clone(), lines, max: FILE_LINES_MAX }];
    if file.is_test() {
        return measured;
    }
    let functions = items(&file.code).into_iter().filter(|it| it.kind == Kind::Function);
    measured.extend(functions.filter(|function| !function.in_tests).map(|function| Measured {
        place: format!("{}::{}", file.path, function.name),
        lines: function.line_count(),
        max: FUNCTION_LINES_MAX,
    }));
    measured
}

/// Parses one line of the list: nothing, an exception, or an error.
fn parse(line: &str) -> Result<Option<Exception<'_>>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = line.splitn(3, ' ');
    let (place, lines) = (words.next().unwrap_or_default(), words.next());
    let lines = lines.and_then(|lines| lines.parse().ok());
    let has_reason = words.next().is_some_and(|reason| !reason.trim().is_empty());
    match (lines, has_reason) {
        (Some(lines), true) => Ok(Some(Exception { place, lines })),
        (Some(_), false) => Err(format!("`{place}` needs a reason after its length")),
        (None, _) => Err("expected `path[::function] LINES reason`".to_owned()),
    }
}

/// Returns the problem with an exception, which must be needed and fit exactly. Of several
/// functions with one name the longest counts.
fn ratchet(exception: &Exception<'_>, measured: &[Measured]) -> Option<String> {
    let same_place = measured.iter().filter(|it| it.place == exception.place);
    let Some(longest) = same_place.max_by_key(|it| it.lines) else {
        return Some(format!("`{}` does not exist; remove the line", exception.place));
    };
    let (lines, allowed) = (longest.lines, exception.lines);
    if lines <= longest.max {
        Some(format!("{lines} lines need no exception; remove the line"))
    } else if lines > allowed {
        Some(format!("`{}` grew from {allowed} to {lines} lines; shorten it", exception.place))
    } else if lines < allowed {
        Some(format!("`{}` has {lines} lines; lower the entry", exception.place))
    } else {
        None
    }
}

fn too_long(measured: &Measured) -> Finding {
    let Measured { place, lines, max } = measured;
    Finding::new(place.clone(), format!("{lines} lines, at most {max} without a listed reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file `a.rs` that is one function `f` of so many lines.
    fn function(lines: usize) -> File {
        File::new("a.rs", format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2)))
    }

    fn complaints(file: File, exceptions: &str) -> Vec<String> {
        let findings = check(&[file], "list", exceptions);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sizes_up_to_the_limits_are_fine() {
        assert_eq!(complaints(function(FUNCTION_LINES_MAX), ""), Vec::<String>::new());
        let file = File::new("a.rs", "//\n".repeat(FILE_LINES_MAX));
        assert_eq!(complaints(file, ""), Vec::<String>::new());
    }

    #[test]
    fn one_line_more_is_found() {
        let found = complaints(function(FUNCTION_LINES_MAX + 1), "");
        assert_eq!(found, ["a.rs::f: 71 lines, at most 70 without a listed reason"]);
        let found = complaints(File::new("a.rs", "//\n".repeat(FILE_LINES_MAX + 1)), "");
        assert_eq!(found, ["a.rs: 801 lines, at most 800 without a listed reason"]);
    }

    #[test]
    fn tests_count_by_file_only() {
        let long = function(90);
        assert_eq!(check(&[File::new("a_tests.rs", long.text.clone())], "list", ""), []);
        let module = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", long.text);
        assert_eq!(check(&[File::new("a.rs", module)], "list", ""), []);
        let long = File::new("a_tests.rs", "//\n".repeat(FILE_LINES_MAX + 1));
        assert_eq!(check(&[long], "list", "").len(), 1);
    }

    #[test]
    fn an_exception_fits_exactly() {
        let complaint = |entry: &str| complaints(function(80), entry);
        assert_eq!(complaint("a.rs::f 80 a reason"), Vec::<String>::new());
        assert_eq!(
            complaint("a.rs::f 79 r"),
            ["list:1: `a.rs::f` grew from 79 to 80 lines; shorten it"]
        );
        assert_eq!(complaint("a.rs::f 81 r"), ["list:1: `a.rs::f` has 80 lines; lower the entry"]);
    }

    #[test]
    fn an_exception_is_needed_and_well_formed() {
        let complaint = |entry: &str| complaints(function(10), entry);
        assert_eq!(complaint("# comment\n\n"), Vec::<String>::new());
        assert!(complaint("a.rs::f 80 r")[0].contains("remove"));
        assert!(complaint("b.rs 900 r")[0].contains("does not exist"));
        assert!(complaint("a.rs::f 80")[0].contains("reason"));
        assert!(complaint("a.rs::f many r")[0].contains("expected"));
    }
}
