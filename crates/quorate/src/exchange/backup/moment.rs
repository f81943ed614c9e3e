//! Times and durations as people write them: always UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, by this machine's clock.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// `2026-11-26T22:00:00.123Z`.
pub(super) fn text(ms: u64) -> String {
    let (year, month, day) = date(ms / 86_400_000);
    let (second, ms) = (ms / 1000 % 86_400, ms % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The same without the characters that file names should not have. Later times have greater names.
pub(super) fn name(ms: u64) -> String {
    text(ms).replace(['-', ':'], "")
}

/// Reads what [`text`] writes; the fraction of a second may be missing.
///
/// # Errors
/// It is not a time.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("{text} is not a time: write it as 2026-11-26T22:00:00Z or 2026-11-26T22:00:00.123Z, in UTC")
    };
    let (date, time) = text.strip_suffix('Z').and_then(|text| text.split_once('T')).ok_or_else(wrong)?;
    let (clock, part) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, between: char| -> Option<[u64; 3]> {
        let numbers: Option<Vec<u64>> = text.split(between).map(|part| part.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-').ok_or_else(wrong)?;
    let [hour, minute, second] = numbers(clock, ':').ok_or_else(wrong)?;
    let ms: u64 = match part.len() {
        1..=3 => format!("{part:0<3}").parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    let is_time = (1970..=9999).contains(&year) && hour < 24 && minute < 60 && second < 60;
    if !is_time || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Err(wrong());
    }
    let days = days(year, month, day);
    // Such as the 31st of a month that has 30 days.
    if self::date(days) != (year, month, day) {
        return Err(wrong());
    }
    Ok((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000 + ms)
}

/// Reads a date as HTTP writes it, `Fri, 27 Nov 2026 09:10:07 GMT`, in milliseconds since the Unix epoch.
pub(super) fn parse_http(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let [day, month, year, time, "GMT"] = date.split(' ').collect::<Vec<_>>()[..] else { return None };
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    parse(&format!("{year}-{month}-{day}T{time}Z")).ok()
}

/// Reads `90s`, `15m`, `1h`, `7d`.
///
/// # Errors
/// It is not a duration of a second or more.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a duration: write 90s, 15m, 1h or 7d");
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).filter(|seconds| (1..=366 * 86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

// Both functions let years begin in March, so that a leap day is the last day of a year.

fn date(days: u64) -> (u64, u64, u64) {
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * month_from_march + 2) / 5 + 1)
}

fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_time_reads_back() {
        for ms in [0, 951_782_399_999, 951_782_400_000, 1_735_689_599_001, 1_764_194_400_123] {
            assert_eq!(parse(&text(ms)), Ok(ms));
        }
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(name(951_782_400_000), "20000229T000000.000Z");
        assert_eq!(parse("2000-02-29T00:00:00Z"), Ok(951_782_400_000));
        assert_eq!(parse("2000-02-29T00:00:00.5Z"), Ok(951_782_400_500));
        for wrong in ["", "yesterday", "2001-02-29T00:00:00Z", "2000-02-29T24:00:00Z", "2000-02-29T00:00:00"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_http_date_is_read() {
        assert_eq!(parse_http("Tue, 29 Feb 2000 00:00:01 GMT"), Some(951_782_401_000));
        assert_eq!(parse_http("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        for wrong in
            ["", "now", "Tue, 29 Foo 2000 00:00:01 GMT", "Tue, 29 Feb 2000 00:00:01", "Tue, 29 Feb 2000"]
        {
            assert_eq!(parse_http(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2d"), Ok(Duration::from_secs(172_800)));
        for wrong in ["", "h", "0h", "10", "1.5h", "1000d", "18446744073709551615d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
