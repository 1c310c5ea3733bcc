//! The configuration: what `tenure config` prints.

use serde::{Deserialize, Serialize};

/// The settings in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingsJson {
    /// The settings.
    pub settings: Vec<SettingJson>,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingJson {
    /// Its dotted path, for example `locking.taskTimeout`.
    pub key: String,
    /// Its value, as written.
    pub value: String,
    /// Its built-in value.
    pub default: String,
    /// Which layer set it, for people.
    pub source: String,
    /// The environment variable that sets it.
    pub environment: String,
    /// What it controls, for people.
    pub description: String,
}

impl From<&crate::config::Setting> for SettingJson {
    fn from(setting: &crate::config::Setting) -> Self {
        Self {
            key: setting.key.to_owned(),
            value: setting.value.clone(),
            default: setting.default.to_owned(),
            source: setting.source.to_string(),
            environment: setting.env.clone(),
            description: setting.description.to_owned(),
        }
    }
}

/// The files that may contain settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigPathsJson {
    /// The files.
    pub paths: Vec<ConfigPathJson>,
}

/// A file that may contain settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigPathJson {
    /// The file.
    pub path: String,
    /// Whether it exists.
    pub exists: bool,
}
