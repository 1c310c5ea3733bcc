//! Keys and variables that nobody knows, answered with what was probably meant.

use super::closest::closest;
use super::error::{ConfigError, Place, Problem};
use super::settings::{DEFINITIONS, Definition, ENV_PREFIX, of_section, section_env, sections};

/// A key at the top of a file that is no section.
pub(super) fn section(place: Place, key: &str) -> ConfigError {
    let meant = closest(key, sections()).map(str::to_owned);
    unknown(place, key, meant.or_else(|| placed(key)), sections())
}

/// A key inside a section that is none of its settings.
pub(super) fn setting(place: Place, section: &str, key: &str) -> ConfigError {
    let names = || of_section(section).map(Definition::name);
    let meant = closest(key, names()).map(str::to_owned);
    let path = format!("{section}.{key}");
    unknown(place, &path, meant.or_else(|| placed(key)), names())
}

/// A key inside a setting that is none of the `parts` a setting can have.
pub(super) fn part(
    place: Place,
    definition: &Definition,
    key: &str,
    parts: [&str; 3],
) -> ConfigError {
    let meant = closest(key, parts).map(str::to_owned);
    unknown(place, &format!("{}.{key}", definition.key), meant, parts)
}

/// An environment variable that has a section's prefix but is none of its settings.
pub(super) fn variable(section: &str, name: String) -> ConfigError {
    // The prefix is the same in all names and would make all of them look close.
    let rest = name.strip_prefix(ENV_PREFIX).unwrap_or(&name);
    let key = name.strip_prefix(&section_env(section)).unwrap_or(rest);
    let closest = closest(key, of_section(section).map(Definition::name))
        .and_then(|known| of_section(section).find(|d| d.name() == known))
        .or_else(|| anywhere(key))
        .or_else(|| anywhere(rest))
        .map(Definition::env);
    ConfigError {
        place: Place::Environment(name),
        problem: Problem::UnknownVariable {
            closest,
            known: of_section(section).map(Definition::env).collect(),
        },
    }
}

/// A setting of this name in any section, with its place: keys are easily put one level too
/// high, or written with the dots that messages show.
fn placed(key: &str) -> Option<String> {
    anywhere(key).map(|d| format!("{} under {}", d.name(), d.section()))
}

fn anywhere(key: &str) -> Option<&'static Definition> {
    let meant = |name_of: fn(&Definition) -> &'static str| {
        let name = closest(key, DEFINITIONS.iter().map(name_of))?;
        DEFINITIONS.iter().find(|d| name_of(d) == name)
    };
    meant(Definition::name).or_else(|| meant(|d| d.key))
}

fn unknown<'a>(
    place: Place,
    path: &str,
    closest: Option<String>,
    known: impl IntoIterator<Item = &'a str>,
) -> ConfigError {
    ConfigError {
        place,
        problem: Problem::UnknownKey {
            // Whatever stands in a file must not move the cursor of the terminal it is shown on.
            key: path.escape_debug().to_string(),
            closest,
            known: known.into_iter().map(str::to_owned).collect(),
        },
    }
}
