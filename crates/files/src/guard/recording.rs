//! What is recorded of a commit: which reservations of others it was made against. `Recorder`
//!
//! 1. A commit is judged by what was reserved when it was made. What was granted later does not count: the order of two
//!    changes is the business of git's merges.
//! 2. A commit that was amended, rebased or picked is a commit of its own, and carries the record of the one that it was
//!    made from: a path whose change is the same counts only if another holder had it both times. So a rebase does not
//!    spoil a commit that was in order, and making a commit again in order mends one that was not.
//! 3. If no hook saw the commit, its date and the history tell. A date that can't be true, such as one before its parent
//!    was made, is not believed: the commit is judged as if it were made now.

use jiff::{SignedDuration, Timestamp};
use tenure::Tenure;
use tenure::who::Who;

use super::judge::Reserved;
use super::past::PastReservations;
use super::records::{CommitRecord, Holding, How, Known};
use super::touched::{self, Made};
use crate::Error;
use tenure_git::Git;

/// How much later than a commit its record may be made by the hook.
const SLOW_HOOK: SignedDuration = SignedDuration::from_secs(10);

/// What a record is made from.
pub(super) struct Recorder<'a> {
    /// The repository.
    pub(super) git: &'a Git<'a>,
    /// The store.
    pub(super) tenure: &'a Tenure,
    /// What is reserved now.
    pub(super) reserved: &'a Reserved,
    /// The holder that git runs for.
    pub(super) me: &'a Who,
    /// The records so far.
    pub(super) known: &'a Known,
}

impl Recorder<'_> {
    /// The records of these commits, the newest of which is the first; the oldest record is the first.
    pub(super) fn of(&self, commits: &[String], how: How) -> Result<Vec<CommitRecord>, Error> {
        let now = self.tenure.clock().now().wall;
        let made = match how {
            How::Late => touched::made(self.git, commits)?,
            How::Before | How::Commit => Vec::new(),
        };
        // Read only if a date is believed.
        let mut past = None;
        let changed = self.reserved.named(touched::of_commits(self.git, commits)?);
        let mut records: Vec<CommitRecord> = Vec::new();
        for commit in commits.iter().rev() {
            let made = made.iter().find(|made| made.commit == *commit);
            let date = match made {
                Some(made) if self.is_believed(made, now, &records)? => Some(made.date),
                _ => None,
            };
            let past = match (date, &mut past) {
                (None, _) => None,
                (Some(date), Some(past)) => Some((date, &*past)),
                (Some(date), past) => {
                    let read = PastReservations::read(self.tenure, self.reserved, self.me)?;
                    Some((date, &*past.insert(read)))
                }
            };
            let paths = changed.iter().find(|touched| touched.commit == *commit);
            let paths = paths.map_or(&[][..], |touched| &touched.paths);
            let ruling = |path: &String| self.reserved.ruling(self.me, path);
            let own = |path: &String| match past {
                Some((date, past)) => past.own(path, date),
                None => ruling(path).own.map(Holding::from),
            };
            let against = |path: &String| match past {
                Some((date, past)) => past.against(path, date),
                None => ruling(path).against.first().copied().map(Holding::from),
            };
            let disputed: Vec<(&str, Holding)> = paths
                .iter()
                .filter_map(|path| Some((path.as_str(), against(path)?)))
                .collect();
            records.push(CommitRecord {
                how,
                by: self.me.names().to_vec(),
                own: distinct(paths.iter().filter_map(own)),
                against: distinct(self.not_carried(commit, disputed)?.into_iter()),
                ..CommitRecord::before(commit.clone(), date.unwrap_or(now))
            });
        }
        Ok(records)
    }

    /// Whether the date of a commit may be true.
    fn is_believed(
        &self,
        made: &Made,
        now: Timestamp,
        new: &[CommitRecord],
    ) -> Result<bool, Error> {
        let after = made.date.saturating_add(SLOW_HOOK).unwrap_or(made.date);
        let mut is_believed = made.date <= now;
        for id in &made.parents {
            let new = new.iter().find(|record| record.commit == *id);
            let at = match new {
                Some(parent) => Some(parent.at),
                None => self.known.get(id)?.map(|parent| parent.at),
            };
            is_believed &= at.is_none_or(|at| at <= after);
        }
        Ok(is_believed)
    }

    /// The holdings that the commit was made against, without those that a commit which it was made from excuses.
    fn not_carried(
        &self,
        commit: &str,
        disputed: Vec<(&str, Holding)>,
    ) -> Result<Vec<Holding>, Error> {
        if disputed.is_empty() {
            return Ok(Vec::new());
        }
        let origins = self.origins(commit)?;
        let mut left = Vec::new();
        for (path, holding) in disputed {
            let file = self.reserved.in_repository(path);
            let change = touched::change(self.git, commit, file)?;
            let mut is_carried = false;
            for origin in &origins {
                is_carried |= !change.is_empty()
                    && !origin.against.iter().any(|held| held.covers(path))
                    && touched::change(self.git, &origin.commit, file)? == change;
            }
            if !is_carried {
                left.push(holding);
            }
        }
        Ok(left)
    }

    /// The recorded commits that this one may have been made from. Amending, rebasing and picking keep the author and
    /// the author's date.
    fn origins(&self, commit: &str) -> Result<Vec<CommitRecord>, Error> {
        let ids: Vec<String> = self
            .known
            .ids()
            .chain([commit])
            .map(str::to_owned)
            .collect();
        let all = touched::made(self.git, &ids)?;
        let Some(this) = all.iter().find(|made| made.commit == commit) else {
            return Ok(Vec::new());
        };
        let alike = all.iter().filter(|made| made.author == this.author);
        let records = alike.filter_map(|made| self.known.get(&made.commit).transpose());
        Ok(records.collect::<Result<_, _>>()?)
    }
}

fn distinct(found: impl Iterator<Item = Holding>) -> Vec<Holding> {
    let mut all: Vec<Holding> = Vec::new();
    for holding in found {
        if !all.contains(&holding) {
            all.push(holding);
        }
    }
    all
}
