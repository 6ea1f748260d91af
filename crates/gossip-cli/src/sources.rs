//! Sources as the command line knows them: with credentials from the environment.

use std::ffi::OsStr;

use gossip::sources::{
    self, Source, SourceEnvironment, SourceError, SourceOptions, SourceRegistry,
};

use crate::store;

/// Returns the table of sources.
pub(crate) fn registry() -> SourceRegistry {
    let environment = SourceEnvironment::default().with_postgres(store::postgres_environment());
    #[cfg(feature = "buckets")]
    let environment = environment
        .with_buckets(sources::BucketEnvironment::from_lookup(|name| std::env::var(name).ok()));
    sources::registry(&environment)
}

/// Reads what a user typed.
pub(crate) fn parse(text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
    registry().parse(text, options)
}

/// Reads what a run has stored, without looking at the source.
pub(crate) fn restore(text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
    registry().restore(text, options)
}
