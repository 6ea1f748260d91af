//! `store restored`: raises the fence floor of every run after a restore.

use gossip::coordination::GetRunError;
use gossip::coordination::protocol::fence_floor_at;
use gossip::identity::{FenceEpoch, RunId, TenantId};
use gossip::runtime::{Clock as _, SystemClock};

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::Record;
use crate::store_args::RestoredArgs;
use crate::{output, store};

/// Ticks of the clock per second.
const TICKS: u64 = 1_000;

/// Raises the floors of all tenants, or of one. A run that cannot be read does not keep the others
/// from it.
pub(crate) fn restored(
    global: &Global,
    args: &RestoredArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let backend = store::open_existing(global)?;
    let tenant = args.only_tenant.then(|| store::tenant(global)).transpose()?;
    let now = SystemClock::new().now();
    let at_least = fence_floor_at(now.as_raw() / TICKS);
    let (mut records, mut failed) = (Vec::new(), None);
    let mut each = |tenant, run: RunId, raised: Result<FenceEpoch, _>| match raised {
        Ok(floor) => records.push(record(tenant, run).with("fence_floor", floor.as_raw())),
        Err(GetRunError::BackendError(error)) => {
            let id = run.as_raw();
            console.note(&format!("run {id:016x}: the floor was not raised: {error}"));
            failed = Some(Failure::store(&error));
        }
        Err(error) => failed = Some(Failure::new(Code::Usage, error.to_string())),
    };
    let listed = backend.coordinator().raise_fence_floors(now, tenant, at_least, &mut each);
    output::list(global.output, &["tenant", "run", "fence_floor"], &records)?;
    listed.map_err(|error| match tenant {
        Some(_) => Failure::store(&error),
        // Credentials of one tenant cannot read the others.
        None => Failure::store(&error).next(
            "run it with the operator's credentials, or add --only-tenant for the runs of --tenant",
        ),
    })?;
    match failed {
        Some(failure) => Err(failure),
        None => {
            let runs = output::count(records.len() as u64, "run");
            console.note(&format!("{runs}: leases from before the restore are refused"));
            Ok(Code::Complete)
        }
    }
}

/// Returns a record with the tenant's name and the id of its run.
fn record(tenant: TenantId, run: RunId) -> Record {
    // A name is padded with zeros to the length of an id.
    let name = tenant.as_bytes();
    let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let id = format!("{:016x}", run.as_raw());
    Record::new().with_bytes(["tenant", "tenant_hex"], &name[..end]).with("run", id)
}
