//! Errors for unknown keys and variables, with the name that was probably meant.

use super::super::settings::{DEFINITIONS, Definition, ENV_PREFIX, section_env};
use super::error::{ConfigError, ConfigProblem, Location, shortened};
use super::suggest::nearest;
use super::{of_section, sections};

/// A key at the top of a file that is not a section.
pub(super) fn section(location: Location, key: &str) -> ConfigError {
    let meant = nearest(key, sections()).map(str::to_owned);
    unknown(
        location,
        key,
        meant.or_else(|| with_section(key)),
        sections(),
    )
}

/// A key inside a section that is not one of its settings.
pub(super) fn setting(location: Location, section: &str, key: &str) -> ConfigError {
    let names = || of_section(section).map(|d| d.name);
    let meant = nearest(key, names()).map(str::to_owned);
    let path = format!("{section}.{key}");
    unknown(
        location,
        &path,
        meant.or_else(|| with_section(key)),
        names(),
    )
}

/// A key inside a setting that is not one of the `parts` a setting can have.
pub(super) fn part(
    location: Location,
    definition: &Definition,
    key: &str,
    parts: [&str; 3],
) -> ConfigError {
    let meant = nearest(key, parts).map(str::to_owned);
    unknown(location, &format!("{}.{key}", definition.key), meant, parts)
}

/// An environment variable that has a section's prefix but is not one of its settings, if one was probably meant.
pub(super) fn variable(section: &str, name: String) -> Option<ConfigError> {
    // The prefix is the same in all names and would make all of them look close.
    let rest = name.strip_prefix(ENV_PREFIX).unwrap_or(&name);
    let key = name.strip_prefix(&section_env(section)).unwrap_or(rest);
    let meant = nearest(key, of_section(section).map(|d| d.name))
        .and_then(|known| of_section(section).find(|d| d.name == known))
        .or_else(|| anywhere(key))
        .or_else(|| anywhere(rest))
        .map(Definition::env);
    Some(unknown_variable(name, meant?))
}

/// An environment variable that begins like ours, and is neither a setting nor one of the command's own, which
/// are `known`, if one of them was probably meant.
pub(super) fn command_variable(name: String, known: &[&str]) -> Option<ConfigError> {
    let rest = name.strip_prefix(ENV_PREFIX).unwrap_or(&name);
    let own = nearest(rest, known.iter().copied()).map(|known| format!("{ENV_PREFIX}{known}"));
    let part = letters_of(rest);
    let setting = || {
        let contains = |d: &&Definition| !part.is_empty() && d.name.to_lowercase().contains(&part);
        anywhere(rest).or_else(|| DEFINITIONS.iter().find(contains))
    };
    let meant = own.or_else(|| setting().map(Definition::env));
    Some(unknown_variable(name, meant?))
}

fn unknown_variable(name: String, suggestion: String) -> ConfigError {
    ConfigError {
        location: Location::Environment(name),
        problem: ConfigProblem::UnknownVariable { suggestion },
    }
}

/// The letters of a variable's name, as those of a setting's name are written.
fn letters_of(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// A setting of this name in any section, named with its section: keys are easily put one level
/// too high, or written with the dots that messages show.
fn with_section(key: &str) -> Option<String> {
    anywhere(key).map(|d| format!("{} under {}", d.name, d.section))
}

fn anywhere(key: &str) -> Option<&'static Definition> {
    let meant = |name_of: fn(&Definition) -> &'static str| {
        let name = nearest(key, DEFINITIONS.iter().map(name_of))?;
        DEFINITIONS.iter().find(|d| name_of(d) == name)
    };
    meant(|d| d.name).or_else(|| meant(|d| d.key))
}

fn unknown<'a>(
    location: Location,
    path: &str,
    suggestion: Option<String>,
    known: impl IntoIterator<Item = &'a str>,
) -> ConfigError {
    ConfigError {
        location,
        problem: ConfigProblem::UnknownKey {
            key: shortened(path),
            suggestion,
            known: known.into_iter().map(str::to_owned).collect(),
        },
    }
}
