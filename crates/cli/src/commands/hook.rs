//! `tenure hook`: what a coding agent calls before and after it edits a file.
//!
//! 1. It never waits: an edit is allowed or refused at once.
//! 2. Its own failure does not stop an agent, unless `guard.strict` says so. A timer ends it when it takes too
//!    long.
//! 3. It opens one store, and only if the agent works in a project.
//!
//! | event | what it does |
//! |---|---|
//! | before an edit | reserves the file for the session, or refuses the edit |
//! | after an edit, or any other tool | renews what the session edits, and gives back what is committed or quiet |
//! | end of a turn | gives back what the hook reserved |
//! | end of the session | gives back every path of the session |

mod files;
mod timer;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::config::Release;
use tenure::files::{PathPattern, PathSet, Reservations};
use tenure::store::{HolderId, Lease, call_deadline};
use tenure::text::flat;
use tenure::who::Sessions;
use tenure::wire::ErrorCode;
use tenure::{Acquired, Busy, Project, Tenure, who};
use tenure_files::agents::event::{Event, What};
use tenure_files::agents::reply::Reply;
use tenure_files::agents::tool::Tool;
use tenure_files::guard::hooks;
use tenure_host::files::look;

use self::files::Files;
use self::timer::Timer;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::agents::Hook;
use crate::commands::ask;
use crate::exit::Exit;
use crate::{context, words};

/// The largest input that is read. An agent sends the whole content of a file that it writes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// How long a reservation lasts unless the session goes on working.
const TTL: Duration = Duration::from_secs(10 * 60);

/// Answers a hook. `early` is what is wrong already: the holder's name, or the folder.
pub(crate) fn hook(global: &Global, hook: &Hook, early: Option<Failure>) -> Answer {
    let tool = hook.tool.into();
    let timer = Timer::start(tool);
    // Until there is an input, it may be any edit.
    timer.is_about(&Event::guess(tool, &[]));
    timer.is_strict(is_strict_around(None));
    let reply = match read(tool) {
        Ok(event) => {
            timer.is_about(&event);
            let answered = match early {
                Some(failure) => Err(failure),
                None => Session::find(global, hook, &event),
            };
            let answered = answered.and_then(|sessions| {
                timer.is_strict(sessions.iter().any(Session::is_strict));
                answer(tool, &sessions, &event)
            });
            answered.unwrap_or_else(|failure| {
                timer.is_strict(is_strict_around(Some(&event)));
                timer.failed(&failure)
            })
        }
        Err(unread) => {
            let (failure, guess) = *unread;
            timer.is_about(&guess);
            timer.is_strict(is_strict_around(Some(&guess)));
            timer.failed(&failure)
        }
    };
    Answer::silent(Exit::Other(timer.answer(&reply)))
}

