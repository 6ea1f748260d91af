//! The present boot of the system.

use gossip_coordination_sqlite::Boot;
use gossip_scanner_runtime::{Clock as _, SystemClock};

/// Linux has a random id of each boot here, the same in all containers of a machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Ticks of the system clock per second.
const TICKS: u64 = 1_000;

/// Returns the present boot, or `None` if the system has no id for it.
pub(super) fn present() -> Option<Boot> {
    // Other systems have no such file; the caller then requires `sync=full`.
    let id = std::fs::read_to_string(BOOT_ID).ok()?;
    Boot::new(&id, SystemClock::new().now().as_raw() / TICKS)
}
