//! What there is to do: [`Task`] and [`Section`], and the rules for working on them.
//!
//! A task is worked on under two leases, its section's and its own, which are taken together or
//! not at all. Whoever has the section may take its tasks one after another; everybody else waits
//! for the section. The rules here are pure, as those of [`crate::decide`] are.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Patience, Priority};
use crate::cycle::Cycle;
use crate::error::StoreError;
use crate::holder::{Binding, Holder, HolderId};
use crate::key::{BadName, Key, KeyKind};
use crate::lease::{Lease, Token};
use crate::store::{Busy, Reason};
use crate::verdict::Verdict;

/// The longest title, in bytes.
pub const MAX_TITLE: usize = 500;

/// The longest description, in bytes.
pub const MAX_DESCRIPTION: usize = 64 * 1024;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// To be done.
    Pending,
    /// Somebody works on it, or did until it crashed.
    InProgress,
    /// Done, and to be looked at by somebody else.
    Review,
    /// Done.
    Completed,
    /// Tried, and given up.
    Failed,
    /// Not to be done.
    Skipped,
}

impl Status {
    /// All of them, in the order in which lists show them.
    pub const ALL: [Self; 6] = [
        Self::InProgress,
        Self::Pending,
        Self::Review,
        Self::Failed,
        Self::Completed,
        Self::Skipped,
    ];

    /// The one word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Review => "review",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// Whether a runner may still take it.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::InProgress)
    }

    /// Whether those that depend on it may begin.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Not a status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status: write pending, in_progress, review, completed, failed or skipped")]
pub struct BadStatus(String);

impl std::str::FromStr for Status {
    type Err = BadStatus;

    fn from_str(text: &str) -> Result<Self, BadStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.word() == text)
            .ok_or_else(|| BadStatus(text.to_owned()))
    }
}

/// A part of the project that one runner works on at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Section {
    /// Its id.
    pub id: String,
    /// Its name, which no other section has.
    pub name: String,
}

impl Section {
    /// The key of its lock.
    pub fn key(&self) -> Result<Key, BadName> {
        Key::parse(format!("section:{}", self.id))
    }
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    pub description: Option<String>,
    /// The section it belongs to.
    pub section: Option<Section>,
    /// Where it stands.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of those that have to be done before.
    pub depends_on: Vec<String>,
    /// How many of those are not done.
    pub blockers: u64,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// How many attempts failed.
    pub attempts: u64,
    /// What the last of them ended with.
    pub last_error: Option<String>,
    /// When it is to be tried again.
    pub not_before: Option<Timestamp>,
    /// Who was granted it last.
    pub runner: Option<HolderId>,
    /// With which token; [`Token::NONE`] if nobody ever was.
    pub token: Token,
}

impl Task {
    /// The key of its lock.
    pub fn key(&self) -> Result<Key, BadName> {
        key_of(&self.id)
    }
}

/// The key of the task with this id.
pub fn key_of(id: &str) -> Result<Key, BadName> {
    Key::parse(format!("task:{id}"))
}

/// The id that stands for any task: those who wait for one to become ready queue for this key,
/// which nobody ever holds.
pub const ANY: &str = "*";

/// Who wants to change a task, and how that is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By the token of a grant.
    Token(Token),
    /// By name.
    Name(HolderId),
}

/// Whether somebody may change a task's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Granted,
    /// No: another holds it.
    Locked,
    /// No: it was theirs, and was taken over since (G7).
    Superseded,
}

/// What is known of a task when somebody wants to change it.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The lease on record, and the judgement on it.
    pub lease: Option<(&'a Lease, &'a Verdict)>,
    /// The token of its newest grant.
    pub newest: Token,
    /// From whom it was taken over.
    pub lost: &'a [HolderId],
}

