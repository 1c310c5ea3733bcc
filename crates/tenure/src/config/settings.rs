//! The table of settings: the one place where a setting is defined.
//!
//! To add a setting, add a field to one of the structs of [`config`](super) and a row here.

use std::time::Duration;

use super::{Config, release, size};
use crate::duration;
use crate::open::StoreUrl;

/// One row of the table.
pub(super) struct Definition {
    /// `section.key`, as written in the files.
    pub(super) key: &'static str,
    pub(super) description: &'static str,
    /// As a person would write it. A test compares it with the value in `kind`.
    pub(super) default: &'static str,
    pub(super) kind: Kind,
}

/// Which values a setting accepts, and the field of [`Config`] that receives them.
pub(super) enum Kind {
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
    Text {
        default: &'static str,
        /// In words.
        accepted: &'static str,
        #[cfg_attr(
            not(feature = "config"),
            expect(dead_code, reason = "only files and variables set it")
        )]
        is_accepted: fn(&str) -> bool,
        field: fn(&mut Config) -> &mut String,
    },
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        key: STORE,
        description: "The store that commands use: the project's own, or an etcd cluster",
        default: OWN_STORE,
        kind: Kind::Text {
            default: OWN_STORE,
            accepted: "own, or the address of an etcd cluster without a password: \
                       etcd://[USER@]HOST:2379/PREFIX, with ?password-file=FILE for the password",
            is_accepted: is_store,
            field: |config| &mut config.store.url,
        },
    },
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
        description: "Whether the project's tasks are shared through git",
        default: "true",
        kind: Kind::Flag {
            default: true,
            field: |config| &mut config.sync.enabled,
        },
    },
    Definition {
        key: "sync.remote",
        description: "The git remotes that tasks are shared with; auto is origin, or the only one there is",
        default: "auto",
        kind: Kind::Text {
            default: "auto",
            accepted: "auto, none, or names of remotes with commas between them",
            is_accepted: is_remotes,
            field: |config| &mut config.sync.remote,
        },
    },
    Definition {
        key: "sync.ref",
        description: "The ref on the remotes that holds the tasks; refs/heads/NAME if a host refuses others",
        default: "refs/tenure/tasks",
        kind: Kind::Text {
            default: "refs/tenure/tasks",
            accepted: "the full name of a ref: refs/...",
            is_accepted: is_ref,
            field: |config| &mut config.sync.reference,
        },
    },
    Definition {
        key: "guard.strict",
        description: "Whether the guard refuses when it can't check, and whether git commit --no-verify is checked, too",
        default: "false",
        kind: Kind::Flag {
            default: false,
            field: |config| &mut config.guard.strict,
        },
    },
    Definition {
        key: "guard.require",
        description: "Whether a path may only be changed by a holder that has reserved it",
        default: "false",
        kind: Kind::Flag {
            default: false,
            field: |config| &mut config.guard.require,
        },
    },
    Definition {
        key: "guard.release",
        description: "When an agent's session gives a file back before its end: at its commit, or after a quiet time",
        default: "auto",
        kind: Kind::Text {
            default: "auto",
            accepted: release::ACCEPTED,
            is_accepted: release::is_accepted,
            field: |config| &mut config.guard.release_text,
        },
    },
];

/// The value of `store.url` that stands for the project's own store.
pub(super) const OWN_STORE: &str = "own";

/// Whether this names a store that a file may choose. Files are committed and read by others, so they hold no password.
fn is_store(text: &str) -> bool {
    let cluster = || match StoreUrl::parse(text) {
        Ok(StoreUrl::Etcd(url)) => !url.has_password(),
        _ => false,
    };
    text == OWN_STORE || cluster()
}

/// Whether this names remotes.
fn is_remotes(text: &str) -> bool {
    let plain = |name: &str| is_ref(&format!("refs/{name}")) && !name.starts_with('-');
    text.split(',').all(|name| plain(name.trim()))
}

/// Whether git accepts this as the full name of a ref.
fn is_ref(text: &str) -> bool {
    let odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && part.strip_suffix(".lock").is_none()
    };
    let parts = text.strip_prefix("refs/");
    parts.is_some_and(|parts| parts.split('/').all(part))
        && !text.contains(odd)
        && !text.contains("..")
        && !text.contains("@{")
}

// A shorter lease could expire before its first renewal on a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const LONGEST_LEASE: Duration = days(30);

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

const fn days(count: u64) -> Duration {
    minutes(count * 24 * 60)
}

/// The setting that chooses the store.
pub(super) const STORE: &str = "store.url";

/// The environment variable that chooses the store.
pub(super) const STORE_VARIABLE: &str = "TENURE_STORE";

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

    /// `locking.taskTimeout` becomes `TENURE_LOCKING_TASK_TIMEOUT`. The store has a shorter one, which the command reads
    /// itself: it may name any store, by a path that is not UTF-8 or an address with a password.
    pub(super) fn env(&self) -> String {
        if self.key == STORE {
            return STORE_VARIABLE.to_owned();
        }
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
            Kind::Text { accepted, .. } => (*accepted).to_owned(),
        }
    }

    pub(super) fn store_default(&self, config: &mut Config) {
        match &self.kind {
            Kind::Time { default, field, .. } => *field(config) = *default,
            Kind::Count { default, field, .. } | Kind::Size { default, field, .. } => {
                *field(config) = *default;
            }
            Kind::Flag { default, field } => *field(config) = *default,
            Kind::Text { default, field, .. } => (*default).clone_into(field(config)),
        }
    }
}

/// The prefix of a section's variables: `TENURE_LOCKING_`.
pub(super) fn section_env(section: &str) -> String {
    format!("{ENV_PREFIX}{}_", section.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Kind::Text { field, .. } => std::ptr::from_mut(field(&mut config)).addr(),
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
                "TENURE_STORE",
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
                "TENURE_SYNC_REMOTE",
                "TENURE_SYNC_REF",
                "TENURE_GUARD_STRICT",
                "TENURE_GUARD_REQUIRE",
                "TENURE_GUARD_RELEASE",
            ]
        );
    }

    #[test]
    fn the_accepted_values_are_stated_in_words() {
        let accepted: Vec<String> = DEFINITIONS.iter().map(Definition::accepted).collect();
        assert_eq!(
            accepted,
            [
                "own, or the address of an etcd cluster without a password: \
                 etcd://[USER@]HOST:2379/PREFIX, with ?password-file=FILE for the password",
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
                "auto, none, or names of remotes with commas between them",
                "the full name of a ref: refs/...",
                "true or false",
                "true or false",
                release::ACCEPTED,
            ]
        );
    }
}
