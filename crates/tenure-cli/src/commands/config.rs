//! `tenure config`: the settings in effect and which layer made each.

use serde_json::json;
use tenure::Project;

use crate::answer::{Answer, Failure};
use crate::args::Config;
use crate::context;
use crate::table::Table;

pub(crate) fn config(config: &Config) -> Result<Answer, Failure> {
    let project = Project::find(&context::start()?, context::home().as_deref());
    match config {
        Config::Show => show(project.as_ref()),
        Config::Path => Ok(path(project.as_ref())),
    }
}

fn show(project: Option<&Project>) -> Result<Answer, Failure> {
    let config = context::config(project)?;
    let mut rows = Table::new(&["SETTING", "VALUE", "FROM", "ENVIRONMENT", "DESCRIPTION"]);
    for setting in config.settings() {
        rows.row([
            setting.key,
            &setting.value,
            &setting.source.to_string(),
            &setting.env,
            setting.description,
        ]);
    }
    let data = config
        .settings()
        .iter()
        .map(|setting| {
            json!({
                "key": setting.key,
                "value": setting.value,
                "default": setting.default,
                "source": setting.source.to_string(),
                "environment": setting.env,
                "description": setting.description,
            })
        })
        .collect::<Vec<_>>();
    Ok(Answer::new(json!({ "settings": data }), rows.text()))
}

fn path(project: Option<&Project>) -> Answer {
    let home = context::home();
    let paths = tenure::config::paths(home.as_deref(), project.map(Project::folder).as_deref());
    let lines = paths.iter().map(|path| {
        if path.exists() {
            path.display().to_string()
        } else {
            format!("{} (does not exist)", path.display())
        }
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let data = paths
        .iter()
        .map(|path| json!({ "path": path.display().to_string(), "exists": path.exists() }))
        .collect::<Vec<_>>();
    Answer::new(json!({ "paths": data }), text)
}
