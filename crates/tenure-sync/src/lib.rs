//! The project's tasks, shared through git.
//!
//! The file `.tenure/tasks.jsonl` holds what is shared: tasks, sections, dependencies, and when each
//! field was changed. The database, the file, the branch and the remote's branch are four copies of
//! it; a sync merges them (see [`tenure::core::task::replica`]) and makes them the same, as far as
//! they can be reached. Locks are never shared.
//!
//! # Invariants
//!
//! 1. Killed between any two steps, nothing is lost: every step only makes one of the copies equal
//!    to the merge of all, and the next sync begins anew.
//! 2. Nothing of the user's is touched: no other file in the work tree, the index or a commit; no
//!    stash, no rebase, no forced push. Commits of the user that are not published stay so: what is
//!    pushed is the file alone, on top of what the others have.
//! 3. One sync at a time in a project: a kernel lock on `.tenure/sync.lock`.
//! 4. While a rebase, a merge or any other git of the user's is under way, or the index is locked, not
//!    even the file is written. While we write it and move the branch, the index is locked by us.
//!
//! # How branches are moved
//!
//! Usually both sides hold nothing but commits of syncs since they were last the same; then the
//! branch is fast-forwarded, or a merge commit joins both, and the branch is pushed. If there are
//! commits here that are not published, the branch gets the file's commit, and a second commit with
//! the same file goes on top of the other side. If the other side has commits that touch other files,
//! only that second one is made: the branch here is brought up to date by whoever pulls.

mod git;
mod index;
mod lines;
mod outcome;
mod publish;
mod repository;
mod running;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use tenure::core::task::Replica;
use tenure::host::files::atomic;
use tenure::{Merged, Project, SqliteStore, Tenure, plural};

use self::git::{Git, Oid, Trouble};
use self::outcome::Failure;
pub use self::outcome::Outcome;
use self::publish::{Plan, Push, Sides};
use self::repository::{Around, Fetched, Repository, short};

/// The file that is shared, seen from the project's root.
const TASKS: &str = ".tenure/tasks.jsonl";

/// The first line of every commit that a sync makes.
const SUBJECT: &str = "Sync tasks";

/// How often a push is tried that others were faster with.
const TRIES: u32 = 8;

/// Shares the tasks of a project. `stop` is asked between the steps (and while git runs) and ends
/// the sync early when it says so; `say` is told, a line each, what was done on the way.
pub fn sync(
    project: &Project,
    tenure: &Tenure,
    stop: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Outcome {
    if !tenure.config().sync.enabled {
        return Outcome::Off;
    }
    // A clone has the file, but perhaps not what keeps the rest out of git.
    if let Err(error) = Project::init(project.root()) {
        return Failure::File("shared", error).into();
    }
    let _alone = match alone(project, stop, say) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Outcome::PutOff("it was stopped".into()),
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
            Ok(tasks) => tasks,
            Err(error) => return Outcome::Failed(error.to_string()),
        },
        merged: Merged::default(),
    };
    let outcome = sync.run(say).unwrap_or_else(Outcome::from);
    if outcome != Outcome::Nothing {
        tenure::host::memory::give_back();
    }
    outcome
}

