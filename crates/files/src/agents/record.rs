//! What is known of each session of a coding agent: [`Records`], one file each, in a folder beside the store.
//!
//! The store knows who has which files. This knows what a store does not: the process that a session lives in, what its
//! sub-agents edit, and when it was last heard.
//!
//! 1. A record is read and replaced whole, under one lock for all of them. A hook that is killed leaves the old record or
//!    the new one.
//! 2. A record counts only if it is our user's own.
//! 3. A record that is lost, or can't be read, costs comfort: leases still end with their time to live.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure::Project;
use tenure::store::HolderId;
use tenure_core::{Clock as _, Process};
use tenure_host::HostClock;
use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::beneath;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::create_folder;
use tenure_host::files::protocol::digest;
use tenure_host::files::step_lock::StepLock;
use tenure_host::identity;

use super::event::{Child, Event, What};
use crate::Error;
use crate::changes::{Start, Watched, path_json};

/// How long a hook waits for the others.
const PATIENCE: Duration = Duration::from_secs(2);

/// The largest record that is read.
const LARGEST: u64 = 4 * 1024 * 1024;

/// How much older than a hook the process of its agent is, in the kernel's ticks. A script around a hook is younger.
const SETTLED: u64 = 50;

/// A pause that counts: a shorter one is the work of a tool.
const LONG_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// How long a session counts that is not heard.
const LONGEST_SILENCE: SignedDuration = SignedDuration::from_hours(24);

/// The same where no process tells whether it has ended.
const LONGEST_SILENCE_UNSURE: SignedDuration = SignedDuration::from_hours(1);

/// What people's clocks show.
pub(super) fn now() -> Timestamp {
    HostClock::new().now().wall
}

/// What is known of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// Its holder.
    pub holder: HolderId,
    /// When it was last heard.
    pub heard: Timestamp,
    /// The process that its agent runs in, as the last event saw it.
    #[serde(default)]
    pub process: Option<Process>,
    /// Whether that process was there at an earlier event, or long before one.
    #[serde(default)]
    is_settled: bool,
    /// Where the agent writes down what is said in the session.
    #[serde(default)]
    transcript: Option<PathBuf>,
    /// The other names under which its commands have reserved something.
    #[serde(default)]
    pub aliases: BTreeSet<HolderId>,
    /// The calls of tools that have begun: until they end, nothing may be heard.
    #[serde(default)]
    calls: Vec<Call>,
    /// The top of the work tree that it was heard in last.
    #[serde(default)]
    pub tree: Option<PathBuf>,
    /// What it has written and not committed yet, in each work tree.
    #[serde(default)]
    trees: Vec<TreeRecord>,
    /// What its model has to be told with its next call of a tool.
    #[serde(default)]
    pub notices: Vec<String>,
    /// When the last long pause was over.
    #[serde(default)]
    pub resumed: Option<Timestamp>,
    /// The files that each of its sub-agents has.
    #[serde(default)]
    pub children: BTreeMap<String, ChildRecord>,
}

/// A call of a tool, by an agent or a sub-agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    child: Option<String>,
    id: Option<String>,
    /// Whether it may write files.
    writes: bool,
    /// Of a shell command: the line, and what there was before.
    #[serde(default)]
    command: Option<Command>,
    /// Whether the command has ended, and what it has changed is not yet judged.
    #[serde(default)]
    is_over: bool,
}

/// A shell command that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// Its line.
    pub line: String,
    /// When it began.
    pub start: Start,
    /// The files of sessions, as they were.
    pub watched: Vec<Watched>,
}

/// What a session has written in a work tree and not committed yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TreeRecord {
    #[serde(with = "path_json")]
    root: PathBuf,
    /// Each file, as the session left it.
    wrote: Vec<Watched>,
}

/// What is known of a sub-agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRecord {
    /// What kind of sub-agent it is.
    #[serde(default)]
    pub kind: Option<String>,
    /// The files that it has edited.
    pub files: BTreeSet<String>,
}

/// A sub-agent that has a file which another one wants to edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its id.
    pub id: String,
    /// What kind of sub-agent it is.
    pub kind: Option<String>,
    /// The file.
    pub file: String,
}

impl SessionRecord {
    fn new(holder: HolderId, heard: Timestamp) -> Self {
        Self {
            holder,
            heard,
            process: None,
            is_settled: false,
            transcript: None,
            aliases: BTreeSet::new(),
            calls: Vec::new(),
            tree: None,
            trees: Vec::new(),
            notices: Vec::new(),
            resumed: None,
            children: BTreeMap::new(),
        }
    }

