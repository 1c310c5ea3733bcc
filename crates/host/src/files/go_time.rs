//! Times as Go's `time.Parse` reads RFC 3339: [`parse`]. The other programs of the protocols here are written
//! in Go: a time that they accept must not make a lock or an event malformed, and one that they refuse must.
//!
//! No leap second, no lower case, no other separator than `T`. A single digit for the hour, a comma
//! before the fraction, and digits beyond nanoseconds are accepted.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The time that Go has where there is none.
pub const ZERO: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Parses a time. A time beyond the range of [`Timestamp`] becomes its limit.
pub fn parse(text: &[u8]) -> Option<Timestamp> {
    let mut rest = text;
    let year = i16::try_from(number(&mut rest, 4, 4)?).ok()?;
    literal(&mut rest, b'-')?;
    let month = small(number(&mut rest, 2, 2)?)?;
    literal(&mut rest, b'-')?;
    let day = small(number(&mut rest, 2, 2)?)?;
    literal(&mut rest, b'T')?;
    let hour = small(number(&mut rest, 1, 2)?)?;
    literal(&mut rest, b':')?;
    let minute = small(number(&mut rest, 2, 2)?)?;
    literal(&mut rest, b':')?;
    let second = small(number(&mut rest, 2, 2)?)?;
    let nanosecond = fraction(&mut rest);
    let offset = match rest {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), zone @ ..] => {
            let mut zone = zone;
            let hours = number(&mut zone, 2, 2)?;
            literal(&mut zone, b':')?;
            let minutes = number(&mut zone, 2, 2)?;
            if hours > 24 || minutes > 60 || !zone.is_empty() {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let local = DateTime::new(year, month, day, hour, minute, second, nanosecond).ok()?;
    let limit = if year > 0 {
        Timestamp::MAX
    } else {
        Timestamp::MIN
    };
    let offset = Offset::from_seconds(offset).ok()?;
    Some(offset.to_timestamp(local).unwrap_or(limit))
}

fn small(number: i32) -> Option<i8> {
    i8::try_from(number).ok()
}

/// A number with so many digits.
fn number(rest: &mut &[u8], least: usize, most: usize) -> Option<i32> {
    let digits = rest.iter().take(most);
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    if digits < least {
        return None;
    }
    let (number, after) = rest.split_at_checked(digits)?;
    *rest = after;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn literal(rest: &mut &[u8], byte: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(())
}

fn fraction(rest: &mut &[u8]) -> i32 {
    let [b'.' | b',', digits @ ..] = *rest else {
        return 0;
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let (digits, after) = digits.split_at_checked(count.count()).unwrap_or_default();
    if digits.is_empty() {
        return 0;
    }
    *rest = after;
    let nine = digits
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(9);
    nine.fold(0, |all, digit| all * 10 + i32::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, time) in [
            ("2026-11-15T18:49:40Z", "2026-11-15T18:49:40Z"),
            ("2026-11-15T18:49:40.5+02:00", "2026-11-15T16:49:40.5Z"),
            ("2026-11-15T18:49:40,25-00:30", "2026-11-15T19:19:40.25Z"),
            ("2026-11-15T8:49:40Z", "2026-11-15T08:49:40Z"),
            (
                "2026-11-15T18:49:40.1234567891234Z",
                "2026-11-15T18:49:40.123456789Z",
            ),
            ("2024-02-29T00:00:00+24:00", "2024-02-28T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(
                parse(text.as_bytes()),
                Some(time.parse().unwrap()),
                "{text}"
            );
        }
        assert_eq!(parse(b"0001-01-01T00:00:00Z"), Some(ZERO));
        assert_eq!(parse(b"9999-12-31T23:59:59Z"), Some(Timestamp::MAX));
        for text in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T18:49:40",
            "2026-11-15T18:49Z",
            "2026-11-15 18:49:40Z",
            "2026-11-15t18:49:40Z",
            "2026-11-15T18:49:40z",
            "2026-11-15T23:59:60Z",
            "2026-11-15T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-15T18:49:40.Z",
            "2026-11-15T18:49:40+0200",
            "2026-11-15T18:49:40+25:00",
            "2026-11-15T18:49:40Z ",
            "26-11-15T18:49:40Z",
            "2026-11-15T18:4:40Z",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
