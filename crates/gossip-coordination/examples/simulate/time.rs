//! Time, for rates and dates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Processor time of this thread, so that rates mean the same on a busy machine; time on the wall
/// where the system does not tell.
pub(crate) fn processor() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(since_epoch, Duration::from_nanos)
}

/// Today in UTC, as `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    // Days are counted from the first of March of a year zero, so that leap days come last.
    let days = since_epoch().as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[expect(clippy::disallowed_methods, reason = "a world takes no time, its reader does")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