    /// Notes which process the agent runs in. `None` keeps what is known.
    fn saw(&mut self, process: Option<Process>) {
        let Some(process) = process else { return };
        let is_old = identity::this_process()
            .started
            .saturating_sub(process.started)
            >= SETTLED;
        self.is_settled = is_old || self.process.as_ref() == Some(&process);
        self.process = Some(process);
    }

    /// Notes that an event was heard, in this process of the agent. `command` is the shell command that is about to run.
    /// Returns the commands that have ended: the caller judges what they have changed, and says so
    /// ([`are_judged`](Self::are_judged)). If it is killed before, the next event returns them again.
    pub fn hear(
        &mut self,
        event: &Event,
        process: Option<Process>,
        now: Timestamp,
        command: Option<Command>,
    ) -> Vec<Command> {
        self.saw(process);
        let pause = now.duration_since(self.heard);
        if self.is_paused() && pause > LONG_PAUSE {
            self.resumed = Some(now);
        }
        self.heard = now;
        if event.child.is_none() && event.transcript.is_some() {
            self.transcript.clone_from(&event.transcript);
        }
        let child = event.child.as_ref().map(|child| child.id.clone());
        let is_it = |call: &Call| call.child == child && call.id == event.call;
        match &event.what {
            what if what.is_pause() => {
                let call = Call {
                    child: child.clone(),
                    id: event.call.clone(),
                    writes: *what != What::Pause,
                    command,
                    is_over: false,
                };
                match self.calls.iter_mut().find(|call| is_it(call)) {
                    // Only leave is asked for, or a second hook tells of it: what was before it is known better.
                    Some(known) if known.writes && !known.is_over => {}
                    Some(known) => *known = call,
                    None => self.calls.push(call),
                }
            }
            What::AfterEdit(_) | What::AfterCommand | What::Work => {
                for call in self.calls.iter_mut().filter(|call| is_it(call)) {
                    call.is_over = true;
                }
                // A person who was asked has answered.
                let is_asked =
                    |call: &Call| call.child == child && call.id.is_none() && !call.writes;
                self.calls.retain(|call| !is_asked(call));
            }
            What::ChildEnd => {
                for call in self.calls.iter_mut().filter(|call| call.child == child) {
                    call.is_over = true;
                }
                // What it has edited is its parent's.
                child.and_then(|child| self.children.remove(&child));
            }
            _ => {
                for call in self.calls.iter_mut().filter(|call| call.child.is_none()) {
                    call.is_over = true;
                }
            }
        }
        self.calls
            .retain(|call| !call.is_over || call.command.is_some());
        let over = self.calls.iter().filter(|call| call.is_over);
        over.filter_map(|call| call.command.clone()).collect()
    }

    /// Forgets the commands that have ended.
    pub fn are_judged(&mut self) {
        self.calls.retain(|call| !call.is_over);
    }

    /// Forgets the call of a tool that is refused: no other event tells that it has ended.
    pub fn refuses(&mut self, event: &Event) {
        let child = event.child.as_ref().map(|child| &child.id);
        self.calls
            .retain(|call| call.child.as_ref() != child || call.id != event.call);
    }

    /// What it has written in the work tree with this top.
    pub fn wrote(&self, root: &Path) -> &[Watched] {
        let tree = self.trees.iter().find(|tree| tree.root == root);
        tree.map_or(&[], |tree| &tree.wrote)
    }

    /// All that it has written, with the tops of the work trees.
    pub fn wrote_anywhere(&self) -> impl Iterator<Item = (&Path, &Watched)> {
        let trees = self.trees.iter();
        trees.flat_map(|tree| tree.wrote.iter().map(|file| (tree.root.as_path(), file)))
    }

    /// Notes that it has written files of a work tree, as they are now.
    pub fn writes(&mut self, root: &Path, files: impl IntoIterator<Item = Watched>) {
        for file in files {
            self.has_not_written(root, &file.path);
            match self.trees.iter_mut().find(|tree| tree.root == root) {
                Some(tree) => tree.wrote.push(file),
                None => self.trees.push(TreeRecord {
                    root: root.to_owned(),
                    wrote: vec![file],
                }),
            }
        }
    }

    /// Forgets a file that it has written: it is committed, or as it was.
    pub fn has_not_written(&mut self, root: &Path, path: &Path) {
        for tree in self.trees.iter_mut().filter(|tree| tree.root == root) {
            tree.wrote.retain(|file| file.path != path);
        }
        self.trees.retain(|tree| !tree.wrote.is_empty());
    }

    /// Whether its own tools explain that a file of it is like this now.
    pub fn explains(&self, root: &Path, now: &Watched) -> bool {
        self.calls.iter().any(|call| call.writes) || self.wrote(root).contains(now)
    }

