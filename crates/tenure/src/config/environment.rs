//! Reading the settings that environment variables make.
//!
//! Only variables of a section's own prefix are looked at (`TENURE_LOCKING_`, …). The other
//! variables that begin with `TENURE_` belong to the command.

use std::ffi::{OsStr, OsString};

use super::Assignment;
use super::error::{ConfigError, Place};
use super::settings::{ENV_PREFIX, of_section, section_env, sections};
use super::unknown;

/// What the variables assign. An empty variable counts as unset, because that is the only way
/// some tools have to unset one.
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
        // Bytes that are not text are no value either; replaced, they are refused as one.
        let text = value.to_string_lossy().into_owned();
        assignments.push(Assignment {
            definition,
            text,
            place: Place::Environment(name),
        });
    }
    Ok(assignments)
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}
