//! Generated mutants: small changes of the product, and whether a test fails for each.
//!
//! `cargo xtask mutation` copies the workspace and writes every change into the copy as a run-time
//! switch, so that one build serves all of them (docs/adr/0087-generated-mutants.md). The product
//! has no switches. Planted bugs, which are written by hand and test the layers of verification,
//! are in `gossip-mutants`; this crate measures tests.
//!
//! | module | contents |
//! |---|---|
//! | [`area`] | the parts that are mutated, and the tests that must catch their mutants |
//! | `generate`, `values` | the places of a file, and the changes |
//! | `consts` | functions that the compiler must evaluate, and that cannot have a switch |
//! | `rewrite`, `source` | the texts of the copy |
//! | `build` | builds the copy, and leaves out mutants that do not compile |
//! | `trial` | runs tests with one mutant until one fails |
//! | `progress` | the file that an interrupted campaign continues from |
//! | `equivalent` | the list of mutants that change nothing observable, `equivalent.txt` |
//! | [`campaign`], [`report`] | all of it in order; the table |
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a campaign of minutes says how far it is")]

pub mod area;
mod build;
pub mod campaign;
mod consts;
mod equivalent;
mod generate;
mod progress;
pub mod report;
mod rewrite;
mod source;
mod trial;
mod values;

pub use self::build::Places;
