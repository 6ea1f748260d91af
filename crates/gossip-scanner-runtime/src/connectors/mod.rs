//! Sources of keys: integers, the lines of a file, the rows of a manifest, the files of a
//! tree.
//!
//! Every connector here keeps the contract of
//! [`gossip_contracts::connector`] and passes its conformance suite. They never
//! start threads or read a clock.

mod decimal;
mod integers;
mod lines;
mod manifest;
mod row_index;
mod rows;
mod source;
mod source_file;
mod spread;
mod tree;

#[cfg(test)]
mod decimal_tests;
#[cfg(test)]
mod integers_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod source_tests;
#[cfg(test)]
pub(crate) mod test_support;

pub use self::decimal::{NUMBER_KEY_LEN, number_key, parse_number_key};
pub use self::integers::IntegerRange;
pub use self::lines::LineFile;
pub use self::manifest::{Manifest, ManifestFormat};
pub use self::source::{Source, SourceError, SourceOptions, SourceStamp};
pub use self::tree::{FileTree, TreeOptions};
