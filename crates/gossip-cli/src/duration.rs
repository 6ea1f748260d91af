//! Durations as people type them: `500ms`, `15s`, `10m`, `2h`.

use std::time::Duration;

/// Reads a duration: a whole number and one of `ms`, `s`, `m`, `h`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("type a number and a unit: 500ms, 15s, 10m or 2h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "there is no number before the unit")?;
    let millis = number.checked_mul(millis).ok_or("that is too long")?;
    Ok(Duration::from_millis(millis))
}

/// Writes a number of ticks (milliseconds) as it can be typed.
pub(crate) fn show(ticks: u64) -> String {
    match ticks {
        ticks if ticks % 1000 != 0 => format!("{ticks}ms"),
        ticks if ticks % 60_000 != 0 => format!("{}s", ticks / 1000),
        ticks => format!("{}m", ticks / 60_000),
    }
}

/// A number of ticks for people: its two largest units.
pub(crate) fn tell(ticks: u64) -> String {
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
    fn what_is_shown_can_be_typed() {
        for ticks in [1, 500, 1000, 15_000, 60_000, 90_000, 3_600_000] {
            assert_eq!(parse(&show(ticks)), Ok(Duration::from_millis(ticks)));
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "5", "s", "5 s", "-5s", "1.5s", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_is_told_in_its_two_largest_units() {
        for (ticks, told) in [
            (0, "0 s"),
            (1, "1 s"),
            (59_000, "59 s"),
            (60_000, "1 m 0 s"),
            (3_599_000, "59 m 59 s"),
            (7_260_000, "2 h 1 m"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(tell(ticks), told);
        }
    }
}
