//! How far a clone is shared: [`status`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure::store::call_deadline;
use tenure::{Config, Project, Tenure};
use tenure_host::files::fault::explain;
use tenure_host::files::{atomic, beneath};

use super::history;
use super::outcome::{Failure, SyncOutcome};
use super::repository::{LOCAL, Repository, tracking};
use tenure_git::{Environment, Git, GitError};

/// The largest `sync.json` that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// How long a question to a remote may take that a person waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far a clone is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncStatus {
    /// The ref on the remotes.
    pub reference: String,
    /// How many tasks changed here since the last sync.
    pub unshared: usize,
    /// The remotes.
    pub remotes: Vec<RemoteStatus>,
    /// The last sync.
    pub last: LastSync,
}

/// How a clone and one of its remotes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteStatus {
    /// The remote's name.
    pub name: String,
    /// How many commits of ours it does not have.
    pub ahead: u64,
    /// How many of its commits are not merged here.
    pub behind: u64,
    /// Why it could not be asked: the numbers are those of the last time.
    pub error: Option<String>,
}

/// How the last sync went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastSync {
    /// When a sync last succeeded.
    pub at: Option<Timestamp>,
    /// Why the last one did not, if it did not.
    pub error: Option<String>,
    /// When that was.
    pub failed_at: Option<Timestamp>,
}

fn file_of(project: &Project) -> PathBuf {
    project.state().join("sync.json")
}

fn last(project: &Project) -> LastSync {
    let path = file_of(project);
    match beneath::read(&path, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => LastSync::default(),
        Err(error) => LastSync {
            error: Some(explain("read", &path, error).to_string()),
            ..LastSync::default()
        },
        // Cut off by a full disk: the next sync replaces it.
        Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
    }
}

/// Records how a sync ended. A failure to do so is none of the sync.
pub(super) fn record(project: &Project, tenure: &Tenure, outcome: &SyncOutcome) {
    let now = Some(tenure.clock().now().wall);
    let last = match outcome {
        SyncOutcome::Off => return,
        SyncOutcome::UpToDate | SyncOutcome::Synced(_) => LastSync {
            at: now,
            ..LastSync::default()
        },
        SyncOutcome::PutOff(why) | SyncOutcome::Failed(why) => LastSync {
            error: Some(why.clone()),
            failed_at: now,
            ..last(project)
        },
    };
    if let Ok(text) = serde_json::to_string(&last) {
        let temp = project.state().join("sync.json.new");
        let _ = atomic::replace(
            &file_of(project),
            &temp,
            text.as_bytes(),
            atomic::Durability::Crash,
        );
    }
}

/// How far a project is shared. Asks the remotes.
pub fn status(project: &Project, tenure: &Tenure) -> Result<SyncStatus, String> {
    read(project, tenure).map_err(|failure| failure.to_string())
}

fn read(project: &Project, tenure: &Tenure) -> Result<SyncStatus, Failure> {
    let settings = &tenure.config().sync;
    let unshared = tenure.tasks()?.sync_state(call_deadline())?.unshared.len();
    let mut remotes = Vec::new();
    if let Some(repository) = history::open(project, tenure)? {
        let names = repository
            .chosen(&settings.remote)
            .map_err(Failure::Other)?;
        for name in names {
            remotes.push(compare(&repository, name)?);
        }
    }
    Ok(SyncStatus {
        reference: settings.reference.clone(),
        unshared,
        remotes,
        last: last(project),
    })
}

fn compare(repository: &Repository<'_>, name: String) -> Result<RemoteStatus, Failure> {
    let (there, error) = match repository.fetch(&name, PATIENCE) {
        Ok(there) => (there, None),
        Err(error) => (true, Some(error.to_string())),
    };
    let tips = repository.resolve(&[LOCAL.to_owned(), tracking(&name)])?;
    let [local, remote] = tips.as_slice() else {
        return Err(Failure::Other("git did not answer".into()));
    };
    let remote = remote.as_ref().filter(|_| there);
    let count = |of: Option<&String>, without: Option<&String>| -> Result<u64, GitError> {
        let Some(of) = of else { return Ok(0) };
        let mut args = vec!["rev-list", "--count", of];
        let without = without.map(|without| format!("^{without}"));
        args.extend(without.as_deref());
        let lines = repository.git.lines(&args)?;
        Ok(lines
            .first()
            .and_then(|line| line.parse().ok())
            .unwrap_or(0))
    };
    Ok(RemoteStatus {
        ahead: count(local.as_ref(), remote)?,
        behind: count(remote, local.as_ref())?,
        name,
        error,
    })
}

/// The remotes that a sync of `folder` shares tasks with, or why it shares none. Does not ask them.
pub fn destination(folder: &Path, config: &Config) -> Result<Vec<String>, String> {
    if !config.sync.enabled {
        return Err("sync.enabled is false".to_owned());
    }
    let git = Git::at(folder, Environment::WithoutIndex);
    match Repository::find(git, &config.sync.reference) {
        Ok(Some(repository)) => repository.chosen(&config.sync.remote),
        Ok(None) => Err("this is not a git repository".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
