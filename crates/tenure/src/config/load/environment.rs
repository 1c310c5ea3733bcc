//! The settings that environment variables make.
//!
//! Variables with a section's prefix (`TENURE_LOCKING_`, ...) are settings. Other variables that begin with
//! `TENURE_` belong to the command; one that it does not know is an error, too.

use std::ffi::{OsStr, OsString};

use super::super::settings::{ENV_PREFIX, STORE, STORE_VARIABLE, section_env};
use super::error::{ConfigError, Location};
use super::unknown;
use super::{Assignment, of_section, sections};

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
    "WITHIN",
    "MADE_UP",
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
pub(super) fn read(
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Assignment>, ConfigError> {
    let mut assignments = Vec::new();
    for (name, value) in env {
        if value.is_empty() || !starts_with(&name, ENV_PREFIX) {
            continue;
        }
        let owner = sections()
            .into_iter()
            .find(|section| starts_with(&name, &section_env(section)) || is_store(&name, section));
        let name = name.to_string_lossy().into_owned();
        let Some(section) = owner else {
            let rest = name.strip_prefix(ENV_PREFIX).unwrap_or(&name);
            if OF_THE_COMMAND.contains(&rest) || OF_TESTS.iter().any(|test| rest.starts_with(test))
            {
                continue;
            }
            return Err(unknown::command_variable(name, &OF_THE_COMMAND[..GIVEN]));
        };
        let Some(definition) = of_section(section).find(|d| d.env() == name) else {
            return Err(unknown::variable(section, name));
        };
        // Bytes that are not UTF-8 are replaced here, and then refused as a bad value.
        let text = value.to_string_lossy().into_owned();
        assignments.push(Assignment {
            definition,
            text,
            location: Location::Environment(name),
        });
    }
    Ok(assignments)
}

/// Whether this is the variable of the store, whose name is that of its section.
fn is_store(name: &OsStr, section: &str) -> bool {
    name == STORE_VARIABLE && STORE.starts_with(section)
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}
