//! Sharing the tasks of a project through git: [`sync`].
//!
//! The file `.tenure/tasks.jsonl` holds what is shared: tasks, sections, dependencies, and when each
//! field was changed. The database, the file, the local branch and the remote branch are four copies of
//! it. A sync merges them (see [`tenure_core::task::replica`]) and makes each copy that it can reach
//! equal to the result. Locks are never shared.
//!
//! # Invariants
//!
//! 1. A sync that is killed between any two steps loses nothing: every step only makes one of the copies
//!    equal to the merge of all, and the next sync starts from the beginning.
//! 2. The user's own work is not touched: no other file in the work tree, the index or a commit; no
//!    stash, no rebase, no forced push. Unpublished commits of the user stay unpublished: only the file
//!    is pushed, on top of the remote branch.
//! 3. One sync runs at a time in a project: a kernel lock on `.tenure/sync.lock`.
//! 4. While the user runs a rebase, a merge or another git command, or the index is locked, not even the
//!    file is written. The sync holds the lock of the index while it writes the file and moves the branch.
//!
//! # Lock order
//!
//! `sync.lock` first, then the lock of the index. The database is locked only for single transactions.
//!
//! # How branches are moved
//!
//! Usually both branches hold nothing but commits of syncs since they were last equal. Then the local
//! branch is fast-forwarded, or a merge commit joins both, and the branch is pushed. If there are
//! unpublished commits here, the local branch gets a commit with the file, and a second commit with the
//! same file goes on top of the remote branch. If the remote branch has commits that touch other files,
//! only that second commit is made: the user brings the local branch up to date with a pull.

mod git;
mod index;
mod lines;
mod outcome;
mod publish;
mod repository;
mod running;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use tenure::{Project, Tenure, call_deadline};
use tenure_core::task::Replica;
use tenure_core::task::{MergeSummary, TaskStore};
use tenure_host::files::atomic;
use tenure_host::flock::{FileLock, TryLock};

use self::git::{Git, GitError, Oid};
use self::outcome::Failure;
pub use self::outcome::{SyncEvent, SyncOutcome};
use self::publish::{Branches, Plan, Push};
use self::repository::{Fetched, Repository, RepositoryState, short};

/// The shared file, seen from the project's root.
const TASKS: &str = ".tenure/tasks.jsonl";

/// The first line of every commit that a sync makes.
const SUBJECT: &str = "Sync tasks";

/// How often a push is tried while other clones keep pushing first.
const ATTEMPTS: u32 = 8;

/// The pause between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(50);

/// Shares the tasks of a project. `stop` is asked between the steps and while git runs, and ends the sync
/// early; `report` gets each event as it happens.
pub fn sync(
    project: &Project,
    tenure: &Tenure,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(SyncEvent),
) -> SyncOutcome {
    if !tenure.config().sync.enabled {
        return SyncOutcome::Off;
    }
    // A fresh clone has the shared file, but maybe not the .gitignore that keeps the rest out of git.
    if let Err(error) = Project::init(project.root()) {
        return Failure::File("shared", error).into();
    }
    let _lock = match take_lock(project, stop, report) {
        Ok(Some(lock)) => lock,
        Ok(None) => return SyncOutcome::PutOff("it was stopped".into()),
        Err(error) => return Failure::File("locked", error).into(),
    };
    let sync = Sync {
        git: Git {
            root: project.root(),
            scratch: git::scratch_in(&project.folder(), tenure.clock()),
            clock: tenure.clock(),
            stop,
        },
        file: project.root().join(TASKS),
        tasks: match tenure.tasks() {
            Ok(tasks) => &**tasks,
            Err(error) => return SyncOutcome::Failed(error.to_string()),
        },
        merged: MergeSummary::default(),
    };
    sync.run(report).unwrap_or_else(SyncOutcome::from)
}

