//! Sources of keys: the files of a tree, the lines of a file, the rows of a manifest, integers, the
//! blobs of a git repository.
//!
//! | connector | key | counts | seek without a token |
//! |---|---|---|---|
//! | [`FileTree`] | path below the root | no | the directories on the way |
//! | [`LineFile`] | offset of the line | no | one short read |
//! | [`Manifest`] | number of the row | exact | a short way from a row in the index |
//! | [`IntegerRange`] | the integer | exact | computed |
//! | [`GitBlobs`] | object id | exact | one search in memory |
//!
//! Keys are encoded by [`gossip_frontier::KeyEncoding`]: a path as `PathKey`, or as `BytePathKey`
//! if it is not UTF-8; a number as `ManifestRowKey` ([`row_key`]). [`KeyFormat`] shows them to
//! users.
//!
//! [`SourceRegistry`] maps the scheme of a source to its connector, and [`Source`] is the parsed
//! text. A program can register a connector of its own. All built-in ones keep the contract of
//! [`gossip_contracts::connector`] and pass its conformance suite; all of them can be sampled by a
//! bounded look. They read only their own source and never write, start no thread, read no clock,
//! and hold nothing that grows with the source but the names of the directories a listing is in and
//! the ids of a repository. Only the last starts processes: `git`.
//!
//! They are for Unix: names of files are bytes.

mod git;
mod integers;
mod item_names;
mod key_format;
mod lines;
mod manifest;
mod registry;
mod row_index;
mod row_keys;
mod rows;
mod source;
mod source_file;
mod spread;
mod tree;

#[cfg(test)]
mod integers_tests;
#[cfg(test)]
mod item_names_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod registry_tests;
#[cfg(test)]
mod row_keys_tests;
#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod source_tests;
#[cfg(test)]
pub(crate) mod test_support;

pub use self::git::GitBlobs;
pub use self::integers::IntegerRange;
pub use self::item_names::ItemNames;
pub use self::key_format::KeyFormat;
pub use self::lines::{LineEnd, LineFile};
pub use self::manifest::{Manifest, ManifestFormat};
pub use self::registry::{
    RegisterError, RegisteredSource, SCHEME_LEN_MAX, SourceFamily, SourceRefusal, SourceRegistry,
};
pub use self::row_keys::{parse_row_key, row_key};
pub use self::source::{Source, SourceError, SourceOptions, SourceStamp};
pub use self::tree::{FileTree, TreeOptions};
