//! What a hook decides for the session of a coding agent: [`Hook::answer`].
//!
//! 1. It never waits: an edit is allowed or refused at once.
//! 2. It opens one store, and only if the agent works in a project.
//!
//! | event | what it does |
//! |---|---|
//! | before an edit | reserves the file for the session, or refuses the edit |
//! | after an edit, or any other tool | renews what the session edits, and gives back what is committed or quiet |
//! | end of a turn | gives back what the hook reserved |
//! | end of the session | gives back every path of the session |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tenure::ask::Tie;
use tenure::config::Release;
use tenure::files::{PathPattern, PathSet, Reservations, Target};
use tenure::store::{
    Binding, Event as Request, Grant, Holder, HolderId, Lease, Moment, call_deadline, requests,
};
use tenure::who::{self, Sessions};
use tenure::{Acquired, Busy, Config, Project, StoreUrl, Tenure};
use tenure_core::Process;
use tenure_host::files::look;

use super::command::{Danger, Mixed};
use super::event::{Event, What};
use super::files::Files;
use super::record::{Command, Records, SessionRecord, Sibling, now};
use super::tool::Tool;
use crate::Error;
use crate::changes::Watched;
use crate::guard::hooks;
use crate::ruling::Ruling;

/// A hook, as its command line and its environment describe it.
#[derive(Debug, Clone)]
pub struct Hook<'a> {
    /// The agent.
    pub tool: Tool,
    /// The name of the holder, if one was given.
    pub name: Option<&'a str>,
    /// The store that was chosen instead of the project's own.
    pub store: Option<&'a StoreUrl>,
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// How long a reservation lasts unless the session goes on working.
    pub ttl: Duration,
}

/// How long a reservation lasts while nothing may be heard of a living session: a tool runs, or a person is asked. It ends
/// with the process of the agent, and a session that is left alone for a day blocks nobody. What the session reserves with
/// a command lasts so long, too, unless it says how long.
pub const TURN: Duration = Duration::from_secs(12 * 60 * 60);

/// How the reservations of a session last from this event on.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    tie: Tie,
    /// The other names of the session.
    aliases: BTreeSet<HolderId>,
    ttl: Duration,
    /// When the last long pause was over.
    resumed: Option<Timestamp>,
    /// The shell commands that have ended.
    commands: Vec<Command>,
    /// What its model has to be told.
    notices: Vec<String>,
}

impl Turn {
    /// Whether a lease is tied to the process of the session.
    fn is_tied(&self, lease: &Lease) -> bool {
        matches!((&lease.holder.binding, self.tie), (Binding::Process { process }, Tie::Process(pid)) if process.pid == pid)
    }

    /// Whether the session reserved this with a command, for the time of its turn.
    fn has(&self, lease: &Lease) -> bool {
        lease.ttl == TURN && self.is_tied(lease) && !is_by_hook(lease)
    }

    /// Gives back some of what the session has reserved under other names.
    fn give_back_of_aliases(
        &self,
        tenure: &Tenure,
        is_over: impl Fn(&Lease) -> bool,
    ) -> Result<(), Error> {
        for alias in &self.aliases {
            let own = tenure.reservations_by(alias)?;
            give_back(tenure, own.of(alias).filter(|lease| is_over(lease)))?;
        }
        Ok(())
    }

    /// Whether a command of the session has reserved what is in the way, under another name.
    fn is_own(&self, busy: &Busy) -> bool {
        let is_own = |lease: &Lease| self.aliases.contains(&lease.holder.id) && self.is_tied(lease);
        !busy.leases.is_empty() && busy.leases.iter().all(|(lease, _)| is_own(lease))
    }
}

/// What a hook decides.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// The agent may go on, and its model should read these notes.
    GoOn(Vec<Note>),
    /// The edit must not happen.
    Refused(Refusal),
}

