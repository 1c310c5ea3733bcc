//! The paths that a commit, an index or a push changes.
//!
//! 1. A rename changes both names, and a deletion changes the name that goes.
//! 2. A merge changes what differs from its first parent: that is what happens to the branch.
//! 3. A submodule is one path, that of its folder.
//! 4. Patterns are text, and a path in git is bytes. What is not UTF-8 in a path is compared as `U+FFFD`: a folder or
//!    a wildcard covers it, and no pattern names it alone. No path is left out.

use std::collections::HashSet;

use jiff::Timestamp;

use tenure_git::{Git, GitError, lines};

/// The options of every comparison.
const COMPARE: [&str; 4] = [
    "-z",
    "--no-renames",
    "--ignore-submodules=none",
    "--no-ext-diff",
];

/// The paths that a commit changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// Its id.
    pub commit: String,
    /// The paths, from the root of the repository.
    pub paths: Vec<String>,
}

/// A change of a ref, as `reference-transaction` and `pre-receive` read it: `old new ref`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefChange {
    /// The commit before; only zeros if there is none, or if git does not say it.
    pub old: String,
    /// The commit afterwards; only zeros if there is none.
    pub new: String,
    /// The ref.
    pub name: String,
}

impl RefChange {
    /// The changes in the input of a hook.
    pub fn parse(input: &[u8]) -> Vec<Self> {
        let line = |line: String| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            Some(Self {
                old: words.next()?,
                new: words.next()?,
                name: words.next()?,
            })
        };
        lines(input).into_iter().filter_map(line).collect()
    }

    /// Whether it gives a branch another commit. Remote-tracking refs, tags and the stash are not judged.
    pub fn is_branch(&self) -> bool {
        self.name.starts_with("refs/heads/") && is_commit(&self.new)
    }
}

/// Whether a word of a hook's input is the id of a commit that exists.
pub(crate) fn is_commit(id: &str) -> bool {
    id.bytes().all(|byte| byte.is_ascii_hexdigit()) && id.bytes().any(|byte| byte != b'0')
}

/// The paths that differ between the index and `HEAD`: what the next commit changes. In a hook, the index is the one
/// that git makes the commit from.
pub fn staged(git: &Git) -> Result<Vec<String>, GitError> {
    let args = [
        &["diff", "--cached", "--name-only", "--no-relative"],
        &COMPARE[..],
    ]
    .concat();
    Ok(names(&git.run(&args)?))
}

/// The paths that each of these commits changes.
pub fn of_commits(git: &Git, commits: &[String]) -> Result<Vec<Touched>, GitError> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let options = [
        "diff-tree",
        "--stdin",
        "--raw",
        "-r",
        "--root",
        "--diff-merges=first-parent",
    ];
    let answer = feed(git, &[&options[..], &COMPARE[..]].concat(), commits)?;
    Ok(raw(&answer))
}

/// The answer of a git that reads these words, each on a line.
fn feed(git: &Git, args: &[&str], words: &[String]) -> Result<Vec<u8>, GitError> {
    let mut input = words.join("\n").into_bytes();
    input.push(b'\n');
    git.feed(args, input)
}

/// What a commit says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) commit: String,
    /// When it was made, in whole seconds.
    pub(crate) date: Timestamp,
    /// Who wrote the change, and when.
    pub(crate) author: Vec<u8>,
    pub(crate) parents: Vec<String>,
}

/// What these commits say of themselves, without those that are gone.
pub(crate) fn made(git: &Git, commits: &[String]) -> Result<Vec<Made>, GitError> {
    let options = [
        "log",
        "--no-walk=unsorted",
        "--ignore-missing",
        "--stdin",
        "--no-show-signature",
        "-z",
        "--format=%H%n%ct%n%P%n%at %an <%ae>",
    ];
    let answer = feed(git, &options, commits)?;
    let each = answer.split(|byte| *byte == 0).filter_map(|entry| {
        let mut parts = entry.splitn(4, |byte| *byte == b'\n');
        let mut text = || Some(String::from_utf8_lossy(parts.next()?).into_owned());
        let (commit, date, parents) = (text()?, text()?, text()?);
        Some(Made {
            commit,
            date: Timestamp::from_second(date.parse().ok()?).ok()?,
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            author: parts.next()?.to_vec(),
        })
    });
    Ok(each.collect())
}

/// What a commit does to a file, wherever in the file that is: its lines, and its mode. Empty if it does nothing.
pub(crate) fn change(git: &Git, commit: &str, file: &str) -> Result<Vec<u8>, GitError> {
    let options = [
        "diff-tree",
        "--no-commit-id",
        "-r",
        "-p",
        "-U0",
        "--text",
        "--root",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--diff-merges=first-parent",
        "--ignore-submodules=none",
        commit,
        "--",
        file,
    ];
    let answer = git.run(&options)?;
    let mut is_head = true;
    let mut change = Vec::new();
    for line in answer.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"@@ ") {
            is_head = false;
        } else if !is_head || line.windows(5).any(|part| part == b" mode") {
            change.extend_from_slice(line);
        }
    }
    Ok(change)
}

