//! `tenure setup`

use tenure::wire::{ErrorCode, SetupJson};
use tenure_files::agents::tool::Tool;
use tenure_files::setup::target::{FileChange, SetupError, Target, root, shown};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::agents::{Setup, SetupTarget};
use crate::args::guard::GuardCommand;
use crate::commands::guard::guard;
use crate::program::find_program;
use crate::{context, terminal, words};

pub(crate) fn setup(global: &Global, setup: &Setup) -> Result<Answer, Failure> {
    let root = || root(&context::start()?, context::find_project);
    let target = match setup.what {
        SetupTarget::Git => return git(global, setup),
        SetupTarget::AgentsMd => {
            refuse_user(setup)?;
            Target::agents_md(&root()?)?
        }
        SetupTarget::Agent(tool) if setup.user => {
            Target::of_user(tool, std::env::home_dir().as_deref())?
        }
        SetupTarget::Agent(tool) => Target::of_agent(tool, &root()?)?,
    };
    let file = shown(&target.name).display().to_string();
    let change = target.change(setup.remove)?;
    let data = SetupJson {
        file: target.name.display().to_string(),
        changed: change.old != change.new,
        created: change.old.is_none() && change.new.is_some(),
        deleted: change.old.is_some() && change.new.is_none(),
        diff: change.diff.clone(),
    };
    if !data.changed {
        let text = match (setup.remove, &change.old) {
            (true, None) => format!("{file} does not exist; there is nothing to remove."),
            (true, Some(_)) => format!("{file} has nothing of tenure; nothing was changed."),
            (false, _) => format!("{file} is set up already; nothing was changed."),
        };
        return Ok(Answer::confirmed(global, data, text));
    }
    let difference = difference(&change, &file);
    if !setup.yes {
        let ask = match &change.new {
            Some(_) => format!("Write this to {file}?"),
            None => format!("Remove {file}?"),
        };
        confirm(global, setup, &difference, &ask, &data)?;
    }
    change.write()?;
    let what = match (&change.old, &change.new) {
        (None, _) => "Created",
        (_, None) => "Removed",
        _ => "Changed",
    };
    let mut lines = vec![format!("{what} {file}.")];
    if setup.yes {
        lines.insert(0, difference);
    }
    if let SetupTarget::Agent(tool) = setup.what
        && !setup.remove
    {
        lines.push(tool.afterwards().to_owned());
        if tool == Tool::Codex {
            lines.extend(sandbox_setting());
        }
        if find_program("tenure".as_ref()).is_err() {
            lines.push("But tenure is not on your PATH, where the agent looks for it: install it, or add its folder.".to_owned());
        }
    }
    Ok(Answer::confirmed(global, data, lines.join("\n")))
}

/// The change, as `diff -u` shows it.
fn difference(change: &FileChange<'_>, file: &str) -> String {
    let name = |text: &Option<String>| text.as_ref().map_or("/dev/null", |_| file);
    let (old, new) = (name(&change.old), name(&change.new));
    format!("--- {old}\n+++ {new}\n{}", change.diff.trim_end())
}

/// How Codex lets its commands take locks: its sandbox protects `.git`, where they are.
fn sandbox_setting() -> Option<String> {
    let project = context::find_project().ok()??;
    let state = project.state();
    let folder = state.to_str().filter(|_| state != project.folder())?;
    let folder = folder.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!(
        "Its sandbox protects .git, where the locks of this project are. Put this into ~/.codex/config.toml:\n  \
         [sandbox_workspace_write]\n  writable_roots = [\"{folder}\"]"
    ))
}

/// Refuses `--user` for what is about one repository.
fn refuse_user(setup: &Setup) -> Result<(), Failure> {
    if !setup.user {
        return Ok(());
    }
    let what = setup.what.name();
    let message = format!("{what} is about one repository: leave --user out");
    Err(Failure::new(ErrorCode::Usage, message))
}

/// Installs the hooks of the guard, or removes them.
fn git(global: &Global, setup: &Setup) -> Result<Answer, Failure> {
    refuse_user(setup)?;
    let (what, command) = if setup.remove {
        ("git will no longer run tenure", GuardCommand::Uninstall)
    } else {
        let what = "git will run tenure before commits, merges and pushes; the hooks of other tools stay, and run as before";
        (what, GuardCommand::Install)
    };
    if !setup.yes {
        let ask = "Change the hooks?";
        confirm(global, setup, what, ask, serde_json::json!({}))?;
    }
    guard(global, command)
}

/// Shows a change and asks.
fn confirm(
    global: &Global,
    setup: &Setup,
    shown: &str,
    ask: &str,
    details: impl serde::Serialize,
) -> Result<(), Failure> {
    let refused = |message: String| Failure::new(ErrorCode::PermissionDenied, message);
    match terminal::confirm(global, &format!("{shown}\n\n{ask}"))? {
        Some(true) => Ok(()),
        Some(false) => {
            Err(refused("nothing was changed".to_owned()).verbatim("Nothing was changed."))
        }
        None => {
            let again = again(global, setup);
            let message = format!("nothing was changed: to make this change, {again}");
            let text = format!("{shown}\n{message}");
            Err(refused(message).verbatim(text).details(details))
        }
    }
}

/// The same command with `--yes`.
fn again(global: &Global, setup: &Setup) -> String {
    let mut command = String::from("tenure");
    if let Some(dir) = &global.dir {
        command = format!("{command} -C {}", words::quoted_bytes(dir.as_os_str()));
    }
    command = format!("{command} setup {}", setup.what.name());
    for (given, option) in [(setup.remove, " --remove"), (setup.user, " --user")] {
        command.push_str(if given { option } else { "" });
    }
    format!("{command} --yes")
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        let code = match error {
            SetupError::Unsafe(error) => return error.into(),
            SetupError::NoRoot(_) => ErrorCode::NotInitialised,
            SetupError::NoHome => ErrorCode::Usage,
            SetupError::NoConfiguration { .. } | SetupError::NotUnderstood { .. } => {
                ErrorCode::BadConfig
            }
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}
