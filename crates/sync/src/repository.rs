//! The repository that a project is in: its remotes, its refs, and the files on them.
//!
//! # Invariants
//!
//! 1. Only `refs/tenure/tasks` and `refs/tenure/remotes/NAME/tasks` are written here, and on a remote only
//!    the ref of the setting `sync.ref`.
//! 2. A ref is moved only from the commit where it was last seen, or to a commit that contains that one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tenure_git::{Git, GitError};
use tenure_host::files::atomic;
use tenure_host::time_limit::TimeLimit;

use super::lines;

/// The ref that holds the tasks in this clone.
pub(super) const LOCAL: &str = "refs/tenure/tasks";

/// The first words of every commit that a sync makes.
const SUBJECT: &str = "Sync tasks";

/// How long a lock file on one of our refs must stand unchanged until it counts as left by a killed git:
/// a git that lives holds such a lock for milliseconds.
const STALE: Duration = Duration::from_secs(5);

/// What git prints if another process moves or locks a ref at the same time.
const OUTRUN: [&str; 5] = [
    "cannot lock ref",
    "Unable to create",
    "Not updating",
    "reference already exists",
    "but expected",
];

/// The id of a commit.
pub(super) type Oid = String;

/// The contents of files, by commit and path; `None` for one that does not exist.
pub(super) type Texts = BTreeMap<(Oid, String), Option<Vec<u8>>>;

/// The ref of a remote as it was fetched last.
pub(super) fn tracking(remote: &str) -> String {
    format!("refs/tenure/remotes/{remote}/tasks")
}

/// The result of a push.
pub(super) enum Pushed {
    Done,
    /// The remote's ref moved or was locked meanwhile: git's words.
    Outrun(String),
}

/// A repository.
pub(super) struct TaskRepository<'a> {
    pub(super) git: Git<'a>,
    /// The names of its remotes.
    pub(super) remotes: Vec<String>,
    /// The ref on the remotes.
    pub(super) reference: &'a str,
    /// The folder of this project's files: a repository may hold several projects.
    base: String,
    /// Where the project is in the repository.
    prefix: String,
    /// Whether the user chose how ssh is run.
    has_ssh: bool,
}