/// Whether somebody may change a task's status.
///
/// A token proves the newest grant, whether or not its lease still stands, as long as nobody else
/// got the task since: what was worked for is not thrown away because a lease ran out that nobody
/// wanted. A name is enough for a task that nobody holds, unless it was taken over from that name.
pub fn may_change(standing: &Standing<'_>, proof: &Proof) -> Permission {
    let held = standing
        .lease
        .filter(|(_, verdict)| verdict.over().is_none())
        .map(|(lease, _)| lease);
    match proof {
        Proof::Token(token) => {
            let by_another = held.is_some_and(|lease| lease.token != *token);
            if by_another || *token != standing.newest || *token == Token::NONE {
                Permission::Superseded
            } else {
                Permission::Granted
            }
        }
        Proof::Name(name) => match held {
            Some(lease) if lease.holder.id == *name => Permission::Granted,
            _ if standing.lost.contains(name) => Permission::Superseded,
            Some(_) => Permission::Locked,
            None => Permission::Granted,
        },
    }
}

/// How a task and its section stand for somebody who looks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Only for them: they have its section.
    Mine,
    /// For anybody.
    Free,
    /// For nobody else than who holds it.
    Taken,
}

/// Chooses among ready tasks, offered best first, and leaves the best to those who came before:
/// one for each of them, each in a section of its own, since whoever takes a task takes its
/// section too (G8).
#[derive(Debug)]
pub struct Picker {
    ahead: usize,
    reserved: HashSet<String>,
}

impl Picker {
    /// For somebody with so many before them.
    pub fn behind(ahead: usize) -> Self {
        Self {
            ahead,
            reserved: HashSet::new(),
        }
    }

    /// Whether to take this one.
    pub fn takes(&mut self, section: Option<&str>, offer: Offer) -> bool {
        match offer {
            Offer::Taken => false,
            Offer::Mine => true,
            Offer::Free => {
                if section.is_some_and(|section| self.reserved.contains(section)) {
                    return false;
                }
                if self.ahead == 0 {
                    return true;
                }
                self.ahead -= 1;
                self.reserved.extend(section.map(str::to_owned));
                false
            }
        }
    }
}

/// Why there is no task to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Some could be taken, but others hold them or their sections, or come first.
    Locked,
    /// Some failed and are to be tried again.
    Later {
        /// When the first of them is.
        at: Timestamp,
    },
    /// What is left waits for tasks that nobody works on.
    Blocked,
    /// Nothing is left to be done.
    NothingLeft,
}

/// Somebody who works on tasks.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Who.
    pub holder: Holder,
    /// See [`Claim::asker`].
    pub asker: Binding,
    /// See [`Claim::named`].
    pub named: bool,
    /// How long a task's lease lasts unless it is renewed.
    pub task_ttl: Duration,
    /// How long a section's does.
    pub section_ttl: Duration,
    /// How urgently it asks.
    pub priority: Priority,
    /// What to do when there is nothing to be had.
    pub patience: Patience,
    /// See [`Claim::within`].
    pub within: Vec<Token>,
}

impl Runner {
    /// What it asks for when it asks for this key.
    pub fn claim(&self, key: Key) -> Claim {
        let ttl = match key.kind() {
            KeyKind::Section(_) => self.section_ttl,
            KeyKind::Task(_) | KeyKind::Node(_) | KeyKind::Named(_) => self.task_ttl,
        };
        Claim {
            key,
            holder: self.holder.clone(),
            asker: self.asker.clone(),
            named: self.named,
            ttl,
            priority: self.priority,
            patience: self.patience,
            within: self.within.clone(),
        }
    }
}

/// A task that was begun, and the leases it is worked on under.
#[derive(Debug, Clone)]
pub struct Started {
    /// The task, as it is now.
    pub task: Task,
    /// Its own lease.
    pub lease: Lease,
    /// Why that was granted.
    pub reason: Reason,
    /// Its section's lease.
    pub section: Option<Lease>,
}

/// The answer to somebody who wants to begin a task.
#[derive(Debug, Clone)]
#[must_use]
pub enum Starting {
    /// It is theirs.
    Started(Box<Started>),
    /// It, or its section, is not to be had.
    Busy {
        /// Which of the two.
        key: Key,
        /// Who stands in the way.
        busy: Box<Busy>,
    },
    /// Waiting for it would never end.
    Deadlock(Cycle),
}

/// The answer to somebody who looks for a task.
#[derive(Debug, Clone)]
#[must_use]
pub enum Sought {
    /// This one.
    Found(Box<Started>),
    /// There is none to be had now.
    None(Box<Want>),
}

