//! When an agent's session gives a file back: [`Release`], the setting `guard.release`.

use std::time::Duration;

use super::GuardSettings;
use super::value::Text;
use crate::text::duration;

/// The texts of `guard.release`.
pub(super) const ACCEPTED: Text = Text {
    words: "auto, session, commit, a quiet time from 1m to 30d, or commit and a quiet time: commit, 10m",
    is_accepted: |text| parse(text).is_some(),
};

const SHORTEST_QUIET: Duration = Duration::from_secs(60);
const LONGEST_QUIET: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// In one shared work tree, a commit makes a change visible to every agent, so its files are free again.
const SHARED_TREE: Release = Release {
    commit: true,
    quiet: Some(Duration::from_secs(10 * 60)),
};

/// In a linked worktree, a commit is on a branch that the other agents don't see before it is merged.
const LINKED_WORKTREE: Release = Release {
    commit: false,
    quiet: Some(Duration::from_secs(2 * 60 * 60)),
};

/// When the session of an agent gives a file back that it reserved. It always does at its end; by default, only then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Release {
    /// When the file was committed.
    pub commit: bool,
    /// When the session has not written to the file for so long.
    pub quiet: Option<Duration>,
}

impl GuardSettings {
    /// What `guard.release` means in the main work tree, or in a linked worktree: `auto` differs.
    pub fn release(&self, is_linked_worktree: bool) -> Release {
        match parse(&self.release_text) {
            Some(Meaning::Always(release)) => release,
            Some(Meaning::Auto) | None if is_linked_worktree => LINKED_WORKTREE,
            Some(Meaning::Auto) | None => SHARED_TREE,
        }
    }
}

/// What a text means.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// It depends on the work tree.
    Auto,
    Always(Release),
}

/// What a text means, if it can be used.
fn parse(text: &str) -> Option<Meaning> {
    if text == "auto" {
        return Some(Meaning::Auto);
    }
    let mut release = Release::default();
    if text == "session" {
        return Some(Meaning::Always(release));
    }
    for word in text.split(',').map(str::trim) {
        if word == "commit" && !release.commit {
            release.commit = true;
            continue;
        }
        let quiet = duration::parse(word).ok()?;
        if release.quiet.is_some() || !(SHORTEST_QUIET..=LONGEST_QUIET).contains(&quiet) {
            return None;
        }
        release.quiet = Some(quiet);
    }
    Some(Meaning::Always(release))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_release_is_a_list_of_occasions() {
        let minutes = |count: u64| Some(Duration::from_secs(count * 60));
        let is = |commit, quiet| Some(Meaning::Always(Release { commit, quiet }));
        assert_eq!(parse("session"), is(false, None));
        assert_eq!(parse("commit"), is(true, None));
        assert_eq!(parse("30m"), is(false, minutes(30)));
        assert_eq!(parse("commit, 30m"), is(true, minutes(30)));
        assert_eq!(parse("1h30m,commit"), is(true, minutes(90)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            ",",
            "never",
            "commit, commit",
            "1m, 2m",
            "59s",
            "31d",
            "session, 1m",
            "auto, commit",
            "commit,",
            "commit 10m",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn auto_gives_a_file_back_at_its_commit_only_where_others_see_it() {
        let guard = Config::default().guard;
        assert!(guard.release(false).commit);
        assert!(!guard.release(true).commit);
        assert!(guard.release(true).quiet > guard.release(false).quiet);
    }
}
