//! Reads the layers: configuration files and environment variables. Part of the feature `config`.
//!
//! | module | contents |
//! |---|---|
//! | `file` | reads one configuration file, if it exists |
//! | `yaml` | the settings that a file's YAML makes; `yaml::node` reads it with `serde-saphyr` |
//! | `environment` | the settings that environment variables make |
//! | `unknown`, `suggest` | errors for unknown keys, with the key that was probably meant |
//! | `strict` | whether the guard is strict although the settings can't be read |
//! | `error` | [`ConfigError`]: a location and a problem |

mod environment;
mod error;
mod file;
mod strict;
mod suggest;
mod unknown;
mod yaml;

use std::ffi::OsString;
use std::path::Path;

use super::settings::{DEFINITIONS, Definition, STORE};
use super::{Config, Set, path_of, paths};
use crate::open::{StoreUrl, without_login};
pub use environment::near_misses;
use error::shortened;
pub use error::{ConfigError, ConfigProblem, Location};

/// In bytes. No value needs more, and messages repeat the value.
const LONGEST_VALUE: usize = 1000;

/// A setting made by a file or the environment, before its value is checked.
struct Assignment {
    definition: &'static Definition,
    text: String,
    location: Location,
}

impl Config {
    /// Reads all layers. `home` is the user's home folder, `project` the project's `.tenure` folder,
    /// and the environment is that of this process.
    ///
    /// # Errors
    /// The first mistake: see [`ConfigError`].
    pub fn load(home: Option<&Path>, project: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(home, project, std::env::vars_os())
    }

    /// Like [`Config::load`], with the given environment.
    ///
    /// # Errors
    /// The first mistake: see [`ConfigError`].
    pub fn load_with(
        home: Option<&Path>,
        project: Option<&Path>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for path in paths(home, project) {
            for assignment in file::read(&path, yaml::assignments)? {
                config.assign(assignment)?;
            }
        }
        for assignment in environment::read(env) {
            config.assign(assignment)?;
        }
        Ok(config)
    }

    /// The settings for this store. If it is another program's, that program's own file ([`path_of`]) counts where none
    /// of our files and no variable makes a setting.
    ///
    /// # Errors
    /// The first mistake in that file, also in a setting that a layer above replaces.
    pub fn for_store(mut self, store: &StoreUrl, home: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path_of(store, home) else {
            return Ok(self);
        };
        for assignment in file::read(&path, yaml::documented)? {
            let is_replaced = self.set(assignment.definition.key).is_some();
            let mut unused = Self::default();
            let layer = if is_replaced { &mut unused } else { &mut self };
            layer.assign(assignment)?;
        }
        Ok(self)
    }

    fn assign(&mut self, assignment: Assignment) -> Result<(), ConfigError> {
        let Assignment {
            definition,
            text,
            location,
        } = assignment;
        let value = text.trim();
        let shown = if definition.key == STORE {
            without_login(value)
        } else {
            value.to_owned()
        };
        // The command itself reads the variable of the store, which may name what a file may not.
        let is_read_elsewhere =
            definition.key == STORE && matches!(location, Location::Environment(_));
        if !is_read_elsewhere && let Err(why) = definition.store(value, self) {
            return Err(ConfigError {
                location,
                problem: ConfigProblem::BadValue {
                    key: definition.key,
                    value: shortened(&shown),
                    why,
                },
            });
        }
        self.set.retain(|set| set.key != definition.key);
        self.set.push(Set {
            key: definition.key,
            value: shown,
            source: location.into(),
        });
        Ok(())
    }
}

impl Definition {
    /// Checks a value and stores it in its field, or says why it is refused.
    fn store(&self, text: &str, config: &mut Config) -> Result<(), String> {
        let read = if text.len() > LONGEST_VALUE {
            Err(format!("{} bytes are too long", text.len()))
        } else {
            (self.read)(text, config)
        };
        read.map_err(|why| format!("{why}; accepted is {}", self.accepted()))
    }
}

/// The sections, in the order of the table.
fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = DEFINITIONS.iter().map(|d| d.section).collect();
    sections.dedup();
    sections
}

/// The settings of one section.
fn of_section(section: &str) -> impl Iterator<Item = &'static Definition> {
    DEFINITIONS.iter().filter(move |d| d.section == section)
}

#[cfg(test)]
mod tests;
