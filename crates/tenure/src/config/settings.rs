//! The table of settings: the one place where a setting is defined.
//!
//! To add a setting, add a field to one of the structs of [`config`](super) and a row here.

use std::time::Duration;

use super::{Config, size};
use crate::duration;

/// One row of the table.
pub(super) struct Definition {
    /// `section.key`, as written in the files.
    pub(super) key: &'static str,
    pub(super) description: &'static str,
    /// As a person would write it. A test compares it with the value in `kind`.
    pub(super) default: &'static str,
    kind: Kind,
}

/// Which values a setting accepts, and the field of [`Config`] that receives them.
enum Kind {
    Time {
        default: Duration,
        least: Duration,
        most: Duration,
        field: fn(&mut Config) -> &mut Duration,
    },
    Count {
        default: u64,
        least: u64,
        most: u64,
        field: fn(&mut Config) -> &mut u64,
    },
    Size {
        default: u64,
        least: u64,
        most: u64,
        field: fn(&mut Config) -> &mut u64,
    },
    Flag {
        default: bool,
        field: fn(&mut Config) -> &mut bool,
    },
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        key: "locking.taskTimeout",
        description: "How long a task's lease lasts unless it is renewed",
        default: "60m",
        kind: Kind::Time {
            default: minutes(60),
            least: SHORTEST_LEASE,
            most: LONGEST_LEASE,
            field: |config| &mut config.locking.task_timeout,
        },
    },
    Definition {
        key: "locking.sectionTimeout",
        description: "How long a section's lease lasts unless it is renewed",
        default: "120m",
        kind: Kind::Time {
            default: minutes(120),
            least: SHORTEST_LEASE,
            most: LONGEST_LEASE,
            field: |config| &mut config.locking.section_timeout,
        },
    },
    Definition {
        key: "locking.waitTimeout",
        description: "How long to wait for a key that is held",
        default: "30m",
        kind: Kind::Time {
            default: minutes(30),
            least: Duration::ZERO,
            most: days(30),
            field: |config| &mut config.locking.wait_timeout,
        },
    },
    Definition {
        key: "locking.pollInterval",
        description: "How often a waiter polls when nothing wakes it up",
        default: "5s",
        kind: Kind::Time {
            default: Duration::from_secs(5),
            least: Duration::from_millis(10),
            most: minutes(60),
            field: |config| &mut config.locking.poll_interval,
        },
    },
    Definition {
        key: "locking.runTimeout",
        description: "How long the lease of `tenure run` lasts; it is renewed every third of it",
        default: "5m",
        kind: Kind::Time {
            default: minutes(5),
            least: SHORTEST_LEASE,
            most: LONGEST_LEASE,
            field: |config| &mut config.locking.run_timeout,
        },
    },
    Definition {
        key: "locking.queueGrace",
        description: "How long a disconnected waiter keeps its queue position",
        default: "10m",
        kind: Kind::Time {
            default: minutes(10),
            least: Duration::ZERO,
            most: days(7),
            field: |config| &mut config.locking.queue_grace,
        },
    },
    Definition {
        key: "history.maxAge",
        description: "How long events stay in the history",
        default: "90d",
        kind: Kind::Time {
            default: days(90),
            least: minutes(60),
            most: duration::LONGEST,
            field: |config| &mut config.history.max_age,
        },
    },
    Definition {
        key: "history.maxEvents",
        description: "How many events stay in the history",
        default: "200000",
        kind: Kind::Count {
            default: 200_000,
            least: 100,
            most: 100_000_000,
            field: |config| &mut config.history.max_events,
        },
    },
    Definition {
        key: "run.killGrace",
        description: "How long a command has between SIGTERM and SIGKILL when its lease is lost",
        default: "10s",
        kind: Kind::Time {
            default: Duration::from_secs(10),
            least: Duration::ZERO,
            most: minutes(60),
            field: |config| &mut config.run.kill_grace,
        },
    },
    Definition {
        key: "daemon.interval",
        description: "How long the daemon sleeps between two cycles when nothing wakes it up",
        default: "1m",
        kind: Kind::Time {
            default: minutes(1),
            least: Duration::from_secs(1),
            most: days(1),
            field: |config| &mut config.daemon.interval,
        },
    },
    Definition {
        key: "daemon.logMaxSize",
        description: "How large the daemon's log may become before a new file is started",
        default: "1MB",
        kind: Kind::Size {
            default: size::MB,
            least: size::KB,
            most: size::GB,
            field: |config| &mut config.daemon.log_max_size,
        },
    },
    Definition {
        key: "daemon.autostart",
        description: "Whether commands that change tasks start the daemon if it is not running",
        default: "false",
        kind: Kind::Flag {
            default: false,
            field: |config| &mut config.daemon.autostart,
        },
    },
    Definition {
        key: "sync.enabled",
        description: "Whether the daemon shares the project's tasks through git",
        default: "true",
        kind: Kind::Flag {
            default: true,
            field: |config| &mut config.sync.enabled,
        },
    },
];

