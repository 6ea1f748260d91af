//! `cargo xtask sbom`: lists what the binary is built from, as CycloneDX 1.5 in JSON.
//!
//! Components are the crates that `gossip-cli` reaches by normal and build dependencies, on every
//! platform; what only tests use is left out. `cargo metadata` says which, `Cargo.lock` has the
//! checksum of each. The output has no time and no random number, so one commit has one list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The crate of the binary.
const ROOT: &str = "gossip-cli";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("sbom", "it takes no arguments", "> gossip.cdx.json"));
    }
    let mut command = process::cargo();
    command.args(["metadata", "--format-version", "1", "--all-features", "--locked"]);
    let metadata = process::capture(&mut command, "commit the present Cargo.lock")?;
    let lock = Workspace::load()?.root.join("Cargo.lock");
    let unmade = |why: String| Failure::new("no list was made", why, "cargo generate-lockfile");
    let lock = fs::read_to_string(&lock)
        .map_err(|error| unmade(format!("{}: {error}", lock.display())))?;
    let list = list(&metadata, &lock).ok_or_else(|| {
        unmade("a field of `cargo metadata` is missing or of another type".to_owned())
    })?;
    println!("{list:#}");
    Ok(ExitCode::SUCCESS)
}

/// Returns `None` if a field is missing: cargo guarantees this format.
fn list(metadata: &str, lock: &str) -> Option<Value> {
    let metadata: Value = serde_json::from_str(metadata).ok()?;
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .map(|package| Some((package["id"].as_str()?, package)))
        .collect::<Option<_>>()?;
    let (root, _) = packages.iter().find(|(_, package)| package["name"] == ROOT)?;
    let edges = edges(&metadata)?;
    let reached = reached(root, &edges);
    let checksums = checksums(lock);
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &reached {
        let package = packages.get(id)?;
        if id != root {
            components.push(component(package, &checksums)?);
        }
        let direct = edges.get(id).map(Vec::as_slice).unwrap_or_default();
        let direct: BTreeSet<String> = direct
            .iter()
            .map(|id| packages.get(id).and_then(|it| purl(it)))
            .collect::<Option<_>>()?;
        dependencies.push(json!({ "ref": purl(package)?, "dependsOn": direct }));
    }
    let mut binary = component(packages.get(root)?, &checksums)?;
    binary["type"] = json!("application");
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": binary },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the dependencies of each package that are compiled into it or build it.
fn edges(metadata: &Value) -> Option<BTreeMap<&str, Vec<&str>>> {
    let mut edges = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array()? {
        let mut direct = Vec::new();
        for dependency in node["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                direct.push(dependency["pkg"].as_str()?);
            }
        }
        edges.insert(node["id"].as_str()?, direct);
    }
    Some(edges)
}

fn reached<'a>(root: &'a str, edges: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::from([root]), vec![root]);
    while let Some(id) = open.pop() {
        let direct = edges.get(id).map(Vec::as_slice).unwrap_or_default();
        open.extend(direct.iter().copied().filter(|id| found.insert(id)));
    }
    found
}

fn component(package: &Value, checksums: &BTreeMap<(&str, &str), &str>) -> Option<Value> {
    let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package)?,
        "name": name,
        "version": version,
        "purl": purl(package)?,
    });
    if let Some(licence) = package["license"].as_str() {
        // The old separator of cargo is no part of an expression.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    // A crate of this workspace has none.
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    Some(component)
}

/// Returns the name of a package in the form that databases of advisories use.
fn purl(package: &Value) -> Option<String> {
    let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
    Some(format!("pkg:cargo/{name}@{version}"))
}

/// Returns the checksum of each package of a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let value = |line: &'_ str| -> Option<(usize, usize)> {
                let rest = line.strip_prefix(name)?.strip_prefix(" = \"")?;
                Some((line.len() - rest.len(), line.len() - 1))
            };
            package.lines().find_map(|line| value(line).map(|(from, to)| &line[from..to]))
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "packages": [
            { "id": "cli", "name": "gossip-cli", "version": "0.1.0", "license": "MIT" },
            { "id": "a", "name": "a", "version": "1.0.0", "license": "MIT/Apache-2.0" },
            { "id": "b", "name": "b", "version": "2.0.0", "license": null },
            { "id": "t", "name": "t", "version": "3.0.0", "license": "MIT" }
        ],
        "resolve": { "nodes": [
            { "id": "cli", "deps": [
                { "pkg": "a", "dep_kinds": [{ "kind": null }, { "kind": "dev" }] },
                { "pkg": "t", "dep_kinds": [{ "kind": "dev" }] } ] },
            { "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": "build" }] }] },
            { "id": "b", "deps": [] },
            { "id": "t", "deps": [] }
        ] } }"#;

    #[test]
    fn components_are_those_of_the_binary() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\n\
                    [[package]]\nname = \"gossip-cli\"\nversion = \"0.1.0\"\n";
        let list = list(METADATA, lock).unwrap();
        assert_eq!(list["metadata"]["component"]["purl"], "pkg:cargo/gossip-cli@0.1.0");
        let names: Vec<_> =
            list["components"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["a", "b"], "no dependency of tests");
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list["components"][0]["hashes"][0]["content"], "00ff");
        assert!(list["components"][1].get("licenses").is_none());
        let direct = json!([
            { "ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@2.0.0"] },
            { "ref": "pkg:cargo/b@2.0.0", "dependsOn": [] },
            { "ref": "pkg:cargo/gossip-cli@0.1.0", "dependsOn": ["pkg:cargo/a@1.0.0"] },
        ]);
        assert_eq!(list["dependencies"], direct);
        assert!(super::list("{}", "").is_none());
    }
}
