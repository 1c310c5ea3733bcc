//! RFC 3339 times, parsed strictly: the form that every protocol here writes and reads.

use jiff::Timestamp;

/// Parses a time that has seconds and an offset, as RFC 3339 requires. Looser forms are refused.
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
    if !fits(SHAPE, date) || !has_offset {
        return None;
    }
    text.parse().ok()
}