/// Waits until no other sync of this project runs; `None` if the caller asks to stop.
fn take_lock(
    project: &Project,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(SyncEvent),
) -> io::Result<Option<FileLock>> {
    let path = project.folder().join("sync.lock");
    let mut waiting = false;
    loop {
        match FileLock::try_lock(&path)? {
            TryLock::Locked(lock) => return Ok(Some(lock)),
            TryLock::Held | TryLock::Observed if stop() => return Ok(None),
            TryLock::Held | TryLock::Observed => {
                if !waiting {
                    report(SyncEvent::Waiting);
                    waiting = true;
                }
                std::thread::sleep(POLL);
            }
        }
    }
}

/// A running sync.
struct Sync<'a> {
    git: Git<'a>,
    file: PathBuf,
    tasks: &'a dyn TaskStore,
    /// What was merged into the database so far.
    merged: MergeSummary,
}

/// The result of one attempt.
enum Attempt {
    Finished(SyncOutcome),
    /// A branch moved meanwhile.
    Retry,
}

impl Sync<'_> {
    fn run(mut self, report: &mut dyn FnMut(SyncEvent)) -> Result<SyncOutcome, Failure> {
        let why = match Repository::find(&self.git) {
            Ok(RepositoryState::Ready(repository)) => return self.share(&repository, report),
            Ok(RepositoryState::Busy(outcome)) => return Ok(outcome),
            Ok(RepositoryState::None) => "this is not a git repository",
            Err(GitError::Missing) => "git is not installed",
            Err(other) => return Err(other.into()),
        };
        let incoming = match self.bytes()? {
            Some(file) => read(&file, TASKS)?,
            None => Replica::default(),
        };
        let Some(text) = self.exchange(&incoming)? else {
            return Ok(SyncOutcome::UpToDate);
        };
        if !self.has_content(&text) {
            self.write(&text)?;
        }
        Ok(SyncOutcome::PutOff(format!(
            "{why}: the tasks are in {TASKS}, but not shared with anyone"
        )))
    }

    fn share(
        &mut self,
        repository: &Repository,
        report: &mut dyn FnMut(SyncEvent),
    ) -> Result<SyncOutcome, Failure> {
        for attempt in 1..=ATTEMPTS {
            match self.attempt(repository, report)? {
                Attempt::Finished(outcome) => return Ok(outcome),
                Attempt::Retry => {
                    // A random pause, so that clones that collided do not collide again.
                    let chance = self.git.clock.now().ticks.subsec_nanos() % 100;
                    std::thread::sleep(Duration::from_millis(u64::from(chance * attempt)));
                }
            }
        }
        Ok(SyncOutcome::PutOff(format!(
            "other clones pushed at the same time, {ATTEMPTS} times in a row"
        )))
    }

    fn attempt(
        &mut self,
        repository: &Repository,
        report: &mut dyn FnMut(SyncEvent),
    ) -> Result<Attempt, Failure> {
        if let Some(busy) = repository.blocked_by() {
            return Ok(Attempt::Finished(busy));
        }
        let mut offline = None;
        let tip = match &repository.upstream {
            Some(upstream) => match Repository::fetch(&self.git, upstream)? {
                Fetched::Tip(tip) => tip,
                Fetched::Offline(why) => {
                    offline = Some(why);
                    self.git.resolve(&upstream.tracking())?
                }
            },
            None => None,
        };
        let head = self.git.resolve("HEAD^{commit}")?;
        let branches = Branches {
            head_blob: self.git.blob(head.as_ref(), &repository.path)?,
            tip_blob: self.git.blob(tip.as_ref(), &repository.path)?,
            head,
            tip,
        };
        if offline.is_none() && self.is_settled(&branches)? {
            return Ok(Attempt::Finished(SyncOutcome::UpToDate));
        }
        if let Some(busy) = repository.blocked_by() {
            return Ok(Attempt::Finished(busy));
        }
        if let (None, Some(tip)) = (&branches.head, &branches.tip)
            && self.git.others(None, tip, &repository.path)? > 0
        {
            return Ok(Attempt::Finished(SyncOutcome::PutOff(format!(
                "nothing is checked out on {} yet: git pull once",
                short(&repository.branch)
            ))));
        }
        // The remote branch, the local branch and the file, merged with the database.
        let incoming = self.incoming(&branches)?;
        let Some(text) = self.exchange(&incoming)? else {
            return Ok(Attempt::Finished(SyncOutcome::UpToDate));
        };
        let blob = self.git.write_blob(text.as_bytes())?;
        let plan = publish::plan(&self.git, repository, &branches, &blob)?;
        if let Some(missed) = self.apply(repository, &branches, &plan, &blob, &text)? {
            return Ok(missed);
        }
        let same = plan.target.is_none() || plan.target == branches.head;
        let head = plan.target.as_ref().or(branches.head.as_ref());
        let Some(upstream) = &repository.upstream else {
            return Ok(Attempt::Finished(
                self.without_upstream(repository, &branches, head, same)?,
            ));
        };
        if let Some(why) = offline {
            return Ok(Attempt::Finished(SyncOutcome::PutOff(format!(
                "{} can't be reached ({why}); new changes stay here until the next sync",
                upstream.remote
            ))));
        }
        let pushed = publish::push(&self.git, repository, upstream, &branches, &plan, &blob)?;
        let same = match pushed {
            Push::Outdated => return Ok(Attempt::Retry),
            Push::Refused(why) => return Ok(Attempt::Finished(SyncOutcome::PutOff(why))),
            Push::Unneeded => same,
            Push::Pushed => false,
        };
        self.report(&upstream.name(), report);
        let tip = self.git.resolve(&upstream.tracking())?;
        self.settle(head, tip.as_ref())?;
        Ok(Attempt::Finished(if same && self.merged.is_nothing() {
            SyncOutcome::UpToDate
        } else {
            SyncOutcome::Synced(format!("Synced with {}", upstream.name()))
        }))
    }

    /// Updates the file, the local branch and the index under the lock of the index. Returns how the
    /// attempt ended if that is not possible now.
    fn apply(
        &self,
        repository: &Repository,
        branches: &Branches,
        plan: &Plan,
        blob: &Oid,
        text: &str,
    ) -> Result<Option<Attempt>, Failure> {
        let Some(target) = &plan.target else {
            return Ok(None);
        };
        let stays = branches.head.as_ref() == Some(target);
        let is_written = self.has_content(text);
        if stays && is_written && repository.has_entry(&self.git, blob)? {
            return Ok(None);
        }
        let index = repository.index(&self.git);
        let Some(locked) = index.take() else {
            let why = "the index is locked by another git".into();
            return Ok(Some(Attempt::Finished(SyncOutcome::PutOff(why))));
        };
        if let Some(busy) = repository.interrupted_by() {
            return Ok(Some(Attempt::Finished(busy)));
        }
        if !is_written {
            self.write(text)?;
        }
        if !stays
            && !self
                .git
                .advance(&repository.branch, branches.head.as_ref(), target)?
        {
            return Ok(Some(Attempt::Retry));
        }
        locked.set(&self.git, &repository.path, blob)?;
        Ok(None)
    }

    /// How a sync ends if the local branch follows no remote branch.
    fn without_upstream(
        &self,
        repository: &Repository,
        branches: &Branches,
        head: Option<&Oid>,
        same: bool,
    ) -> Result<SyncOutcome, Failure> {
        let branch = short(&repository.branch);
        let remotes = self.git.run(&["remote"])?;
        if let Some(remote) = remotes.lines().next() {
            return Ok(SyncOutcome::PutOff(format!(
                "{branch} follows no branch of a remote: git push -u {remote} {branch} once; {TASKS} is committed here"
            )));
        }
        self.settle(head, branches.tip.as_ref())?;
        if same {
            return Ok(SyncOutcome::UpToDate);
        }
        Ok(SyncOutcome::Synced(format!(
            "Committed {TASKS} on {branch}; there is no remote, so it is not shared"
        )))
    }

    /// Reports what came in.
    fn report(&self, from: &str, report: &mut dyn FnMut(SyncEvent)) {
        if !self.merged.is_nothing() {
            let (from, changes) = (from.to_owned(), self.merged);
            report(SyncEvent::Merged { from, changes });
        }
        if self.merged.held > 0 {
            let tasks = self.merged.held;
            report(SyncEvent::Deferred { tasks });
        }
    }

    /// Whether nothing changed in any copy since the last complete sync.
    fn is_settled(&self, branches: &Branches) -> Result<bool, Failure> {
        let state = self.tasks.sync_state(call_deadline())?;
        Ok(state.note
            == self.fingerprint(state.changes, branches.head.as_ref(), branches.tip.as_ref()))
    }

    fn settle(&self, head: Option<&Oid>, tip: Option<&Oid>) -> Result<(), Failure> {
        // Deferred changes have to be tried again.
        if self.merged.held > 0 {
            return Ok(());
        }
        let state = self.tasks.sync_state(call_deadline())?;
        let fingerprint = self.fingerprint(state.changes, head, tip);
        if fingerprint != state.note {
            self.tasks.set_sync_note(&fingerprint, call_deadline())?;
        }
        Ok(())
    }

    fn fingerprint(&self, changes: u64, head: Option<&Oid>, tip: Option<&Oid>) -> String {
        let show = |oid: Option<&Oid>| oid.map_or_else(|| "-".to_owned(), ToString::to_string);
        let file = fs::metadata(&self.file).map_or_else(
            |_| "-".to_owned(),
            |file| {
                format!(
                    "{}.{}.{}.{}",
                    file.ino(),
                    file.len(),
                    file.mtime(),
                    file.mtime_nsec()
                )
            },
        );
        format!("{changes} {file} {} {}", show(head), show(tip))
    }

    /// Merges incoming changes with the database. Returns the new text of the file, or `None` if there is
    /// nothing to share.
    fn exchange(&mut self, incoming: &Replica) -> Result<Option<String>, Failure> {
        let (both, merged) = self.tasks.merge(incoming, call_deadline())?;
        let sum = &mut self.merged;
        sum.sections += merged.sections;
        sum.added += merged.added;
        sum.changed += merged.changed;
        sum.deleted += merged.deleted;
        sum.circles += merged.circles;
        sum.held = merged.held;
        if both == Replica::default() && !self.file.exists() {
            return Ok(None);
        }
        let text = lines::print(&both);
        text.map(Some)
            .map_err(|error| Failure::File("written", io::Error::other(error)))
    }

    /// Whether the file has this content.
    fn has_content(&self, text: &str) -> bool {
        fs::read(&self.file).is_ok_and(|there| there == text.as_bytes())
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let aside = self.file.with_file_name("tasks.jsonl.new");
        atomic::replace(&self.file, &aside, text.as_bytes(), atomic::Sync::ToDisk)
            .map_err(|error| Failure::File("written", error))
    }

    /// The local branch, the remote branch and the file, merged. Usually two of them are equal.
    fn incoming(&self, branches: &Branches) -> Result<Replica, Failure> {
        let head = match &branches.head_blob {
            Some(blob) => Some(self.git.content(blob)?),
            None => None,
        };
        let file = self.bytes()?;
        let mut incoming = match &head {
            Some(head) => read(head, &format!("{TASKS} of the last commit"))?,
            None => Replica::default(),
        };
        if let Some(file) = file.filter(|file| Some(file) != head.as_ref()) {
            incoming.merge(read(&file, TASKS)?);
        }
        if let Some(blob) = &branches.tip_blob
            && branches.head_blob.as_ref() != Some(blob)
        {
            let tip = self.git.content(blob)?;
            incoming.merge(read(&tip, &format!("{TASKS} of the remote"))?);
        }
        Ok(incoming)
    }

    fn bytes(&self) -> Result<Option<Vec<u8>>, Failure> {
        match fs::read(&self.file) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::File("read", error)),
        }
    }
}

fn read(bytes: &[u8], place: &str) -> Result<Replica, Failure> {
    let bad = |why: String| Failure::Unreadable(place.to_owned(), why);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text".into()))?;
    lines::parse(text).map_err(|error| bad(error.to_string()))
}
