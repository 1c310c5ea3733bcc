//! `tenure config`: the settings in effect and which layer made each.

use std::path::PathBuf;

use tenure::config::{path_of, paths};
use tenure::wire::{ConfigPathJson, ConfigPathsJson, SettingJson, SettingsJson};
use tenure::{Project, StoreUrl};

use crate::answer::{Answer, Failure};
use crate::args::{Config, Global};
use crate::context;
use crate::table::Table;

pub(crate) fn config(global: &Global, config: &Config) -> Result<Answer, Failure> {
    let project = context::find_project()?;
    // One that can't be understood is no reason to show nothing.
    let store = context::named_url(global).unwrap_or_default();
    match config {
        Config::Show => show(project.as_ref(), store.as_ref()),
        Config::Path => Ok(path(project.as_ref(), store.as_ref())),
    }
}

fn show(project: Option<&Project>, store: Option<&StoreUrl>) -> Result<Answer, Failure> {
    let config = match store {
        Some(store) => context::config_for(store, project)?,
        None => context::config(project)?,
    };
    let mut rows = Table::new(&["SETTING", "VALUE", "FROM", "DESCRIPTION"]);
    let settings = config.settings();
    for setting in &settings {
        rows.row([
            setting.key,
            &setting.value,
            &setting.source.to_string(),
            &format!("{} [env: {}]", setting.description, setting.env),
        ]);
    }
    let data = SettingsJson {
        settings: settings.iter().map(SettingJson::from).collect(),
    };
    Ok(Answer::new(data, rows.text()))
}

fn path(project: Option<&Project>, store: Option<&StoreUrl>) -> Answer {
    let home = std::env::home_dir();
    let of_store = store.and_then(|store| path_of(store, home.as_deref()));
    let own = paths(
        home.as_deref(),
        project.map(Project::settings_folder).as_deref(),
    );
    let paths: Vec<PathBuf> = of_store.into_iter().chain(own).collect();
    let lines = paths.iter().map(|path| {
        if path.exists() {
            path.display().to_string()
        } else {
            format!("{} (does not exist)", path.display())
        }
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let listed = paths.iter().map(|path| ConfigPathJson {
        path: path.display().to_string(),
        exists: path.exists(),
    });
    let data = ConfigPathsJson {
        paths: listed.collect(),
    };
    Answer::new(data, text)
}
