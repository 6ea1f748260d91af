//! Leftovers: things that are fine while one works and must not be committed.

use super::Finding;
use super::boundaries::UNSAFE_DIRECTORIES;
use crate::source::{Token, tokens};
use crate::workspace::File;

/// rustfmt's limit, which it cannot keep for comments and strings.
const COLUMNS_MAX: usize = 100;

/// Reminders; they are issues or nothing. Written in two halves, as the paths below, so that this
/// file does not find itself.
const REMINDERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Directories of the machines this is built on; they mean nothing to anyone else.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];

/// What no dependency of ours may need. The default build speaks to etcd, and takes cargo and a C
/// compiler and nothing else; these run `protoc`, which is neither.
const PROTOC_CRATES: [&str; 6] = [
    "etcd-client",
    "prost-build",
    "protoc-bin-vendored",
    "protobuf-codegen",
    "tonic-build",
    "tonic-prost-build",
];

/// Checks every text file; Rust files also for code that must not stay.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(check_text(file));
        if file.path == "Cargo.lock" {
            findings.extend(check_dependencies(file));
        }
        if file.is_rust() {
            findings.extend(check_width(file));
            findings.extend(check_code(file));
        }
    }
    findings
}

/// Documents, scripts and manifests are held to these as well as code.
fn check_text(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in file.text.lines().zip(1..) {
        let mut find = |what: String| findings.push(Finding::at(&file.path, number, what));
        if line.ends_with([' ', '\t', '\r']) {
            find("white space at the end of the line".to_owned());
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| line.contains(*path)) {
            find(format!("`{path}` is a path of one machine"));
        }
        let is_reminder = |token: &Token<'_>| REMINDERS.contains(&token.text);
        if let Some(token) = tokens(line).into_iter().find(is_reminder) {
            find(format!("`{}`: make it an issue, or do it now", token.text));
        }
    }
    findings
}

/// Looks for dependencies, direct or not, that need a program which a machine may not have.
fn check_dependencies(file: &File) -> Vec<Finding> {
    let named = |line: &str| line.strip_prefix("name = \"")?.strip_suffix('"').map(str::to_owned);
    let lines = file.text.lines().zip(1..);
    let found = lines.filter_map(|(line, number)| Some((named(line)?, number)));
    let found = found.filter(|(name, _)| PROTOC_CRATES.contains(&name.as_str()));
    found
        .map(|(name, number)| {
            Finding::at(&file.path, number, format!("`{name}` needs protoc to be built"))
        })
        .collect()
}

/// Long lines are left alone where they cannot be broken.
fn check_width(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().zip(file.code.lines()).zip(1..);
    let long = lines.filter(|((text, code), _)| {
        text.chars().count() > COLUMNS_MAX && !is_unbreakable(text, code)
    });
    let what = format!("more than {COLUMNS_MAX} columns");
    long.map(|(_, number)| Finding::at(&file.path, number, what.clone())).collect()
}

/// A line with a URL, with a string, or of a table in documentation.
fn is_unbreakable(text: &str, code: &str) -> bool {
    let text = text.trim_start();
    let is_table_row = text.starts_with("/// |") || text.starts_with("//! |");
    is_table_row || text.contains("://") || code.contains('"')
}

/// Looks at tokens of the code, so that sentences about these things are fine.
fn check_code(file: &File) -> Vec<Finding> {
    let tokens = tokens(&file.code);
    let may_be_unsafe =
        UNSAFE_DIRECTORIES.iter().any(|directory| file.path.starts_with(&format!("{directory}/")));
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let following = tokens.get(index + 1).map_or("", |next| next.text);
        let preceding = index.checked_sub(1).map_or("", |before| tokens[before].text);
        let what = match (token.text, preceding, following) {
            ("todo" | "unimplemented", _, "!") => "code that is not written yet",
            ("ignore", "[", "]" | "=") => "an ignored test; make it pass, or remove it",
            ("unsafe", _, _) if !may_be_unsafe => {
                "only gossip-stdx and gossip-testkit may hold unsafe code"
            }
            _ => continue,
        };
        findings.push(Finding::at(&file.path, token.line, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&[File::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn refuses(path: &str, text: &str) {
        assert_eq!(complaints(path, text).len(), 1, "{path}: {text:?}");
    }

    #[track_caller]
    fn accepts(path: &str, text: &str) {
        assert_eq!(complaints(path, text), Vec::<String>::new());
    }

    #[test]
    fn text_of_every_kind_is_checked() {
        refuses("a.md", "end \n");
        refuses("a.rs", "end\t\n");
        refuses("a.md", &format!("see {}x", MACHINE_PATHS[0]));
        refuses("a.sh", &format!("# {}: later", REMINDERS[0]));
        accepts("a.md", "a plain sentence\n");
        accepts("a.md", &format!("{}_LIST", REMINDERS[0]));
    }

    #[test]
    fn no_dependency_may_need_protoc() {
        refuses("Cargo.lock", "[[package]]\nname = \"prost-build\"\n");
        accepts("Cargo.lock", "[[package]]\nname = \"prost\"\nversion = \"1\"\n");
        accepts("a.md", "name = \"prost-build\"\n");
    }

    #[test]
    fn findings_name_their_line() {
        let found = complaints("a.md", "one\ntwo \n");
        assert_eq!(found, ["a.md:2: white space at the end of the line"]);
    }

    #[test]
    fn unfinished_code_is_found_but_not_words_about_it() {
        refuses("a.rs", "fn a() { todo!() }");
        refuses("a.rs", "fn a() { unimplemented!(\"x\") }");
        accepts("a.rs", "// todo!() is banned\nfn todo() {}");
    }

    #[test]
    fn ignored_tests_are_found() {
        refuses("a.rs", "#[ignore]\nfn a() {}");
        refuses("a.rs", "#[ignore = \"slow\"]\nfn a() {}");
        accepts("a.rs", "fn ignore() {}");
    }

    #[test]
    fn unsafe_stays_in_one_crate() {
        refuses("crates/gossip-frontier/src/a.rs", "unsafe fn a() {}");
        refuses("xtask/src/a.rs", "fn a() { unsafe {} }");
        accepts("crates/gossip-stdx/src/a.rs", "unsafe fn a() {}");
        accepts("a.rs", "#![forbid(unsafe_code)]");
    }

    #[test]
    fn long_lines_are_found_unless_they_cannot_be_broken() {
        let long = "x".repeat(COLUMNS_MAX + 1);
        refuses("a.rs", &format!("// {long}"));
        refuses("a.rs", &format!("let {long};"));
        accepts("a.rs", &"x".repeat(COLUMNS_MAX));
        accepts("a.rs", &format!("// https://{long}"));
        accepts("a.rs", &format!("const A: &str = \"{long}\";"));
        accepts("a.rs", &format!("/// | {long} |"));
        accepts("a.md", &long);
    }
}