/// Waits until no other sync of this project runs; `None` if we are to stop.
fn alone(
    project: &Project,
    stop: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> io::Result<Option<File>> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(project.folder().join("sync.lock"))?;
    let mut waited = false;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if stop() => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                if !waited {
                    say("Waiting for the sync that is under way...");
                    waited = true;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A sync under way.
struct Sync<'a> {
    git: Git<'a>,
    file: PathBuf,
    tasks: &'a SqliteStore,
    /// What came in so far.
    merged: Merged,
}

/// What a try came to.
enum Try {
    Over(Outcome),
    /// Others were faster.
    Again,
}

impl Sync<'_> {
    fn run(mut self, say: &mut dyn FnMut(&str)) -> Result<Outcome, Failure> {
        let why = match Repository::find(&self.git) {
            Ok(Around::Repository(repository)) => return self.share(&repository, say),
            Ok(Around::Busy(outcome)) => return Ok(outcome),
            Ok(Around::Nothing) => "this is no git repository",
            Err(Trouble::Missing) => "git is not installed",
            Err(other) => return Err(other.into()),
        };
        let incoming = match self.bytes()? {
            Some(file) => read(&file, TASKS)?,
            None => Replica::default(),
        };
        let Some(text) = self.exchange(&incoming)? else {
            return Ok(Outcome::Nothing);
        };
        if !self.says(&text) {
            self.write(&text)?;
        }
        Ok(Outcome::PutOff(format!(
            "{why}: the tasks are in {TASKS}, and nobody else gets them"
        )))
    }

    fn share(
        &mut self,
        repository: &Repository,
        say: &mut dyn FnMut(&str),
    ) -> Result<Outcome, Failure> {
        for tries in 1..=TRIES {
            match self.attempt(repository, say)? {
                Try::Over(outcome) => return Ok(outcome),
                Try::Again => {
                    // Those who met once should not meet again.
                    let chance = self.git.clock.now().ticks.subsec_nanos() % 100;
                    std::thread::sleep(Duration::from_millis(u64::from(chance * tries)));
                }
            }
        }
        Ok(Outcome::PutOff(format!(
            "others pushed at the same time, {TRIES} times in a row"
        )))
    }

    fn attempt(
        &mut self,
        repository: &Repository,
        say: &mut dyn FnMut(&str),
    ) -> Result<Try, Failure> {
        if let Some(busy) = repository.in_the_way() {
            return Ok(Try::Over(busy));
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
        let sides = Sides {
            head_blob: self.git.blob(head.as_ref(), &repository.path)?,
            tip_blob: self.git.blob(tip.as_ref(), &repository.path)?,
            head,
            tip,
        };
        if offline.is_none() && self.is_settled(&sides)? {
            return Ok(Try::Over(Outcome::Nothing));
        }
        if let Some(busy) = repository.in_the_way() {
            return Ok(Try::Over(busy));
        }
        if let (None, Some(tip)) = (&sides.head, &sides.tip)
            && self.git.others(None, tip, &repository.path)? > 0
        {
            return Ok(Try::Over(Outcome::PutOff(format!(
                "nothing is checked out on {} yet: git pull once",
                short(&repository.branch)
            ))));
        }
        // What the others have, what is committed here, what the file says, and the database.
        let incoming = self.incoming(&sides)?;
        let Some(text) = self.exchange(&incoming)? else {
            return Ok(Try::Over(Outcome::Nothing));
        };
        let blob = self.git.keep(text.as_bytes())?;
        let plan = publish::plan(&self.git, repository, &sides, &blob)?;
        if let Some(missed) = self.bring(repository, &sides, &plan, &blob, &text)? {
            return Ok(missed);
        }
        let same = plan.target.is_none() || plan.target == sides.head;
        let head = plan.target.as_ref().or(sides.head.as_ref());
        let Some(upstream) = &repository.upstream else {
            return Ok(Try::Over(
                self.without_upstream(repository, &sides, head, same)?,
            ));
        };
        if let Some(why) = offline {
            return Ok(Try::Over(Outcome::PutOff(format!(
                "{} can't be reached ({why}); what is new is kept here",
                upstream.remote
            ))));
        }
        let pushed = publish::push(&self.git, repository, upstream, &sides, &plan, &blob)?;
        let same = match pushed {
            Push::Outrun => return Ok(Try::Again),
            Push::No(why) => return Ok(Try::Over(Outcome::PutOff(why))),
            Push::Nothing => same,
            Push::Done => false,
        };
        self.report(&upstream.name(), say);
        let tip = self.git.resolve(&upstream.tracking())?;
        self.settle(head, tip.as_ref())?;
        Ok(Try::Over(if same && self.merged.is_nothing() {
            Outcome::Nothing
        } else {
            Outcome::Done(format!("Synced with {}", upstream.name()))
        }))
    }

    /// Brings the file, the branch and the index to where they are to be, with the index locked; what
    /// the try came to if they can't be now.
    fn bring(
        &self,
        repository: &Repository,
        sides: &Sides,
        plan: &Plan,
        blob: &Oid,
        text: &str,
    ) -> Result<Option<Try>, Failure> {
        let Some(target) = &plan.target else {
            return Ok(None);
        };
        let stays = sides.head.as_ref() == Some(target);
        let says = self.says(text);
        if stays && says && repository.has_entry(&self.git, blob)? {
            return Ok(None);
        }
        let index = repository.index(&self.git);
        let Some(locked) = index.take() else {
            let why = "the index is locked by another git".into();
            return Ok(Some(Try::Over(Outcome::PutOff(why))));
        };
        if let Some(busy) = repository.under_way() {
            return Ok(Some(Try::Over(busy)));
        }
        if !says {
            self.write(text)?;
        }
        if !stays
            && !self
                .git
                .advance(&repository.branch, sides.head.as_ref(), target)?
        {
            return Ok(Some(Try::Again));
        }
        locked.set(&self.git, &repository.path, blob)?;
        Ok(None)
    }

    /// How it ends where the branch follows none of a remote.
    fn without_upstream(
        &self,
        repository: &Repository,
        sides: &Sides,
        head: Option<&Oid>,
        same: bool,
    ) -> Result<Outcome, Failure> {
        let branch = short(&repository.branch);
        let remotes = self.git.tell(&["remote"])?;
        if let Some(remote) = remotes.lines().next() {
            return Ok(Outcome::PutOff(format!(
                "{branch} follows no branch of a remote: git push -u {remote} {branch} once; {TASKS} is committed here"
            )));
        }
        self.settle(head, sides.tip.as_ref())?;
        if same {
            return Ok(Outcome::Nothing);
        }
        Ok(Outcome::Done(format!(
            "Committed {TASKS} on {branch}; there is no remote, so nobody else gets it"
        )))
    }

    /// Says what came in.
    fn report(&self, from: &str, say: &mut dyn FnMut(&str)) {
        let merged = &self.merged;
        if !merged.is_nothing() {
            let parts = [
                (merged.added, "added"),
                (merged.changed, "changed"),
                (merged.deleted, "deleted"),
            ];
            let mut told: Vec<String> = parts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{} {what}", plural::count(*count, "task")))
                .collect();
            if merged.sections > 0 {
                told.push(format!(
                    "{} added",
                    plural::count(merged.sections, "section")
                ));
            }
            if merged.circles > 0 {
                let what = plural::count(merged.circles, "dependency");
                told.push(format!("{what} dropped that closed a circle"));
            }
            say(&format!("Merged with {from}: {}", told.join(", ")));
        }
        if merged.held > 0 {
            say(&format!(
                "{} worked on here: what others say of it waits until that is done",
                plural::count(merged.held, "task")
            ));
        }
    }

    /// Whether nothing changed anywhere since the last sync that left nothing to do.
    fn is_settled(&self, sides: &Sides) -> Result<bool, Failure> {
        let (changes, word) = self.tasks.settled()?;
        Ok(word == self.word(changes, sides.head.as_ref(), sides.tip.as_ref()))
    }

    fn settle(&self, head: Option<&Oid>, tip: Option<&Oid>) -> Result<(), Failure> {
        // What waits for somebody here has to be tried again.
        if self.merged.held > 0 {
            return Ok(());
        }
        let (changes, before) = self.tasks.settled()?;
        let word = self.word(changes, head, tip);
        if word != before {
            self.tasks.settle(&word)?;
        }
        Ok(())
    }

    fn word(&self, changes: u64, head: Option<&Oid>, tip: Option<&Oid>) -> String {
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

    /// Merges what comes in with the database: what the file is to say, or `None` if there is nothing at
    /// all to share.
    fn exchange(&mut self, incoming: &Replica) -> Result<Option<String>, Failure> {
        let (both, merged) = self.tasks.merge(incoming)?;
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

    /// Whether the file says this.
    fn says(&self, text: &str) -> bool {
        fs::read(&self.file).is_ok_and(|there| there == text.as_bytes())
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let aside = self.file.with_file_name("tasks.jsonl.new");
        atomic::replace(&self.file, &aside, text.as_bytes(), atomic::Sync::ToDisk)
            .map_err(|error| Failure::File("written", error))
    }

    /// What the branch here, the one there and the file say. Usually two of them are the same.
    fn incoming(&self, sides: &Sides) -> Result<Replica, Failure> {
        let head = match &sides.head_blob {
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
        if let Some(blob) = &sides.tip_blob
            && sides.head_blob.as_ref() != Some(blob)
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
    let bad = |why: String| Failure::Bad(place.to_owned(), why);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text".into()))?;
    lines::parse(text).map_err(|error| bad(error.to_string()))
}
