//! Settings that the URL of every store may have.

use std::time::Duration;

/// The longest claim cooldown. A longer one would keep workers idle for no purpose.
pub const CLAIM_COOLDOWN_MAX: Duration = Duration::from_secs(3_600);

/// The default maximum difference between the wall clocks of two machines (DESIGN Q7).
pub const DEFAULT_MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Parses a whole number with its unit: `ms`, `s` or `m`. Returns `None` for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    // Checked first, because `parse` would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    match &text[digits.len()..] {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => count.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

/// Returns whole milliseconds, the ticks of a store's clock; the largest number if there are more.
#[must_use]
pub fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
