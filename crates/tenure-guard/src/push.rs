//! Which tokens were overtaken since their commits: [`overtaken`].

use std::collections::HashSet;

use tenure_core::{Event, EventKind, Token};

use crate::judge::Reserved;
use crate::records::{Known, Record};
use crate::touched::Touched;

/// A path of a commit that was granted to another holder since.
#[derive(Debug, Clone)]
pub struct Overtaken<'a> {
    /// The path.
    pub path: &'a str,
    /// The record of the commit.
    pub record: Record,
    /// The later grant.
    pub by: &'a Event,
}

/// The paths of these commits, the newest commit first, that were granted to another holder after the newest of the
/// commits that changes them. A rebase makes new commits, so it has seen that holder's work; and so has a merge that
/// came after the grant, once the grant has ended.
///
/// A later grant to read a path counts while it is in effect: its holder asked that the path is not changed.
pub fn overtaken<'a>(
    commits: &'a [Touched],
    merges: &[String],
    known: &Known,
    grants: &'a [Event],
    reserved: &Reserved,
) -> Vec<Overtaken<'a>> {
    let mut seen = HashSet::new();
    let mut merged = Token(0);
    let mut found = Vec::new();
    for commit in commits {
        let Some(record) = known.get(&commit.commit) else {
            continue;
        };
        if merges.contains(&commit.commit) && record.against.is_empty() {
            merged = merged.max(Token(record.newest));
        }
        for path in commit
            .paths
            .iter()
            .filter(|path| seen.insert(path.as_str()))
        {
            let token = record.token(path);
            let overtakes = |event: &&Event| {
                let paths = event.mode.paths();
                event.kind == EventKind::Granted
                    && event.token > token
                    && (event.token > merged || reserved.has(event.token))
                    && !record.by.contains(&event.holder)
                    && !record.own.iter().any(|own| own.holder == event.holder)
                    && paths.is_none_or(|paths| paths.covers(path).is_some())
                    && (!paths.is_some_and(|paths| paths.is_shared()) || reserved.has(event.token))
            };
            if let Some(by) = grants.iter().rev().find(overtakes) {
                found.push(Overtaken {
                    path,
                    record: record.clone(),
                    by,
                });
            }
        }
    }
    found
}
