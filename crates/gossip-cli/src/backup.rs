//! `store backup`: copies a store that is in use.

use std::path::Path;

use gossip::store::{AnyStore, BackupError};

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::store;

/// Copies the store to a new file at `path`.
pub(crate) fn back_up(global: &Global, path: &Path, console: &Console) -> Result<Code, Failure> {
    let backend = store::open_existing(global)?;
    let AnyStore::Sqlite(file) = backend.store() else {
        return Err(Failure::new(Code::Usage, "only a sqlite: store is backed up by gossip")
            .next("back up a cluster with its own tool: etcdctl snapshot save FILE"));
    };
    let bytes = file.database().back_up_to(path).map_err(|error| match error {
        BackupError::Engine(error) => Failure::store(&error),
        error => Failure::new(Code::Usage, "the backup was not made").why(error),
    })?;
    console.note(&format!("{}: {bytes} bytes", path.display()));
    Ok(Code::Complete)
}
