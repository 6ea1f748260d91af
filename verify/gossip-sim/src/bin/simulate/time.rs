//! Time for rates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the processor time of this thread, so that rates are comparable on a busy machine; wall
/// time where the system does not provide it.
pub(crate) fn processor() -> Duration {
    let output = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = output.and_then(|output| output.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(since_epoch, Duration::from_nanos)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a rate needs real time; the simulation itself does not"
)]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
