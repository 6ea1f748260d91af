//! `store init` and `store stats`: creates a store, and shows its size and state.

use gossip::postgres;
use gossip::store::{AnyStore, Backend};

use crate::args::Global;
use crate::console::Console;
use crate::doctor::bytes;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::store;
use crate::store_args::{Durability, InitArgs};

/// Creates the store if it is missing, and declares its durability if one is given.
pub(crate) fn init(global: &Global, args: &InitArgs, console: &Console) -> Result<Code, Failure> {
    let backend = store::open(global)?;
    if let Some(durability) = args.durability {
        let declared = match durability {
            Durability::Local => postgres::Durability::Local,
            Durability::Replicated => postgres::Durability::Replicated,
        };
        let store = of_postgres(&backend, "--durability is for PostgreSQL only")?;
        store.declare_durability(declared).map_err(|error| Failure::store(&error))?;
    }
    let format = backend.format().map_err(|error| Failure::store(&error))?;
    console.note(&format!("the store is ready, format {format}"));
    Ok(Code::Complete)
}

/// Prints the size and the state of a store.
pub(crate) fn stats(global: &Global) -> Result<Code, Failure> {
    let backend = store::open_existing(global)?;
    let format = backend.format().map_err(|error| Failure::store(&error))?;
    let store = of_postgres(&backend, "only a PostgreSQL store has statistics")?;
    let found = store.stats().map_err(|error| Failure::store(&error))?;
    // At least one, because an empty store has neither.
    let versions = found.rows.saturating_add(found.dead_rows).max(1);
    let dead_percent = found.dead_rows.saturating_mul(100) / versions;
    let incarnation = found.incarnation.map(|id| format!("{:016x}", id.cast_unsigned()));
    let record = Record::new()
        .with_shown("size", found.bytes, bytes(found.bytes))
        .with("rows", found.rows)
        .with("dead_rows", found.dead_rows)
        .with_shown("dead_percent", dead_percent, format!("{dead_percent} %"))
        .with("format", u64::from(format))
        .with("schema_version", u64::try_from(found.schema_version).unwrap_or(0))
        .with("incarnation", incarnation)
        .with("durability", found.durability)
        .with("synchronous_commit", found.synchronous_commit)
        .with("oldest_snapshot", found.oldest_snapshot)
        .with("multixact_age", found.multixact_age);
    output::one(global.output, &record)?;
    Ok(Code::Complete)
}

fn of_postgres(backend: &Backend, refusal: &str) -> Result<postgres::BlockingStore, Failure> {
    let AnyStore::Postgres(store) = backend.store() else {
        let failure = Failure::new(Code::Usage, refusal);
        return Err(failure.next("check this store instead: gossip doctor"));
    };
    Ok(store)
}
