//! Tables and functions of a store, as versioned migrations. They need no superuser: a role that
//! may create a schema in the database, or that owns the schema, runs them.

use crate::backend::ConnectError;
use crate::config::PostgresConfig;
use crate::error::Failure;
use crate::session::Session;

/// The migrations, in the order of their versions from 1.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001.sql")];

/// The version that this program uses.
const VERSION: usize = MIGRATIONS.len();

/// Creates or upgrades the schema of a store if it is older than this program.
pub(crate) async fn prepare(
    session: &Session,
    config: &PostgresConfig,
    seed: u64,
) -> Result<(), ConnectError> {
    let schema = &config.schema;
    // By the function, which every role of the store may call.
    let found = match session.query(&format!("SELECT {schema}.version()")).await {
        Ok(rows) => version(&rows),
        Err(Failure::Server { code, .. }) if is_missing(&code) => 0,
        Err(failure) => return Err(failure.into()),
    };
    if found < VERSION {
        return migrate(session, schema, seed).await;
    }
    check(found)
}

/// Runs the missing migrations in one transaction.
async fn migrate(session: &Session, schema: &str, seed: u64) -> Result<(), ConnectError> {
    let lock = seed.cast_signed();
    session.execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    // Of several processes that start at once, one migrates and the others find the result.
    session.query(&format!("SELECT pg_advisory_xact_lock({lock})")).await?;
    let exists = session.query(&format!("SELECT to_regclass('{schema}.meta') IS NOT NULL")).await?;
    let exists = exists.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    let found = match exists {
        true => version(&session.query(&format!("SELECT version FROM {schema}.meta")).await?),
        false => 0,
    };
    check(found)?;
    // Asked first: with `IF NOT EXISTS`, too, the statement needs the right to create a schema in
    // the database, which the owner of an existing one may lack.
    let missing = session.query(&format!("SELECT to_regnamespace('{schema}') IS NULL")).await?;
    if missing.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        session.execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    for migration in MIGRATIONS.iter().skip(found) {
        session.execute(&migration.replace("{schema}", schema)).await?;
    }
    session.execute("COMMIT").await?;
    Ok(())
}

fn check(found: usize) -> Result<(), ConnectError> {
    match found > VERSION {
        true => Err(ConnectError::NewerSchema { found, known: VERSION }),
        false => Ok(()),
    }
}

fn version(rows: &[tokio_postgres::Row]) -> usize {
    let version: Option<i32> = rows.first().and_then(|row| row.try_get(0).ok());
    version.and_then(|version| usize::try_from(version).ok()).unwrap_or(0)
}

/// Returns whether a code says that the schema or the function does not exist.
fn is_missing(code: &str) -> bool {
    ["3F000", "42883", "42P01"].contains(&code)
}
