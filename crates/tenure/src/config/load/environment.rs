//! The settings that environment variables make.
//!
//! Other variables that begin with `TENURE_` belong to the command, or to another program, such as a CI that installs
//! `TENURE_VERSION`. They are no settings, and no reason to fail; [`near_misses`] finds those that look like a slip.

use std::ffi::{OsStr, OsString};

use super::super::settings::{DEFINITIONS, ENV_PREFIX, section_env};
use super::error::{ConfigError, Location};
use super::unknown;
use super::{Assignment, sections};

/// The variables of the command without their prefix: first those that a user sets, then those that it gives
/// to the commands that it runs.
const OF_THE_COMMAND: [&str; 16] = [
    "ETCD_PASSWORD",
    "HOLDER",
    "NO_DAEMON",
    "STORE",
    "KEY",
    "TOKEN",
    "KEYS",
    "TOKENS",
    "ASKED",
    "SLOT",
    "PARENT_LEASES",
    "GENERATED_HOLDER",
    "TASK_ID",
    "TASK_TITLE",
    "TASK_TOKEN",
    "TASK_ATTEMPT",
];

/// How many of them a user sets.
const GIVEN: usize = 4;

/// What the variables of the test kit and the measurements begin with.
const OF_TESTS: [&str; 2] = ["BATTERY_", "BENCH_"];

/// The settings that the variables make. An empty variable counts as unset, because some tools
/// have no other way to unset one.
pub(super) fn read(env: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Assignment> {
    let mut assignments = Vec::new();
    for (name, value) in env {
        if value.is_empty() || !starts_with(&name, ENV_PREFIX) {
            continue;
        }
        let Some(definition) = DEFINITIONS.iter().find(|d| name == *d.env()) else {
            continue;
        };
        let location = Location::Environment(definition.env());
        // Bytes that are not UTF-8 are replaced here, and then refused as a bad value.
        let text = value.to_string_lossy().into_owned();
        assignments.push(Assignment {
            definition,
            text,
            location,
        });
    }
    assignments
}

/// The variables that mean nothing, and whose name is so close to that of a setting or of a variable of the command
/// that it is probably a slip: what is wrong with each. Empty ones count as unset.
pub fn near_misses(env: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<ConfigError> {
    let names = env.into_iter().filter_map(|(name, value)| {
        let is_set = !value.is_empty() && starts_with(&name, ENV_PREFIX);
        is_set.then(|| name.to_string_lossy().into_owned())
    });
    names.filter_map(near_miss).collect()
}

fn near_miss(name: String) -> Option<ConfigError> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    let known = OF_THE_COMMAND.contains(&rest)
        || OF_TESTS.iter().any(|test| rest.starts_with(test))
        || DEFINITIONS.iter().any(|d| d.env() == name);
    let section = |section: &&str| starts_with(OsStr::new(&name), &section_env(section));
    match sections().into_iter().find(section) {
        _ if known => None,
        Some(section) => unknown::variable(section, name),
        None => unknown::command_variable(name, &OF_THE_COMMAND[..GIVEN]),
    }
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}
