//! The guard: whether git runs its hooks, if it was installed or the settings ask for it.

use tenure::Project;
use tenure::config::GuardSettings;
use tenure_guard::hooks;
use tenure_guard::records::Records;

use super::{Finding, Remedy};

pub(super) fn examine(project: &Project, settings: &GuardSettings, found: &mut Vec<Finding>) {
    // Without a repository there is nothing to guard.
    if let Ok(Some(lock)) = hooks::left_lock(project.root()) {
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
    let was_installed = Records::in_folder(project.state()).exist();
    let asked = [
        ("guard.strict", settings.strict),
        ("guard.require", settings.require),
    ];
    let asked = asked.iter().find(|(_, on)| *on).map(|(key, _)| *key);
    if !was_installed && asked.is_none() {
        return;
    }
    // Without a repository there is nothing to guard.
    let Ok(status) = hooks::status(project.root(), settings.strict) else {
        return;
    };
    let missing = status.hooks.iter().filter(|(_, path)| path.is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if missing.is_empty() {
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
        .means("A commit may change what another holder has reserved.")
        .remedy(Remedy::Command("tenure guard install".to_owned())),
    );
}
