//! `cargo xtask deny`: checks licences, versions and sources of every dependency.
//!
//! The rules are the constants of this file; `cargo metadata` lists the dependencies of every
//! platform and feature. It needs no tool of its own, so the stage of `cargo xtask test` never has
//! to be skipped (docs/adr/0079-dependencies-are-checked-by-xtask.md).
//!
//! Advisories are not checked: their database is downloaded at every run, and a check whose result
//! depends on the day is not a test of this tree.

mod licence;

use std::process::ExitCode;

use serde_json::Value;

use crate::failure::Failure;
use crate::process;
use crate::tally::Tally;

/// Licences that a dependency may have. Only those that one really has; a new one is a decision.
const ALLOWED: [&str; 5] = [
    "Apache-2.0",
    // subtle, below TLS; permissive, asks not to use its authors' names.
    "BSD-3-Clause",
    // ring and rustls-webpki: TLS to etcd; permissive like MIT.
    "ISC",
    "MIT",
    // foldhash; permissive, asks only not to be misrepresented.
    "Zlib",
];

/// Licences that one crate alone may have.
const EXCEPTIONS: [(&str, &str); 3] = [
    // Character tables of the procedural macros; they are in no binary of ours.
    ("unicode-ident", "Unicode-3.0"),
    // Character tables for passwords of PostgreSQL, below tokio-postgres. The notice that the
    // licence asks for is in the source of the crates.
    ("unicode-normalization", "Unicode-3.0"),
    ("unicode-properties", "Unicode-3.0"),
];

/// The default registry. Nothing comes from a repository or another registry, which can change.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A dependency, or a crate of the workspace, which has no source.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
    is_member: bool,
    /// Dependencies with the requirement `*`, which would let any future release in.
    wildcards: Vec<String>,
}

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("deny", "no arguments are allowed", ""));
    }
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the stage of `cargo xtask test`.
pub(crate) fn stage(tally: &mut Tally) -> Result<(), Failure> {
    check()?;
    tally.add_passed_stage();
    Ok(())
}

fn check() -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["metadata", "--format-version", "1", "--all-features", "--locked"]);
    let text = process::capture(&mut command, "commit the present Cargo.lock")?;
    let packages = parse(&text).ok_or_else(|| {
        Failure::new(
            "the output of `cargo metadata` cannot be parsed",
            "a field that xtask reads is missing or of another type",
            "compare `cargo metadata --format-version 1` with xtask/src/deny.rs",
        )
    })?;
    for note in versions(&packages) {
        eprintln!("note: {note}");
    }
    let findings = findings(&packages);
    if findings.is_empty() {
        let dependencies = packages.iter().filter(|package| !package.is_member).count();
        eprintln!("{dependencies} dependencies checked");
        return Ok(());
    }
    Err(Failure::new(
        format!("{} dependencies are refused", findings.len()),
        findings.join("; "),
        "remove the dependency, or allow it in xtask/src/deny.rs with a reason",
    ))
}

/// Returns `None` if a field is missing: cargo guarantees this format.
fn parse(text: &str) -> Option<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text).ok()?;
    let members = metadata["workspace_members"].as_array()?;
    let package = |package: &Value| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let dependencies = package["dependencies"].as_array()?.iter();
        // A crate of this workspace is found by its path and has no version to require.
        let is_wildcard = |it: &&Value| it["req"] == "*" && it["path"].is_null();
        let wildcards = dependencies.filter(is_wildcard).map(|it| it["name"].as_str());
        Some(Package {
            name: text("name")?,
            version: text("version")?,
            licence: text("license"),
            source: text("source"),
            is_member: members.contains(&package["id"]),
            wildcards: wildcards.map(|it| it.map(str::to_owned)).collect::<Option<_>>()?,
        })
    };
    metadata["packages"].as_array()?.iter().map(package).collect()
}

/// Returns every violation, and every permission that is not used.
fn findings(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for package in packages {
        let Package { name, version, licence, source, is_member, wildcards } = package;
        let mut find = |what: String| findings.push(format!("{name} {version} {what}"));
        if *is_member {
            wildcards.iter().for_each(|it| find(format!("accepts any version of {it}")));
            continue;
        }
        if source.as_deref() != Some(SOURCE) {
            find("does not come from the default registry".to_owned());
        }
        let is_allowed =
            |id: &str| ALLOWED.contains(&id) || EXCEPTIONS.contains(&(name.as_str(), id));
        match licence.as_deref().map(|text| licence::granted(text, &is_allowed)) {
            None => find("states no licence".to_owned()),
            Some(Some(granted)) => used.extend(granted.into_iter().map(|id| (name.as_str(), id))),
            Some(None) => {
                let licence = licence.as_deref().unwrap_or_default();
                find(format!("has the licence `{licence}`"));
            }
        }
    }
    let is_used = |id: &str, name: Option<&str>| {
        used.iter().any(|(user, used)| used == id && name.is_none_or(|name| name == *user))
    };
    let unused = ALLOWED.iter().filter(|id| !is_used(id, None));
    findings.extend(unused.map(|id| format!("no dependency has the allowed licence {id}")));
    let unused = EXCEPTIONS.iter().filter(|(name, id)| !is_used(id, Some(name)));
    findings.extend(unused.map(|(name, id)| format!("{name} does not have the licence {id}")));
    findings
}

