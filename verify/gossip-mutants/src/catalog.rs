//! Every mutant, with its edits.

use std::fs;

use crate::edit::Edit;
use crate::parse::{ParseError, parse};

/// The parts of the workspace that have mutants, each the name of a file; `copy` has the edits that
/// belong to no mutant.
const PARTS: [&str; 6] = [KERNEL, "store", "codec", "etcd", "runtime", "copy"];

/// Where the files are. They are read at run time, so that a change of a text does not rebuild the
/// whole copy.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mutants");

/// The edits of the next format.
const NEXT_FORMAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/edits/next_format.txt");

/// The part whose mutants must be found by two layers at least.
pub const KERNEL: &str = "kernel";

/// The mutants and every edit of the copy.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "data")]
pub struct Catalog {
    /// In the order of the files.
    pub mutants: Vec<Mutant>,
    /// In the order of the files.
    pub edits: Vec<Edit>,
}

/// A deliberate bug.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "data")]
pub struct Mutant {
    /// The argument of `is_active`.
    pub name: &'static str,
    /// The part of the workspace that it is in; the name of its file.
    pub part: &'static str,
    /// Description of the bug.
    pub what: &'static str,
    /// Where such a bug was seen.
    pub story: &'static str,
    /// The layers that must find it, the cheapest first.
    pub layers: Vec<Layer>,
    /// Faults that alone must not be enough for the simulator to find it.
    pub hidden: Vec<Layer>,
}

/// A way to look for a mutant, and the rule by which it must be found, if it names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "the hunt knows every layer")]
pub enum Layer {
    /// The conformance suite, on the in-memory coordinator and on the store coordinator.
    Conformance,
    /// The golden scripts, on the same two.
    Scripts,
    /// Tests of a package whose names begin with one of the filters; the filters are separated by
    /// spaces, and without any the hunt's own selection for the package is run.
    Tests {
        /// The package of the tests.
        package: &'static str,
        /// Prefixes of their names.
        filters: &'static str,
    },
    /// The model checker, in a configuration.
    Model {
        /// The name of the configuration.
        configuration: &'static str,
        /// The rule by which it must be found when only effects are compared.
        rule: Option<&'static str>,
        /// The steps of the shortest way to it.
        steps: Option<&'static str>,
    },
    /// The simulator, with the usual faults of each seed.
    Simulator {
        /// The rule by which it must be found.
        rule: Option<&'static str>,
    },
    /// The simulator, with these faults only and owner keys that are bound to processes.
    Faults {
        /// The list of faults.
        list: &'static str,
        /// The rule by which it must be found.
        rule: Option<&'static str>,
    },
    /// The simulator of the worker's loop.
    WorkerSimulator {
        /// The rule by which it must be found.
        rule: Option<&'static str>,
    },
}

impl Layer {
    /// Returns the column of the table that the layer belongs to.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Conformance => "conformance",
            Self::Scripts => "scripts",
            Self::Tests { .. } => "tests",
            Self::Model { .. } => "model",
            Self::Simulator { .. } | Self::Faults { .. } | Self::WorkerSimulator { .. } => {
                "simulator"
            }
        }
    }

    /// Returns the layer without the rule that it names.
    #[must_use]
    pub const fn without_rule(self) -> Self {
        match self {
            Self::Model { configuration, .. } => {
                Self::Model { configuration, rule: None, steps: None }
            }
            Self::Simulator { .. } => Self::Simulator { rule: None },
            Self::Faults { list, .. } => Self::Faults { list, rule: None },
            Self::WorkerSimulator { .. } => Self::WorkerSimulator { rule: None },
            Self::Conformance | Self::Scripts | Self::Tests { .. } => self,
        }
    }
}

/// Reads and parses the files. Their texts are kept for the life of the process.
///
/// # Errors
///
/// A file that cannot be read, the first line that is not understood, a name that is used twice, an
/// edit that activates an unknown mutant, or a mutant without an edit.
pub fn load() -> Result<Catalog, ParseError> {
    let mut catalog = Catalog { mutants: Vec::new(), edits: Vec::new() };
    for part in PARTS {
        let text = fs::read_to_string(format!("{DIRECTORY}/{part}.txt"))
            .map_err(|error| ParseError::of_catalog(format!("{part}.txt: {error}")))?;
        parse(part, text.leak(), &mut catalog)?;
    }
    check(&catalog)?;
    Ok(catalog)
}

/// Reads the edits that make the artificial next format (DESIGN Q40). They are always active.
///
/// # Errors
///
/// A file that cannot be read, or the first line that is not understood.
pub fn next_format() -> Result<Catalog, ParseError> {
    let mut catalog = Catalog { mutants: Vec::new(), edits: Vec::new() };
    let text = fs::read_to_string(NEXT_FORMAT)
        .map_err(|error| ParseError::of_catalog(format!("next_format.txt: {error}")))?;
    parse("next_format", text.leak(), &mut catalog)?;
    Ok(catalog)
}

fn check(catalog: &Catalog) -> Result<(), ParseError> {
    let mut names: Vec<&str> = catalog.mutants.iter().map(|mutant| mutant.name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ParseError::of_catalog(format!("there are two mutants {}", twice[0])));
    }
    let mut active: Vec<&str> = catalog.edits.iter().flat_map(Edit::active).collect();
    active.sort_unstable();
    active.dedup();
    if let Some(unknown) = active.iter().find(|name| names.binary_search(name).is_err()) {
        return Err(ParseError::of_catalog(format!("an edit activates {unknown}, not a mutant")));
    }
    match names.iter().find(|name| active.binary_search(name).is_err()) {
        Some(idle) => Err(ParseError::of_catalog(format!("no edit activates {idle}"))),
        None => Ok(()),
    }
}
