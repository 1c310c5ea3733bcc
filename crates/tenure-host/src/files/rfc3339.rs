//! RFC 3339 times, parsed strictly: the form that every protocol here writes and reads.

use jiff::Timestamp;

/// Parses a time that has seconds and an offset, as RFC 3339 requires. Looser forms are refused, and so is
/// what the other programs refuse: they are written in Go, which knows no leap second and no offset of a day.
pub fn parse(text: &str) -> Option<Timestamp> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let fits = |shape: &[u8], text: &[u8]| {
        shape.len() == text.len()
            && shape.iter().zip(text).all(|(shape, byte)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => other == byte,
            })
    };
    let (date, rest) = text.as_bytes().split_at_checked(SHAPE.len())?;
    let offset = match rest.strip_prefix(b".") {
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            let (digits, offset) = fraction.split_at_checked(digits.count())?;
            (!digits.is_empty()).then_some(offset)?
        }
        None => rest,
    };
    let has_offset = offset == b"Z" || fits(b"+00:00", offset) || fits(b"-00:00", offset);
    let is_leap_second = date.ends_with(b"60");
    let is_a_day = offset.get(1..3).is_some_and(|hours| hours >= b"24");
    if !fits(SHAPE, date) || !has_offset || is_leap_second || is_a_day {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_time_that_go_refuses_is_refused() {
        for text in [
            "2025-10-25T23:59:59Z",
            "2025-10-25T23:59:59.123456789+23:59",
            "2024-02-29T00:00:00-00:00",
        ] {
            assert!(parse(text).is_some(), "{text}");
        }
        for text in [
            "2025-10-25T23:59:60Z",
            "2025-06-30T23:59:60.5+00:00",
            "2025-10-25T12:00:00+24:00",
            "2025-10-25T12:00:00+01:60",
            "2025-10-25T24:00:00Z",
            "2025-02-29T00:00:00Z",
            "2025-10-25t12:00:00Z",
            "2025-10-25T12:00:00z",
            "2025-10-25T12:00:00,5Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