/// Returns the crates that are present in two versions. They cost build time and size; whether that
/// is worth it is for people to judge.
fn versions(packages: &[Package]) -> Vec<String> {
    let mut names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let versions = |name: &&str| -> Vec<&str> {
        let same = packages.iter().filter(|package| package.name == **name);
        same.map(|package| package.version.as_str()).collect()
    };
    let several = names.iter().map(|name| (name, versions(name))).filter(|(_, it)| it.len() > 1);
    several.map(|(name, versions)| format!("{name} has versions {}", versions.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, licence: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some(licence.to_owned()),
            source: Some(SOURCE.to_owned()),
            is_member: false,
            wildcards: Vec::new(),
        }
    }

    /// Dependencies that use every permission.
    fn accepted() -> Vec<Package> {
        let exceptions = EXCEPTIONS.iter().map(|(name, id)| dependency(name, id));
        ALLOWED.iter().map(|id| dependency(&id.to_lowercase(), id)).chain(exceptions).collect()
    }

    #[test]
    fn a_licence_source_or_requirement_that_is_not_allowed_is_found() {
        assert_eq!(findings(&accepted()), [""; 0]);
        let found = |package: Package| {
            let mut packages = accepted();
            packages.push(package);
            findings(&packages).join("; ")
        };
        assert_eq!(found(dependency("x", "GPL-3.0")), "x 1.0.0 has the licence `GPL-3.0`");
        // An exception is for one crate only.
        assert!(found(dependency("x", "Unicode-3.0")).contains("has the licence"));
        let unstated = Package { licence: None, ..dependency("x", "") };
        assert_eq!(found(unstated), "x 1.0.0 states no licence");
        let git = Package { source: Some("git+https://x".to_owned()), ..dependency("x", "MIT") };
        assert_eq!(found(git), "x 1.0.0 does not come from the default registry");
        // A path outside the workspace.
        assert!(!found(Package { source: None, ..dependency("x", "MIT") }).is_empty());
        let open = Package {
            is_member: true,
            source: None,
            wildcards: vec!["y".to_owned()],
            ..dependency("x", "MIT")
        };
        assert_eq!(found(open), "x 1.0.0 accepts any version of y");
    }

    #[test]
    fn a_permission_that_is_not_used_is_found() {
        let mut packages = accepted();
        packages.retain(|package| package.name != "zlib" && package.name != "unicode-ident");
        let expected = [
            "no dependency has the allowed licence Zlib",
            "unicode-ident does not have the licence Unicode-3.0",
        ];
        assert_eq!(findings(&packages), expected);
    }

    #[test]
    fn two_versions_of_a_crate_are_noted_and_no_finding() {
        let mut packages = accepted();
        packages.push(Package { version: "2.0.0".to_owned(), ..dependency("mit", "MIT") });
        assert_eq!(versions(&packages), ["mit has versions 1.0.0, 2.0.0"]);
        assert_eq!(findings(&packages), [""; 0]);
    }

    #[test]
    fn metadata_is_read() {
        let text = r#"{ "workspace_members": ["m"], "packages": [
            { "id": "m", "name": "ours", "version": "0.1.0", "license": "MIT", "source": null,
              "dependencies": [{ "name": "a", "req": "*" },
                               { "name": "b", "req": "*", "path": "/r/b" },
                               { "name": "c", "req": "^1" }] },
            { "id": "d", "name": "d", "version": "1.0.0", "license": null, "source": "s",
              "dependencies": [] }] }"#;
        let packages = parse(text).unwrap();
        assert!(packages[0].is_member && !packages[1].is_member);
        assert_eq!(packages[0].wildcards, ["a"]);
        assert_eq!(
            (packages[1].licence.as_deref(), packages[1].source.as_deref()),
            (None, Some("s"))
        );
        assert!(parse("{}").is_none() && parse("no json").is_none());
    }
}
