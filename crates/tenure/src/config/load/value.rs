//! Checks the text of a setting and stores its value.

use super::super::settings::{Definition, Kind};
use super::super::{Config, size};
use crate::duration;
use crate::open::without_login;

/// In bytes. No value needs more, and messages repeat the value.
const LONGEST_VALUE: usize = 1000;

impl Definition {
    /// Checks a value and stores it in its field, or says why it is refused.
    pub(in crate::config) fn store(&self, text: &str, config: &mut Config) -> Result<(), String> {
        let refuse = |why: String| format!("{why}; accepted is {}", self.accepted());
        if text.len() > LONGEST_VALUE {
            return Err(refuse(format!("{} bytes are too long", text.len())));
        }
        match &self.kind {
            Kind::Time {
                least, most, field, ..
            } => {
                let value = duration::parse(text).map_err(|bad| refuse(bad.to_string()))?;
                *field(config) = within(value, *least, *most, text).map_err(refuse)?;
            }
            Kind::Count {
                least, most, field, ..
            } => {
                let value = whole_number(text).map_err(refuse)?;
                *field(config) = within(value, *least, *most, text).map_err(refuse)?;
            }
            Kind::Size {
                least, most, field, ..
            } => {
                let value = size::parse(text).map_err(refuse)?;
                *field(config) = within(value, *least, *most, text).map_err(refuse)?;
            }
            Kind::Flag { field, .. } => *field(config) = flag(text).map_err(refuse)?,
            Kind::Text {
                is_accepted, field, ..
            } => {
                if !is_accepted(text) {
                    return Err(refuse(format!("{:?} can't be used", without_login(text))));
                }
                text.clone_into(field(config));
            }
        }
        Ok(())
    }
}

fn within<T: PartialOrd + Copy>(value: T, least: T, most: T, text: &str) -> Result<T, String> {
    if value < least {
        Err(format!("{text:?} is too small"))
    } else if value > most {
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

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::settings::DEFINITIONS;
    use super::*;

    #[test]
    fn every_default_text_parses_to_the_default_value() {
        for definition in DEFINITIONS {
            let mut built_in = Config::default();
            let mut read = Config::default();
            definition.store_default(&mut built_in);
            definition.store(definition.default, &mut read).unwrap();
            assert_eq!(read, built_in, "{}", definition.key);
        }
    }

    #[test]
    fn every_bound_is_accepted_and_nothing_beyond_it() {
        for definition in DEFINITIONS {
            let (inside, outside) = match &definition.kind {
                Kind::Time { least, most, .. } => {
                    let exact = |d: Duration| format!("{}ms", d.as_millis());
                    let tick = Duration::from_millis(1);
                    let below = least.checked_sub(tick).map(exact);
                    (
                        vec![exact(*least), exact(*most)],
                        vec![below.unwrap_or("-1ms".to_owned()), exact(*most + tick)],
                    )
                }
                Kind::Count { least, most, .. } | Kind::Size { least, most, .. } => (
                    vec![least.to_string(), most.to_string()],
                    vec![(least - 1).to_string(), (most + 1).to_string()],
                ),
                Kind::Flag { .. } => (
                    vec!["true".to_owned(), "false".to_owned()],
                    vec!["maybe".to_owned(), "2".to_owned()],
                ),
                Kind::Text { default, .. } => (
                    vec![(*default).to_owned()],
                    vec!["a..b".to_owned(), "a b".to_owned(), "/".to_owned()],
                ),
            };
            for text in inside {
                assert_eq!(
                    definition.store(&text, &mut Config::default()),
                    Ok(()),
                    "{} = {text}",
                    definition.key
                );
            }
            for text in outside {
                let why = definition.store(&text, &mut Config::default()).unwrap_err();
                assert!(why.contains(&text), "{why}");
                assert!(why.contains(&definition.accepted()), "{why}");
            }
        }
    }

    #[test]
    fn a_flag_is_read_as_people_write_it() {
        for text in ["true", "TRUE", "yes", "on", "1"] {
            assert_eq!(flag(text), Ok(true), "{text}");
        }
        for text in ["false", "No", "off", "0"] {
            assert_eq!(flag(text), Ok(false), "{text}");
        }
        for text in ["", "maybe", "truely", "10"] {
            assert!(flag(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_very_long_value_is_refused_without_repeating_it() {
        for definition in DEFINITIONS {
            let text = "9".repeat(60_000);
            let why = definition.store(&text, &mut Config::default()).unwrap_err();
            assert!(
                why.starts_with("60000 bytes are too long; accepted is"),
                "{why}"
            );
        }
    }
}