/// Something for the model to read.
#[derive(Debug)]
pub enum Note {
    /// It has edited a file that it must not edit.
    TooLate(Refusal),
    /// What another session left word of, or a warning, in words.
    Told(String),
    /// A file that it is about to edit has uncommitted changes of another session, which has given it back.
    Dirty {
        /// The session.
        place: Place,
        /// The file.
        file: String,
        /// Whose changes they are.
        owner: HolderId,
    },
    /// A command has changed files of other sessions.
    Mixed {
        /// The session.
        place: Place,
        /// The files.
        files: Vec<Mixed>,
    },
    /// Other holders ask for what the session has.
    Asked {
        /// The session.
        place: Place,
        /// Each request.
        requests: Vec<Request>,
        /// The session's reservations.
        leases: Vec<Lease>,
    },
}

/// Why a file must not be edited.
#[derive(Debug)]
pub enum Refusal {
    /// Another holder has it.
    Reserved(Box<Reserved>),
    /// Another sub-agent of the same session edits it.
    Sibling(Sibling),
    /// The command would destroy what others have not committed: the words for the model.
    Destroys(String),
}

/// Why a file must not be edited: another holder has it.
#[derive(Debug)]
pub struct Reserved {
    /// The session.
    pub place: Place,
    /// The file, as reservations name it.
    pub file: String,
    /// The file, as the agent names it in a command that reserves it.
    pub typed: String,
    /// Who has it.
    pub busy: Box<Busy>,
    /// When that was so.
    pub now: Moment,
}

/// How an agent calls tenure for a project.
#[derive(Debug, Clone)]
pub struct Place {
    /// The session.
    pub holder: HolderId,
    /// The top of the work tree, if the agent works in a folder that belongs to another project.
    pub elsewhere: Option<PathBuf>,
}

