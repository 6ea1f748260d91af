//! What commands clear away that others have left: deletions that broke off, and runs that were
//! given up before they began.
//!
//! Whoever was killed in the middle of `run rm` has left shards that no listing shows and that
//! still count. Nobody has to know of them: the commands that make and delete runs look.

use gossip::store::Coordinator;
use gossip_contracts::identity::TenantId;
use gossip_coordination::RunManagement as _;
use gossip_scanner_runtime::{Clock as _, SystemClock};

use crate::console::Console;
use crate::output;

/// Milliseconds after which a run that was made and not registered to the end counts as given up. A
/// registration takes seconds; a day is more than clocks of different machines differ.
const GIVEN_UP_AFTER: u64 = 24 * 60 * 60 * 1_000;

/// Runs that one command clears away, at most: it was typed for something else.
const CLEARED_MAX: usize = 64;

/// Clears away what others have left; whether there was anything. What cannot be cleared away now
/// is no reason to fail: it is told, and the next command tries again.
pub(crate) fn clear(coordinator: &mut Coordinator, tenant: TenantId, console: &Console) -> bool {
    let (now, mut gone) = (SystemClock::new().now(), Vec::new());
    let told = coordinator.gc_stale_initializing_runs_into(
        now,
        tenant,
        GIVEN_UP_AFTER,
        CLEARED_MAX,
        &mut gone,
    );
    if !gone.is_empty() {
        let runs = output::count(gone.len() as u64, "run");
        console.note(&format!("cleared away what was left of {runs}"));
    }
    if let Err(error) = told {
        console.note(&format!("what is left of a deleted run cannot be cleared away: {error}"));
    }
    !gone.is_empty()
}
