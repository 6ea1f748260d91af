//! Points in time as the protocol writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seconds(pub(crate) i64);

impl Seconds {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// Returns the time as `20130524T000000Z`; the first eight characters are the day.
    pub(crate) fn basic(self) -> String {
        let (days, rest) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }

    /// Parses `2013-05-24T00:00:00Z`, with or without a fraction of a second.
    pub(crate) fn parse_iso(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let time = time.split_once('.').map_or(time, |(time, _)| time);
        let date: [i64; 3] = numbers(date.split('-'))?;
        let time: [i64; 3] = numbers(time.split(':'))?;
        Self::of(date, time)
    }

    /// Parses the `Date` of a response: `Fri, 24 May 2013 00:00:00 GMT`.
    pub(crate) fn parse_http(text: &str) -> Option<Self> {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let mut words = text.split_once(", ")?.1.strip_suffix(" GMT")?.split(' ');
        let day = words.next()?.parse().ok()?;
        let name = words.next()?;
        let month = i64::try_from(MONTHS.iter().position(|month| *month == name)?).ok()? + 1;
        let year = words.next()?.parse().ok()?;
        let time: [i64; 3] = numbers(words.next()?.split(':'))?;
        Self::of([year, month, day], time)
    }

    fn of([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<Self> {
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        let is_year = (1970..=9999).contains(&year);
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
        let is_time = is_time && (0..=60).contains(&second);
        let days = (is_date && is_year && is_time).then(|| days_of(year, month, day))?;
        Some(Self(days * 86_400 + hour * 3600 + minute * 60 + second))
    }
}

fn numbers<'a>(parts: impl Iterator<Item = &'a str>) -> Option<[i64; 3]> {
    let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<i64> =
        parts.map(|part| Some(part).filter(is_plain)?.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// Returns the day as year, month and day of the month, in the Gregorian calendar. Years begin in
/// March here, so that the day of a leap year is the last.
const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

/// The inverse of [`civil`].
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_parsed() {
        let time = Seconds(1_369_353_600);
        assert_eq!(time.basic(), "20130524T000000Z");
        assert_eq!(Seconds::parse_iso("2013-05-24T00:00:00Z"), Some(time));
        assert_eq!(Seconds::parse_iso("2013-05-24T00:00:00.123Z"), Some(time));
        assert_eq!(Seconds::parse_http("Fri, 24 May 2013 00:00:00 GMT"), Some(time));
        for bad in ["", "2013-05-24", "2013-13-24T00:00:00Z", "2013-05-24T00:00Z", "x"] {
            assert_eq!(Seconds::parse_iso(bad), None, "{bad}");
            assert_eq!(Seconds::parse_http(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_is_the_inverse_of_its_number() {
        for days in 0..40_000 {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), days);
        }
        assert_eq!(civil(11_016), (2000, 2, 29));
    }
}