impl<'a> Hook<'a> {
    /// Answers for every project that the event is about. An edit that one of them refuses reserves nothing in the others.
    pub fn answer(&self, sessions: &[AgentSession<'_>], event: &Event) -> Result<Outcome, Error> {
        let mut notes = Vec::new();
        let mut reserved: Vec<(Tenure, Vec<Lease>)> = Vec::new();
        let undo = |reserved: &[(Tenure, Vec<Lease>)]| {
            let mut each = reserved.iter();
            each.try_for_each(|(tenure, leases)| give_back(tenure, leases))
        };
        for session in sessions {
            match session.answer(event) {
                Ok(Said::Notes(more)) => notes.extend(more),
                Ok(Said::Reserved(tenure, leases, more)) => {
                    reserved.push((tenure, leases));
                    notes.extend(more);
                }
                Ok(Said::Refused(refusal)) => {
                    undo(&reserved)?;
                    return Ok(Outcome::Refused(refusal));
                }
                Err(error) => {
                    if session.is_strict() {
                        undo(&reserved)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(Outcome::GoOn(notes))
    }

    /// The session in each project that the event is about: that of the agent's folder, and those of files that it edits
    /// elsewhere.
    pub fn sessions<E: From<Error>>(
        &'a self,
        here: Result<PathBuf, E>,
        event: &Event,
    ) -> Result<Vec<AgentSession<'a>>, E> {
        let folder = match (&event.folder, here) {
            (Some(folder), Err(_)) if folder.is_absolute() => folder.clone(),
            (Some(folder), here) => here?.join(folder),
            (None, here) => here?,
        };
        let (What::BeforeEdit(edited) | What::AfterEdit(edited)) = &event.what else {
            let session = self.session(event, &folder)?;
            return Ok(session.into_iter().collect());
        };
        let mut left: Vec<PathBuf> = edited.iter().map(|file| folder.join(file)).collect();
        let there: Vec<PathBuf> = left.iter().filter_map(|file| existing(file)).collect();
        let mut sessions = Vec::new();
        for (at, folder) in std::iter::once(folder).chain(there).enumerate() {
            if left.is_empty() {
                break;
            }
            if let Some(mut session) = self.session(event, &folder)? {
                session.is_elsewhere = at > 0;
                let is_about = |file: &PathBuf| !matches!(session.files.path(file), Ok(None));
                let (about, others) = left.into_iter().partition(is_about);
                left = others;
                session.edited = about;
                if !session.edited.is_empty() {
                    sessions.push(session);
                }
            }
        }
        Ok(sessions)
    }

    /// The session as it is seen from this folder.
    fn session(&'a self, event: &Event, folder: &Path) -> Result<Option<AgentSession<'a>>, Error> {
        let Some(project) = Project::find(folder, self.home)? else {
            return Ok(None);
        };
        let Some(files) = Files::find(folder, &project)? else {
            return Ok(None);
        };
        let config = project.config(self.home)?;
        Ok(Some(AgentSession {
            hook: self,
            holder: who::of_hook(self.name, self.tool.name(), &event.session)?,
            edited: Vec::new(),
            files,
            is_elsewhere: false,
            config,
            project,
        }))
    }
}

/// What a session has to say about an event in one project.
enum Said {
    /// It may happen; perhaps with something for the model.
    Notes(Vec<Note>),
    /// The files are reserved, with these new leases; perhaps with something for the model.
    Reserved(Tenure, Vec<Lease>, Vec<Note>),
    /// The edit must not happen.
    Refused(Refusal),
}

/// A session of an agent in a project.
pub struct AgentSession<'a> {
    hook: &'a Hook<'a>,
    pub(super) holder: HolderId,
    /// The files of the event.
    edited: Vec<PathBuf>,
    pub(super) files: Files,
    /// Whether the agent works in a folder that belongs to another project.
    is_elsewhere: bool,
    pub(super) config: Config,
    pub(super) project: Project,
}

impl AgentSession<'_> {
    /// Whether an edit that can't be checked must not happen.
    pub fn is_strict(&self) -> bool {
        self.config.guard.strict
    }

    fn release(&self) -> Release {
        self.config.guard.release(self.files.are_linked())
    }

    fn answer(&self, event: &Event) -> Result<Said, Error> {
        let files = self.edited.iter().map(|file| self.files.path(file));
        let files: Result<Vec<_>, Error> = files.collect();
        let files: Vec<String> = files?.into_iter().flatten().collect();
        // Others need not know of a file outside the repository.
        if files.is_empty() && matches!(event.what, What::BeforeEdit(_)) {
            return Ok(Said::Notes(Vec::new()));
        }
        let tenure = self.open()?;
        let mut notes = Vec::new();
        let mut command = None;
        if let What::BeforeEdit(_) = &event.what {
            let theirs = self.keep_of_others(&files);
            notes.extend(theirs.into_iter().map(|(file, owner)| Note::Dirty {
                place: self.place(),
                file,
                owner,
            }));
        }
        if let What::BeforeCommand(line) = &event.what {
            let others = Records::of(&self.project).others(&self.holder);
            let others = others.unwrap_or_default();
            match self.danger(event, line, &others) {
                Danger::None => {}
                Danger::Warned(words) => notes.push(Note::Told(words)),
                Danger::Refused(words) => return Ok(Said::Refused(Refusal::Destroys(words))),
            }
            command = self.command(line, &others);
        }
        let turn = match self.hear(event, &files, command) {
            Ok(turn) => turn,
            Err(sibling) => return Ok(Said::Refused(Refusal::Sibling(sibling))),
        };
        notes.extend(turn.notices.iter().cloned().map(Note::Told));
        let mut own = tenure.reservations_by(&self.holder)?;
        if !turn.commands.is_empty() {
            let mut files = Vec::new();
            for command in &turn.commands {
                files.extend(self.after_command(&tenure, &own, &turn, command)?);
            }
            Records::of(&self.project).change(&self.holder, SessionRecord::are_judged)?;
            let place = self.place();
            notes.extend((!files.is_empty()).then_some(Note::Mixed { place, files }));
            own = tenure.reservations_by(&self.holder)?;
        }
        match &event.what {
            What::BeforeEdit(_) => match self.reserve(&tenure, &own, &files, &turn)? {
                Err(refusal) => {
                    self.is_refused(event, &files);
                    return Ok(Said::Refused(refusal));
                }
                Ok(new) => {
                    self.keep(&tenure, &own, &files, &turn)?;
                    return Ok(Said::Reserved(tenure, new, notes));
                }
            },
            What::AfterEdit(_) => {
                self.keep_own(files.iter().map(Path::new));
                let reserved = self.reserve(&tenure, &own, &files, &turn)?;
                self.keep(&tenure, &own, &files, &turn)?;
                match reserved {
                    Err(refusal) => notes.push(Note::TooLate(refusal)),
                    Ok(_) => notes.extend(self.asked(&tenure, &own)?),
                }
            }
            What::Work | What::AfterCommand => {
                self.keep(&tenure, &own, &[], &turn)?;
                notes.extend(self.asked(&tenure, &own)?);
            }
            What::BeforeCommand(_) | What::Pause | What::TurnBegin | What::ChildEnd => {
                self.keep(&tenure, &own, &[], &turn)?;
            }
            What::TurnEnd => {
                if self.release() == Release::default() {
                    // Only the end of the session ends it.
                    self.keep(&tenure, &own, &[], &turn)?;
                } else {
                    let of_turn = own.of(&self.holder).filter(|lease| turn.has(lease));
                    let over = self.by_hook(&own).chain(of_turn).collect();
                    self.give_back(&tenure, over)?;
                    turn.give_back_of_aliases(&tenure, |lease| turn.has(lease))?;
                }
                self.forget_committed();
            }
            What::SessionEnd => {
                let own = own.of(&self.holder);
                give_back(&tenure, own.filter(|lease| !lease.holder.binding.is_kept()))?;
                turn.give_back_of_aliases(&tenure, |lease| turn.is_tied(lease))?;
            }
        }
        Ok(Said::Notes(notes))
    }

    /// Notes the event in the record of the session. A folder that can't be written costs the session its name in git and
    /// the tie to its process, not its edits.
    fn hear(
        &self,
        event: &Event,
        files: &[String],
        command: Option<Command>,
    ) -> Result<Turn, Sibling> {
        let (sessions, records) = (Sessions::of(&self.project), Records::of(&self.project));
        let short = Turn {
            tie: Tie::Nothing,
            aliases: BTreeSet::new(),
            ttl: self.hook.ttl,
            resumed: None,
            commands: Vec::new(),
            notices: Vec::new(),
        };
        let process = sessions.record(&self.holder).ok().flatten();
        let is_whole = self.release() == Release::default();
        let unheard = short.clone();
        let heard = records.change(&self.holder, |record| {
            let commands = record.hear(event, process, now(), command);
            let root = self.files.root();
            record.tree = root.to_str().is_some().then(|| root.to_owned());
            if let What::BeforeEdit(_) | What::AfterEdit(_) = &event.what {
                if let (What::BeforeEdit(_), Some(child)) = (&event.what, &event.child)
                    && let Err(sibling) = record.edits(child, files)
                {
                    record.refuses(event);
                    return Err(sibling);
                }
                let written = files.iter().map(|file| Watched::now(root, Path::new(file)));
                record.writes(root, written.filter_map(Result::ok));
            }
            let mut turn = Turn {
                commands,
                // An agent passes on what a hook says after a tool.
                notices: match event.what {
                    What::AfterEdit(_) | What::AfterCommand | What::Work => {
                        std::mem::take(&mut record.notices)
                    }
                    _ => Vec::new(),
                },
                ..short
            };
            if let Some(process) = record.lives_in() {
                let is_idle = event.what == What::TurnEnd && is_whole;
                turn.tie = Tie::Process(process.pid);
                turn.aliases.clone_from(&record.aliases);
                turn.resumed = record.resumed;
                if record.is_paused() || is_idle {
                    turn.ttl = TURN;
                }
            }
            Ok(turn)
        });
        if event.what == What::SessionEnd {
            let _ = sessions.forget(&self.holder);
            let _ = records.forget(&self.holder);
        }
        heard.unwrap_or(Ok(unheard))
    }

    /// Forgets an edit that is refused.
    fn is_refused(&self, event: &Event, files: &[String]) {
        // It only costs siblings a refusal, and the session the end of a pause.
        let _ = Records::of(&self.project).change(&self.holder, |record| {
            record.refuses(event);
            record.are_free(files.iter().map(String::as_str));
        });
    }

    /// Forgets what the session has written of the files that are committed.
    fn forget_committed(&self) {
        let (root, records) = (self.files.root(), Records::of(&self.project));
        let Ok(Some(known)) = records.find(&self.holder) else {
            return;
        };
        let wrote = known.wrote(root).iter();
        let wrote: Vec<&str> = wrote.filter_map(|file| file.path.to_str()).collect();
        let committed = self.files.committed(&wrote);
        if !committed.is_empty() {
            let _ = records.change(&self.holder, |record| {
                for file in &committed {
                    record.has_not_written(root, Path::new(file));
                }
            });
        }
    }

    /// Forgets which sub-agent had these files.
    fn are_free<'f>(&self, files: impl Iterator<Item = &'f str>) {
        let files: Vec<&str> = files.collect();
        let records = Records::of(&self.project);
        // It only costs siblings a refusal.
        let _ = records.change(&self.holder, |record| record.are_free(files));
    }

    /// Gives back what the session, and so its sub-agents, no longer edit.
    fn give_back(&self, tenure: &Tenure, leases: Vec<&Lease>) -> Result<(), Error> {
        if !leases.is_empty() {
            self.are_free(leases.iter().filter_map(|lease| file_of(lease)));
        }
        give_back(tenure, leases)
    }

    /// What other holders ask the session for.
    fn asked(&self, tenure: &Tenure, own: &Reservations) -> Result<Option<Note>, Error> {
        let leases: Vec<Lease> = own.of(&self.holder).cloned().collect();
        let requests = requests(&**tenure.store(), &leases, call_deadline())?;
        Ok((!requests.is_empty()).then(|| Note::Asked {
            place: self.place(),
            requests,
            leases,
        }))
    }

    fn place(&self) -> Place {
        let root = self.files.root().to_owned();
        Place {
            holder: self.holder.clone(),
            elsewhere: self.is_elsewhere.then_some(root),
        }
    }

    fn open(&self) -> Result<Tenure, Error> {
        let config = self.config.clone();
        // Nothing of ours may show in git.
        let _ = self.project.create();
        Ok(
            match self.hook.store.cloned().or_else(|| config.store_url()) {
                Some(url) => Tenure::open_for_locks(&url, config)?,
                None => self.project.open_store(config, Tenure::open_for_locks)?,
            },
        )
    }

    /// Reserves the files that the session does not have yet: all of them, or none and why.
    pub(super) fn reserve(
        &self,
        tenure: &Tenure,
        own: &Reservations,
        files: &[String],
        turn: &Turn,
    ) -> Result<Result<Vec<Lease>, Refusal>, Error> {
        let mut new = Vec::new();
        let is_ours = |holder: &Holder| holder.id == self.holder;
        let is_missing = |file: &&String| {
            let ruling = Ruling::on(own, &Target::file(file), is_ours);
            ruling.own.is_none()
        };
        for file in files.iter().filter(is_missing) {
            let mut answer = self.acquire(tenure, file, turn)?;
            if answer.is_err() && end_interrupted_turns(&self.project, tenure, self.release())? {
                answer = self.acquire(tenure, file, turn)?;
            }
            match answer {
                Ok(lease) => new.push(lease),
                // Reserved by a command of this session, under another name.
                Err(busy) if turn.is_own(&busy) => {}
                Err(busy) => {
                    give_back(tenure, &new)?;
                    return Ok(Err(self.refusal(tenure, file, busy)));
                }
            }
        }
        Ok(Ok(new))
    }

    fn acquire(
        &self,
        tenure: &Tenure,
        file: &str,
        turn: &Turn,
    ) -> Result<Result<Lease, Box<Busy>>, Error> {
        let bad = |why: &dyn std::fmt::Display| Error::Unreservable {
            path: file.to_owned(),
            why: why.to_string(),
        };
        let pattern = PathPattern::file(file).map_err(|why| bad(&why))?;
        let paths = PathSet::new([pattern]).map_err(|why| bad(&why))?;
        let ask = tenure
            .reserve(paths)
            .named(self.holder.as_str())?
            .command(why(self.hook.tool))
            .ttl(turn.ttl)
            .tied_to(turn.tie)
            .renew_later();
        Ok(match ask.acquire()? {
            Acquired::Granted(guard) => {
                let lease = guard.lease().clone();
                guard.leave_standing();
                Ok(lease)
            }
            Acquired::Busy(busy) => Err(busy),
            // A request that does not wait closes no cycle and is not cancelled.
            Acquired::Deadlock(_) | Acquired::Cancelled => {
                return Err(bad(&"it could not be reserved"));
            }
        })
    }

    /// What the hook reserved for the session, one file each.
    fn by_hook<'r>(&'r self, own: &'r Reservations) -> impl Iterator<Item = &'r Lease> {
        own.of(&self.holder).filter(|lease| is_by_hook(lease))
    }

    /// Renews what the session still edits, and gives back what is committed or quiet. `files` are being edited.
    fn keep(
        &self,
        tenure: &Tenure,
        own: &Reservations,
        files: &[String],
        turn: &Turn,
    ) -> Result<(), Error> {
        let (now, release) = (own.now(), self.release());
        let mut kept = Vec::new();
        let mut over = Vec::new();
        for lease in self.by_hook(own) {
            let Some(path) = file_of(lease) else {
                continue;
            };
            let is_edited = files.iter().any(|file| file == path);
            let last = self
                .files
                .written(path)?
                .map_or(lease.acquired_at, |at| at.max(lease.acquired_at));
            // Nobody writes while a person is asked.
            let last = turn.resumed.map_or(last, |at| at.max(last));
            let quiet = Duration::try_from(now.wall.duration_since(last)).unwrap_or_default();
            if !is_edited && release.quiet.is_some_and(|limit| quiet > limit) {
                over.push(lease);
            } else {
                kept.push((lease, path, is_edited));
            }
        }
        if release.commit {
            let candidates: Vec<&str> = kept
                .iter()
                .filter(|(lease, path, is_edited)| {
                    !is_edited && self.files.may_be_committed(path, lease.acquired_at)
                })
                .map(|(_, path, _)| *path)
                .collect();
            let committed = self.files.committed(&candidates);
            kept.retain(|(lease, path, _)| {
                let is_committed = committed.iter().any(|file| file == path);
                if is_committed {
                    over.push(*lease);
                }
                !is_committed
            });
        }
        self.give_back(tenure, over)?;
        let by_command = own.of(&self.holder).filter(|lease| turn.has(lease));
        renew(tenure, now, by_command, TURN)?;
        renew(
            tenure,
            now,
            kept.into_iter().map(|(lease, _, _)| lease),
            turn.ttl,
        )
    }

    fn refusal(&self, tenure: &Tenure, file: &str, busy: Box<Busy>) -> Refusal {
        Refusal::Reserved(Box::new(Reserved {
            place: self.place(),
            file: file.to_owned(),
            typed: self.files.typed(file, self.is_elsewhere),
            busy,
            now: tenure.clock().now(),
        }))
    }
}

/// Moves the ends of leases to `ttl` from now. Not at every call: half of the time is enough.
fn renew<'l>(
    tenure: &Tenure,
    now: &Moment,
    leases: impl Iterator<Item = &'l Lease>,
    ttl: Duration,
) -> Result<(), Error> {
    let fits = |left: Duration| left > ttl / 2 && left <= ttl;
    let grants: Vec<Grant> = leases
        .filter(|lease| !lease.remaining(now).is_some_and(fits))
        .map(Lease::grant)
        .collect();
    if !grants.is_empty() {
        // A lease that was lost meanwhile is reserved again by the next edit.
        let _ = tenure.store().renew_all(&grants, ttl, call_deadline())?;
    }
    Ok(())
}

/// What the others see as the reason of a reservation. It also tells what the hook may give back.
fn why(tool: Tool) -> String {
    format!("edited in {}", tool.title())
}

/// Whether a hook reserved this.
fn is_by_hook(lease: &Lease) -> bool {
    let said = lease.holder.command.as_deref();
    let is_why = |tool: Tool| said == Some(why(tool).as_str());
    Tool::ALL.into_iter().any(is_why) && file_of(lease).is_some()
}

/// Prepares a command that reserves paths for a holder: returns the process of the session that it belongs to, which knows
/// from then on that the holder is one of its names. What interrupted sessions have is free afterwards. All of this is a
/// service: what can't be found out changes nothing.
pub fn begin_command(project: &Project, tenure: &Tenure, holder: &HolderId) -> Option<Process> {
    let _ = end_interrupted_turns(project, tenure, tenure.config().guard.release(false));
    let (session, process) = who::recorded_session(project)?;
    if session != *holder {
        let noted = Records::of(project).change(&session, |record| {
            record.aliases.insert(holder.clone());
        });
        noted.ok()?;
    }
    Some(process)
}

/// Gives back what the hooks of other sessions have reserved whose turn a person has ended, without a hook that told us.
/// Returns whether there was any.
fn end_interrupted_turns(
    project: &Project,
    tenure: &Tenure,
    release: Release,
) -> Result<bool, Error> {
    if release == Release::default() {
        // Only the end of a session ends it.
        return Ok(false);
    }
    let mut is_any = false;
    let records = Records::of(project).all()?;
    for record in records.iter().filter(|record| record.was_interrupted()) {
        let own = tenure.reservations_by(&record.holder)?;
        let over: Vec<&Lease> = own
            .of(&record.holder)
            .filter(|lease| is_by_hook(lease))
            .collect();
        is_any |= !over.is_empty();
        give_back(tenure, over)?;
    }
    Ok(is_any)
}

/// The file of a reservation that was made for one.
fn file_of(lease: &Lease) -> Option<&str> {
    match lease.mode.paths()?.patterns() {
        [only] if only.is_path() => Some(only.prefix()),
        _ => None,
    }
}

fn give_back<'l>(
    tenure: &Tenure,
    leases: impl IntoIterator<Item = &'l Lease>,
) -> Result<(), Error> {
    for lease in leases {
        // One that ended meanwhile needs no release.
        let _ = tenure.store().release(&lease.grant(), call_deadline())?;
    }
    Ok(())
}

