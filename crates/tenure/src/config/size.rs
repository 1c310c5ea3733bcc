//! Sizes as people write them: `1MB`, `512KB`, `64KiB`, or a number of bytes.
//!
//! `KB`, `MB` and `GB` are powers of 1000, `KiB`, `MiB` and `GiB` powers of 1024. `K`, `M` and `G`
//! mean `KB`, `MB` and `GB`. Letter case and blanks before the unit do not matter.

pub(super) const KB: u64 = 1000;
const MB: u64 = 1000 * KB;
pub(super) const GB: u64 = 1000 * MB;

/// Reads a size in bytes, or says why the text is not a size.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "{text:?} is not a size: write a number of bytes, or one with a unit, for example \
             512KB or 1MB"
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(bad)?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => KB,
        "m" | "mb" => MB,
        "g" | "gb" => GB,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(bad()),
    };
    if number.is_empty() {
        return Err(bad());
    }
    // All digits, so it can only be too large.
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is too large"))?;
    Ok(number.saturating_mul(unit))
}

/// Writes a size exactly, in the largest unit that fits.
pub(super) fn format(bytes: u64) -> String {
    for (unit, name) in [(GB, "GB"), (MB, "MB"), (KB, "KB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_people_write_it() {
        for (text, bytes) in [
            ("0", 0),
            ("1500", 1500),
            ("1MB", 1_000_000),
            ("512KB", 512_000),
            ("512 kb", 512_000),
            ("64KiB", 65_536),
            ("2mib", 2 << 20),
            ("1g", 1_000_000_000),
            ("7b", 7),
            ("18446744073709551615GB", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_size_is_refused() {
        for text in ["", "MB", "-1", "1.5MB", "1 furlong", "1MBs", "é", "1é"] {
            assert!(parse(text).unwrap_err().contains("is not a size"), "{text}");
        }
        assert!(
            parse("99999999999999999999999")
                .unwrap_err()
                .contains("too large")
        );
    }

    #[test]
    fn a_size_is_written_exactly() {
        assert_eq!(format(1_000_000_000), "1GB");
        assert_eq!(format(512_000), "512KB");
        assert_eq!(format(1_000), "1KB");
        assert_eq!(format(1_048_576), "1048576 bytes");
    }
}