impl<'a> TaskRepository<'a> {
    /// The repository that git's folder is in; `None` if it is in none.
    pub(super) fn find(git: Git<'a>, reference: &'a str) -> Result<Option<Self>, GitError> {
        let found = match git.run(&["rev-parse", "--show-cdup", "--show-prefix"]) {
            Ok(found) => found,
            Err(error) if error.says(&["not a git repository"]) => return Ok(None),
            Err(other) => return Err(other),
        };
        let mut lines = found.splitn(2, |byte| *byte == b'\n');
        let to_the_top = lines.next().unwrap_or_default();
        let prefix = lines.next().unwrap_or_default();
        let prefix = prefix.strip_suffix(b"\n").unwrap_or(prefix);
        let folder = prefix.strip_suffix(b"/").unwrap_or(prefix);
        // From a subfolder, git would see only that part of a commit.
        let git = git.inside(OsStr::from_bytes(to_the_top));
        let known = r"^(remote\..*\.(push)?url|core\.sshcommand)$";
        let mut remotes: BTreeSet<String> = BTreeSet::new();
        let mut has_ssh = ["GIT_SSH_COMMAND", "GIT_SSH"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let keys = git.ask(&["config", "--name-only", "--get-regexp", known])?;
        for key in tenure_git::lines(&keys.unwrap_or_default()) {
            match key
                .strip_prefix("remote.")
                .and_then(|key| key.rsplit_once('.'))
            {
                Some((name, _)) => {
                    remotes.insert(name.to_owned());
                }
                None => has_ssh = true,
            }
        }
        Ok(Some(Self {
            git,
            remotes: remotes.into_iter().collect(),
            reference,
            base: match folder {
                b"" => String::new(),
                folder => format!("projects/{}/", lines::escaped(folder)),
            },
            prefix: String::from_utf8_lossy(prefix).into_owned(),
            has_ssh,
        }))
    }

    /// Whether a file of the project is in the commit that is checked out.
    pub(super) fn has_committed(&self, path: &str) -> Result<bool, GitError> {
        let name = format!("HEAD:./{}{path}", self.prefix);
        let found = self.git.lines(&["rev-parse", "--verify", "--quiet", &name]);
        match found {
            Ok(found) => Ok(!found.is_empty()),
            Err(GitError::Refused { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The remotes to share tasks with, or why that is not clear.
    pub(super) fn chosen(&self, setting: &str) -> Result<Vec<String>, String> {
        match setting {
            "none" => Ok(Vec::new()),
            "auto" => match self.remotes.as_slice() {
                [] => Ok(Vec::new()),
                [only] => Ok(vec![only.clone()]),
                several if several.iter().any(|name| name == "origin") => Ok(vec!["origin".into()]),
                several => Err(format!(
                    "there are several remotes ({}): choose with the setting sync.remote",
                    several.join(", ")
                )),
            },
            names => {
                let names: Vec<String> = names.split(',').map(|name| name.trim().into()).collect();
                match names.iter().find(|name| !self.remotes.contains(name)) {
                    Some(name) => Err(format!(
                        "there is no remote {name}: correct the setting sync.remote, or git remote add {name} URL"
                    )),
                    None => Ok(names),
                }
            }
        }
    }

    /// Runs git with settings for a remote.
    pub(super) fn remote(
        &self,
        remote: &str,
        args: &[&str],
        limit: Duration,
    ) -> Result<Vec<u8>, GitError> {
        let mirror = format!("remote.{remote}.mirror=false");
        let mut all = vec!["-c", mirror.as_str()];
        if !self.has_ssh {
            all.extend(["-c", "core.sshCommand=ssh -oBatchMode=yes"]);
        }
        all.extend(args);
        self.git.run_for(&all, limit)
    }

    /// Fetches the tasks of a remote; `false` if it has none.
    pub(super) fn fetch(&self, remote: &str, limit: Duration) -> Result<bool, GitError> {
        let refspec = format!("+{}:{}", self.reference, tracking(remote));
        let fetched = self.remote(
            remote,
            &[
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-prune",
                "--no-filter",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--no-auto-maintenance",
                // Nothing but what is named here.
                "--refmap=",
                "--end-of-options",
                remote,
                &refspec,
            ],
            limit,
        );
        match fetched {
            Ok(_) => Ok(true),
            Err(error) if error.says(&["couldn't find remote ref"]) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Pushes the tasks to a remote, unless another clone pushed first.
    pub(super) fn push(&self, remote: &str, commit: &str) -> Result<Pushed, GitError> {
        let refspec = format!("{commit}:{}", self.reference);
        let pushed = self.remote(
            remote,
            &[
                "push",
                "--quiet",
                "--no-verify",
                // Whatever the settings say: nothing is signed, and no tag or submodule is pushed.
                "--no-signed",
                "--no-follow-tags",
                "--recurse-submodules=no",
                "--end-of-options",
                remote,
                &refspec,
            ],
            tenure_git::LIMIT,
        );
        match pushed {
            Ok(_) => Ok(Pushed::Done),
            Err(error)
                if error.says(&["[rejected]", "cannot lock ref", "failed to update ref"]) =>
            {
                // A remote may be a folder of this machine.
                is_outrun(&error);
                Ok(Pushed::Outrun(error.to_string()))
            }
            Err(other) => Err(other),
        }
    }

    /// Records what a remote has now.
    pub(super) fn track(&self, remote: &str, commit: &str) -> Result<(), GitError> {
        self.git.run(&["update-ref", &tracking(remote), commit])?;
        Ok(())
    }

    /// Asks git about objects.
    fn ask(&self, how: &str, names: impl Iterator<Item = String>) -> Result<Vec<u8>, GitError> {
        let mut input: Vec<u8> = Vec::new();
        for name in names {
            input.extend(name.bytes().chain(*b"\n"));
        }
        self.git.feed(&["cat-file", how], input)
    }

    /// The commits that these names stand for.
    pub(super) fn resolve(&self, names: &[String]) -> Result<Vec<Option<Oid>>, GitError> {
        let names = names.iter().map(|name| format!("{name}^{{commit}}"));
        let answer = self.ask("--batch-check", names)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let commit = |line: &str| {
            let mut words = line.split(' ');
            let oid = words.next()?.to_owned();
            (words.next() == Some("commit")).then_some(oid)
        };
        Ok(answer.lines().map(commit).collect())
    }

    /// The files of this project that differ between two commits; all that are in `to` without `from`.
    pub(super) fn changed(&self, from: Option<&Oid>, to: &Oid) -> Result<Vec<String>, GitError> {
        let mut args = match from {
            Some(from) => vec!["diff-tree", "-r", "--no-renames", "--name-only", from, to],
            None => vec!["ls-tree", "-r", "--name-only", to],
        };
        if !self.base.is_empty() {
            args.extend(["--", &self.base]);
        }
        let paths = self.git.lines(&args)?;
        Ok(paths.iter().filter_map(|path| self.inside(path)).collect())
    }

    /// A path as this project sees it; `None` for that of another project.
    pub(super) fn inside(&self, path: &str) -> Option<String> {
        let path = path.strip_prefix(&self.base)?;
        (!path.starts_with("projects/")).then(|| path.to_owned())
    }

    /// Reads files of commits.
    pub(super) fn read<'b>(
        &self,
        files: impl IntoIterator<Item = (&'b Oid, &'b String)>,
        texts: &mut Texts,
    ) -> Result<(), GitError> {
        let missing = files
            .into_iter()
            .map(|(commit, path)| (commit.clone(), path.clone()));
        let wanted: BTreeSet<(Oid, String)> =
            missing.filter(|file| !texts.contains_key(file)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let base = &self.base;
        let names = wanted.iter().map(|(commit, path)| match path.as_str() {
            // The marker is that of the whole ref.
            path if path == lines::MARKER.0 => format!("{commit}:{path}"),
            path => format!("{commit}:{base}{path}"),
        });
        let contents = contents(&self.ask("--batch", names)?);
        texts.extend(wanted.into_iter().zip(contents));
        Ok(())
    }

    /// The contents of objects, by their names.
    pub(super) fn blobs(
        &self,
        names: impl Iterator<Item = String>,
    ) -> Result<Vec<Option<Vec<u8>>>, GitError> {
        Ok(contents(&self.ask("--batch", names)?))
    }

    /// Of several commits, those that none of the others contains.
    pub(super) fn independent(&self, tips: &[Oid]) -> Result<Vec<Oid>, GitError> {
        if tips.len() < 2 {
            return Ok(tips.to_vec());
        }
        let mut args = vec!["merge-base", "--independent"];
        args.extend(tips.iter().map(String::as_str));
        self.git.lines(&args)
    }

    /// Commits files on top of `parents` and moves the local ref there. Only changed files are read or
    /// written, and the folders that hold them.
    pub(super) fn commit(
        &self,
        parents: &[Oid],
        files: &BTreeMap<String, String>,
        fallback_name: &str,
    ) -> Result<Oid, GitError> {
        let who = match self.git.lines(&["var", "GIT_AUTHOR_IDENT"]) {
            Ok(lines) => lines.into_iter().next().unwrap_or_default(),
            // Git does not know the user's name. That is no reason not to share tasks.
            Err(GitError::Refused { .. }) => fallback_name.to_owned(),
            Err(other) => return Err(other),
        };
        let count = files.len();
        let message = format!("{SUBJECT} ({count})\n");
        let mut input = format!(
            "feature done\ncommit {LOCAL}\nmark :1\nauthor {who}\ncommitter {who}\ndata {}\n{message}",
            message.len()
        );
        for (parent, word) in parents
            .iter()
            .zip(std::iter::once("from").chain(std::iter::repeat("merge")))
        {
            let _ = writeln!(input, "{word} {parent}");
        }
        for (path, text) in files {
            let base = if path == lines::MARKER.0 {
                ""
            } else {
                &self.base
            };
            let size = text.len();
            let _ = writeln!(input, "M 100644 inline {base}{path}\ndata {size}\n{text}");
        }
        input.push_str("get-mark :1\ndone\n");
        let made = self
            .git
            .feed(&["fast-import", "--quiet", "--done"], input.into_bytes());
        if let Err(GitError::Refused { stderr, .. }) = &made {
            remove_crash_report(self.git.folder(), stderr);
        }
        let made = String::from_utf8_lossy(&made?).trim().to_owned();
        Ok(made)
    }

    /// Moves the local ref from one commit to another.
    pub(super) fn advance(&self, from: Option<&Oid>, to: &Oid) -> Result<(), GitError> {
        let from = from.map_or("", String::as_str);
        self.git.run(&["update-ref", LOCAL, to, from])?;
        Ok(())
    }
}

/// The contents in the answer of `git cat-file --batch`.
fn contents(answer: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut found = Vec::new();
    let mut rest = answer;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(end);
        let line = String::from_utf8_lossy(line).into_owned();
        let after = after.get(1..).unwrap_or_default();
        let words: Vec<&str> = line.split(' ').collect();
        let size = match words.as_slice() {
            [_, _, size] => size.parse::<usize>().ok(),
            _ => None,
        };
        let content = size.and_then(|size| after.get(..size)).map(<[u8]>::to_vec);
        found.push(content.filter(|_| words.get(1) == Some(&"blob")));
        rest = size.and_then(|size| after.get(size + 1..)).unwrap_or(after);
    }
    found
}

/// Git describes a failed import in a file of its own, which nobody needs.
fn remove_crash_report(root: &Path, stderr: &str) {
    let name = stderr
        .split_whitespace()
        .find(|word| word.contains("fast_import_crash_"));
    if let Some(name) = name {
        let _ = fs::remove_file(root.join(name));
    }
}

/// Whether another process moved or locked a ref at the same time, or removed a folder of objects that was empty, as
/// `git gc` does, so that the sync has to be tried again. A lock that a killed git left on one of our refs is removed.
pub(super) fn is_outrun(error: &GitError) -> bool {
    if error.says(&["unable to write file"]) && error.says(&["No such file or directory"]) {
        return true;
    }
    if !error.says(&OUTRUN) {
        return false;
    }
    if let GitError::Refused { stderr, .. } = error
        && let Some((_, rest)) = stderr.split_once("Unable to create '")
        && let Some((path, _)) = rest.split_once('\'')
        && path.contains("/refs/tenure/")
    {
        remove_if_stale(Path::new(path));
    }
    true
}

fn remove_if_stale(lock: &Path) {
    let identity = || {
        fs::metadata(lock)
            .ok()
            .map(|file| (file.ino(), file.mtime_nsec(), file.mtime()))
    };
    let Some(first) = identity() else { return };
    let limit = TimeLimit::after(STALE);
    while !limit.has_passed() {
        if identity() != Some(first) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = atomic::unlink(lock);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_objects_that_gc_removed_is_a_reason_to_try_again_and_a_full_disk_is_none() {
        let refused = |stderr: &str| GitError::Refused {
            what: "fast-import".into(),
            stderr: stderr.into(),
        };
        let file = "fatal: unable to write file .git/objects/27/88ba";
        assert!(is_outrun(&refused(&format!(
            "{file}: No such file or directory"
        ))));
        assert!(!is_outrun(&refused(&format!(
            "{file}: No space left on device"
        ))));
    }
}
