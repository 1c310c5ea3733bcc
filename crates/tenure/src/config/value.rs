//! The types of settings: how the text of a value is read, and what is accepted.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::size;
use crate::open::without_login;
use crate::text::duration;

/// The type of a setting.
pub(super) trait Value: Default {
    /// Which of its values are accepted.
    type Accepted;

    /// Reads a value, or says why it is refused.
    fn read(text: &str, accepted: &Self::Accepted) -> Result<Self, String>;

    /// The accepted values, in words.
    fn accepted(accepted: &Self::Accepted) -> String;
}

/// Which numbers a setting accepts.
pub(super) enum Number {
    Count(RangeInclusive<u64>),
    /// In bytes.
    Size(RangeInclusive<u64>),
}

/// Which texts a setting accepts.
pub(super) struct Text {
    pub(super) words: &'static str,
    pub(super) is_accepted: fn(&str) -> bool,
}

impl Value for Duration {
    type Accepted = RangeInclusive<Self>;

    fn read(text: &str, accepted: &Self::Accepted) -> Result<Self, String> {
        let value = duration::parse(text).map_err(|bad| bad.to_string())?;
        within(value, accepted, text)
    }

    fn accepted(accepted: &Self::Accepted) -> String {
        let (least, most) = (accepted.start(), accepted.end());
        format!(
            "a duration from {} to {}",
            duration::format(*least),
            duration::format(*most)
        )
    }
}

impl Value for u64 {
    type Accepted = Number;

    fn read(text: &str, accepted: &Number) -> Result<Self, String> {
        match accepted {
            Number::Count(range) => within(whole_number(text)?, range, text),
            Number::Size(range) => within(size::parse(text)?, range, text),
        }
    }

    fn accepted(accepted: &Number) -> String {
        match accepted {
            Number::Count(range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Number::Size(range) => format!(
                "a size from {} to {}",
                size::format(*range.start()),
                size::format(*range.end())
            ),
        }
    }
}

impl Value for bool {
    type Accepted = ();

    fn read(text: &str, (): &()) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }

    fn accepted((): &()) -> String {
        "true or false".to_owned()
    }
}

impl Value for String {
    type Accepted = Text;

    fn read(text: &str, accepted: &Text) -> Result<Self, String> {
        if (accepted.is_accepted)(text) {
            Ok(text.to_owned())
        } else {
            Err(format!("{:?} can't be used", without_login(text)))
        }
    }

    fn accepted(accepted: &Text) -> String {
        accepted.words.to_owned()
    }
}

fn within<T: PartialOrd>(value: T, accepted: &RangeInclusive<T>, text: &str) -> Result<T, String> {
    if value < *accepted.start() {
        Err(format!("{text:?} is too small"))
    } else if value > *accepted.end() {
        Err(format!("{text:?} is too large"))
    } else {
        Ok(value)
    }
}

fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|bad: std::num::ParseIntError| {
        if *bad.kind() == std::num::IntErrorKind::PosOverflow {
            format!("{text:?} is too large")
        } else {
            format!("{text:?} is not a whole number")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_read_as_people_write_it() {
        for text in ["true", "TRUE", "yes", "on", "1"] {
            assert_eq!(bool::read(text, &()), Ok(true), "{text}");
        }
        for text in ["false", "No", "off", "0"] {
            assert_eq!(bool::read(text, &()), Ok(false), "{text}");
        }
        for text in ["", "maybe", "truely", "10"] {
            assert!(bool::read(text, &()).is_err(), "{text}");
        }
    }
}
