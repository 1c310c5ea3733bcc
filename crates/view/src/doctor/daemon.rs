//! The daemon: whether it stands aside for long, and which version it is.

use jiff::SignedDuration;
use tenure::{Project, StoreUrl};
use tenure_daemon::DaemonStatus;
use tenure_host::files::beneath::Refused;

use super::{Finding, Remedy};
use crate::overview::Overview;

/// How long a daemon may skip its cycles before that is a problem.
const PATIENCE: SignedDuration = SignedDuration::from_hours(1);

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn examine(project: &Project, overview: &Overview, found: &mut Vec<Finding>) {
    let state = match DaemonStatus::read(&tenure_daemon::lock::folder_of(project)) {
        Ok(DaemonStatus::Running(state)) => state,
        Ok(_) => return,
        Err(error) => {
            let mut finding = Finding::problem(
                "daemon_state",
                "it can't be told whether a daemon runs here".to_owned(),
            )
            .seen(error.to_string());
            if let Some(refused) = Refused::of(&error) {
                finding = finding.remedy(Remedy::Advice(refused.fix().to_owned()));
            }
            found.push(finding);
            return;
        }
    };
    let pid = state.process.pid;
    if let Some(skipped) = &state.skipped
        && overview.now.wall.duration_since(skipped.since) > PATIENCE
    {
        let lock = project.exclusive_lock_folders();
        let lock = lock
            .into_iter()
            .find(|folder| folder.join(tenure_lockfile::exclusive::FILE).exists());
        let mut finding = Finding::problem(
            "daemon_stands_aside",
            format!("the daemon (pid {pid}) has skipped its cycles for more than an hour"),
        )
        .seen(format!("since {}: {}", skipped.since, skipped.line))
        .means("Tasks are not shared and expired leases are not ended meanwhile.");
        if let Some(url) = lock.map(StoreUrl::Exclusive) {
            let (exclusive, key) = (url.clone(), tenure_core::Key::parse("database"));
            finding = finding.store(&exclusive);
            if let Ok(key) = key {
                finding = finding.remedy(Remedy::Force(url, key, None));
            }
        }
        found.push(finding);
    }
    if state.version != VERSION {
        found.push(
            Finding::problem(
                "version",
                format!("the daemon (pid {pid}) is another version than this command"),
            )
            .seen(format!("it is {}, this is {VERSION}", state.version))
            .means("What only the newer one knows is not done by the older one.")
            .remedy(Remedy::Command(
                "tenure daemon stop && tenure daemon start".into(),
            )),
        );
    }
    if let Some(why) = &state.log_error {
        found.push(
            Finding::problem(
                "daemon_log",
                format!("the daemon (pid {pid}) can't write its log"),
            )
            .seen(why)
            .means("What it does is not on record."),
        );
    }
}
