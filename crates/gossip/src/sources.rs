//! Sources by text, and the table that own connectors are registered in.
//!
//! [`registry`] returns the table of every source of this crate: those of the runtime, and tables
//! of SQLite and PostgreSQL, and with the feature `buckets` those of S3 servers.
//! [`SourceRegistry::new`] has those of the runtime only.

pub use gossip_coordination_postgres::PostgresEnvironment;
pub use gossip_scanner_runtime::connectors::*;
#[cfg(feature = "buckets")]
pub use gossip_source_buckets::BucketEnvironment;
#[cfg(feature = "buckets")]
use gossip_source_buckets::Buckets;
use gossip_source_tables::{PostgresTables, SqliteTables};

/// What sources read from the environment of the process. This crate never reads it itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SourceEnvironment {
    /// The places of libpq for a password.
    pub postgres: PostgresEnvironment,
    /// The variables of AWS.
    #[cfg(feature = "buckets")]
    pub buckets: BucketEnvironment,
}

impl SourceEnvironment {
    /// Sets the places of libpq for a password.
    #[must_use]
    pub fn with_postgres(mut self, postgres: PostgresEnvironment) -> Self {
        self.postgres = postgres;
        self
    }

    /// Sets the variables of AWS.
    #[cfg(feature = "buckets")]
    #[must_use]
    pub fn with_buckets(mut self, buckets: BucketEnvironment) -> Self {
        self.buckets = buckets;
        self
    }
}

/// Returns the table of every source of this crate.
#[must_use]
pub fn registry(environment: &SourceEnvironment) -> SourceRegistry {
    // Tables and buckets are registered here, because the runtime depends on no client of theirs.
    let mut registry = SourceRegistry::new();
    let postgres = PostgresTables::new(environment.postgres.clone());
    let added = registry
        .register("sqlite", SqliteTables)
        .and_then(|()| registry.register("postgres", postgres));
    #[cfg(feature = "buckets")]
    let added =
        added.and_then(|()| registry.register("s3", Buckets::new(environment.buckets.clone())));
    added.expect("the schemes are well-formed, and no built-in source has them");
    registry
}
