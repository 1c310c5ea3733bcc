//! Sharing the tasks of a project through git: [`sync`].
//!
//! What clones share (tasks, sections, dependencies, and when each field was changed) is in the commits of
//! `refs/tenure/tasks`, one small file for each task. The database, that ref and the ref of each remote are
//! copies of it. A sync merges them (see [`tenure_tasks::replica`]) and makes each copy that it can
//! reach equal to the result. Locks are never shared.
//!
//! | module | what it holds |
//! |---|---|
//! | `repository` | remotes, refs, and the files of a commit |
//! | `lines` | tasks as files |
//! | `history` | the log of the ref, and how tasks are restored from it |
//! | `status` | how far this clone is shared |
//! | `outcome` | what a sync reports |
//!
//! # Invariants
//!
//! 1. A sync writes objects and refs below `refs/tenure/`, and nothing else: no work tree, no index, no
//!    HEAD, no branch, no stash, no setting of the user. It reads none of them either, so it works in every
//!    repository and beside every other git.
//! 2. The database remembers the commit that it was last equal to. The tasks that changed since, here
//!    ([`SyncState::unshared`](tenure_tasks::SyncState::unshared)) or between that commit and a ref, are all
//!    that a sync reads. Every task that it reads is merged from all copies, so the history of the refs does
//!    not matter: one that was moved back, deleted or replaced is filled again.
//! 3. A sync that is killed between any two steps loses nothing: every step only makes one copy equal to
//!    the merge of all, and the next sync starts from the beginning.
//! 4. One sync runs at a time in a project: a kernel lock on `.tenure/sync.lock`. The projects of several
//!    work trees share the ref; whichever moves it second merges again.

mod history;
mod lines;
mod outcome;
mod repository;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::store::call_deadline;
use tenure::{Project, Tenure};
use tenure_git::{Environment, Git, GitError, words};
use tenure_host::files::beneath;
use tenure_host::flock::{FileLock, TryLock};
use tenure_host::identity;
use tenure_tasks::{MergeSummary, Replica, TaskStore};

pub use self::history::{Restore, log, plan_restore};
pub use self::outcome::{SyncError, SyncEvent, SyncOutcome};
use self::repository::{LOCAL, Oid, Pushed, TaskRepository, Texts, tracking};
pub use self::status::{destination, status};

/// The file in which clones shared tasks earlier, seen from the project's root.
const LEGACY: &str = ".tenure/tasks.jsonl";

/// The largest such file that is read, in bytes.
const LARGEST_LEGACY: u64 = 256 << 20;

/// How often a sync is tried while other clones keep pushing first.
const ATTEMPTS: u32 = 8;

/// The pause between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(50);

/// What a sync does on the remotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It fetches and pushes.
    Both,
    /// It fetches only.
    Fetch,
}

/// Shares the tasks of a project. `stop` is asked between the steps and while git runs, and ends the sync
/// early; `report` gets each event as it happens.
pub fn sync(
    project: &Project,
    tenure: &Tenure,
    direction: Direction,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(SyncEvent),
) -> SyncOutcome {
    if !tenure.config().sync.enabled {
        return SyncOutcome::Off;
    }
    let outcome = run(project, tenure, direction, stop, report).unwrap_or_else(SyncOutcome::from);
    status::record(project, tenure, &outcome);
    outcome
}

fn run(
    project: &Project,
    tenure: &Tenure,
    direction: Direction,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(SyncEvent),
) -> Result<SyncOutcome, SyncError> {
    // A fresh clone may have the folder, but not the .gitignore that keeps it out of git.
    project.ignore().map_err(SyncError::Folder)?;
    project.create_state().map_err(SyncError::Folder)?;
    let Some(_lock) = take_lock(project, stop, report).map_err(SyncError::Folder)? else {
        return Err(GitError::Stopped.into());
    };
    let tasks = &**tenure.tasks()?;
    let settings = &tenure.config().sync;
    let root = project.root();
    let git = Git::at(root, Environment::WithoutIndex).until(stop);
    let why = match TaskRepository::find(git, &settings.reference) {
        Ok(Some(repository)) => {
            if project.has_earlier_ignore() && !repository.has_committed(".tenure/.gitignore")? {
                project.renew_ignore().map_err(SyncError::Folder)?;
            }
            let remotes = match repository.chosen(&settings.remote) {
                Ok(remotes) => remotes,
                Err(why) => return Ok(SyncOutcome::PutOff(why)),
            };
            let sync = RunningSync {
                repository,
                remotes,
                direction,
                legacy: root.join(LEGACY),
                tenure,
                tasks,
                merged: MergeSummary::default(),
                moved: false,
            };
            return sync.run(report);
        }
        Ok(None) => "this is not a git repository",
        Err(GitError::Missing) => "git is not installed",
        Err(other) => return Err(other.into()),
    };
    if tasks.sync_state(call_deadline())?.unshared.is_empty() {
        return Ok(SyncOutcome::UpToDate);
    }
    Ok(SyncOutcome::PutOff(format!(
        "{why}, so the tasks are not shared with anyone (sync.enabled: false turns sync off)"
    )))
}