/// Where a branch gets new commits, and what tells that a commit is not new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// In the repository that they are made in: what its branches and its remotes have.
    Local,
    /// The same, and what its branches had before. Reading all reflogs takes longer.
    LocalWithReflogs,
    /// On a server that they are pushed to: what its branches have.
    Server,
}

/// The commits that a hook's input adds to branches, in one set of paths for each branch.
///
/// A commit that another branch has is not new, and neither is one that a local branch had before, as its reflog tells:
/// it was judged when the branch got it. What comes with a fetch is judged elsewhere. A tag, the stash and a detached
/// `HEAD` prove nothing, because no hook judges them; on a server, neither do remote-tracking refs, because they can be
/// pushed. Of the new commits, a path counts only if the branch has another content there now: the author of a message
/// that is amended changes nothing.
pub fn new_on_branches(
    git: &Git,
    side: Side,
    changes: &[RefChange],
) -> Result<Vec<Touched>, GitError> {
    // What a fetch writes to a branch and to a remote-tracking ref is not made here.
    let fetched = changes
        .iter()
        .filter(|change| change.name.starts_with("refs/remotes/") && is_commit(&change.new))
        .map(|change| change.new.clone());
    let mut known: Vec<String> = match side {
        Side::Local | Side::LocalWithReflogs => fetched.collect(),
        Side::Server => Vec::new(),
    };
    if side == Side::LocalWithReflogs {
        let earlier = git.run(&["rev-list", "--walk-reflogs", "--branches", LOOK_BACK])?;
        known.extend(lines(&earlier));
    }
    let mut found = Vec::new();
    for branch in changes.iter().filter(|change| change.is_branch()) {
        let new = unknown(git, side, &branch.new, &known)?;
        if new.is_empty() {
            continue;
        }
        let mut seen = HashSet::new();
        let each = of_commits(git, &new)?.into_iter();
        let mut paths: Vec<String> = each.flat_map(|commit| commit.paths).collect();
        paths.retain(|path| seen.insert(path.clone()));
        if is_commit(&branch.old) {
            let both = ["diff-tree", "-r", "--name-only", &branch.old, &branch.new];
            let answer = git.run(&[&both[..], &COMPARE[..]].concat())?;
            let differ: HashSet<String> = names(&answer).into_iter().collect();
            paths.retain(|path| differ.contains(path));
        }
        found.push(Touched {
            commit: branch.new.clone(),
            paths,
        });
    }
    Ok(found)
}

/// How much of the reflogs is read.
const LOOK_BACK: &str = "--max-count=10000";

/// The commits that this one is or has behind it, without those of branches, and without these.
fn unknown(
    git: &Git,
    side: Side,
    commit: &str,
    without: &[String],
) -> Result<Vec<String>, GitError> {
    let without = without.iter().map(|known| format!("^{known}"));
    let words: Vec<String> = std::iter::once(commit.to_owned()).chain(without).collect();
    let mut args = vec!["rev-list", "--stdin", "--not", "--branches"];
    args.extend((side != Side::Server).then_some("--remotes"));
    Ok(lines(&feed(git, &args, &words)?))
}

