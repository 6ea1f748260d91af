//! The files of mutants, and their edits in the workspace as it is.

use std::collections::BTreeSet;
use std::path::Path;

use crate::catalog::{Catalog, KERNEL, Layer, load, next_format};
use crate::copy::edited;
use crate::edit::{Edit, apply};
use crate::parse::parse;

/// Mutants are added and never dropped.
const MUTANTS_MIN: usize = 111;

#[test]
fn every_edit_fits_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let texts = edited(&root, &load().unwrap()).unwrap_or_else(|errors| panic!("{errors}"));
    let manifest = &texts["crates/gossip-coordination/Cargo.toml"];
    assert!(manifest.contains("[dependencies]\ngossip-mutants.workspace = true\n"));
}

#[test]
fn next_format_fits_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let texts = edited(&root, &next_format().unwrap()).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(texts["crates/gossip-cli/Cargo.toml"].contains("name = \"gossip-next\""));
}

#[test]
fn every_mutant_has_a_description_of_its_own() {
    let mutants = load().unwrap().mutants;
    let described: BTreeSet<_> = mutants.iter().map(|mutant| (mutant.what, mutant.story)).collect();
    assert_eq!(described.len(), mutants.len());
    for mutant in &mutants {
        assert!(mutant.what.ends_with('.') && !mutant.story.ends_with('.'), "{}", mutant.name);
    }
    assert!(mutants.len() >= MUTANTS_MIN, "{}", mutants.len());
}

#[test]
fn every_kernel_mutant_has_two_kinds_of_layers() {
    let mutants = load().unwrap().mutants;
    let kinds = |layers: &[Layer]| layers.iter().map(|it| it.kind()).collect::<BTreeSet<_>>().len();
    let few = mutants.iter().filter(|it| it.part == KERNEL && kinds(&it.layers) < 2);
    let few: Vec<_> = few.map(|mutant| mutant.name).collect();
    assert!(few.is_empty(), "{few:?}");
}

fn parsed(text: &'static str) -> Result<Catalog, String> {
    let mut catalog = Catalog { mutants: Vec::new(), edits: Vec::new() };
    parse("x", text, &mut catalog).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn edit(text: &'static str) -> Edit {
    parsed(text).unwrap().edits.remove(0)
}

#[test]
fn a_file_that_is_not_understood_is_refused_with_its_line() {
    for (text, expected) in [
        ("mutant", "mutants/x.txt:1: a keyword and its text are expected"),
        ("what It.", "mutants/x.txt:1: a mutant must come first"),
        ("mutant A\nlayer magic", "mutants/x.txt:2: the layer is not understood"),
        ("mutant A\nlayer simulator A B", "mutants/x.txt:2: the layer is not understood"),
        ("mutant A\nhidden scripts", "mutants/x.txt:2: the layer is not understood"),
        ("mutant A\nedit f\n-a\n\n-b", "mutants/x.txt:5: a keyword and its text are expected"),
        ("mutant A\nwhat It.", "mutants/x.txt:2: A lacks `what`, `story` or `layer`"),
    ] {
        assert_eq!(parsed(text).map(|_| ()), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn an_edit_replaces_its_lines() {
    let one = edit("edit f\n b\n-c\n+C\n+D");
    let other = edit("edit f\n+A\n a");
    assert_eq!(apply(&[&one, &other], "a\nb\nc\nd\n").unwrap(), "A\na\nb\nC\nD\nd\n");
}

#[test]
fn an_edit_that_does_not_fit_is_refused() {
    let why = |edits: &[&Edit], text: &str| {
        let errors = apply(edits, text).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let edit = edit("edit f\n-a\n+A");
    let place = "mutants/x.txt:1";
    assert_eq!(why(&[&edit], "b\n"), format!("{place}: its lines do not occur in f"));
    assert_eq!(why(&[&edit], "a\na\n"), format!("{place}: its lines occur 2 times in f"));
    assert_eq!(why(&[&edit, &edit], "a\n"), format!("{place}: it overlaps {place} in f"));
}

#[test]
fn an_edit_names_the_mutants_that_it_activates() {
    let edit = edit("edit f\n-a\n+is_active(\"A\") || is_active(\"B\")\n+C");
    assert_eq!(edit.active().collect::<Vec<_>>(), ["A", "B"]);
}
