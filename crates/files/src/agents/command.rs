//! Shell commands of an agent: what they would destroy, and what they have changed.
//!
//! 1. Before a command, what other sessions have not committed is kept, and a command that would destroy some of it is refused.
//! 2. Afterwards, each file that it changed is reserved for its session, or both sessions are told that it is another's.
//! 3. What can't be found out changes nothing: no command is refused because of it.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use tenure::Tenure;
use tenure::config::Reaction;
use tenure::files::Reservations;
use tenure::store::HolderId;

use super::event::Event;
use super::record::{Command, Records, SessionRecord, now};
use super::session::{AgentSession, Refusal, Turn};
use crate::Error;
use crate::changes::{self, Start, Watched};
use crate::danger::{self, DirtyFile, Losing, Loss, Permissions, Place, Request, Victim};
use crate::kept::Kept;

/// A file that a command changed, and that is another session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mixed {
    /// The file, from the top of the work tree.
    pub file: String,
    /// Whose it is.
    pub owner: HolderId,
    /// Whether it is gone.
    pub is_gone: bool,
}

/// What is said of a command that would destroy the work of others.
#[derive(Debug)]
pub(super) enum Danger {
    /// There is none, or a person has allowed it.
    None,
    /// It runs, and its model is warned.
    Warned(String),
    /// It must not run.
    Refused(String),
}