/// The commits that a push sends, to whichever refs, the newest first, each with its parents. The input has `local_ref
/// local_id remote_ref remote_id` in each line. Only the first of these may have spaces or line breaks in it: what is
/// pushed may be `HEAD@{1 hour ago}`.
pub fn pushed(git: &Git, remote: &str, input: &[u8]) -> Result<Vec<Vec<String>>, GitError> {
    let mut sent = Vec::new();
    let mut aside = Vec::new();
    let mut known = Vec::new();
    for line in lines(input) {
        let words: Vec<&str> = line.rsplitn(4, ' ').collect();
        let &[there, remote_ref, local, _] = words.as_slice() else {
            continue;
        };
        if is_commit(local) {
            let is_aside = ASIDE.iter().any(|folder| remote_ref.starts_with(folder));
            let to = if is_aside { &mut aside } else { &mut sent };
            to.push(local.to_owned());
        }
        if is_commit(there) {
            known.push(format!("^{there}"));
        }
    }
    let mut wanted = peeled(git, &sent)?;
    for commit in peeled(git, &aside)? {
        if is_of_work_tree(git, &commit)? {
            wanted.push(commit);
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let remotes = format!("--remotes={remote}");
    let list = |known: &[String]| {
        let options = [
            "rev-list",
            "--topo-order",
            "--parents",
            "--stdin",
            "--not",
            &remotes,
        ];
        feed(git, &options, &[&wanted[..], known].concat())
    };
    // The commit that the remote has need not be here.
    let answer = list(&known).or_else(|_| list(&[]))?;
    Ok(families(&answer))
}

/// Where commits are kept whose files are not those of the work tree: notes of git, and shared tasks.
const ASIDE: [&str; 2] = ["refs/notes/", "refs/tenure/"];

/// The commits that these objects are, or that they are tags of. Files and folders are left out.
fn peeled(git: &Git, objects: &[String]) -> Result<Vec<String>, GitError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let commits = objects.iter().map(|object| format!("{object}^{{commit}}"));
    let commits: Vec<String> = commits.collect();
    let check = ["cat-file", "--batch-check=%(objectname)"];
    let mut found = lines(&feed(git, &check, &commits)?);
    // What is no commit is answered with `... missing`.
    found.retain(|line| is_commit(line));
    Ok(found)
}

/// Whether a commit has a beginning in common with `HEAD` or a branch.
fn is_of_work_tree(git: &Git, commit: &str) -> Result<bool, GitError> {
    let tips = tips(git)?;
    if tips.is_empty() {
        return Ok(false);
    }
    let words = ["merge-base", commit].map(str::to_owned);
    let base = git.ask(&[&words[..], &tips].concat())?;
    Ok(base.is_some())
}

/// Those of these commits that no remote has.
pub fn not_on_remotes(git: &Git, mut commits: Vec<String>) -> Result<Vec<String>, GitError> {
    if commits.is_empty() {
        return Ok(commits);
    }
    let options = ["rev-list", "--stdin", "--not", "--remotes"];
    let here = feed(git, &options, &commits)?;
    let here: HashSet<String> = lines(&here).into_iter().collect();
    commits.retain(|commit| here.contains(commit));
    Ok(commits)
}

/// Lines of a commit and its parents.
fn families(answer: &[u8]) -> Vec<Vec<String>> {
    let words = |line: String| line.split(' ').map(str::to_owned).collect();
    lines(answer).into_iter().map(words).collect()
}

/// The newest commits of this work tree that no remote has, each with its parents.
pub fn own_commits(git: &Git, most: usize) -> Result<Vec<Vec<String>>, GitError> {
    let most = format!("--max-count={most}");
    let args = [
        "rev-list",
        "--topo-order",
        "--parents",
        &most,
        "HEAD",
        "--not",
        "--remotes",
    ];
    match git.run(&args) {
        Err(_) if has_no_commit(git)? => Ok(Vec::new()),
        answer => Ok(families(&answer?)),
    }
}

/// The tips of all branches, and `HEAD`.
pub fn tips(git: &Git) -> Result<Vec<String>, GitError> {
    let all = match git.run(&["rev-list", "--no-walk", "--branches", "HEAD"]) {
        Err(_) if has_no_commit(git)? => git.run(&["rev-list", "--no-walk", "--branches"]),
        all => all,
    };
    Ok(lines(&all?))
}

/// Whether `HEAD` names no commit yet.
pub(crate) fn has_no_commit(git: &Git) -> Result<bool, GitError> {
    let head = git.ask(&["rev-parse", "--verify", "--quiet", "HEAD"])?;
    Ok(head.is_none())
}

/// Paths with a NUL after each.
fn names(answer: &[u8]) -> Vec<String> {
    let parts = answer
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty());
    parts
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect()
}

/// The answer of `diff-tree --stdin --raw -z`: a commit's id, then for each path what happened, and the path. Without
/// what happened, a file whose name is an id could not be told from a commit.
fn raw(answer: &[u8]) -> Vec<Touched> {
    let mut found: Vec<Touched> = Vec::new();
    let mut parts = answer
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty());
    while let Some(part) = parts.next() {
        if part.first() != Some(&b':') {
            found.push(Touched {
                commit: String::from_utf8_lossy(part).trim().to_owned(),
                paths: Vec::new(),
            });
            continue;
        }
        if let (Some(commit), Some(path)) = (found.last_mut(), parts.next()) {
            commit
                .paths
                .push(String::from_utf8_lossy(path).into_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_named_like_a_commit_is_a_file() {
        let id = "c39ed9ba593e54cc044f31c52f9dc78b27029c79";
        let answer =
            format!("{id}\0:000000 100644 0 1 A\0{id}\0:100644 000000 1 0 D\0src/a b\0{id}\0");
        let found = raw(answer.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].paths, [id, "src/a b"]);
        assert!(found[1].paths.is_empty());
    }

    #[test]
    fn only_branches_that_exist_afterwards_are_judged() {
        let zeros = "0".repeat(40);
        let id = "c".repeat(40);
        let input = format!(
            "{zeros} {id} HEAD\n{zeros} {id} refs/heads/main\n{id} {zeros} refs/heads/gone\n{zeros} {id} refs/tags/v1\n\
             {zeros} ref:refs/heads/main HEAD\n{zeros} {id} refs/remotes/origin/main\n"
        );
        let changes = RefChange::parse(input.as_bytes());
        let judged: Vec<&str> = changes
            .iter()
            .filter(|change| change.is_branch())
            .map(|change| change.name.as_str())
            .collect();
        assert_eq!(judged, ["refs/heads/main"]);
    }
}
