//! `store restored`: raises the fence floor of every run of a tenant after a restore.

use gossip::coordination::GetRunError;
use gossip::coordination::protocol::fence_floor_at;
use gossip::runtime::{Clock as _, SystemClock};

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::runs::{id_record, ids};
use crate::{output, store};

/// Ticks of the clock per second.
const TICKS: u64 = 1_000;

/// Raises the floors. A run that cannot be read does not keep the others from it.
pub(crate) fn restored(global: &Global, console: &Console) -> Result<Code, Failure> {
    let backend = store::open_existing(global)?;
    let tenant = store::tenant(global)?;
    let coordinator = &mut backend.coordinator();
    let now = SystemClock::new().now();
    let at_least = fence_floor_at(now.as_raw() / TICKS);
    let (mut records, mut failed) = (Vec::new(), None);
    for run in ids(coordinator, tenant, false)? {
        match coordinator.raise_fence_floor(now, tenant, run, at_least) {
            Ok(floor) => records.push(id_record(run).with("fence_floor", floor.as_raw())),
            // Deleted since the ids were listed.
            Err(GetRunError::RunNotFound) => {}
            Err(GetRunError::BackendError(error)) => {
                let id = run.as_raw();
                console.note(&format!("run {id:016x}: the floor was not raised: {error}"));
                failed = Some(Failure::store(&error));
            }
            Err(error) => failed = Some(Failure::new(Code::Usage, error.to_string())),
        }
    }
    output::list(global.output, &["run", "fence_floor"], &records)?;
    match failed {
        Some(failure) => Err(failure),
        None => {
            let runs = output::count(records.len() as u64, "run");
            console.note(&format!("{runs}: leases from before the restore are refused"));
            Ok(Code::Complete)
        }
    }
}
