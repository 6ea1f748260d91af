//! Builds the copy, and leaves out the mutants that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gossip_mutants::copy;
use serde_json::Value;

use crate::area::Program;
use crate::consts::ConstFn;
use crate::progress::Progress;
use crate::rewrite::Piece;
use crate::source::{Choice, Edited, Sources};

/// Builds until no error is left. A crate is compiled only when those below it have no errors, and
/// the compiler reports borrows after types: a few for each crate.
const ROUNDS_MAX: usize = 24;

/// The error of a call that a constant cannot make.
const NOT_CONST: &str = "E0015";

/// Where a workspace and its copy are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The workspace.
    pub root: PathBuf,
    /// The copy.
    pub copy: PathBuf,
    /// The target directory of both.
    pub target: PathBuf,
}

/// A built program of tests.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) program: Program,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) directory: PathBuf,
}

/// Writes and builds the copy until it compiles, and records the mutants that it leaves out.
pub(crate) fn build(
    places: &Places,
    files: &[String],
    sources: &Sources,
    progress: &mut Progress,
    programs: &[Program],
) -> Result<(Edited, Vec<Built>), String> {
    for round in 1..=ROUNDS_MAX {
        let edited = sources.edited(&places.root, &progress.choice)?;
        copy::write(&places.root, &places.copy, files, &edited.texts)?;
        let output = compile(places, programs)?;
        if output.errors.is_empty() {
            let built = programs.iter().map(|program| output.find(*program, &places.copy));
            return Ok((edited, built.collect::<Result<_, _>>()?));
        }
        let choice = &mut progress.choice;
        let (dropped, kept) = (choice.dropped.len(), choice.kept.len());
        for error in &output.errors {
            leave_out(error, sources, &edited, choice)?;
        }
        if (dropped, kept) == (choice.dropped.len(), choice.kept.len()) {
            return Err(format!("no mutant explains:\n{}", rendered(&output.errors[0])));
        }
        eprintln!(
            "build {round}: {} mutants do not compile, {} functions stay const",
            choice.dropped.len(),
            choice.kept.len()
        );
        progress.record_choice()?;
    }
    Err(format!("mutants do not compile after {ROUNDS_MAX} builds"))
}

/// What cargo printed.
#[derive(Debug, Default)]
struct Output {
    errors: Vec<Value>,
    programs: Vec<Value>,
}

impl Output {
    fn find(&self, program: Program, copy: &Path) -> Result<Built, String> {
        let directory = |artifact: &Value| -> Option<PathBuf> {
            Some(Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned())
        };
        let is_it = |artifact: &&Value| {
            let is_kind = match program.test {
                None => artifact["target"]["kind"][0] != "test",
                Some(name) => artifact["target"]["name"] == name,
            };
            let name = directory(artifact).and_then(|it| Some(it.file_name()?.to_owned()));
            let is_root = directory(artifact).is_some_and(|it| it == *copy);
            is_kind && (is_root || name.is_some_and(|name| name == program.package))
        };
        let found = self.programs.iter().find(is_it);
        let built = found.and_then(|artifact| {
            let path = artifact["executable"].as_str()?.into();
            Some(Built { program, path, directory: directory(artifact)? })
        });
        built.ok_or_else(|| format!("cargo did not build {program:?}"))
    }
}

fn compile(places: &Places, programs: &[Program]) -> Result<Output, String> {
    let packages: BTreeSet<&str> = programs.iter().map(|program| program.package).collect();
    let tests: BTreeSet<&str> = programs.iter().filter_map(|program| program.test).collect();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&places.copy).env("CARGO_TARGET_DIR", &places.target);
    command.args(["test", "--no-run", "--quiet", "--no-fail-fast", "--message-format", "json"]);
    command.arg("--lib").args(packages.iter().flat_map(|package| ["--package", package]));
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    let result = command.stderr(Stdio::inherit()).output();
    let result = result.map_err(|error| format!("cargo was not started: {error}"))?;
    let mut output = Output::default();
    for line in String::from_utf8_lossy(&result.stdout).lines() {
        let Ok(mut message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            let error = message["message"].take();
            // The last one of a crate says only how many there were.
            if error["spans"].as_array().is_some_and(|spans| !spans.is_empty()) {
                output.errors.push(error);
            }
        } else if message["reason"] == "compiler-artifact" && message["executable"].is_string() {
            output.programs.push(message);
        }
    }
    if !result.status.success() && output.errors.is_empty() {
        return Err("cargo failed without an error of the compiler".to_owned());
    }
    Ok(output)
}

