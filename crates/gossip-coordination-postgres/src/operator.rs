//! What the operator declares about a store, and how large and how old it is.
//!
//! Reads and writes tables, so it needs the rights of their owner; workers need none of this.

use std::fmt;

use gossip_coordination::InfraError;

use crate::blocking::BlockingStore;
use crate::error::Failure;

const STATS: &str = "postgres.stats";

/// Whether a crash or a failover may lose acknowledged commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "commits are lost or not")]
pub enum Durability {
    /// They may be lost, so a new incarnation raises the fence floors.
    Local,
    /// The operator declares that none is lost, so the floors stay.
    Replicated,
}

impl Durability {
    const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Replicated => "replicated",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The size and the state of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresStats {
    /// Bytes of the table, its index and its dead rows.
    pub bytes: u64,
    /// Keys.
    pub rows: u64,
    /// Old versions of rows that vacuum has not removed yet, as the server estimates.
    pub dead_rows: u64,
    /// The version of the schema.
    pub schema_version: i32,
    /// The incarnation; `None` if the server has lost it and no client has begun another.
    pub incarnation: Option<i64>,
    /// What the operator declared.
    pub durability: String,
    /// The setting under which commits are made.
    pub synchronous_commit: String,
    /// Transactions since the oldest snapshot that is in use; vacuum removes nothing younger.
    pub oldest_snapshot: u64,
    /// Multixacts since the last freeze of the database.
    pub multixact_age: u64,
}

impl BlockingStore {
    /// Reads the size and the state of the store. Counts all rows.
    ///
    /// # Errors
    ///
    /// The server fails, or the role may not read the tables.
    pub fn stats(&self) -> Result<PostgresStats, InfraError> {
        let rows = self.query(STATS, |schema| {
            format!(
                // The cast to `bigint` matters: the library decodes by the exact type, and ages
                // are `integer`.
                "SELECT pg_total_relation_size('{schema}.entry')::bigint, \
                 (SELECT count(*) FROM {schema}.entry), \
                 coalesce(pg_stat_get_dead_tuples('{schema}.entry'::regclass), 0)::bigint, \
                 m.version, (SELECT i.id FROM {schema}.incarnation i), \
                 m.durability, m.synchronous_commit, \
                 coalesce((SELECT max(age(a.backend_xmin)) FROM pg_stat_activity a \
                           WHERE a.pid <> pg_backend_pid()), 0)::bigint, \
                 (SELECT mxid_age(d.datminmxid) FROM pg_database d \
                  WHERE d.datname = current_database())::bigint \
                 FROM {schema}.meta m"
            )
        })?;
        let lost = || Failure::Lost.into_infra(STATS);
        let row = rows.first().ok_or_else(lost)?;
        let number = |at: usize| -> Result<u64, InfraError> {
            let found: i64 = row.try_get(at).map_err(|_| lost())?;
            Ok(u64::try_from(found).unwrap_or(0))
        };
        Ok(PostgresStats {
            bytes: number(0)?,
            rows: number(1)?,
            dead_rows: number(2)?,
            schema_version: row.try_get(3).map_err(|_| lost())?,
            incarnation: row.try_get(4).map_err(|_| lost())?,
            durability: row.try_get(5).map_err(|_| lost())?,
            synchronous_commit: row.try_get(6).map_err(|_| lost())?,
            oldest_snapshot: number(7)?,
            multixact_age: number(8)?,
        })
    }

    /// Declares whether commits may be lost. It holds from the next loss of the incarnation on.
    ///
    /// # Errors
    ///
    /// The server fails, or the role may not write the table.
    pub fn declare_durability(&self, durability: Durability) -> Result<(), InfraError> {
        let declare =
            |schema: &str| format!("UPDATE {schema}.meta SET durability = '{durability}'");
        self.query("postgres.declare", declare).map(drop)
    }
}