/// What stands between somebody and a task.
#[derive(Debug, Clone)]
pub struct Want {
    /// Why there is none.
    pub shortage: Shortage,
    /// The place in the queue, and one of those who hold a task, if somebody does.
    pub busy: Busy,
    /// Whose end is worth waking up for.
    pub watch: Vec<Holder>,
    /// After how long it is worth looking again, if nothing is heard.
    pub until: Option<Duration>,
}

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this status, by hand.
    To(Status),
    /// It failed, for good.
    Failed {
        /// Of what.
        error: String,
    },
    /// It failed, and is to be tried again.
    Retry {
        /// Of what.
        error: String,
    },
    /// Whoever had it stops working on it.
    GiveBack,
}

impl Change {
    /// The status it has then.
    pub fn status(&self) -> Status {
        match self {
            Self::To(status) => *status,
            Self::Failed { .. } => Status::Failed,
            Self::Retry { .. } | Self::GiveBack => Status::Pending,
        }
    }
}

/// A task that was changed, and what was given back with that.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The task, as it is now.
    pub task: Task,
    /// The status it had.
    pub was: Status,
    /// The keys that were freed.
    pub freed: Vec<Key>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// With this status.
    pub status: Option<Status>,
    /// In the section with this id.
    pub section: Option<String>,
    /// With this in the title, in any case of letters.
    pub search: Option<String>,
    /// Only those that can be begun.
    pub ready: bool,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A task that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    pub description: Option<String>,
    /// The id of its section.
    pub section: Option<String>,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of those that have to be done before.
    pub depends_on: Vec<String>,
}

/// What is to be changed of a task, besides its status.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// A new title.
    pub title: Option<String>,
    /// A new description; an empty one removes it.
    pub description: Option<String>,
    /// The id of another section; an empty one removes it from its section.
    pub section: Option<String>,
    /// Another priority.
    pub priority: Option<Priority>,
    /// Ids that have to be done before, in addition.
    pub add_dependencies: Vec<String>,
    /// Ids that no longer have to be.
    pub drop_dependencies: Vec<String>,
}

impl Edit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.title.is_none()
            && self.description.is_none()
            && self.section.is_none()
            && self.priority.is_none()
            && self.add_dependencies.is_empty()
            && self.drop_dependencies.is_empty()
    }
}

/// A line of an import that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Why something could not be done with a task or section. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such task.
    #[error("there is no task {0:?}: see tenure tasks list")]
    NoTask(String),
    /// No such section.
    #[error(
        "there is no section {0:?}: see tenure sections list, or add it with tenure sections add"
    )]
    NoSection(String),
    /// Several could be meant.
    #[error("{given:?} could be any of {} tasks", candidates.len())]
    Ambiguous {
        /// What was given.
        given: String,
        /// Some of those that match.
        candidates: Vec<Task>,
    },
    /// Several sections could be meant.
    #[error("{given:?} could be any of several sections: {}", names(candidates))]
    AmbiguousSection {
        /// What was given.
        given: String,
        /// Those that match.
        candidates: Vec<Section>,
    },
    /// There is one of that name.
    #[error("there is a section {:?} already, with the id {}", .0.name, .0.id)]
    SectionExists(Section),
    /// A text that can't be used.
    #[error("the {what} {problem}")]
    BadText {
        /// Which text.
        what: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// It would have to be done before itself.
    #[error("{task:?} can't depend on {on:?}: that one depends on it already")]
    Circle {
        /// The title of the one.
        task: String,
        /// The title of the other.
        on: String,
    },
    /// Something has to be done before.
    #[error("task {:?} can't be started: it waits for {}", task.title, titles(by))]
    Blocked {
        /// Which.
        task: Box<Task>,
        /// For what.
        by: Vec<Task>,
    },
    /// Somebody else holds it.
    #[error("task {:?} is locked by {}", task.title, lease.holder)]
    Locked {
        /// Which.
        task: Box<Task>,
        /// By whom.
        lease: Box<Lease>,
    },
    /// It was taken over from whoever asks.
    #[error("task {:?} was taken over", task.title)]
    Superseded {
        /// Which.
        task: Box<Task>,
        /// Who holds it now, if anybody.
        lease: Option<Box<Lease>>,
    },
    /// Lines of an import.
    #[error("{}", .0.iter().map(|line| format!("line {}: {}", line.number, line.what)).collect::<Vec<_>>().join("\n"))]
    BadLines(Vec<BadLine>),
}