/// Leaves out the mutants that an error is about, or keeps a function `const`.
fn leave_out(
    error: &Value,
    sources: &Sources,
    edited: &Edited,
    choice: &mut Choice,
) -> Result<(), String> {
    if error["code"]["code"] == NOT_CONST {
        let text = error["message"].as_str().unwrap_or_default();
        let path = text.split('`').nth(1).unwrap_or_default();
        choice.kept.insert(ConstFn::of_path(path));
        return Ok(());
    }
    let mut spans = Vec::new();
    collect_spans(error, &mut spans);
    let mut found = blamed(&spans, &edited.pieces);
    if found.is_empty() {
        let is_left_out = |number: &u32| sources.mutant(*number).is_deletion();
        found = between(&spans, &edited.pieces).into_iter().filter(is_left_out).collect();
    }
    if found.is_empty() {
        return Err(format!("no mutant explains:\n{}", rendered(error)));
    }
    choice.dropped.extend(found);
    Ok(())
}

/// A place that an error names.
#[derive(Debug)]
struct Span<'e> {
    file: &'e str,
    start: usize,
    end: usize,
    is_primary: bool,
}

fn collect_spans<'e>(error: &'e Value, to: &mut Vec<Span<'e>>) {
    for span in error["spans"].as_array().into_iter().flatten() {
        let number = |name: &str| span[name].as_u64().unwrap_or_default() as usize;
        to.push(Span {
            file: span["file_name"].as_str().unwrap_or_default(),
            start: number("byte_start"),
            end: number("byte_end"),
            is_primary: span["is_primary"] == true,
        });
    }
    for child in error["children"].as_array().into_iter().flatten() {
        let first = to.len();
        collect_spans(child, to);
        to[first..].iter_mut().for_each(|span| span.is_primary = false);
    }
}

/// Returns the mutants that an error is about: those whose own text is around a place that it
/// names, else whose own text touches one, else whose wrapped text is around one. Primary places
/// come first, and inner mutants before outer ones.
fn blamed(spans: &[Span<'_>], pieces: &BTreeMap<String, Vec<Piece>>) -> BTreeSet<u32> {
    let sites: BTreeMap<String, Vec<Piece>> =
        pieces.iter().map(|(file, pieces)| (file.clone(), sites(pieces))).collect();
    let ways: [(&BTreeMap<String, Vec<Piece>>, Way); 3] = [
        (pieces, |piece, span| piece.start <= span.start && span.end <= piece.end),
        (pieces, |piece, span| piece.start < span.end && span.start < piece.end),
        (&sites, |site, span| site.start <= span.start && span.end <= site.end),
    ];
    for (pieces, way) in ways {
        for is_primary in [true, false] {
            let of_span = |span: &Span<'_>| {
                let near = pieces.get(span.file).into_iter().flatten();
                let near = near.filter(|piece| way(&piece.range, span));
                near.min_by_key(|piece| piece.range.len()).map(|piece| piece.mutant)
            };
            let places = spans.iter().filter(|span| span.is_primary == is_primary);
            let found: BTreeSet<u32> = places.filter_map(of_span).collect();
            if !found.is_empty() {
                return found;
            }
        }
    }
    BTreeSet::new()
}

/// Returns the mutants between the places that an error names. A borrow that a statement between
/// them no longer ends is reported at its start and at the next use.
fn between(spans: &[Span<'_>], pieces: &BTreeMap<String, Vec<Piece>>) -> BTreeSet<u32> {
    let Some(file) = spans.first().map(|span| span.file) else { return BTreeSet::new() };
    let of_file = || spans.iter().filter(|span| span.file == file);
    let start = of_file().map(|span| span.start).min().unwrap_or_default();
    let end = of_file().map(|span| span.end).max().unwrap_or_default();
    let inside = pieces.get(file).into_iter().flatten();
    let inside = inside.filter(|piece| start <= piece.range.start && piece.range.end <= end);
    inside.map(|piece| piece.mutant).collect()
}

/// Whether text of a mutant is near a place.
type Way = fn(&std::ops::Range<usize>, &Span<'_>) -> bool;

/// Returns the text of each mutant with the text that it wraps.
fn sites(pieces: &[Piece]) -> Vec<Piece> {
    let mut sites: BTreeMap<u32, Piece> = BTreeMap::new();
    for piece in pieces {
        let site = sites.entry(piece.mutant).or_insert_with(|| piece.clone());
        site.range.start = site.range.start.min(piece.range.start);
        site.range.end = site.range.end.max(piece.range.end);
    }
    sites.into_values().collect()
}

fn rendered(error: &Value) -> &str {
    error["rendered"].as_str().unwrap_or_default()
}