    /// Whether nothing may be heard for as long as a tool takes, or a person.
    pub fn is_paused(&self) -> bool {
        self.calls.iter().any(|call| !call.is_over)
    }

    /// Whether a shell command of it runs.
    pub fn runs_command(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| call.command.is_some() && !call.is_over)
    }

    /// Whether a person has ended the turn since the session was last heard. Claude Code runs no hook then, but writes down
    /// what was said, and what each of its processes does.
    pub fn was_interrupted(&self) -> bool {
        let Some(transcript) = self.transcript.as_ref().filter(|_| self.is_paused()) else {
            return false;
        };
        self.is_idle(transcript) || says_interrupted(transcript, self.heard)
    }

    /// Whether Claude Code says that this process of it waits for its user.
    fn is_idle(&self, transcript: &Path) -> bool {
        let Some(process) = self.lives_in() else {
            return false;
        };
        // Beside its `projects/FOLDER/SESSION.jsonl`.
        let Some(config) = transcript.ancestors().nth(3) else {
            return false;
        };
        let file = config
            .join("sessions")
            .join(format!("{}.json", process.pid));
        let Ok(text) = beneath::read_text(&file, LARGEST) else {
            return false;
        };
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_this = said
            .get("sessionId")
            .and_then(Value::as_str)
            .is_some_and(|session| transcript.file_stem().is_some_and(|name| name == session));
        let status = said.get("status").and_then(Value::as_str);
        // In the second, commands in the background go on.
        is_this && matches!(status, Some("idle" | "shell"))
    }

    /// Notes that a sub-agent edits these files, unless a sibling of it does: returns that one, and its file.
    pub fn edits(&mut self, child: &Child, files: &[String]) -> Result<(), Sibling> {
        for file in files {
            if let Some((id, other)) = self.sibling_with(&child.id, file) {
                return Err(Sibling {
                    id: id.to_owned(),
                    kind: other.kind.clone(),
                    file: file.clone(),
                });
            }
        }
        let own = self.children.entry(child.id.clone()).or_default();
        own.kind.clone_from(&child.kind);
        own.files.extend(files.iter().cloned());
        Ok(())
    }

    /// Forgets who edits these files.
    pub fn are_free<'f>(&mut self, files: impl IntoIterator<Item = &'f str>) {
        for file in files {
            for child in self.children.values_mut() {
                child.files.remove(file);
            }
        }
    }

    /// The process whose end is the end of the session, if that is sure.
    pub fn lives_in(&self) -> Option<&Process> {
        self.process.as_ref().filter(|_| self.is_settled)
    }

    /// Whether the session has surely ended.
    fn has_ended(&self) -> bool {
        self.lives_in().is_some_and(|process| {
            let is_rebooted =
                process.host == identity::host() && !process.boot.same(identity::boot());
            is_rebooted || identity::has_ended(process)
        })
    }

    /// Whether the session counts: it has not ended, and was heard not too long ago.
    fn is_live(&self, now: Timestamp) -> bool {
        let longest = if self.lives_in().is_some() {
            LONGEST_SILENCE
        } else {
            LONGEST_SILENCE_UNSURE
        };
        !self.has_ended() && now.duration_since(self.heard) < longest
    }

    /// A sibling of this sub-agent that has a file.
    fn sibling_with(&self, child: &str, file: &str) -> Option<(&str, &ChildRecord)> {
        let mut others = self.children.iter().filter(|(id, _)| *id != child);
        let (id, other) = others.find(|(_, other)| other.files.contains(file))?;
        Some((id, other))
    }
}

/// How much of the end of a transcript is read.
const TAIL: u64 = 256 * 1024;

