//! `tenure config`: the settings in effect and which layer made each.

use tenure::Project;
use tenure::wire::{ConfigPathJson, ConfigPathsJson, SettingJson, SettingsJson};

use crate::answer::{Answer, Failure};
use crate::args::Config;
use crate::context;
use crate::table::Table;

pub(crate) fn config(config: &Config) -> Result<Answer, Failure> {
    let project = context::find_project()?;
    match config {
        Config::Show => show(project.as_ref()),
        Config::Path => Ok(path(project.as_ref())),
    }
}

fn show(project: Option<&Project>) -> Result<Answer, Failure> {
    let config = context::config(project)?;
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

fn path(project: Option<&Project>) -> Answer {
    let home = context::home();
    let paths = tenure::config::paths(
        home.as_deref(),
        project.map(Project::settings_folder).as_deref(),
    );
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
