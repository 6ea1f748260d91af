//! The format of `mutants/*.txt`.
//!
//! ```text
//! mutant FenceIgnored
//! what The fence is not compared, only the owner's name.
//! story locks by name and lease: a client that paused beyond its lease wakes up and writes
//! layer conformance
//! layer model lease StaleFence
//! edit crates/gossip-coordination/src/validation.rs
//! -    if presented != current {
//! +    if presented != current && !gossip_mutants::is_active("FenceIgnored") {
//! ```
//!
//! An `edit` is a hunk of a unified diff without line numbers: lines that begin with a space are
//! context, `-` removes a line and `+` adds one. Context and removed lines together must occur
//! exactly once in the file. An empty line or a line that begins with `#` ends an edit.
//!
//! `layer` is one of `conformance`, `scripts`, `tests PACKAGE [FILTER...]`,
//! `model CONFIGURATION [RULE [STEPS]]`, `simulator [RULE]`, `faults LIST [RULE]` and
//! `worker-simulator [RULE]`. `hidden faults LIST` says that these faults alone do not reveal the
//! mutant.

use std::fmt;

use crate::catalog::{Catalog, Layer, Mutant};
use crate::edit::Edit;

/// A file of mutants that is not understood.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseError {
    place: String,
    why: String,
}

impl ParseError {
    fn new(part: &str, line: usize, why: impl Into<String>) -> Self {
        Self { place: format!("mutants/{part}.txt:{line}"), why: why.into() }
    }

    /// An error about all files together.
    pub(crate) fn of_catalog(why: String) -> Self {
        Self { place: "mutants/*.txt".to_owned(), why }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl std::error::Error for ParseError {}

/// Adds the entries of one file.
pub(crate) fn parse(
    part: &'static str,
    text: &'static str,
    catalog: &mut Catalog,
) -> Result<(), ParseError> {
    let first = catalog.mutants.len();
    // Whether the lines that follow belong to the last edit.
    let mut in_edit = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let refuse = |why: &str| Err(ParseError::new(part, number, why));
        if in_edit && line.starts_with([' ', '-', '+']) {
            let edit = catalog.edits.last_mut().expect("an edit has begun");
            edit.push(line);
            continue;
        }
        in_edit = false;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if rest.is_empty() {
            return refuse("a keyword and its text are expected");
        }
        match word {
            "mutant" => catalog.mutants.push(Mutant {
                name: rest,
                part,
                what: "",
                story: "",
                layers: Vec::new(),
                hidden: Vec::new(),
            }),
            "edit" => {
                in_edit = true;
                catalog.edits.push(Edit::new(rest, format!("mutants/{part}.txt:{number}")));
            }
            _ => {
                let mutants = &mut catalog.mutants[first..];
                let Some(mutant) = mutants.last_mut() else {
                    return refuse("a mutant must come first");
                };
                match (word, layer(rest)) {
                    ("what", _) => mutant.what = rest,
                    ("story", _) => mutant.story = rest,
                    ("layer", Some(layer)) => mutant.layers.push(layer),
                    ("hidden", Some(layer @ Layer::Faults { .. })) => mutant.hidden.push(layer),
                    ("layer" | "hidden", _) => return refuse("the layer is not understood"),
                    _ => return refuse("the keyword is not understood"),
                }
            }
        }
    }
    let is_whole = |mutant: &&Mutant| {
        !mutant.what.is_empty() && !mutant.story.is_empty() && !mutant.layers.is_empty()
    };
    match catalog.mutants[first..].iter().find(|mutant| !is_whole(mutant)) {
        Some(mutant) => {
            let why = format!("{} lacks `what`, `story` or `layer`", mutant.name);
            Err(ParseError::new(part, text.lines().count(), why))
        }
        None => Ok(()),
    }
}

fn layer(text: &'static str) -> Option<Layer> {
    let (kind, rest) = text.split_once(' ').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let is_word = |rest: &&str| !rest.contains(' ');
    let (first, second) = match rest {
        None => (None, None),
        Some(rest) => match rest.split_once(' ') {
            None => (Some(rest), None),
            Some((first, second)) => (Some(first), Some(second)),
        },
    };
    let rule = || match rest {
        None => Some(None),
        Some(rule) => is_word(&rule).then_some(Some(rule)),
    };
    match kind {
        "conformance" => rest.is_none().then_some(Layer::Conformance),
        "scripts" => rest.is_none().then_some(Layer::Scripts),
        "tests" => Some(Layer::Tests { package: first?, filters: second.unwrap_or("") }),
        "model" => {
            let (rule, steps) = match second.and_then(|second| second.split_once(' ')) {
                None => (second, None),
                Some((rule, steps)) => (Some(rule), Some(steps)),
            };
            Some(Layer::Model { configuration: first?, rule, steps })
        }
        "faults" => second
            .is_none_or(|rule| is_word(&rule))
            .then_some(Layer::Faults { list: first?, rule: second }),
        "simulator" => Some(Layer::Simulator { rule: rule()? }),
        "worker-simulator" => Some(Layer::WorkerSimulator { rule: rule()? }),
        _ => None,
    }
}