fn names(sections: &[Section]) -> String {
    let names = sections.iter().map(|section| section.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

fn titles(tasks: &[Task]) -> String {
    let titles = tasks
        .iter()
        .map(|task| format!("{:?} ({})", task.title, task.status));
    titles.collect::<Vec<_>>().join(", ")
}

/// Whether a title can be used.
pub fn check_title(title: &str) -> Result<(), TaskError> {
    let problem = if title.trim().is_empty() {
        "is empty: say what is to be done".to_owned()
    } else if title.len() > MAX_TITLE {
        format!(
            "is {} bytes long: at most {MAX_TITLE} are allowed, the rest belongs into the description",
            title.len()
        )
    } else if title.contains(char::is_control) {
        "has a control character: use one line of visible text".to_owned()
    } else if title.trim() != title {
        "begins or ends with white space: remove it".to_owned()
    } else {
        return Ok(());
    };
    Err(TaskError::BadText {
        what: "title",
        problem,
    })
}

/// Whether a description can be used.
pub fn check_description(description: &str) -> Result<(), TaskError> {
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    let problem = if description.len() > MAX_DESCRIPTION {
        format!(
            "is {} bytes long: at most {MAX_DESCRIPTION} are allowed",
            description.len()
        )
    } else if description.contains(strange) {
        "has a control character: use visible text".to_owned()
    } else {
        return Ok(());
    };
    Err(TaskError::BadText {
        what: "description",
        problem,
    })
}

/// Whether an id of a task or section can be used.
pub fn check_id(what: &'static str, id: &str) -> Result<(), TaskError> {
    let key = Key::parse(format!("section:{id}"));
    let problem = match key {
        Err(error) => format!("can't be used: {error}"),
        Ok(_) if id == ANY => "stands for any task: choose another".to_owned(),
        Ok(_) if id.trim() != id => "begins or ends with white space: remove it".to_owned(),
        Ok(_) => return Ok(()),
    };
    Err(TaskError::BadText { what, problem })
}

/// How long to wait after so many failed attempts: twice as long each time, a minute at most.
pub fn backoff(attempts: u64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let seconds = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(LONGEST_BACKOFF)
}

/// The longest wait before another attempt.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_stops_at_a_minute() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 6, 7, 8, 70, u64::MAX]
            .into_iter()
            .map(|attempts| backoff(attempts).as_secs())
            .collect();
        assert_eq!(seconds, [1, 1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn the_best_tasks_are_left_to_those_who_came_before() {
        let mut picker = Picker::behind(2);
        assert!(!picker.takes(Some("a"), Offer::Free), "for the first");
        assert!(
            !picker.takes(Some("a"), Offer::Free),
            "in the first's section"
        );
        assert!(!picker.takes(None, Offer::Free), "for the second");
        assert!(!picker.takes(Some("b"), Offer::Taken));
        assert!(picker.takes(Some("c"), Offer::Free));
    }

    #[test]
    fn what_only_we_can_take_is_left_to_nobody() {
        let mut picker = Picker::behind(9);
        assert!(picker.takes(Some("a"), Offer::Mine));
    }

    #[test]
    fn tasks_without_a_section_are_reserved_one_by_one() {
        let mut picker = Picker::behind(1);
        assert!(!picker.takes(None, Offer::Free));
        assert!(picker.takes(None, Offer::Free));
    }

    #[test]
    fn texts_say_what_is_wrong_with_them() {
        for (title, words) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("a\nb", "control character"),
            ("a ", "white space"),
        ] {
            let error = check_title(title).unwrap_err().to_string();
            assert!(error.contains(words), "{title:?}: {error}");
        }
        assert!(check_title(&"x".repeat(MAX_TITLE + 1)).is_err());
        assert!(check_description("two\nlines\tand a tab").is_ok());
        assert!(check_description("\u{1b}[31m").is_err());
        assert!(check_id("id", "*").is_err());
        assert!(check_id("id", " a").is_err());
        assert!(check_id("id", "a1b2").is_ok());
    }
}