/// The nearest folder above a file that exists.
fn existing(file: &Path) -> Option<PathBuf> {
    let mut above = file.ancestors().skip(1);
    above.find(|folder| folder.is_dir()).map(Path::to_owned)
}

/// Whether the guard is strict where the agent works, as far as that can be told when something is broken: in a project
/// of its folder, of the files that it edits, or of the folder that the hook runs in.
pub fn is_strict_around(home: Option<&Path>, event: Option<&Event>) -> bool {
    let here = std::env::current_dir().ok();
    let agent = event.and_then(|event| event.folder.clone());
    let edited = match event.map(|event| &event.what) {
        Some(What::BeforeEdit(edited) | What::AfterEdit(edited)) => edited.as_slice(),
        _ => &[],
    };
    let edited = edited.iter().filter_map(|file| {
        let base = agent.as_ref().or(here.as_ref());
        existing(&base.map_or_else(|| file.clone(), |base| base.join(file)))
    });
    let folders: Vec<PathBuf> = edited.chain(agent.clone()).chain(here.clone()).collect();
    folders.iter().any(|folder| {
        let project = Project::find(folder, home).ok().flatten();
        let settings = project.as_ref().map(Project::settings_folder).or_else(|| {
            let mut places = folder.ancestors().map(|above| above.join(".tenure"));
            places.find(|place| look::may_be_folder(place))
        });
        settings.is_some_and(|settings| {
            Config::is_strict(home, Some(&settings), || hooks::are_strict(folder))
        })
    })
}
