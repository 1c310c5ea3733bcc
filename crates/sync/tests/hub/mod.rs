//! A bare repository on disk, and clones of it with a project in each.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file is a crate of its own and uses its own part of this"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tenure::store::call_deadline;
use tenure::{Config, Project, Tenure};
use tenure_core::Priority;
use tenure_sync::{Direction, SyncEvent, SyncOutcome};
use tenure_tasks::{Edit, NewTask, Task, TaskQuery, TaskStore};

/// A bare repository and the clones of it.
pub struct Hub {
    pub dir: TempDir,
}

/// A clone with a project in it.
pub struct Clone {
    pub root: PathBuf,
    pub project: Project,
    pub tenure: Tenure,
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=User", "-c", "user.email=user@example.org"])
        .args(args)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

impl Hub {
    /// With one commit of the user's in it.
    pub fn new() -> Self {
        let hub = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        git(
            hub.dir.path(),
            &["init", "-q", "--bare", "-b", "main", "hub.git"],
        );
        let first = hub.dir.path().join("first");
        git(hub.dir.path(), &["clone", "-q", "hub.git", "first"]);
        std::fs::write(first.join("code.txt"), "one\n").unwrap();
        git(&first, &["add", "."]);
        git(&first, &["commit", "-q", "-m", "Begin"]);
        git(&first, &["push", "-q"]);
        hub
    }

    pub fn clone(&self, name: &str) -> Clone {
        git(self.dir.path(), &["clone", "-q", "hub.git", name]);
        let root = self.dir.path().join(name);
        for (key, value) in [("user.name", name), ("user.email", "clone@example.org")] {
            git(&root, &["config", key, value]);
        }
        Clone::at(root)
    }

    pub fn git(&self, args: &[&str]) -> String {
        git(&self.dir.path().join("hub.git"), args)
    }
}

impl Clone {
    pub fn at(root: PathBuf) -> Self {
        let (project, _) = Project::init(&root).unwrap();
        let tenure = Tenure::open_with(&project.store(), Config::default()).unwrap();
        Self {
            root,
            project,
            tenure,
        }
    }

    pub fn tasks(&self) -> &dyn TaskStore {
        &**self.tenure.tasks().unwrap()
    }

    pub fn sync(&self) -> SyncOutcome {
        self.sync_and_tell().0
    }

    /// Syncs, and returns the events as well.
    pub fn sync_and_tell(&self) -> (SyncOutcome, Vec<SyncEvent>) {
        let mut events = Vec::new();
        let outcome = tenure_sync::sync(
            &self.project,
            &self.tenure,
            Direction::Both,
            &|| false,
            &mut |event| events.push(event),
        );
        println!("{}: {outcome}", self.root.file_name().unwrap().display());
        (outcome, events)
    }

    pub fn synced(&self) {
        let outcome = self.sync();
        assert!(
            matches!(outcome, SyncOutcome::Synced(_) | SyncOutcome::UpToDate),
            "{outcome:?}"
        );
    }

    pub fn put_off(&self) -> String {
        match self.sync() {
            SyncOutcome::PutOff(why) => why,
            other => panic!("{other:?}"),
        }
    }

    pub fn add(&self, title: &str) -> String {
        let new = NewTask {
            title: title.into(),
            description: None,
            section: None,
            priority: Priority::default(),
            depends_on: Vec::new(),
        };
        self.tasks().add_task(&new, call_deadline()).unwrap().id
    }

    pub fn retitle(&self, id: &str, title: &str) {
        let edit = Edit {
            title: Some(title.into()),
            ..Edit::default()
        };
        self.tasks().edit_task(id, &edit, call_deadline()).unwrap();
    }

    pub fn all(&self) -> Vec<Task> {
        let mut tasks = self
            .tasks()
            .tasks(&TaskQuery::default(), call_deadline())
            .unwrap();
        tasks.sort_by(|one, other| one.id.cmp(&other.id));
        tasks
    }

    pub fn titles(&self) -> Vec<String> {
        let mut titles: Vec<String> = self.all().into_iter().map(|task| task.title).collect();
        titles.sort();
        titles
    }

    /// The files of the shared tasks and their contents.
    pub fn tree(&self) -> String {
        self.git(&["ls-tree", "-r", "refs/tenure/tasks"])
    }

    /// The commit with the shared tasks.
    pub fn tip(&self) -> String {
        self.git(&["rev-parse", "refs/tenure/tasks"])
    }

    /// The same project with another value of `sync.remote` or `sync.ref`.
    pub fn with_setting(self, key: &str, value: &str) -> Self {
        let mut config = Config::default();
        match key {
            "remote" => config.sync.remote = value.into(),
            "ref" => config.sync.reference = value.into(),
            other => panic!("{other}"),
        }
        let tenure = Tenure::open_with(&self.project.store(), config).unwrap();
        Self { tenure, ..self }
    }

    /// Everything in the repository that belongs to the user.
    pub fn of_the_user(&self) -> Vec<(String, Vec<u8>)> {
        let dir = PathBuf::from(self.git(&["rev-parse", "--absolute-git-dir"]));
        let common =
            PathBuf::from(self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]));
        let mut all = Vec::new();
        for path in [
            dir.join("HEAD"),
            dir.join("index"),
            dir.join("ORIG_HEAD"),
            dir.join("FETCH_HEAD"),
            common.join("config"),
            common.join("packed-refs"),
            common.join("shallow"),
        ] {
            all.push((
                path.display().to_string(),
                std::fs::read(&path).unwrap_or_default(),
            ));
        }
        let refs = self.git(&["for-each-ref"]);
        let mine = refs.lines().filter(|line| !line.contains("refs/tenure/"));
        all.push((
            "refs".into(),
            mine.collect::<Vec<_>>().join("\n").into_bytes(),
        ));
        all
    }

    pub fn git(&self, args: &[&str]) -> String {
        git(&self.root, args)
    }

    pub fn status(&self) -> String {
        self.git(&["status", "--porcelain", "-uall"])
    }
}