/// Answers for every project that the event is about. An edit that one of them refuses reserves nothing in the others.
fn answer(tool: Tool, sessions: &[Session<'_>], event: &Event) -> Result<Reply, Failure> {
    let mut notes = Vec::new();
    let mut reserved: Vec<(Tenure, Vec<Lease>)> = Vec::new();
    let undo = |reserved: &[(Tenure, Vec<Lease>)]| {
        let mut each = reserved.iter();
        each.try_for_each(|(tenure, leases)| give_back(tenure, leases))
    };
    for session in sessions {
        match session.answer(event) {
            Ok(Said::Nothing) => {}
            Ok(Said::Note(note)) => notes.push(note),
            Ok(Said::Reserved(tenure, leases)) => reserved.push((tenure, leases)),
            Ok(Said::Refused(reason)) => {
                undo(&reserved)?;
                return Ok(Reply::refuse(tool, &reason));
            }
            Err(failure) => {
                if session.is_strict() {
                    undo(&reserved)?;
                }
                return Err(failure);
            }
        }
    }
    let note = (!notes.is_empty()).then(|| notes.join("\n"));
    let reply = Reply::go_on(tool, &event.name, &event.what, note.as_deref());
    Ok(match event.what {
        // The model has to hear of it, whether or not the agent passes notes on.
        What::AfterEdit(_) if notes.iter().any(|note| note.starts_with(TOO_LATE)) => {
            Reply { err: note, ..reply }
        }
        _ => reply,
    })
}

/// How a note begins about an edit that should not have been made.
const TOO_LATE: &str = "You have edited a file that you must not edit.";

/// What a session has to say about an event in one project.
enum Said {
    Nothing,
    /// Something for the model.
    Note(String),
    /// The files are reserved, with these new leases.
    Reserved(Tenure, Vec<Lease>),
    /// The edit must not happen.
    Refused(String),
}

/// Reads an event, or why there is none and what it may have been.
fn read(tool: Tool) -> Result<Event, Box<(Failure, Event)>> {
    let bad = |why: &dyn std::fmt::Display| Failure::new(ErrorCode::BadEvent, why.to_string());
    let mut input = Vec::new();
    let read = std::io::stdin().take(LARGEST + 1).read_to_end(&mut input);
    let failure = match read {
        Err(error) => error.into(),
        Ok(length) if u64::try_from(length).is_ok_and(|length| length > LARGEST) => {
            bad(&"its input is larger than 64 MB")
        }
        Ok(_) => match Event::parse(tool, &input) {
            Ok(event) => return Ok(event),
            Err(why) => bad(&why),
        },
    };
    Err(Box::new((failure, Event::guess(tool, &input))))
}

/// A session of an agent in a project.
struct Session<'a> {
    global: &'a Global,
    tool: Tool,
    holder: HolderId,
    /// The files of the event.
    edited: Vec<PathBuf>,
    files: Files,
    /// Whether the agent works in a folder that belongs to another project.
    is_elsewhere: bool,
    config: tenure::Config,
    project: Project,
    ttl: Duration,
}

