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

/// Formats the distance of a time from `now`, both in milliseconds since 1970, in its largest unit:
/// `3 min ago`, `in 12 s`.
pub(crate) fn from_now(time: u64, now: u64) -> String {
    let seconds = time.abs_diff(now) / 1000;
    let distance = match seconds {
        0 => return "now".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    };
    if time < now { format!("{distance} ago") } else { format!("in {distance}") }
}

/// Formats a time in milliseconds since 1970, in UTC: `2026-11-16T09:12:04.007Z`.
pub(crate) fn rfc3339(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Parses what [`rfc3339`] returns; `None` for anything else.
pub(crate) fn parse_rfc3339(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // As in `date`: years begin in March.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    let millis = (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000 + number(20..23)?;
    (rfc3339(millis) == text).then_some(millis)
}

/// The beginning of a period: so long ago, or a time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Ago(Duration),
    Time(u64),
}

impl Since {
    /// Returns the time in milliseconds since 1970.
    pub(crate) fn at(self, now: u64) -> u64 {
        match self {
            Self::Ago(ago) => {
                now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
            }
            Self::Time(time) => time,
        }
    }
}

/// Parses a duration, or a time in UTC: with or without milliseconds, or a date alone.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = parse(text) {
        return Ok(Since::Ago(ago));
    }
    let whole = match text.strip_suffix('Z') {
        Some(second) if second.len() == 19 => format!("{second}.000Z"),
        None if text.len() == 10 => format!("{text}T00:00:00.000Z"),
        _ => text.to_owned(),
    };
    parse_rfc3339(&whole).map(Since::Time).ok_or_else(|| {
        "expected a duration as in 10m, or a time in UTC as in 2026-11-16T09:12:04Z".to_owned()
    })
}

/// Returns year, month and day of a number of days since 1970, in the Gregorian calendar.
const fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of its year, and eras of 400
    // years, which have equally many days, begin in the year 0.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_837_840_849, "2026-11-16T14:04:00.849Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(millis), text);
            assert_eq!(parse_rfc3339(text), Some(millis));
        }
        for text in ["", "never", "2000-13-01T00:00:00.000Z", "2000-02-30T00:00:00.000Z"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        // Any number is a time.
        assert!(rfc3339(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn distances_have_one_unit_and_a_direction() {
        let now = 1_794_837_840_849;
        for (time, text) in [
            (now, "now"),
            (now - 999, "now"),
            (now - 1000, "1 s ago"),
            (now - 200_000, "3 min ago"),
            (now - 7_200_000, "2 h ago"),
            (now - 200_000_000, "2 d ago"),
            (now + 12_000, "in 12 s"),
            (0, "20773 d ago"),
        ] {
            assert_eq!(from_now(time, now), text);
        }
    }

    #[test]
    fn since_is_a_duration_or_a_time() {
        let time = 1_794_837_840_000;
        assert_eq!(since("10m"), Ok(Since::Ago(Duration::from_secs(600))));
        assert_eq!(since("2026-11-16T14:04:00Z"), Ok(Since::Time(time)));
        assert_eq!(since("2026-11-16T14:04:00.849Z"), Ok(Since::Time(time + 849)));
        assert_eq!(since("2000-02-29"), Ok(Since::Time(951_782_400_000)));
        for text in ["", "yesterday", "10", "2026-11-16 14:04", "2000-02-30", "ä000-02-3Z"] {
            assert!(since(text).is_err(), "{text}");
        }
        assert_eq!(Since::Ago(Duration::from_secs(1)).at(5_000), 4_000);
        assert_eq!(Since::Ago(Duration::MAX).at(5_000), 0);
    }

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