impl AgentSession<'_> {
    /// Keeps what other sessions have not committed of these files, which are about to be edited. Returns those that this
    /// session has not written itself, and whose they are.
    pub(super) fn keep_of_others(&self, files: &[String]) -> Vec<(String, HolderId)> {
        let (root, records) = (self.files.root(), Records::of(&self.project));
        let others = records.others(&self.holder).unwrap_or_default();
        let has = |record: &SessionRecord, file: &str| {
            let mut wrote = record.wrote(root).iter();
            wrote.any(|it| it.path == Path::new(file))
        };
        let theirs = files.iter().flat_map(|file| {
            let others = others.iter().filter(|other| has(other, file));
            others.map(|other| (file.clone(), other.holder.clone()))
        });
        let mut theirs: Vec<(String, HolderId)> = theirs.collect();
        if !theirs.is_empty() {
            let paths = theirs
                .iter()
                .map(|(file, owner)| (file.into(), owner.clone()));
            let paths: Vec<(PathBuf, HolderId)> = paths.collect();
            let _ = Kept::beside(self.project.state()).keep(root, &paths, now());
            let own = records.find(&self.holder).ok().flatten();
            theirs.retain(|(file, _)| own.as_ref().is_none_or(|own| !has(own, file)));
        }
        theirs
    }

    /// Keeps what this session has just written while a command of another one runs, which began before and may overwrite it.
    pub(super) fn keep_own<'f>(&self, files: impl Iterator<Item = &'f Path>) {
        let others = Records::of(&self.project).others(&self.holder);
        if others.is_ok_and(|others| others.iter().any(SessionRecord::runs_command)) {
            let own = files.map(|file| (file.to_owned(), self.holder.clone()));
            let own: Vec<(PathBuf, HolderId)> = own.collect();
            let root = self.files.root();
            let _ = Kept::beside(self.project.state()).keep(root, &own, now());
        }
    }

    /// What there is before a command, for the time when it has ended. What others have not committed is kept.
    pub(super) fn command(&self, line: &str, others: &[SessionRecord]) -> Option<Command> {
        let root = self.files.root();
        let theirs: Vec<(PathBuf, HolderId)> = others
            .iter()
            .flat_map(|other| {
                let files = other.wrote(root).iter();
                files.map(|file| (file.path.clone(), other.holder.clone()))
            })
            .collect();
        // A full disk, for example, stops no command.
        let _ = Kept::beside(self.project.state()).keep(root, &theirs, now());
        let watched = theirs.iter().map(|(path, _)| Watched::now(root, path));
        Some(Command {
            line: line.to_owned(),
            watched: watched.collect::<Result<_, _>>().ok()?,
            start: Start::now(root).ok()?,
        })
    }

    /// Whether a command would destroy what other sessions have not committed.
    pub(super) fn danger(&self, event: &Event, line: &str, others: &[SessionRecord]) -> Danger {
        let reaction = self.config.agents.destructive;
        let root = self.files.root();
        let folder = event
            .folder
            .as_deref()
            .map_or_else(|| root.to_owned(), |folder| root.join(folder));
        if reaction == Reaction::Off || others.is_empty() {
            return Danger::None;
        }
        let dirty: Vec<DirtyFile> = others.iter().flat_map(dirty_files).collect();
        for loss in danger::losses(line, &Place::here(&folder)) {
            let lost = danger::lost(&loss, &dirty);
            let mut victims = danger::victims(&lost, &folder);
            victims.extend(tenants(&loss, others, &victims));
            if victims.is_empty() {
                continue;
            }
            let permissions = Permissions::of(&self.project);
            if matches!(permissions.take(&self.holder, &folder, line), Ok(true)) {
                return Danger::None;
            }
            if reaction == Reaction::Warn {
                return Danger::Warned(danger::refusal(&loss, &victims, None).join("\n"));
            }
            let why = victims.iter().map(|victim| victim.session.as_str());
            let why = why.collect::<Vec<_>>().join(", ");
            let name = self.holder.as_str();
            let request = Request::new(self.holder.clone(), name, &folder, line, &why);
            let code = permissions.ask(request).ok();
            return Danger::Refused(danger::refusal(&loss, &victims, code.as_deref()).join("\n"));
        }
        Danger::None
    }

    /// Judges what a command has changed: reserves the files that nobody has, and returns those that are another session's.
    pub(super) fn after_command(
        &self,
        tenure: &Tenure,
        own: &Reservations,
        turn: &Turn,
        command: &Command,
    ) -> Result<Vec<Mixed>, Error> {
        let root = self.files.root();
        // Not in a git work tree, or git refuses: there is nothing to tell.
        let Ok(changed) = command.start.changed(root, &command.watched) else {
            return Ok(Vec::new());
        };
        if changed.files.is_empty() {
            return Ok(Vec::new());
        }
        let records = Records::of(&self.project);
        // As they are now: what the others did meanwhile is known.
        let others = records.others(&self.holder)?;
        let (mut mixed, mut wrote, mut clean) = (Vec::new(), Vec::new(), Vec::new());
        for change in changed.files {
            let file = Watched {
                path: change.path,
                stamp: change.stamp,
            };
            let has =
                |other: &&SessionRecord| other.wrote(root).iter().any(|it| it.path == file.path);
            let name = self.files.path(&root.join(&file.path))?;
            let Some(name) = name else { continue };
            if let Some(owner) = others.iter().find(has) {
                if !owner.explains(root, &file) {
                    mixed.push(Mixed {
                        file: name,
                        owner: owner.holder.clone(),
                        is_gone: file.stamp.is_none(),
                    });
                }
                continue;
            }
            if matches!(
                change.what,
                changes::What::Committed | changes::What::Undone
            ) {
                clean.push(file.path);
                continue;
            }
            match self.reserve(tenure, own, std::slice::from_ref(&name), turn)? {
                Ok(_) => wrote.push(file),
                Err(Refusal::Reserved(refused)) => {
                    let owner = refused
                        .busy
                        .leases
                        .first()
                        .map(|(lease, _)| &lease.holder.id);
                    let explains = |other: &SessionRecord| {
                        Some(&other.holder) == owner && other.explains(root, &file)
                    };
                    if let Some(owner) = owner
                        && !others.iter().any(explains)
                    {
                        mixed.push(Mixed {
                            file: name,
                            owner: owner.clone(),
                            is_gone: file.stamp.is_none(),
                        });
                    }
                }
                Err(_) => {}
            }
        }
        self.keep_own(wrote.iter().map(|file| file.path.as_path()));
        records.change(&self.holder, |record| {
            for path in &clean {
                record.has_not_written(root, path);
            }
            record.writes(root, wrote);
        })?;
        self.tell_owners(&records, &others, &mixed, &command.line)?;
        Ok(mixed)
    }

    /// Leaves word for the sessions whose files were changed.
    fn tell_owners(
        &self,
        records: &Records,
        others: &[SessionRecord],
        mixed: &[Mixed],
        line: &str,
    ) -> Result<(), Error> {
        let at = now().to_zoned(TimeZone::system());
        let at = at.strftime("%H:%M");
        let line: String = line
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect();
        let me = &self.holder;
        for owner in others {
            let of_owner = mixed.iter().filter(|it| it.owner == owner.holder);
            let notices: Vec<String> = of_owner
                .map(|Mixed { file, is_gone, .. }| {
                    let did = if *is_gone { "deleted" } else { "changed" };
                    format!(
                        "{me}'s command \"{line}\" {did} your {file} at {at}. Look at it before you go on; what you had \
                         is kept: tenure files list {file}"
                    )
                })
                .collect();
            if !notices.is_empty() {
                records.change(&owner.holder, |record| record.notices.extend(notices))?;
            }
        }
        Ok(())
    }
}

fn dirty_files(session: &SessionRecord) -> Vec<DirtyFile> {
    let files = session.wrote_anywhere().map(|(root, file)| DirtyFile {
        root: root.to_owned(),
        path: file.path.clone(),
        owner: session.holder.clone(),
        session: session.holder.to_string(),
    });
    files.collect()
}

/// The sessions that work in what a command removes or moves, without the known ones.
fn tenants(loss: &Loss, others: &[SessionRecord], known: &[Victim]) -> Vec<Victim> {
    let is_tenant = |tree: &Path| match loss.what {
        Losing::Folder { .. } => tree.starts_with(&loss.root),
        Losing::Branch(_) => tree == loss.root,
        _ => false,
    };
    let others = others.iter();
    let tenants = others.filter(|other| other.tree.as_deref().is_some_and(is_tenant));
    tenants
        .map(|other| Victim {
            session: other.holder.to_string(),
            files: Vec::new(),
        })
        .filter(|tenant| known.iter().all(|it| it.session != tenant.session))
        .collect()
}
