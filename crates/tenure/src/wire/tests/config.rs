//! The configuration.

use serde_json::json;

use super::exact;
use crate::wire::{ConfigPathJson, ConfigPathsJson, SettingJson, SettingsJson};

#[test]
fn the_settings() {
    let setting = SettingJson {
        key: "locking.taskTimeout".into(),
        value: "30m".into(),
        default: "60m".into(),
        source: "environment".into(),
        environment: "TENURE_LOCKING_TASK_TIMEOUT".into(),
        description: "How long".into(),
    };
    exact(
        &SettingsJson {
            settings: vec![setting],
        },
        json!({
            "settings": [{
                "key": "locking.taskTimeout",
                "value": "30m",
                "default": "60m",
                "source": "environment",
                "environment": "TENURE_LOCKING_TASK_TIMEOUT",
                "description": "How long",
            }],
        }),
    );
}

#[test]
fn the_files_that_may_contain_settings() {
    let path = ConfigPathJson {
        path: "/p/.tenure/config.yaml".into(),
        exists: false,
    };
    exact(
        &ConfigPathsJson { paths: vec![path] },
        json!({ "paths": [{ "path": "/p/.tenure/config.yaml", "exists": false }] }),
    );
}