/// The last lines of a file, the first of which may be torn.
fn last_lines(path: &Path) -> io::Result<String> {
    let (mut file, known) = beneath::open_known(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    file.seek(SeekFrom::Start(known.len().saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the last that was said in a session is that a person interrupted it.
fn says_interrupted(transcript: &Path, heard: Timestamp) -> bool {
    last_lines(transcript).is_ok_and(|lines| {
        let mut said = lines.lines().rev().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let is_said = matches!(line.get("type")?.as_str()?, "user" | "assistant");
            is_said.then_some(line)
        });
        said.next().is_some_and(|last| is_interrupt(&last, heard))
    })
}

/// Whether a line of a transcript says that a person interrupted the agent, not long before this time.
fn is_interrupt(line: &Value, heard: Timestamp) -> bool {
    let at = line.get("timestamp").and_then(Value::as_str);
    let at = at.and_then(|at| at.parse::<Timestamp>().ok());
    let content = line.pointer("/message/content");
    let text = match content {
        Some(Value::Array(parts)) => parts.iter().find_map(|part| part.get("text")?.as_str()),
        Some(Value::String(text)) => Some(text.as_str()),
        _ => None,
    };
    at.is_some_and(|at| at >= heard)
        && text.is_some_and(|text| text.starts_with("[Request interrupted by user"))
}

/// The sessions of a project on this machine.
#[derive(Debug, Clone)]
pub struct Records(PathBuf);

impl Records {
    /// Those of a project.
    pub fn of(project: &Project) -> Self {
        Self(project.state().join("agents"))
    }

    /// Changes the record of a session, which is new if there is none.
    pub fn change<T>(
        &self,
        holder: &HolderId,
        change: impl FnOnce(&mut SessionRecord) -> T,
    ) -> Result<T, Error> {
        create_folder(&self.0)?;
        // Each user of the project has a lock and a private name of its own: nobody else can keep them.
        let user = rustix::process::geteuid().as_raw();
        let _lock = StepLock::take(&self.0.join(format!("lock-{user}")), PATIENCE)?;
        let path = self.path(holder);
        let known = read(&path).ok().flatten();
        let known = known.filter(|record| record.holder == *holder);
        let is_new = known.is_none();
        let mut record = known.unwrap_or_else(|| SessionRecord::new(holder.clone(), now()));
        let answer = change(&mut record);
        let text = serde_json::to_vec(&record).map_err(io::Error::from)?;
        let next = self.0.join(format!("next-{user}"));
        atomic::replace(&path, &next, &text, Durability::Crash)?;
        if is_new {
            self.sweep()?;
        }
        Ok(answer)
    }

    /// Notes that a file has again what a session had written, because it was put back.
    pub fn put_back(&self, owner: &HolderId, root: &Path, path: &Path) -> Result<(), Error> {
        if self.find(owner)?.is_some() {
            let file = Watched::now(root, path)?;
            self.change(owner, |record| record.writes(root, [file]))?;
        }
        Ok(())
    }

    /// The record of a session.
    pub fn find(&self, holder: &HolderId) -> io::Result<Option<SessionRecord>> {
        let found = read(&self.path(holder))?;
        Ok(found.filter(|record| record.holder == *holder))
    }

    /// Forgets a session that has ended.
    pub fn forget(&self, holder: &HolderId) -> io::Result<()> {
        atomic::unlink(&self.path(holder))
    }

    /// All that can be understood.
    pub fn all(&self) -> io::Result<Vec<SessionRecord>> {
        let Some(files) = if_there(self.0.read_dir())? else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|end| end == "json") {
                all.extend(read(&path).ok().flatten());
            }
        }
        Ok(all)
    }

    /// Those of other sessions that count.
    pub fn others(&self, holder: &HolderId) -> io::Result<Vec<SessionRecord>> {
        let (mut all, now) = (self.all()?, now());
        all.retain(|record| record.holder != *holder && record.is_live(now));
        Ok(all)
    }

    /// Removes the records of sessions that do not count any more.
    fn sweep(&self) -> io::Result<()> {
        let now = now();
        let mut over = self.all()?;
        over.retain(|record| !record.is_live(now));
        over.iter()
            .try_for_each(|record| self.forget(&record.holder))
    }

    fn path(&self, holder: &HolderId) -> PathBuf {
        let name = format!("{:016x}.json", digest(holder.as_str().as_bytes()));
        self.0.join(name)
    }
}

/// A record of our own user's that can be understood.
fn read(path: &Path) -> io::Result<Option<SessionRecord>> {
    use std::os::unix::fs::MetadataExt as _;
    let opened = beneath::open_known(path, OFlags::RDONLY | OFlags::NONBLOCK);
    let Some((file, known)) = if_there(opened)? else {
        return Ok(None);
    };
    let is_own = known.uid() == rustix::process::geteuid().as_raw();
    if !known.is_file() || !is_own || known.len() > LARGEST {
        return Ok(None);
    }
    Ok(serde_json::from_reader(io::BufReader::new(file)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_silent_for_long_does_not_count() {
        let holder = HolderId::parse("claude-code-s").unwrap();
        let mut record = SessionRecord::new(holder, Timestamp::UNIX_EPOCH);
        let later = |hours: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
        assert!(record.is_live(Timestamp::UNIX_EPOCH));
        assert!(!record.is_live(later(2)), "no process tells that it lives");
        record.process = Some(identity::this_process());
        record.is_settled = true;
        assert!(record.is_live(later(2)));
        assert!(!record.is_live(later(25)));
    }
}
