//! `tenure setup`

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tenure::protocols::board::save::{Replaces, SaveError, SaveStep, Saved, save, sweep};
use tenure::text::visible;
use tenure::wire::{ErrorCode, SetupJson};
use tenure_files::agents::tool::Tool;
use tenure_files::setup::{diff, merge, section};
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault::explain;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::agents::{Setup, SetupTarget};
use crate::args::guard::GuardCommand;
use crate::commands::guard::guard;
use crate::{context, words};

/// A larger file is no configuration.
const LARGEST: u64 = 4 * 1024 * 1024;

pub(crate) fn setup(global: &Global, setup: &Setup) -> Result<Answer, Failure> {
    if setup.what == SetupTarget::Git {
        return git(global, setup);
    }
    let target = Target::find(setup)?;
    let old = target.read()?;
    let new = match (setup.what.tool(), setup.remove, old.as_deref()) {
        (_, true, None) => None,
        (Some(tool), false, old) => {
            Some(merge::add(tool, old).map_err(|why| target.not_understood(&why))?)
        }
        (Some(tool), true, Some(old)) => {
            merge::remove(tool, old).map_err(|why| target.not_understood(&why))?
        }
        (None, false, old) => Some(section::add(old).map_err(|why| target.not_understood(&why))?),
        (None, true, Some(old)) => {
            section::remove(old).map_err(|why| target.not_understood(&why))?
        }
    };
    let change = Change {
        target: &target,
        diff: diff::unified(
            old.as_deref().unwrap_or_default(),
            new.as_deref().unwrap_or_default(),
        ),
        old,
        new,
    };
    let data = change.data();
    if change.old == change.new {
        let text = match (setup.remove, &change.old) {
            (true, None) => format!(
                "{} does not exist; there is nothing to remove.",
                target.shown()
            ),
            (true, Some(_)) => format!(
                "{} has nothing of tenure; nothing was changed.",
                target.shown()
            ),
            (false, _) => format!("{} is set up already; nothing was changed.", target.shown()),
        };
        return Ok(Answer::new(
            data,
            if global.quiet { String::new() } else { text },
        ));
    }
    if !setup.yes {
        change.confirm(global, setup)?;
    }
    change.write()?;
    let mut text = String::new();
    if !global.quiet {
        text = change.done();
        if setup.yes {
            text = format!("{}\n{text}", change.shown());
        }
        if let Some(tool) = setup.what.tool().filter(|_| !setup.remove) {
            text = format!("{text}\n{}", tool.afterwards());
            if tool == Tool::Codex
                && let Some(setting) = sandbox_setting()
            {
                text = format!("{text}\n{setting}");
            }
            if !is_on_path() {
                text.push_str(
                    "\nBut tenure is not on your PATH, where the agent looks for it: install it, or add its folder.",
                );
            }
        }
    }
    Ok(Answer::new(data, text))
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

/// Installs the hooks of the guard, or removes them.
fn git(global: &Global, setup: &Setup) -> Result<Answer, Failure> {
    if setup.user {
        let why = "git is about one repository: leave --user out";
        return Err(Failure::new(ErrorCode::Usage, why));
    }
    let (what, command) = if setup.remove {
        ("git will no longer run tenure", GuardCommand::Uninstall)
    } else {
        let what = "git will run tenure before commits, merges and pushes; the hooks of other tools stay, and run as before";
        (what, GuardCommand::Install)
    };
    if !setup.yes {
        confirm(
            global,
            setup,
            what,
            "Change the hooks?",
            serde_json::Value::Null,
        )?;
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
    let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if global.json || !can_ask {
        let again = again(global, setup);
        let message = format!("nothing was changed: to make this change, {again}");
        let text = format!("{shown}\n{message}");
        let failure = Failure::new(ErrorCode::PermissionDenied, message).verbatim(text);
        return Err(failure.details(details));
    }
    let mut err = anstream::stderr();
    err.write_all(format!("{}\n\n{ask} [y/N] ", visible(shown)).as_bytes())?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(());
    }
    let message = "nothing was changed";
    Err(Failure::new(ErrorCode::PermissionDenied, message).verbatim("Nothing was changed."))
}

/// The file to change.
struct Target {
    /// As the caller knows it.
    name: PathBuf,
    /// What it is in the end: a link is followed, not replaced.
    path: PathBuf,
}

impl Target {
    fn find(setup: &Setup) -> Result<Self, Failure> {
        let folder = folder(setup)?;
        let name = setup.what.tool().map_or_else(
            || {
                let (agents, claude) = (folder.join("AGENTS.md"), folder.join("CLAUDE.md"));
                let is_there = |file: &Path| file.symlink_metadata().is_ok();
                if is_there(&claude) && !is_there(&agents) {
                    claude
                } else {
                    agents
                }
            },
            |tool| folder.join(tool.file()),
        );
        let path = match name.symlink_metadata() {
            Ok(_) => beneath::resolve(&name).map_err(|error| unsafe_target(&name, error))?,
            Err(_) => match beneath::resolve_file(&name) {
                Err(error) if Refused::of(&error).is_some() => {
                    return Err(unsafe_target(&name, error));
                }
                found => found.unwrap_or_else(|_| name.clone()),
            },
        };
        Ok(Self { name, path })
    }

    fn shown(&self) -> std::path::Display<'_> {
        let here = std::env::current_dir().ok();
        let short = here.and_then(|here| self.name.strip_prefix(here).ok());
        short.unwrap_or(&self.name).display()
    }

    fn read(&self) -> Result<Option<String>, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                ErrorCode::Io,
                format!("{} can't be read ({error})", self.shown()),
            )
        };
        let (open, file) = match beneath::open(&self.path, OFlags::RDONLY, Mode::empty())
            .and_then(|open| open.metadata().map(|known| (open, known)))
        {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if !file.is_file() || file.len() > LARGEST {
            let why = if file.is_file() {
                "is larger than 4 MB"
            } else {
                "is no regular file"
            };
            let message = format!("{} {why}: it was left alone", self.shown());
            return Err(Failure::new(ErrorCode::BadConfig, message));
        }
        let mut bytes = Vec::new();
        open.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| self.not_understood(&"it is not UTF-8 text"))
    }

    fn not_understood(&self, why: &dyn std::fmt::Display) -> Failure {
        let message = format!(
            "{} can't be changed safely: {why}\n  it was left alone; correct it by hand and try again",
            self.shown()
        );
        Failure::new(ErrorCode::BadConfig, message)
    }
}

