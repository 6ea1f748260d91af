//! Outcomes of opening and writing under restricted permissions and full disks.

use std::path::Path;

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::store::{CommitOutcome, Key, Read, Store, Txn};
use gossip_coordination::{InfraError, StoreRefusal};
use gossip_coordination_sqlite::{OpenSqliteError, SqliteDatabase, SqliteOptions};

use crate::Failure;

/// Bytes of one value: some pages.
const VALUE_BYTES: usize = 20_000;
/// Maximum number of values; a disk that accepts more is not full.
const VALUES_MAX: u64 = 10_000;

/// Opens `file` and returns `Opened` or the name of the error.
pub(crate) fn open(file: &Path) -> String {
    let name = match SqliteDatabase::open(file, SqliteOptions::default()) {
        Ok(_) => "Opened",
        Err(OpenSqliteError::ReadOnly { .. }) => "ReadOnly",
        Err(OpenSqliteError::NotPermitted { .. }) => "NotPermitted",
        Err(OpenSqliteError::NoSpace { .. }) => "NoSpace",
        Err(OpenSqliteError::Locked { .. }) => "Locked",
        Err(error) => return format!("{error:?}"),
    };
    name.to_owned()
}

/// Writes values into `file` until one is refused; then exactly the acknowledged values must exist,
/// and the file must be intact. Returns the refusal.
pub(crate) fn fill(file: &Path) -> Result<String, Failure> {
    let database = SqliteDatabase::open(file, SqliteOptions::default())?;
    let mut store = database.store();
    for nth in 0..VALUES_MAX {
        let mut txn = Txn::new();
        txn.put(key(nth), vec![7; VALUE_BYTES]);
        let outcome = store.commit(vec![txn]).pop().ok_or("one outcome for each")?;
        let how = match outcome {
            Ok(CommitOutcome::Applied { .. }) => continue,
            Ok(CommitOutcome::Unknown) => "Unknown".to_owned(),
            Ok(CommitOutcome::Conflict(_)) => return Err("nothing was compared".into()),
            Err(InfraError::Refused { why: StoreRefusal::NoSpace, .. }) => "NoSpace".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        database.check_integrity()?;
        let reads = (0..=nth).map(|nth| Read::Get(key(nth))).collect();
        let values = store.read(reads)?;
        let there = values.iter().filter(|it| format!("{it:?}").contains("Some")).count() as u64;
        if there != nth {
            return Err(format!("{there} values exist, {nth} were acknowledged").into());
        }
        return Ok(format!("{how} after {nth} values"));
    }
    Err("the disk did not fill".into())
}

const fn key(nth: u64) -> Key {
    Key::RunHead { tenant: TenantId::from_bytes([3; 32]), run: RunId::from_raw(nth) }
}
