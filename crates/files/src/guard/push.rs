//! Which commits of a push were made against reservations: [`Refused`].

use super::judge::Reserved;
use super::records::{CommitRecord, Holding, Known};
use super::touched;
use crate::Error;
use tenure_git::Git;

/// A path of a commit that was made while another holder had that path.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The path.
    pub path: String,
    /// The record of the commit.
    pub record: CommitRecord,
    /// The reservation.
    pub held: Holding,
}

/// The paths of these commits that other holders had when the commits were made, in the order of the commits.
pub(super) fn refused(
    git: &Git,
    reserved: &Reserved,
    known: &Known,
    commits: &[String],
) -> Result<Vec<Refused>, Error> {
    let records = commits.iter().map(|commit| known.get(commit));
    let records: Vec<Option<CommitRecord>> = records.collect::<Result<_, _>>()?;
    let mut records: Vec<CommitRecord> = records.into_iter().flatten().collect();
    records.retain(|it| !it.against.is_empty());
    let ids: Vec<String> = records.iter().map(|it| it.commit.clone()).collect();
    let changed = reserved.named(touched::of_commits(git, &ids)?);
    let mut found = Vec::new();
    for record in records {
        let touched = changed.iter().find(|it| it.commit == record.commit);
        for path in touched.map_or(&[][..], |it| &it.paths) {
            if let Some(held) = record.against.iter().find(|held| held.covers(path)) {
                found.push(Refused {
                    path: path.clone(),
                    record: record.clone(),
                    held: held.clone(),
                });
            }
        }
    }
    Ok(found)
}

/// What `git rebase` begins after to make this commit again, as a person types it.
pub(super) fn parent(git: &Git, commit: &str) -> String {
    let parent = git.ask(&["rev-parse", "--short=12", &format!("{commit}^")]);
    match parent {
        Ok(Some(parent)) => String::from_utf8_lossy(&parent).trim().to_owned(),
        _ => "--root".to_owned(),
    }
}
