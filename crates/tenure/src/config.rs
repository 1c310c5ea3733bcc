//! The settings in effect, and where each of them comes from.
//!
//! There are four layers, and a later layer wins: the built-in defaults, the user's
//! `~/.tenure/config.yaml`, the project's `.tenure/config.yaml`, and the environment. Command-line
//! options come after all of them; the caller applies them. For a store of another program, that
//! program's own file is a layer between the defaults and ours (`Config::for_store`). Without the
//! feature `config`, there are only the defaults and the values that the caller sets.
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | `settings` | every setting: its field, key, default, accepted values and description |
//! | `value` | the types of settings: how a text is read |
//! | `load` | reads the layers, with the feature `config` |
//! | `reaction` | whether something is refused: `agents.destructive` |
//! | `release` | when an agent's session gives a file back: `guard.release` |
//! | `size` | sizes as people write them: `512KB` |
//!
//! # Invariants
//!
//! 1. `settings` defines every setting. Environment variables, bounds, defaults,
//!    descriptions and the detection of unknown keys follow from it.
//! 2. Nothing that is ours is ignored. An unknown key and an invalid value are errors that name the
//!    location and what is accepted, even if a later layer overrides the setting: a misspelt
//!    timeout must not silently become the default. Environment variables are not ours alone: one
//!    that nearly has the name of a setting is worth a warning (`near_misses`), any other nothing.
//! 3. A file that does not exist costs one failed system call.
//! 4. A hostile file is an error. Size, depth, the number of values and the expansion of aliases
//!    are limited.
//!
//! # Limitations
//!
//! It writes no files, does not search for the project's folder, and reports one mistake at a time.

#[cfg(feature = "config")]
mod load;
mod reaction;
mod release;
mod settings;
mod size;
mod value;

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "config")]
pub use load::{ConfigError, ConfigProblem, Location, near_misses};
pub use reaction::Reaction;
pub use release::Release;
pub use settings::{
    AgentsSettings, DaemonSettings, GuardSettings, HistorySettings, LockingSettings, RunSettings,
    StoreSettings, SyncSettings,
};
use settings::{DEFINITIONS, Definition};

use crate::open::StoreUrl;

/// The settings in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The store that commands use.
    pub store: StoreSettings,
    /// How long leases and waits last.
    pub locking: LockingSettings,
    /// How much history is kept.
    pub history: HistorySettings,
    /// How `tenure run` treats its command.
    pub run: RunSettings,
    /// How the daemon works.
    pub daemon: DaemonSettings,
    /// How tasks are shared.
    pub sync: SyncSettings,
    /// How path reservations are enforced.
    pub guard: GuardSettings,
    /// What coding agents may do.
    pub agents: AgentsSettings,
    /// What files and the environment set. A later layer replaces an earlier one.
    set: Vec<Set>,
}

/// A setting that a file or the environment makes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    key: &'static str,
    /// As written.
    value: String,
    source: Source,
}

/// One setting in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its dotted path, for example `locking.taskTimeout`.
    pub key: &'static str,
    /// The environment variable that sets it.
    pub env: String,
    /// Its value, as written.
    pub value: String,
    /// Its built-in value.
    pub default: &'static str,
    /// The values that it accepts, in words.
    pub accepted: String,
    /// What it controls.
    pub description: &'static str,
    /// Which layer set it.
    pub source: Source,
}

/// The layer that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

impl Config {
    /// Every setting with its value and provenance, in the order of the documentation.
    pub fn settings(&self) -> Vec<Setting> {
        let one = |definition| Setting::new(definition, self.set(definition.key));
        DEFINITIONS.iter().map(one).collect()
    }

    /// What sets it, unless it has its built-in value.
    fn set(&self, key: &str) -> Option<&Set> {
        self.set.iter().find(|set| set.key == key)
    }

    /// The store that a configuration file names, if one does: `store.url`. The files that its address names are
    /// looked for beside the `.tenure` folder of that configuration file.
    pub fn store_url(&self) -> Option<StoreUrl> {
        if self.store.url == settings::OWN_STORE {
            return None;
        }
        let url = StoreUrl::parse(&self.store.url).ok()?;
        let folder = match self.set(settings::STORE).map(|set| &set.source) {
            Some(Source::File(file)) => file.parent().and_then(Path::parent),
            _ => None,
        };
        Some(match (url, folder) {
            (StoreUrl::Etcd(url), Some(folder)) => StoreUrl::Etcd(url.with_files_in(folder)),
            (url, _) => url,
        })
    }

    /// Whether a file or the environment sets it.
    #[cfg(feature = "etcd")]
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.set(key).is_some()
    }
}

impl Setting {
    fn new(definition: &Definition, set: Option<&Set>) -> Self {
        Self {
            key: definition.key,
            env: definition.env(),
            value: set.map_or_else(|| definition.default.to_owned(), |set| set.value.clone()),
            default: definition.default,
            accepted: definition.accepted(),
            description: definition.description(),
            source: set.map_or(Source::Default, |set| set.source.clone()),
        }
    }
}

/// The configuration files in the order they are read, whether or not they exist.
/// `home` is the user's home folder, `project` the project's `.tenure` folder.
pub fn paths(home: Option<&Path>, project: Option<&Path>) -> Vec<PathBuf> {
    let home = a_folder(home);
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

/// The configuration file of the program whose database `store` is: `~/.steroids/config.yaml`, as the protocol of the
/// task locks documents it.
pub fn path_of(store: &StoreUrl, home: Option<&Path>) -> Option<PathBuf> {
    match store {
        StoreUrl::Steroids(_) => Some(a_folder(home)?.join(".steroids/config.yaml")),
        _ => None,
    }
}

/// An empty HOME means no home folder. Joined, it would mean the working directory.
fn a_folder(home: Option<&Path>) -> Option<&Path> {
    home.filter(|home| !home.as_os_str().is_empty())
}