/// Waits until no other sync of this project runs; `None` if the caller asks to stop.
fn take_lock(
    project: &Project,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(SyncEvent),
) -> io::Result<Option<FileLock>> {
    let path = project.state().join("sync.lock");
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

/// What the database remembers of the last sync.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SyncNote {
    /// The commit that holds all that was shared then.
    commit: Oid,
    /// Which version of [`LEGACY`] was merged.
    legacy: Option<String>,
}

/// A running sync.
struct RunningSync<'a> {
    repository: TaskRepository<'a>,
    remotes: Vec<String>,
    direction: Direction,
    legacy: PathBuf,
    tenure: &'a Tenure,
    tasks: &'a dyn TaskStore,
    /// What was merged into the database so far.
    merged: MergeSummary,
    /// Whether [`LEGACY`] was merged.
    moved: bool,
}

/// The result of one attempt.
enum SyncAttempt {
    Finished(SyncOutcome),
    /// The remote's ref moved or was locked meanwhile: git's words.
    Retry(String),
}

/// What a remote has.
struct Remote<'a> {
    name: &'a str,
    tip: Option<Oid>,
    /// Why it can't be reached.
    offline: Option<String>,
}

impl RunningSync<'_> {
    fn run(mut self, report: &mut dyn FnMut(SyncEvent)) -> Result<SyncOutcome, SyncError> {
        let mut outrun = String::new();
        for attempt in 1..=ATTEMPTS {
            match self.attempt() {
                Ok(SyncAttempt::Finished(outcome)) => {
                    self.report(report);
                    return Ok(outcome);
                }
                Ok(SyncAttempt::Retry(words)) => outrun = words,
                Err(SyncError::Git(error))
                    if attempt < ATTEMPTS && repository::is_outrun(&error) => {}
                Err(other) => return Err(other),
            }
            // A random pause, so that clones that collided do not collide again.
            let chance = self.tenure.clock().now().ticks.subsec_nanos() % 100;
            std::thread::sleep(Duration::from_millis(u64::from(chance * attempt)));
        }
        Ok(SyncOutcome::PutOff(format!(
            "other clones pushed at the same time, {ATTEMPTS} times in a row ({outrun})"
        )))
    }

    fn attempt(&mut self) -> Result<SyncAttempt, SyncError> {
        let names = self.remotes.clone();
        let mut remotes = self.fetch(&names)?;
        let mut state = self.tasks.sync_state(call_deadline())?;
        let note: Option<SyncNote> = serde_json::from_str(&state.note).ok();
        let mut wanted = vec![LOCAL.to_owned()];
        wanted.extend(note.iter().map(|note| note.commit.clone()));
        let found = self.repository.resolve(&wanted)?;
        let local = found.first().cloned().flatten();
        let settled = found.get(1).cloned().flatten();
        if settled.is_none() && !state.note.is_empty() {
            // The commit is gone, or the note is of another kind: whatever was shared, share it again.
            self.tasks.unsettle(call_deadline())?;
            state = self.tasks.sync_state(call_deadline())?;
        }
        let legacy = fingerprint(&self.legacy);
        let has_legacy = legacy.is_some() && legacy != note.and_then(|note| note.legacy);
        let mut tips: Vec<Oid> = Vec::new();
        let of_remotes = remotes.iter().filter_map(|remote| remote.tip.clone());
        for tip in local.iter().cloned().chain(of_remotes) {
            if !tips.contains(&tip) {
                tips.push(tip);
            }
        }
        let mut target = local.clone();
        let is_settled = settled == local && tips.iter().all(|tip| Some(tip) == settled.as_ref());
        if !is_settled || !state.unshared.is_empty() || has_legacy {
            let mut texts = Texts::new();
            let mut incoming =
                self.incoming(settled.as_ref(), &tips, &state.unshared, &mut texts)?;
            if has_legacy {
                self.add_legacy(&mut incoming)?;
            }
            let shared = self.merge(&incoming)?;
            if shared != Replica::default() || !tips.is_empty() {
                let new = self.commit(local.as_ref(), &tips, &shared, &mut texts)?;
                let note = SyncNote {
                    commit: new.clone(),
                    legacy: legacy.clone(),
                };
                let note = serde_json::to_string(&note).map_err(io::Error::other);
                let note = note.map_err(SyncError::Folder)?;
                self.tasks.settle(&note, state.changes, call_deadline())?;
                target = Some(new);
            }
            self.moved |= has_legacy;
        }
        let Some(target) = target else {
            return Ok(SyncAttempt::Finished(self.ended(
                &remotes,
                Vec::new(),
                false,
            )));
        };
        let mut refusals = Vec::new();
        let mut pushed = false;
        for remote in &mut remotes {
            if self.direction == Direction::Fetch
                || remote.offline.is_some()
                || remote.tip.as_ref() == Some(&target)
            {
                continue;
            }
            match self.repository.push(remote.name, &target) {
                Ok(Pushed::Done) => {
                    self.repository.track(remote.name, &target)?;
                    pushed = true;
                }
                Ok(Pushed::Outrun(words)) => return Ok(SyncAttempt::Retry(words)),
                Err(GitError::Stopped) => return Err(GitError::Stopped.into()),
                Err(GitError::Refused { stderr, .. }) => {
                    refusals.push(self.refusal(remote.name, &words(&stderr)));
                }
                Err(other) => refusals.push(self.refusal(remote.name, &other.to_string())),
            }
        }
        let did = pushed || local.as_ref() != Some(&target);
        Ok(SyncAttempt::Finished(self.ended(&remotes, refusals, did)))
    }

    fn refusal(&self, remote: &str, why: &str) -> String {
        let reference = self.repository.reference;
        let help = if reference.starts_with("refs/heads/") {
            ""
        } else {
            ". If it refuses such refs, set sync.ref to refs/heads/tenure"
        };
        format!(
            "{remote} did not accept {reference} ({why}){help}; new changes stay here until the next sync"
        )
    }

    /// How a sync ends that got to its end.
    fn ended(&self, remotes: &[Remote<'_>], mut problems: Vec<String>, did: bool) -> SyncOutcome {
        for remote in remotes {
            if let Some(why) = &remote.offline {
                problems.push(format!(
                    "{} can't be reached ({why}); new changes stay here until the next sync",
                    remote.name
                ));
            }
        }
        if !problems.is_empty() {
            return SyncOutcome::PutOff(problems.join(". "));
        }
        if !did && self.merged.is_nothing() {
            return SyncOutcome::UpToDate;
        }
        SyncOutcome::Synced(if self.remotes.is_empty() {
            format!("Recorded in {LOCAL}; there is no remote, so it is not shared")
        } else {
            format!("Synced with {}", self.remotes.join(", "))
        })
    }

    /// Fetches the tasks of every remote.
    fn fetch<'n>(&self, names: &'n [String]) -> Result<Vec<Remote<'n>>, SyncError> {
        let mut remotes = Vec::new();
        for name in names {
            let (known, offline) = match self.repository.fetch(name, tenure_git::LIMIT) {
                Ok(found) => (found, None),
                Err(GitError::Stopped) => return Err(GitError::Stopped.into()),
                Err(error) if error.says(&["cannot lock ref", "Unable to create"]) => {
                    return Err(error.into());
                }
                Err(GitError::Refused { stderr, .. }) => (true, Some(words(&stderr))),
                Err(other) => (true, Some(other.to_string())),
            };
            remotes.push(Remote {
                name,
                // The tip is found below; for now, whether there is one.
                tip: known.then(|| tracking(name)),
                offline,
            });
        }
        let refs: Vec<Oid> = remotes
            .iter()
            .filter_map(|remote| remote.tip.clone())
            .collect();
        if !refs.is_empty() {
            let mut tips = self.repository.resolve(&refs)?.into_iter();
            for remote in remotes.iter_mut().filter(|remote| remote.tip.is_some()) {
                remote.tip = tips.next().flatten();
            }
        }
        Ok(remotes)
    }

    /// What the refs say about every task that changed here or there.
    fn incoming(
        &self,
        settled: Option<&Oid>,
        tips: &[Oid],
        unshared: &[String],
        texts: &mut Texts,
    ) -> Result<Replica, SyncError> {
        let ids = unshared.iter().filter(|id| !id.is_empty());
        let mut paths: BTreeSet<String> = ids.map(|id| lines::path_of(id)).collect();
        for tip in tips.iter().filter(|tip| Some(*tip) != settled) {
            paths.extend(self.repository.changed(settled, tip)?);
        }
        let always = [lines::MARKER.0, lines::SECTIONS, lines::SECTION_CHANGES];
        paths.extend(always.map(str::to_owned));
        let files = tips
            .iter()
            .flat_map(|tip| paths.iter().map(move |path| (tip, path)));
        self.repository.read(files, texts)?;
        history::check_markers(tips, texts)?;
        history::parse(texts)
    }

    /// Adds the file in which clones shared tasks earlier.
    fn add_legacy(&self, incoming: &mut Replica) -> Result<(), SyncError> {
        let bad = |why: String| SyncError::Unreadable(LEGACY.to_owned(), why);
        let read = beneath::read(&self.legacy, LARGEST_LEGACY);
        let bytes = read.map_err(|error| bad(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text".into()))?;
        lines::add_lines(incoming, &text).map_err(|error| bad(error.to_string()))?;
        incoming.tidy();
        Ok(())
    }

    /// Merges what came in with the database. Returns what every clone should have of these tasks.
    fn merge(&mut self, incoming: &Replica) -> Result<Replica, SyncError> {
        let (shared, merged) = self.tasks.merge(incoming, call_deadline())?;
        let sum = &mut self.merged;
        sum.sections += merged.sections;
        sum.deleted_sections += merged.deleted_sections;
        sum.added += merged.added;
        sum.changed += merged.changed;
        sum.deleted += merged.deleted;
        sum.circles += merged.circles;
        sum.held = merged.held;
        Ok(shared)
    }

    /// Makes the local ref hold these tasks and all that is on the tips. Returns its new commit.
    fn commit(
        &self,
        local: Option<&Oid>,
        tips: &[Oid],
        shared: &Replica,
        texts: &mut Texts,
    ) -> Result<Oid, SyncError> {
        let mut parents = self.repository.independent(tips)?;
        // On top of the local commit, unless a remote's contains it.
        parents.sort_by_key(|tip| Some(tip) != local);
        let files =
            lines::files(shared).map_err(|error| SyncError::Folder(io::Error::other(error)))?;
        let mut changed: BTreeMap<String, String> = BTreeMap::new();
        match parents.first() {
            None => {
                changed.insert(lines::MARKER.0.to_owned(), lines::MARKER.1.to_owned());
                changed.extend(files);
            }
            Some(base) => {
                let paths: Vec<String> = files.keys().cloned().collect();
                self.repository
                    .read(paths.iter().map(|path| (base, path)), texts)?;
                let differs = |(path, text): &(String, String)| {
                    let known = texts.get(&(base.clone(), path.clone()));
                    known.and_then(Option::as_deref) != Some(text.as_bytes())
                };
                changed.extend(files.into_iter().filter(differs));
            }
        }
        match parents.as_slice() {
            [only] if changed.is_empty() => {
                if local != Some(only) {
                    self.repository.advance(local, only)?;
                }
                Ok(only.clone())
            }
            parents => {
                let now = self.tenure.clock().now().wall.as_second();
                let host = identity::host();
                let name = format!("tenure <tenure@{host}> {now} +0000");
                Ok(self.repository.commit(parents, &changed, &name)?)
            }
        }
    }

    /// Reports what came in.
    fn report(&self, report: &mut dyn FnMut(SyncEvent)) {
        if !self.merged.is_nothing() {
            let mut from = self.remotes.clone();
            from.extend(self.moved.then(|| LEGACY.to_owned()));
            if from.is_empty() {
                from.push(LOCAL.to_owned());
            }
            report(SyncEvent::Merged {
                from: from.join(", "),
                changes: self.merged,
            });
        }
        if self.merged.held > 0 {
            let tasks = self.merged.held;
            report(SyncEvent::Deferred { tasks });
        }
        if self.moved {
            report(SyncEvent::Moved);
        }
    }
}

/// Which version of a file this is; `None` if there is none.
fn fingerprint(path: &std::path::Path) -> Option<String> {
    let file = fs::symlink_metadata(path).ok()?;
    let (seconds, nanos) = (file.mtime(), file.mtime_nsec());
    Some(format!("{}.{}.{seconds}.{nanos}", file.ino(), file.len()))
}