impl<'a> Session<'a> {
    /// The session in each project that the event is about: that of the agent's folder, and those of files that it edits
    /// elsewhere.
    fn find(global: &'a Global, hook: &Hook, event: &Event) -> Result<Vec<Self>, Failure> {
        let here = context::start();
        let folder = match (&event.folder, here) {
            (Some(folder), Err(_)) if folder.is_absolute() => folder.clone(),
            (Some(folder), here) => here?.join(folder),
            (None, here) => here?,
        };
        let (What::BeforeEdit(edited) | What::AfterEdit(edited)) = &event.what else {
            let session = Self::within(global, hook, event, &folder)?;
            return Ok(session.into_iter().collect());
        };
        let mut left: Vec<PathBuf> = edited.iter().map(|file| folder.join(file)).collect();
        let there: Vec<PathBuf> = left.iter().filter_map(|file| existing(file)).collect();
        let mut sessions = Vec::new();
        for (at, folder) in std::iter::once(folder).chain(there).enumerate() {
            if left.is_empty() {
                break;
            }
            if let Some(mut session) = Self::within(global, hook, event, &folder)? {
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
    fn within(
        global: &'a Global,
        hook: &Hook,
        event: &Event,
        folder: &Path,
    ) -> Result<Option<Self>, Failure> {
        let Some(project) = Project::find(folder, context::home().as_deref())? else {
            return Ok(None);
        };
        let Some(files) = Files::find(folder, &project)? else {
            return Ok(None);
        };
        let config = context::config(Some(&project))?;
        let tool = Tool::from(hook.tool);
        let holder = who::of_hook(global.holder.as_deref(), tool.name(), &event.session)?;
        Ok(Some(Self {
            global,
            tool,
            holder,
            edited: Vec::new(),
            files,
            is_elsewhere: false,
            config,
            project,
            ttl: hook.ttl.unwrap_or(TTL),
        }))
    }

    fn is_strict(&self) -> bool {
        self.config.guard.strict
    }

    fn release(&self) -> Release {
        self.config.guard.release(self.files.are_linked())
    }

    fn answer(&self, event: &Event) -> Result<Said, Failure> {
        let files = self.edited.iter().map(|file| self.files.path(file));
        let files: Result<Vec<_>, Failure> = files.collect();
        let files: Vec<String> = files?.into_iter().flatten().collect();
        // A file outside the repository is no concern of others.
        if files.is_empty() && matches!(event.what, What::BeforeEdit(_)) {
            return Ok(Said::Nothing);
        }
        let tenure = self.open()?;
        // A folder that can't be written costs the session its name in git, not its edits.
        let sessions = Sessions::of(&self.project);
        let _ = match event.what {
            What::SessionEnd => sessions.forget(&self.holder),
            _ => sessions.record(&self.holder),
        };
        let own = tenure.reservations_by(&self.holder)?;
        match &event.what {
            What::BeforeEdit(_) => match self.reserve(&tenure, &own, &files)? {
                Err(reason) => return Ok(Said::Refused(reason)),
                Ok(new) => {
                    self.keep(&tenure, &own, &files)?;
                    return Ok(Said::Reserved(tenure, new));
                }
            },
            What::AfterEdit(_) => {
                let reserved = self.reserve(&tenure, &own, &files)?;
                self.keep(&tenure, &own, &files)?;
                let note = match reserved {
                    Err(reason) => Some(format!("{TOO_LATE} {reason}")),
                    Ok(_) => self.asked(&tenure, &own)?,
                };
                return Ok(note.map_or(Said::Nothing, Said::Note));
            }
            What::Work => {
                self.keep(&tenure, &own, &[])?;
                let note = self.asked(&tenure, &own)?;
                return Ok(note.map_or(Said::Nothing, Said::Note));
            }
            What::TurnEnd => match self.release() {
                // Only the end of the session ends it.
                Release {
                    commit: false,
                    quiet: None,
                    ..
                } => self.keep(&tenure, &own, &[])?,
                _ => give_back(&tenure, self.by_hook(&own))?,
            },
            What::SessionEnd => {
                let own = own.of(&self.holder);
                give_back(&tenure, own.filter(|lease| !lease.holder.binding.is_kept()))?;
            }
        }
        Ok(Said::Nothing)
    }

    /// What other holders ask the session for.
    fn asked(&self, tenure: &Tenure, own: &Reservations) -> Result<Option<String>, Failure> {
        let leases: Vec<&Lease> = own.of(&self.holder).collect();
        let requests = ask::requests(tenure, leases.iter().copied())?;
        let told: Vec<String> = requests
            .iter()
            .map(|event| ask::told_with_paths(event, &leases))
            .collect();
        let holder = words::quoted(self.holder.as_str());
        Ok((!told.is_empty()).then(|| {
            format!(
                "{}. Give it back as soon as you can: {} unreserve PATH --as {holder}",
                told.join("; "),
                self.tenure()
            )
        }))
    }

    /// How the agent calls tenure for this project.
    fn tenure(&self) -> String {
        let root = Some(self.files.root()).filter(|_| self.is_elsewhere);
        root.map_or_else(
            || "tenure".to_owned(),
            |root| format!("tenure -C {}", words::quoted_bytes(root.as_os_str())),
        )
    }

    fn open(&self) -> Result<Tenure, Failure> {
        let (chosen, config) = (context::chosen_url(self.global)?, self.config.clone());
        // Nothing of ours may show in git; see `context::project`.
        let _ = self.project.create();
        Ok(match chosen {
            Some(url) => Tenure::open_for_locks(&url, config)?,
            None => self.project.open_store(config, Tenure::open_for_locks)?,
        })
    }

    /// Reserves the files that the session does not have yet: all of them, or none and why.
    fn reserve(
        &self,
        tenure: &Tenure,
        own: &Reservations,
        files: &[String],
    ) -> Result<Result<Vec<Lease>, String>, Failure> {
        let mut new = Vec::new();
        let is_missing = |file: &&String| own.for_writing(file, &self.holder).is_none();
        for file in files.iter().filter(is_missing) {
            match self.acquire(tenure, file)? {
                Ok(lease) => new.push(lease),
                Err(busy) => {
                    give_back(tenure, &new)?;
                    return Ok(Err(self.reason(tenure, file, &busy)));
                }
            }
        }
        Ok(Ok(new))
    }

    fn acquire(&self, tenure: &Tenure, file: &str) -> Result<Result<Lease, Box<Busy>>, Failure> {
        let bad = |why: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::BadName, format!("{file}: {why}"))
        };
        let pattern = PathPattern::file(file).map_err(|why| bad(&why))?;
        let paths = PathSet::new([pattern]).map_err(|why| bad(&why))?;
        let ask = tenure
            .reserve(paths)
            .named(self.holder.as_str())?
            .command(self.why())
            .ttl(self.ttl)
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

    /// What the others see as the reason of a reservation. It also tells what the hook may give back.
    fn why(&self) -> String {
        format!("edited in {}", self.tool.title())
    }

    /// What the hook reserved for the session, one file each.
    fn by_hook<'r>(&'r self, own: &'r Reservations) -> impl Iterator<Item = &'r Lease> {
        let why = Some(self.why());
        own.of(&self.holder)
            .filter(move |lease| lease.holder.command == why && file_of(lease).is_some())
    }

    /// Renews what the session still edits, and gives back what is committed or quiet. `files` are being edited.
    fn keep(&self, tenure: &Tenure, own: &Reservations, files: &[String]) -> Result<(), Failure> {
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
        give_back(tenure, over)?;
        for (lease, _, _) in kept {
            // Not at every call: half of the time is enough.
            let is_fresh = lease.remaining(now).is_some_and(|left| left > self.ttl / 2);
            if !is_fresh {
                // A lease that was lost meanwhile is reserved again by the next edit.
                let _ = tenure
                    .store()
                    .renew(&lease.grant(), self.ttl, call_deadline())?;
            }
        }
        Ok(())
    }

    /// Why an edit is refused, for the model.
    fn reason(&self, tenure: &Tenure, file: &str, busy: &Busy) -> String {
        let now = tenure.clock().now();
        let mut lines = Vec::new();
        for (lease, _) in busy
            .leases
            .iter()
            .filter(|(_, verdict)| verdict.ended().is_none())
        {
            let paths = lease
                .mode
                .paths()
                .map(ToString::to_string)
                .unwrap_or_default();
            let of = if paths == file {
                String::new()
            } else {
                format!(" (it has reserved {paths})")
            };
            let why = lease.holder.command.as_ref();
            let why = why.map_or_else(String::new, |why| format!(": {}", flat(why)));
            lines.push(format!(
                "{file} is reserved by {}, {}{of}{why}.",
                words::held(&now, lease),
                words::lasts(&now, lease)
            ));
        }
        if lines.is_empty() {
            let next = busy
                .behind
                .as_ref()
                .map_or("another agent", |next| next.id.as_str());
            lines.push(format!(
                "{file} is about to be reserved by {next}, which waits for it."
            ));
        }
        let file = self.files.typed(file, self.is_elsewhere);
        let (tenure, name) = (self.tenure(), words::quoted(self.holder.as_str()));
        lines.push("Do not edit it another way, such as with a shell command. Instead:".to_owned());
        lines.push("- work on something else, and try this edit again later; or".to_owned());
        lines.push(format!(
            "- wait for it: {tenure} reserve {file} --as {name} --for 10m --wait 10m\n  When that has exit code 0, repeat the edit."
        ));
        lines.join("\n")
    }
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
) -> Result<(), Failure> {
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
fn is_strict_around(event: Option<&Event>) -> bool {
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
    let home = context::home();
    folders.iter().any(|folder| {
        let project = Project::find(folder, home.as_deref()).ok().flatten();
        let settings = project.as_ref().map(Project::settings_folder).or_else(|| {
            let mut places = folder.ancestors().map(|above| above.join(".tenure"));
            places.find(|place| look::may_be_folder(place))
        });
        settings.is_some_and(|settings| {
            tenure::Config::is_strict(home.as_deref(), Some(&settings), || {
                hooks::are_strict(folder)
            })
        })
    })
}