/// A link that leads nowhere, or that another user may have put there.
fn unsafe_target(name: &Path, error: std::io::Error) -> Failure {
    if Refused::of(&error).is_some() {
        return explain("opened", name, error).into();
    }
    let message = format!(
        "{} leads nowhere ({error}): remove or repair it",
        name.display()
    );
    Failure::new(ErrorCode::Io, message)
}

/// The folder that the file is in.
fn folder(setup: &Setup) -> Result<PathBuf, Failure> {
    let Some(tool) = setup.what.tool() else {
        if setup.user {
            let why = "agents-md is about one repository: leave --user out";
            return Err(Failure::new(ErrorCode::Usage, why));
        }
        return root();
    };
    if !setup.user {
        return Ok(root()?.join(tool.folder()));
    }
    let named = tool.folder_variable().and_then(std::env::var_os);
    if let Some(folder) = named.filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    let home = context::home()
        .ok_or_else(|| Failure::new(ErrorCode::Usage, "your home folder is not known: set HOME"))?;
    Ok(home.join(tool.folder()))
}

/// The root of the repository, or of the project if there is no repository. In a linked worktree, it is that
/// worktree's: the file belongs to its branch.
fn root() -> Result<PathBuf, Failure> {
    let start = context::start()?;
    let repository = start
        .ancestors()
        .find(|folder| folder.join(".git").symlink_metadata().is_ok());
    if let Some(root) = repository {
        return Ok(root.to_owned());
    }
    if let Some(project) = context::find_project()? {
        return Ok(project.root().to_owned());
    }
    let message = format!(
        "{} is in no git repository and no project: change to its root, or set up your user with --user",
        start.display()
    );
    Err(Failure::new(ErrorCode::NotInitialised, message))
}

