//! Durations as people write them: `500ms`, `60m`, `1h 30m`, `90d`.
//!
//! Options, configuration files and environment variables read durations with [`parse`]. Everything
//! shown to a person is written with [`format()`].
//!
//! 1. A day is 24 hours and a week is 7 days. Months and years are refused, because their length
//!    depends on a calendar that a lease does not have.
//! 2. Nothing longer than [`LONGEST`] is accepted, so adding a parsed duration to the current time
//!    never overflows.
//! 3. Zero is a duration. The caller decides whether zero makes sense.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{Span, SpanRelativeTo};

/// The longest duration that [`parse`] accepts: ten years of 365 days.
pub const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

static PARSER: SpanParser = SpanParser::new();

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadDuration {
    /// There is no text, or only blanks.
    #[error("a duration is missing: write a number and a unit, for example {EXAMPLES}")]
    Empty,
    /// A number without a unit. Any default unit would surprise some users.
    #[error("{0} what? write {0}s, {0}m or {0}h")]
    NoUnit(String),
    /// Less than zero, as in `-5s` or `5s ago`.
    #[error("{0:?} is negative: a duration is zero or more, for example {EXAMPLES}")]
    Negative(String),
    /// More than [`LONGEST`].
    #[error("{0:?} is too long: the longest duration is 3650d (10 years)")]
    TooLong(String),
    /// Months or years.
    #[error("{0:?} counts in months or years, whose length varies: count in days, for example 30d")]
    Calendar(String),
    /// A fraction of a day or a week.
    #[error("{0:?} splits a day: count in hours, for example 36h for a day and a half")]
    SplitDay(String),
    /// Anything else.
    #[error("{0:?} is not a duration: write a number and a unit, for example {EXAMPLES}")]
    NotADuration(String),
}

const EXAMPLES: &str = "30s, 5m or 1h30m";

/// Reads a duration such as `500ms`, `5s`, `60m`, `1h30m`, `1h 30m`, `1.5h` or `90d`.
///
/// # Errors
/// [`BadDuration`] says why the text is not a duration.
pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    let text = text.trim();
    if text.is_empty() {
        return Err(BadDuration::Empty);
    }
    if is_bare_number(text) {
        return Err(BadDuration::NoUnit(text.to_owned()));
    }
    let Ok(span) = PARSER.parse_span(text) else {
        return Err(why_refused(text));
    };
    if span.is_negative() {
        return Err(BadDuration::Negative(text.to_owned()));
    }
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(BadDuration::Calendar(text.to_owned()));
    }
    length(span)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| BadDuration::TooLong(text.to_owned()))
}

/// Writes a duration for a person: `500ms`, `1.5s`, `1m 30s`, `2h`, `90d`.
///
/// At most two units are shown, rounded, so that every duration is short to read. A duration that
/// is not zero is never shown as zero.
pub fn format(duration: Duration) -> String {
    let exact = duration.as_nanos().div_ceil(NANOS_PER_MILLI);
    // Rounding can carry into the next unit (59.7s is 1m), never further: each step divides the
    // first value of the range above it.
    let step = match exact {
        0..SECOND => 1,
        SECOND..TEN_SECONDS => TENTH,
        TEN_SECONDS..HOUR => SECOND,
        HOUR..DAY => MINUTE,
        _ => HOUR,
    };
    let rounded = (exact + step / 2) / step * step;
    match rounded {
        0 => "0s".to_owned(),
        1..SECOND => format!("{rounded}ms"),
        SECOND..TEN_SECONDS if !rounded.is_multiple_of(SECOND) => {
            format!("{}.{}s", rounded / SECOND, rounded % SECOND / TENTH)
        }
        SECOND..MINUTE => format!("{}s", rounded / SECOND),
        MINUTE..HOUR => two_units(rounded, MINUTE, "m", SECOND, "s"),
        HOUR..DAY => two_units(rounded, HOUR, "h", MINUTE, "m"),
        _ => two_units(rounded, DAY, "d", HOUR, "h"),
    }
}

const NANOS_PER_MILLI: u128 = 1_000_000;
// In milliseconds.
const TENTH: u128 = 100;
const SECOND: u128 = 1000;
const TEN_SECONDS: u128 = 10 * SECOND;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;

fn two_units(millis: u128, large: u128, large_name: &str, small: u128, small_name: &str) -> String {
    let rest = millis % large / small;
    let whole = millis / large;
    if rest == 0 {
        format!("{whole}{large_name}")
    } else {
        format!("{whole}{large_name} {rest}{small_name}")
    }
}

fn length(span: Span) -> Option<Duration> {
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(signed).ok()
}

fn is_bare_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The parser's messages describe its grammar, not the mistake. This function finds the mistake by
/// correcting the text in one respect: if the text then parses, that was the mistake.
fn why_refused(text: &str) -> BadDuration {
    let owned = text.to_owned();
    if text.strip_prefix('-').is_some_and(is_bare_number) {
        BadDuration::Negative(owned)
    } else if splits_a_day(text) && PARSER.parse_span(without_fractions(text)).is_ok() {
        BadDuration::SplitDay(owned)
    } else if PARSER.parse_span(with_small_numbers(text)).is_ok() {
        BadDuration::TooLong(owned)
    } else {
        BadDuration::NotADuration(owned)
    }
}

fn splits_a_day(text: &str) -> bool {
    text.split(['.', ',']).skip(1).any(|after| {
        after
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start()
            .starts_with(['d', 'w'])
    })
}

