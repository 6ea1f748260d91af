//! Durations as arguments and in messages: `500ms`, `15s`, `10m`, `2h`.

use std::time::Duration;

/// Parses a duration: a whole number and one of `ms`, `s`, `m`, `h`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("expected a number with a unit, as in 500ms, 15s, 10m or 2h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number before the unit")?;
    let millis = number.checked_mul(millis).ok_or("duration is too long")?;
    Ok(Duration::from_millis(millis))
}

/// Formats ticks (milliseconds) so that [`parse`] accepts them.
pub(crate) fn show(ticks: u64) -> String {
    match ticks {
        ticks if ticks % 1000 != 0 => format!("{ticks}ms"),
        ticks if ticks % 60_000 != 0 => format!("{}s", ticks / 1000),
        ticks => format!("{}m", ticks / 60_000),
    }
}

/// Formats ticks for messages, in the two largest units.
pub(crate) fn rough(ticks: u64) -> String {
    let seconds = ticks.div_ceil(1000);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_the_output_of_show() {
        for ticks in [1, 500, 1000, 15_000, 60_000, 90_000, 3_600_000] {
            assert_eq!(parse(&show(ticks)), Ok(Duration::from_millis(ticks)));
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in
            ["", "5", "s", "5 s", "-5s", "1.5s", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rough_uses_the_two_largest_units() {
        for (ticks, text) in [
            (0, "0 s"),
            (1, "1 s"),
            (59_000, "59 s"),
            (60_000, "1 m 0 s"),
            (3_599_000, "59 m 59 s"),
            (7_260_000, "2 h 1 m"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(rough(ticks), text);
        }
    }
}