/// Whether an agent finds tenure.
fn is_on_path() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("tenure").is_file())
}

/// What the command does to the file.
struct Change<'a> {
    target: &'a Target,
    old: Option<String>,
    new: Option<String>,
    diff: String,
}

impl Change<'_> {
    fn data(&self) -> SetupJson {
        SetupJson {
            file: self.target.name.display().to_string(),
            changed: self.old != self.new,
            created: self.old.is_none() && self.new.is_some(),
            deleted: self.old.is_some() && self.new.is_none(),
            diff: self.diff.clone(),
        }
    }

    /// The change, as `diff -u` shows it.
    fn shown(&self) -> String {
        let none = "/dev/null".to_owned();
        let name = self.target.shown().to_string();
        let old = self.old.as_ref().map_or(none.clone(), |_| name.clone());
        let new = self.new.as_ref().map_or(none, |_| name);
        format!("--- {old}\n+++ {new}\n{}", self.diff.trim_end())
    }

    /// Shows the change and asks.
    fn confirm(&self, global: &Global, setup: &Setup) -> Result<(), Failure> {
        let file = self.target.shown();
        let ask = match &self.new {
            Some(_) => format!("Write this to {file}?"),
            None => format!("Remove {file}?"),
        };
        confirm(global, setup, &self.shown(), &ask, self.data())
    }

    fn write(&self) -> Result<(), Failure> {
        let path = &self.target.path;
        let changed = || {
            let message = format!(
                "{} was changed by another program meanwhile: nothing was written; try again",
                self.target.shown()
            );
            Failure::new(ErrorCode::Io, message)
        };
        let is_same = || self.target.read().is_ok_and(|now| now == self.old);
        let Some(new) = &self.new else {
            if !is_same() {
                return Err(changed());
            }
            std::fs::remove_file(path)?;
            // It was made for this file. A folder with other files in it stays.
            if let Some(folder) = path.parent().filter(|_| self.target.is_in_own_folder()) {
                let _ = std::fs::remove_dir(folder);
            }
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                let message = format!("{} can't be created ({error})", folder.display());
                Failure::new(ErrorCode::Io, message)
            })?;
        }
        let old = self
            .old
            .as_ref()
            .map(|old| Replaces::Exactly(old.as_bytes()));
        let saved = save(
            path,
            new.as_bytes(),
            old.unwrap_or(Replaces::Anything),
            |step| match step {
                SaveStep::Write => Ok(()),
                SaveStep::Rename => is_same().then_some(()).ok_or_else(changed),
            },
        );
        let saved = saved.map_err(|error| match error {
            SaveError::Stopped(failure) => failure,
            error @ SaveError::Io { .. } => Failure::new(ErrorCode::Io, error.to_string()),
        })?;
        if saved == Saved::Changed {
            return Err(changed());
        }
        // What a killed setup left behind.
        let _ = path.parent().map(sweep);
        Ok(())
    }

    fn done(&self) -> String {
        let what = match (&self.old, &self.new) {
            (None, _) => "Created",
            (_, None) => "Removed",
            _ => "Changed",
        };
        format!("{what} {}.", self.target.shown())
    }
}

impl Target {
    /// Whether the file is in the folder of an agent, such as `.claude`.
    fn is_in_own_folder(&self) -> bool {
        let folder = self.path.parent().and_then(Path::file_name);
        Tool::ALL
            .iter()
            .any(|tool| folder.is_some_and(|folder| folder == tool.folder()))
    }
}

/// The same command with `--yes`.
fn again(global: &Global, setup: &Setup) -> String {
    let mut command = String::from("tenure");
    if let Some(dir) = &global.dir {
        command = format!("{command} -C {}", words::quoted_bytes(dir.as_os_str()));
    }
    command = format!("{command} setup {}", SetupTarget::name(setup.what));
    for (given, option) in [(setup.remove, " --remove"), (setup.user, " --user")] {
        command.push_str(if given { option } else { "" });
    }
    format!("{command} --yes")
}