fn without_fractions(text: &str) -> String {
    let mut in_fraction = false;
    text.chars()
        .filter(|c| {
            in_fraction = *c == '.' || *c == ',' || (in_fraction && c.is_ascii_digit());
            !in_fraction
        })
        .collect()
}

fn with_small_numbers(text: &str) -> String {
    let mut in_number = false;
    text.chars()
        .filter_map(|c| {
            let first = !in_number;
            in_number = c.is_ascii_digit();
            match (in_number, first) {
                (true, true) => Some('1'),
                (true, false) => None,
                (false, _) => Some(c),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> u64 {
        let duration = parse(text).unwrap();
        assert_eq!(duration.subsec_nanos(), 0, "{text} is whole seconds");
        duration.as_secs()
    }

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn every_usual_notation_is_read() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("5s"), 5);
        assert_eq!(seconds("60m"), 3600);
        assert_eq!(seconds("1h30m"), 5400);
        assert_eq!(seconds("1h 30m"), 5400);
        assert_eq!(seconds("1.5h"), 5400);
        assert_eq!(seconds("  5s\n"), 5);
        assert_eq!(seconds("3 minutes"), 180);
    }

    #[test]
    fn a_day_is_24_hours_and_a_week_7_days() {
        assert_eq!(seconds("2d"), 2 * 86_400);
        assert_eq!(seconds("90d"), 90 * 86_400);
        assert_eq!(seconds("1w"), 7 * 86_400);
        assert_eq!(seconds("1d 12h"), 36 * 3600);
    }

    #[test]
    fn zero_is_a_duration() {
        for zero in ["0s", "0ms", "0d", "-0s"] {
            assert_eq!(parse(zero), Ok(Duration::ZERO), "{zero}");
        }
    }

    #[test]
    fn an_empty_text_is_refused_with_an_example() {
        for nothing in ["", "   ", "\t\n"] {
            assert_eq!(parse(nothing), Err(BadDuration::Empty));
        }
        assert_eq!(
            refusal(""),
            "a duration is missing: write a number and a unit, for example 30s, 5m or 1h30m"
        );
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_examples_of_units() {
        assert_eq!(refusal("30"), "30 what? write 30s, 30m or 30h");
        assert_eq!(refusal("1.5"), "1.5 what? write 1.5s, 1.5m or 1.5h");
        assert_eq!(refusal("0"), "0 what? write 0s, 0m or 0h");
    }

    #[test]
    fn a_negative_duration_is_refused() {
        for negative in ["-5s", "5s ago", "-5", "-1h30m"] {
            assert_eq!(
                parse(negative),
                Err(BadDuration::Negative(negative.to_owned()))
            );
        }
        assert!(refusal("-5s").starts_with("\"-5s\" is negative"));
    }

    #[test]
    fn words_are_refused_with_an_example() {
        assert_eq!(
            refusal("soon"),
            "\"soon\" is not a duration: write a number and a unit, for example 30s, 5m or 1h30m"
        );
        for nonsense in [
            "5x", "1h-3m", "h", ".", "5s5s", "1e3s", "∞", "5 s 3", "\0", "1:30", "1.5h30m",
        ] {
            assert_eq!(
                parse(nonsense),
                Err(BadDuration::NotADuration(nonsense.to_owned()))
            );
        }
    }

    #[test]
    fn more_than_ten_years_is_refused_however_large_the_number() {
        assert_eq!(parse("3650d"), Ok(LONGEST));
        for long in [
            "3651d",
            "87601h",
            "99999999999d",
            "99999999999999h",
            "99999999999999999999999999999s",
            "3650d 1ms",
        ] {
            assert_eq!(parse(long), Err(BadDuration::TooLong(long.to_owned())));
        }
        assert!(refusal("3651d").contains("3650d (10 years)"));
    }

    #[test]
    fn months_and_years_are_refused_because_their_length_varies() {
        for calendar in ["1mo", "2 years", "1y 3d"] {
            assert_eq!(
                parse(calendar),
                Err(BadDuration::Calendar(calendar.to_owned()))
            );
        }
    }

    #[test]
    fn a_split_day_is_refused_with_the_way_to_write_it() {
        for split in ["1.5d", "0.5w", "1,5 days"] {
            assert_eq!(parse(split), Err(BadDuration::SplitDay(split.to_owned())));
        }
        assert!(refusal("1.5d").contains("36h"));
    }

    #[test]
    fn a_duration_is_written_with_its_two_largest_units() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (5_000, "5s"),
            (30_400, "30s"),
            (90_000, "1m 30s"),
            (3_600_000, "1h"),
            (5_400_000, "1h 30m"),
            (7_200_000, "2h"),
            (86_400_000 + 3 * 3_600_000, "1d 3h"),
            (90 * 86_400_000, "90d"),
        ] {
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn rounding_carries_into_the_next_unit() {
        for (millis, text) in [
            (9_960, "10s"),
            (59_700, "1m"),
            (3_599_700, "1h"),
            (86_399_000, "1d"),
            (86_400_000 * 2 - 1, "2d"),
        ] {
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_duration_above_zero_is_never_written_as_zero() {
        assert_eq!(format(Duration::from_nanos(1_001)), "1ms");
        assert_eq!(format(Duration::from_micros(400)), "1ms");
        assert_eq!(format(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn the_largest_duration_there_is_can_be_written() {
        assert!(format(Duration::MAX).contains('d'));
    }

    #[test]
    fn a_formatted_duration_parses_back_to_the_same_text() {
        for millis in (0..20_000).chain((20_000..400_000_000).step_by(99_991)) {
            let text = format(Duration::from_millis(millis));
            assert_eq!(format(parse(&text).unwrap()), text);
        }
    }
}
