//! Time, for rates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Processor time of this thread, so that rates mean the same on a busy machine; time on the wall
/// where the system does not tell.
pub(crate) fn processor() -> Duration {
    let output = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = output.and_then(|output| output.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(since_epoch, Duration::from_nanos)
}

#[expect(clippy::disallowed_methods, reason = "a world takes no time, its reader does")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
