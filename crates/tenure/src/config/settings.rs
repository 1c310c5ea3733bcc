//! Every setting: the one place where a setting is defined.
//!
//! To add a setting, add a field here. Its comment describes the setting to people, too.

use std::time::Duration;

use super::reaction::Reaction;
use super::value::{Number, Text, Value};
use super::{Config, release, size};
use crate::open::StoreUrl;
use crate::text::duration;

/// What is known of a setting besides its type.
pub(super) struct Definition {
    pub(super) section: &'static str,
    /// The key inside its section.
    pub(super) name: &'static str,
    /// `section.name`, as messages call it.
    pub(super) key: &'static str,
    /// As a person would write it.
    pub(super) default: &'static str,
    description: &'static str,
    accepted: fn() -> String,
    #[cfg_attr(
        not(feature = "config"),
        expect(dead_code, reason = "only files and variables set it")
    )]
    pub(super) read: fn(&str, &mut Config) -> Result<(), String>,
}

/// Declares the struct of each section, and a [`Definition`] for each of its fields: `"name in files" => field: type =
/// default, accepted values`.
macro_rules! settings {
    ($(
        $(#[$section_doc:meta])+
        $section:ident: $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:literal => $vis:vis $field:ident: $type:ty = $default:literal, $accepted:expr;
            )+
        }
    )+) => {
        $(
            $(#[$section_doc])+
            #[derive(Debug, Clone, PartialEq, Eq)]
            #[non_exhaustive]
            pub struct $Section {
                $($(#[doc = $doc])+ $vis $field: $type,)+
            }

            impl Default for $Section {
                fn default() -> Self {
                    // A test reads every default.
                    Self {
                        $($field: Value::read($default, &$accepted).unwrap_or_default(),)+
                    }
                }
            }
        )+

        pub(super) const DEFINITIONS: &[Definition] = &[$($(
            Definition {
                section: stringify!($section),
                name: $name,
                key: concat!(stringify!($section), ".", $name),
                default: $default,
                description: concat!($($doc),+),
                accepted: || <$type>::accepted(&$accepted),
                read: |text, config| {
                    config.$section.$field = Value::read(text, &$accepted)?;
                    Ok(())
                },
            },
        )+)+];
    };
}

settings! {
    /// The store that commands use.
    store: StoreSettings {
        /// The store that commands use: the project's own, or an etcd cluster.
        // `Config::store_url` gives its meaning.
        "url" => pub(super) url: String = "own", STORE_URL;
    }

    /// How long leases and waits last.
    locking: LockingSettings {
        /// How long a task's lease lasts unless it is renewed.
        "taskTimeout" => pub task_timeout: Duration = "60m", SHORTEST_LEASE..=LONGEST_LEASE;
        /// How long a section's lease lasts unless it is renewed.
        "sectionTimeout" => pub section_timeout: Duration = "120m", SHORTEST_LEASE..=LONGEST_LEASE;
        /// How long to wait for a key that is held.
        "waitTimeout" => pub wait_timeout: Duration = "30m", Duration::ZERO..=days(30);
        /// How often a waiter polls when nothing wakes it up.
        "pollInterval" => pub poll_interval: Duration = "5s", Duration::from_millis(10)..=minutes(60);
        /// How long the lease of `tenure run` lasts; it is renewed every third of it.
        "runTimeout" => pub run_timeout: Duration = "5m", SHORTEST_LEASE..=LONGEST_LEASE;
        /// How long a disconnected waiter keeps its queue position.
        "queueGrace" => pub queue_grace: Duration = "10m", Duration::ZERO..=days(7);
    }

    /// How much history is kept.
    history: HistorySettings {
        /// How long events stay in the history.
        "maxAge" => pub max_age: Duration = "90d", minutes(60)..=duration::LONGEST;
        /// How many events stay in the history.
        "maxEvents" => pub max_events: u64 = "200000", Number::Count(100..=100_000_000);
    }

    /// How `tenure run` treats its command.
    run: RunSettings {
        /// How long a command has between SIGTERM and SIGKILL when its lease is lost.
        "killGrace" => pub kill_grace: Duration = "10s", Duration::ZERO..=minutes(60);
    }

    /// How the daemon works.
    daemon: DaemonSettings {
        /// How long the daemon sleeps between two cycles when nothing wakes it up.
        "interval" => pub interval: Duration = "1m", Duration::from_secs(1)..=days(1);
        /// How large the daemon's log may become before a new file is started.
        "logMaxSize" => pub log_max_size: u64 = "1MB", Number::Size(size::KB..=size::GB);
        /// Whether commands that change tasks start the daemon if it is not running.
        "autostart" => pub autostart: bool = "false", ();
    }

    /// How tasks are shared.
    sync: SyncSettings {
        /// Whether the project's tasks are shared through git.
        "enabled" => pub enabled: bool = "true", ();
        /// The git remotes that tasks are shared with; auto is origin, or the only one there is.
        "remote" => pub remote: String = "auto", REMOTES;
        /// The ref on the remotes that holds the tasks; refs/heads/NAME if a host refuses others.
        "ref" => pub reference: String = "refs/tenure/tasks", REF;
    }

    /// How path reservations are enforced, in git and in the hooks of coding agents.
    guard: GuardSettings {
        /// Whether the guard refuses when it can't check, and whether git commit --no-verify is
        /// checked, too.
        "strict" => pub strict: bool = "false", ();
        /// Whether a path may only be changed by a holder that has reserved it.
        "require" => pub require: bool = "false", ();
        /// When an agent's session gives a file back before its end: at its commit, or after a
        /// quiet time.
        // `GuardSettings::release` gives its meaning.
        "release" => pub(super) release_text: String = "auto", release::ACCEPTED;
    }

    /// What coding agents may do.
    agents: AgentsSettings {
        /// What becomes of an agent's command that would destroy uncommitted work of another session.
        "destructive" => pub destructive: Reaction = "refuse", ();
    }
}

const STORE_URL: Text = Text {
    words: "own, or the address of an etcd cluster without a password: \
            etcd://[USER@]HOST:2379/PREFIX, with ?password-file=FILE for the password",
    is_accepted: is_store,
};

const REMOTES: Text = Text {
    words: "auto, none, or names of remotes with commas between them",
    is_accepted: is_remotes,
};

const REF: Text = Text {
    words: "the full name of a ref: refs/...",
    is_accepted: is_ref,
};

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
    /// `locking.taskTimeout` becomes `TENURE_LOCKING_TASK_TIMEOUT`. The store has a shorter one, which the command reads
    /// itself: it may name any store, by a path that is not UTF-8 or an address with a password.
    pub(super) fn env(&self) -> String {
        if self.key == STORE {
            return STORE_VARIABLE.to_owned();
        }
        let mut env = section_env(self.section);
        for c in self.name.chars() {
            if c.is_ascii_uppercase() {
                env.push('_');
            }
            env.push(c.to_ascii_uppercase());
        }
        env
    }

    /// What it controls, as a phrase.
    pub(super) fn description(&self) -> &'static str {
        self.description.trim_start().trim_end_matches('.')
    }

    /// The values that the setting accepts, in words.
    pub(super) fn accepted(&self) -> String {
        (self.accepted)()
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
                "TENURE_AGENTS_DESTRUCTIVE",
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
                release::ACCEPTED.words,
                "refuse, warn or off",
            ]
        );
    }
}
