//! The guard: whether git runs its hooks, if it was installed or the settings ask for it.

use tenure::Project;
use tenure::config::GuardSettings;
use tenure_files::guard::hooks::{self, HookError};
use tenure_files::guard::records::Records;

use super::{Finding, Remedy};

const MEANING: &str = "A commit may change what another holder has reserved.";

pub(super) fn examine(project: &Project, settings: &GuardSettings, found: &mut Vec<Finding>) {
    // Records that can't be looked at are there.
    let was_installed = Records::in_folder(project.state()).exist();
    let was_installed = was_installed.unwrap_or(true);
    let asked = [
        ("guard.strict", settings.strict),
        ("guard.require", settings.require),
    ];
    let asked = asked.iter().find(|(_, on)| *on).map(|(key, _)| *key);
    let is_wanted = was_installed || asked.is_some();
    let looked = hooks::left_lock(project.root())
        .and_then(|left| Ok((left, hooks::status(project.root(), settings.strict)?)));
    let (left, status) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            // Without a repository there is nothing to guard. Where the guard was installed, there was one.
            let is_none = matches!(error, HookError::NoRepository(_)) && !was_installed;
            if is_wanted && !is_none {
                let what = "it can't be told whether git runs the guard's hooks";
                let finding = Finding::problem("guard_unknown", what).seen(error.to_string());
                found.push(finding.means(MEANING));
            }
            return;
        }
    };
    if let Some(lock) = left {
        found.push(
            Finding::problem(
                "guard_lock_left",
                format!("a killed tenure left {}", lock.display()),
            )
            .seen("it is the file that tenure guard install or uninstall was writing, and no process has it open")
            .means("Git can't change its configuration.")
            .remedy(Remedy::DropGitLock(project.root().to_owned())),
        );
    }
    let missing = status.hooks.iter().filter(|(_, path)| path.is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if missing.is_empty() || !is_wanted {
        return;
    }
    let why = match asked {
        Some(key) => format!("{key} is on"),
        None => "it was installed here, and another tool has replaced its hooks".to_owned(),
    };
    found.push(
        Finding::problem(
            "guard_not_installed",
            format!("git does not run the guard's hooks: {}", missing.join(", ")),
        )
        .seen(why)
        .seen(format!("git takes hooks from {}", status.folder.display()))
        .means(MEANING)
        .remedy(Remedy::Command("tenure guard install".to_owned())),
    );
}