// A shorter lease could expire before its first renewal on a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const LONGEST_LEASE: Duration = days(30);
// In bytes. No value needs more, and messages repeat the value.
const LONGEST_VALUE: usize = 200;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

const fn days(count: u64) -> Duration {
    minutes(count * 24 * 60)
}

/// The prefix of every environment variable that makes a setting.
pub(super) const ENV_PREFIX: &str = "TENURE_";

impl Definition {
    pub(super) fn section(&self) -> &'static str {
        self.key
            .split_once('.')
            .map_or(self.key, |(section, _)| section)
    }

    /// The key inside its section.
    pub(super) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// `locking.taskTimeout` becomes `TENURE_LOCKING_TASK_TIMEOUT`.
    pub(super) fn env(&self) -> String {
        let mut env = section_env(self.section());
        for c in self.name().chars() {
            if c.is_ascii_uppercase() {
                env.push('_');
            }
            env.push(c.to_ascii_uppercase());
        }
        env
    }

    /// The values that the setting accepts, in words.
    pub(super) fn accepted(&self) -> String {
        match &self.kind {
            Kind::Time { least, most, .. } => format!(
                "a duration from {} to {}",
                duration::format(*least),
                duration::format(*most)
            ),
            Kind::Count { least, most, .. } => format!("a whole number from {least} to {most}"),
            Kind::Size { least, most, .. } => format!(
                "a size from {} to {}",
                size::format(*least),
                size::format(*most)
            ),
            Kind::Flag { .. } => "true or false".to_owned(),
        }
    }

    pub(super) fn store_default(&self, config: &mut Config) {
        match &self.kind {
            Kind::Time { default, field, .. } => *field(config) = *default,
            Kind::Count { default, field, .. } | Kind::Size { default, field, .. } => {
                *field(config) = *default;
            }
            Kind::Flag { default, field } => *field(config) = *default,
        }
    }

    /// Checks a value and stores it in its field, or says why it is refused.
    pub(super) fn store(&self, text: &str, config: &mut Config) -> Result<(), String> {
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

fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// The prefix of a section's variables: `TENURE_LOCKING_`.
pub(super) fn section_env(section: &str) -> String {
    format!("{ENV_PREFIX}{}_", section.to_ascii_uppercase())
}

/// The sections, in the order of the table.
pub(super) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = DEFINITIONS.iter().map(Definition::section).collect();
    sections.dedup();
    sections
}

/// The settings of one section.
pub(super) fn of_section(section: &str) -> impl Iterator<Item = &'static Definition> {
    DEFINITIONS.iter().filter(move |d| d.section() == section)
}

#[cfg(test)]
mod tests {
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
    fn no_two_settings_share_a_field() {
        let mut config = Config::default();
        let mut fields: Vec<usize> = DEFINITIONS
            .iter()
            .map(|definition| match &definition.kind {
                Kind::Time { field, .. } => std::ptr::from_mut(field(&mut config)).addr(),
                Kind::Count { field, .. } | Kind::Size { field, .. } => {
                    std::ptr::from_mut(field(&mut config)).addr()
                }
                Kind::Flag { field, .. } => std::ptr::from_mut(field(&mut config)).addr(),
            })
            .collect();
        fields.sort_unstable();
        fields.dedup();
        assert_eq!(fields.len(), DEFINITIONS.len());
    }

    #[test]
    fn the_name_of_a_variable_follows_from_the_key() {
        let names: Vec<String> = DEFINITIONS.iter().map(Definition::env).collect();
        assert_eq!(
            names,
            [
                "TENURE_LOCKING_TASK_TIMEOUT",
                "TENURE_LOCKING_SECTION_TIMEOUT",
                "TENURE_LOCKING_WAIT_TIMEOUT",
                "TENURE_LOCKING_POLL_INTERVAL",
                "TENURE_LOCKING_RUN_TIMEOUT",
                "TENURE_LOCKING_QUEUE_GRACE",
                "TENURE_HISTORY_MAX_AGE",
                "TENURE_HISTORY_MAX_EVENTS",
                "TENURE_RUN_KILL_GRACE",
                "TENURE_DAEMON_INTERVAL",
                "TENURE_DAEMON_LOG_MAX_SIZE",
                "TENURE_DAEMON_AUTOSTART",
                "TENURE_SYNC_ENABLED",
            ]
        );
    }

    #[test]
    fn the_accepted_values_are_stated_in_words() {
        let accepted: Vec<String> = DEFINITIONS.iter().map(Definition::accepted).collect();
        assert_eq!(
            accepted,
            [
                "a duration from 100ms to 30d",
                "a duration from 100ms to 30d",
                "a duration from 0s to 30d",
                "a duration from 10ms to 1h",
                "a duration from 100ms to 30d",
                "a duration from 0s to 7d",
                "a duration from 1h to 3650d",
                "a whole number from 100 to 100000000",
                "a duration from 0s to 1h",
                "a duration from 1s to 1d",
                "a size from 1KB to 1GB",
                "true or false",
                "true or false",
            ]
        );
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

    #[test]
    fn a_section_is_listed_once() {
        assert_eq!(sections(), ["locking", "history", "run", "daemon", "sync"]);
    }
}
