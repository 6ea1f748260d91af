//! The workspace as known to cargo and git: packages, their dependencies, the tracked files.
//!
//! Read once per command. This module only reads; `tidy` checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::Failure;
use crate::process;
use crate::source;

/// Where inputs are kept that fuzzing found worth it.
pub(crate) const FUZZ_INPUTS: &str = "verify/fuzz/kept/";

/// The workspace as `cargo metadata` describes it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// The target directory; not always below the root.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The directory of its Cargo.toml, relative to the root, with forward slashes.
    pub(crate) directory: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// One line of a `[dependencies]` table; the kind names the table.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Not only for tests, benchmarks or build scripts.
    pub(crate) is_normal: bool,
}

/// One build target of a package.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// `lib`, `bin`, `test`, `bench`, …
    pub(crate) kind: String,
    /// Its root file, relative to the workspace, with forward slashes.
    pub(crate) path: String,
}

/// A tracked text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For Rust files: the text with comments and literals blanked, line by line. Else empty.
    pub(crate) code: String,
}

impl Workspace {
    /// Queries cargo for the workspace around the current directory.
    pub(crate) fn load() -> Result<Self, Failure> {
        let mut command = process::cargo();
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let text = process::capture(&mut command, "fix the manifest named above")?;
        Self::parse(&text).ok_or_else(|| {
            Failure::new(
                "the output of `cargo metadata` cannot be parsed",
                "a field that xtask reads is missing or of another type",
                "compare `cargo metadata --format-version 1` with xtask/src/workspace.rs",
            )
        })
    }

    /// Returns `None` if a field is missing: cargo guarantees this format, so there is nothing to
    /// recover.
    fn parse(text: &str) -> Option<Self> {
        let metadata: Value = serde_json::from_str(text).ok()?;
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let target = PathBuf::from(metadata["target_directory"].as_str()?);
        let packages = metadata["packages"].as_array()?;
        let packages = packages.iter().map(|package| Package::parse(package, &root));
        Some(Self { packages: packages.collect::<Option<_>>()?, target, root })
    }

    /// Returns the package of that name, if it exists.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Returns every tracked text file and every new one that is not ignored, in order of path.
    /// Files that are not UTF-8 are skipped, because there is no text to check, except for
    /// pictures, which are empty here. The kept fuzz inputs are skipped, too: they are generated.
    pub(crate) fn files(&self) -> Result<Vec<File>, Failure> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        git.current_dir(&self.root);
        // Separated by NUL, so that file names need no quoting.
        let list = process::capture(&mut git, "run xtask inside a git checkout")?;
        let is_ours = |path: &&str| !path.is_empty() && !path.starts_with(FUZZ_INPUTS);
        let mut paths: Vec<&str> = list.split('\0').filter(is_ours).collect();
        paths.sort_unstable();
        paths.dedup();
        Ok(paths.into_iter().filter_map(|path| File::read(&self.root, path)).collect())
    }
}

impl Package {
    fn parse(package: &Value, root: &Path) -> Option<Self> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let dependencies = package["dependencies"].as_array()?;
        let targets = package["targets"].as_array()?;
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            directory: relative(manifest.parent()?, root)?,
            dependencies: dependencies.iter().map(Dependency::parse).collect::<Option<_>>()?,
            targets: targets
                .iter()
                .map(|target| Target::parse(target, root))
                .collect::<Option<_>>()?,
        })
    }
}

impl Dependency {
    fn parse(dependency: &Value) -> Option<Self> {
        Some(Self {
            name: dependency["name"].as_str()?.to_owned(),
            is_normal: dependency["kind"].is_null(),
        })
    }
}

impl Target {
    fn parse(target: &Value, root: &Path) -> Option<Self> {
        Some(Self {
            name: target["name"].as_str()?.to_owned(),
            kind: target["kind"][0].as_str()?.to_owned(),
            path: relative(Path::new(target["src_path"].as_str()?), root)?,
        })
    }
}

impl File {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let code = if path.ends_with(".rs") { source::mask(&text) } else { String::new() };
        Self { path, text, code }
    }

    /// Reads a tracked file, if it is text or a picture.
    fn read(root: &Path, path: &str) -> Option<Self> {
        // A file that was deleted but is still in git's index cannot be read either.
        // A picture has no text, but links lead to it.
        if path.ends_with(".png") {
            return root.join(path).exists().then(|| Self::new(path, ""));
        }
        fs::read_to_string(root.join(path)).ok().map(|text| Self::new(path, text))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether the whole file is tests or benchmarks, by its name or directory.
    pub(crate) fn is_test(&self) -> bool {
        let mut parts = self.path.rsplit('/');
        let name = parts.next().unwrap_or_default();
        name.ends_with("tests.rs") || parts.any(|part| part == "tests" || part == "benches")
    }

    /// Returns the file's name without its directories.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Returns the path below the root, with forward slashes on every system.
fn relative(path: &Path, root: &Path) -> Option<String> {
    let parts = path.strip_prefix(root).ok()?.iter();
    let parts: Option<Vec<&str>> = parts.map(|part| part.to_str()).collect();
    Some(parts?.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_root": "/r", "target_directory": "/r/target",
        "packages": [{
            "name": "a", "manifest_path": "/r/crates/a/Cargo.toml",
            "dependencies": [
                { "name": "b", "kind": null }, { "name": "proptest", "kind": "dev" }
            ],
            "targets": [{ "name": "a", "kind": ["lib"], "src_path": "/r/crates/a/src/lib.rs" }]
        }]
    }"#;

    #[test]
    fn metadata_is_read() {
        let workspace = Workspace::parse(METADATA).unwrap();
        let package = workspace.package("a").unwrap();
        assert_eq!(package.directory, "crates/a");
        assert_eq!(package.targets[0].path, "crates/a/src/lib.rs");
        let normal: Vec<bool> = package.dependencies.iter().map(|it| it.is_normal).collect();
        assert_eq!(normal, [true, false]);
        assert!(workspace.package("b").is_none());
    }

    #[test]
    fn metadata_of_another_shape_is_rejected() {
        assert!(Workspace::parse("{}").is_none());
        assert!(Workspace::parse("no json").is_none());
        assert!(Workspace::parse(&METADATA.replace("src_path", "path")).is_none());
    }

    #[test]
    fn test_files_are_recognised_by_name_or_directory() {
        let is_test = |path: &str| File::new(path, "").is_test();
        assert!(is_test("crates/a/src/hint_tests.rs"));
        assert!(is_test("crates/a/tests/laws.rs"));
        assert!(is_test("crates/a/benches/slab.rs"));
        assert!(!is_test("crates/a/src/hint.rs"));
        assert!(!is_test("xtask/src/test.rs"));
    }
}
