//! Sources as the command line knows them: with credentials from the environment.

use std::ffi::OsStr;

use gossip::sources::{
    self, Source, SourceEnvironment, SourceError, SourceOptions, SourceRegistry,
};

use crate::store;

/// Returns the table of sources.
pub(crate) fn registry() -> SourceRegistry {
    let environment = SourceEnvironment::default();
    sources::registry(&environment.with_postgres(store::postgres_environment()))
}

/// Reads what a user typed.
pub(crate) fn parse(text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
    registry().parse(text, options)
}

/// Reads what a run has stored, without looking at the source.
pub(crate) fn restore(text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
    registry().restore(text, options)
}
