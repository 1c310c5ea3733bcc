//! The settings that environment variables make.
//!
//! Only variables with a section's prefix are read (`TENURE_LOCKING_`, ...). Other variables that
//! begin with `TENURE_` belong to the command.

use std::ffi::{OsStr, OsString};

use super::super::settings::{ENV_PREFIX, section_env};
use super::error::{ConfigError, Location};
use super::unknown;
use super::{Assignment, of_section, sections};

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
            .find(|section| starts_with(&name, &section_env(section)));
        let Some(section) = owner else { continue };
        let name = name.to_string_lossy().into_owned();
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

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}
