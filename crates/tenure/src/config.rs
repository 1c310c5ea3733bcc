//! The settings in effect, and where each of them comes from.
//!
//! Four layers, of which the later wins: the built-in defaults, the person's
//! `~/.tenure/config.yaml`, the project's `.tenure/config.yaml`, and the environment. Flags come
//! after all of them and are the caller's to apply.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | `settings` | the table of all settings: key, default, bounds, description |
//! | `file` | reading one configuration file, if there is one |
//! | `yaml` | what a file's YAML says; `yaml::tree` parses it, and limits how deep it nests |
//! | `environment` | what the environment variables say |
//! | `size` | sizes as people write them: `512KB` |
//! | `unknown`, `closest` | keys nobody knows, answered with what was probably meant |
//! | `error` | [`ConfigError`]: the place and the problem, in words |
//!
//! # Invariants
//!
//! 1. One table, in `settings`, defines every setting. Names of environment variables,
//!    bounds, defaults, descriptions and the detection of unknown keys all follow from it.
//! 2. Nothing is ignored. A key, variable or value that is not understood is an error that names
//!    the place and what would be accepted, also where a later layer would have overridden it: a
//!    misspelt timeout must not silently become the default.
//! 3. A file that does not exist costs one failed system call and nothing else.
//!
//! # Limitations
//!
//! It writes no files, does not look for the project's folder, and reports one mistake at a time.

mod closest;
mod environment;
mod error;
mod file;
mod settings;
mod size;
mod unknown;
mod yaml;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{ConfigError, Place, Problem};
use settings::{DEFINITIONS, Definition};

/// The settings in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long leases and waits last.
    pub locking: Locking,
    /// How much of the past is kept.
    pub history: History,
    /// How `tenure run` treats its command.
    pub run: Run,
    /// How the daemon works.
    pub daemon: Daemon,
    /// How tasks are shared.
    pub sync: Sync,
    settings: Vec<Setting>,
}

/// How long leases and waits last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locking {
    /// How long a task's lease lasts unless it is renewed.
    pub task_timeout: Duration,
    /// How long a section's lease lasts unless it is renewed.
    pub section_timeout: Duration,
    /// How long to wait for a key that is held.
    pub wait_timeout: Duration,
    /// How often a waiter looks again when nothing woke it.
    pub poll_interval: Duration,
    /// How long the lease of `tenure run` lasts unless it is renewed.
    pub run_timeout: Duration,
    /// How long the place of a waiter that was cut off is kept in the queue.
    pub queue_grace: Duration,
}

/// How much of the past is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// How old an event may become.
    pub max_age: Duration,
    /// How many events are kept.
    pub max_events: u64,
}

/// How `tenure run` treats its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How long the command has between TERM and KILL when its lease is lost.
    pub kill_grace: Duration,
}

/// How the daemon works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// How long it rests between two cycles when nothing wakes it.
    pub interval: Duration,
    /// How large its log may become before a new one is begun, in bytes.
    pub log_max_size: u64,
    /// Whether commands that change tasks start it if none runs.
    pub autostart: bool,
}

/// How tasks are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Whether the daemon shares them through git.
    pub enabled: bool,
}

/// One setting as it is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its dotted path, for example `locking.taskTimeout`.
    pub key: &'static str,
    /// The environment variable that sets it.
    pub env: String,
    /// Its value, as it was written.
    pub value: String,
    /// The value it has when nothing sets it.
    pub default: &'static str,
    /// What it decides.
    pub description: &'static str,
    /// Which layer set it.
    pub source: Source,
}

/// The layer that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File(path) => path.display().fmt(out),
            Self::Environment(name) => write!(out, "environment {name}"),
        }
    }
}

/// What a file or the environment says about a setting, before it is checked.
struct Assignment {
    definition: &'static Definition,
    text: String,
    place: Place,
}

impl Config {
    /// Read the layers: `home` is the person's home folder, `project` the project's `.tenure`
    /// folder, and the environment is that of this process.
    ///
    /// # Errors
    /// The first thing that cannot be read or is not understood, see [`ConfigError`].
    pub fn load(home: Option<&Path>, project: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(home, project, std::env::vars_os())
    }

    /// Like [`Config::load`], with an environment handed in.
    ///
    /// # Errors
    /// The first thing that cannot be read or is not understood, see [`ConfigError`].
    pub fn load_with(
        home: Option<&Path>,
        project: Option<&Path>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for path in paths(home, project) {
            for assignment in file::read(&path)? {
                config.assign(assignment)?;
            }
        }
        for assignment in environment::read(env)? {
            config.assign(assignment)?;
        }
        Ok(config)
    }

    /// Every setting with its value and provenance, in the order of the documentation.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    fn assign(&mut self, assignment: Assignment) -> Result<(), ConfigError> {
        let Assignment {
            definition,
            text,
            place,
        } = assignment;
        let value = text.trim();
        if let Err(why) = definition.store(value, self) {
            return Err(ConfigError {
                place,
                problem: Problem::BadValue {
                    key: definition.key,
                    value: value.to_owned(),
                    why,
                },
            });
        }
        let recorded = self.settings.iter_mut().find(|s| s.key == definition.key);
        if let Some(setting) = recorded {
            value.clone_into(&mut setting.value);
            setting.source = place.into();
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        // Every field gets its value from the table; zero stands for "not yet".
        let mut config = Self {
            locking: Locking {
                task_timeout: Duration::ZERO,
                section_timeout: Duration::ZERO,
                wait_timeout: Duration::ZERO,
                poll_interval: Duration::ZERO,
                run_timeout: Duration::ZERO,
                queue_grace: Duration::ZERO,
            },
            history: History {
                max_age: Duration::ZERO,
                max_events: 0,
            },
            run: Run {
                kill_grace: Duration::ZERO,
            },
            daemon: Daemon {
                interval: Duration::ZERO,
                log_max_size: 0,
                autostart: false,
            },
            sync: Sync { enabled: false },
            settings: DEFINITIONS.iter().map(Setting::unset).collect(),
        };
        for definition in DEFINITIONS {
            definition.store_default(&mut config);
        }
        config
    }
}

impl Setting {
    fn unset(definition: &Definition) -> Self {
        Self {
            key: definition.key,
            env: definition.env(),
            value: definition.default.to_owned(),
            default: definition.default,
            description: definition.description,
            source: Source::Default,
        }
    }
}

/// The configuration files that are looked for, in the order they are read, whether or not they
/// exist. `home` is the person's home folder, `project` the project's `.tenure` folder.
pub fn paths(home: Option<&Path>, project: Option<&Path>) -> Vec<PathBuf> {
    // An empty HOME means there is none. Joined, it would mean the working directory.
    let home = home.filter(|home| !home.as_os_str().is_empty());
    let mut paths: Vec<PathBuf> = home
        .map(|home| home.join(".tenure"))
        .into_iter()
        .chain(project.map(Path::to_owned))
        .map(|folder| folder.join("config.yaml"))
        .collect();
    // A project in the home folder itself has one file, not two.
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests;
