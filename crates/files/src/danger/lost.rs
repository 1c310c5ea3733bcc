//! Which uncommitted files a command destroys, as git says: [`lost`].

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tenure_host::files::look;

use super::git::Repository;
use super::{DirtyFile, Files, How, Losing, Loss, Tracked, Untracked};

/// Which of these files the command would destroy. Git is asked whether each of them is changed at all, so the caller may
/// name files that are no longer dirty. What git can't tell is not lost.
///
/// Of stashes, branches and unreferenced objects no file is lost: the caller looks at [`Loss::what`].
pub fn lost<'d>(loss: &Loss, dirty: &'d [DirtyFile]) -> Vec<&'d DirtyFile> {
    let here = |file: &&DirtyFile| is_same(&file.root, &loss.root);
    match &loss.what {
        Losing::Files(files) => {
            let dirty: Vec<&DirtyFile> = dirty.iter().filter(here).collect();
            of_files(loss, files, dirty).unwrap_or_default()
        }
        Losing::Cleaned { options, paths } => {
            let dirty: Vec<&DirtyFile> = dirty.iter().filter(here).collect();
            cleaned(loss, options, paths, dirty).unwrap_or_default()
        }
        Losing::Folder { git_checks } => {
            let inside = |file: &&DirtyFile| is_inside(&file.root, &loss.root);
            below(dirty.iter().filter(inside).collect(), true, *git_checks)
        }
        Losing::Submodules { and_new } => {
            let inside = |file: &&DirtyFile| is_inside(&file.root, &loss.root) && !here(file);
            below(dirty.iter().filter(inside).collect(), *and_new, false)
        }
        Losing::Stashes(_) | Losing::Branch(_) | Losing::Unreferenced => Vec::new(),
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || real(one) == real(other)
}

fn is_inside(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
}

/// A file that git calls changed or new.
struct Entry {
    /// In the index.
    staged: u8,
    /// In the work tree.
    worktree: u8,
    /// From the top. That of a folder ends with a slash: everything in it is new.
    path: Vec<u8>,
}

impl Entry {
    fn is_untracked(&self) -> bool {
        self.staged == b'?' || self.is_ignored()
    }

    fn is_ignored(&self) -> bool {
        self.staged == b'!'
    }

    fn is_conflict(&self) -> bool {
        let both = [self.staged, self.worktree];
        both.contains(&b'U') || both == *b"AA" || both == *b"DD"
    }

    /// Whether only its name was added.
    fn is_intent(&self) -> bool {
        [self.staged, self.worktree] == *b" A"
    }

    fn is_of(&self, file: &DirtyFile) -> bool {
        let path = file.path.as_os_str().as_bytes();
        path == self.path || (self.path.ends_with(b"/") && path.starts_with(&self.path))
    }
}

/// What git says of these paths.
fn status(
    repository: &Repository,
    untracked: bool,
    ignored: bool,
    paths: impl Iterator<Item = OsString>,
) -> Option<Vec<Entry>> {
    let all = |yes| if yes { "all" } else { "no" };
    let mut args: Vec<OsString> = vec![
        "status".into(),
        "--porcelain=v1".into(),
        "-z".into(),
        "--no-renames".into(),
        format!("--untracked-files={}", all(untracked)).into(),
        format!("--ignored={}", if ignored { "traditional" } else { "no" }).into(),
        "--ignore-submodules=all".into(),
        "--".into(),
    ];
    args.extend(paths);
    let answer = repository.ask(&args)?;
    let entries = answer.split(|byte| *byte == 0).filter_map(|entry| {
        let ([staged, worktree, b' '], path) = entry.split_first_chunk::<3>()? else {
            return None;
        };
        Some(Entry {
            staged: *staged,
            worktree: *worktree,
            path: path.to_owned(),
        })
    });
    Some(entries.collect())
}

/// A file as a pathspec that means nothing else, wherever git runs.
fn literal(file: &DirtyFile) -> OsString {
    let mut spec = b":(top,literal)".to_vec();
    spec.extend(file.path.as_os_str().as_bytes());
    OsString::from_vec(spec)
}

fn of_files<'d>(
    loss: &Loss,
    files: &Files,
    mut dirty: Vec<&'d DirtyFile>,
) -> Option<Vec<&'d DirtyFile>> {
    // All below one folder are found faster by their names.
    let mut paths = files.paths.as_slice();
    if paths == ["."] {
        dirty.retain(|file| is_below(&loss.repository.folder, file));
        paths = &[];
    }
    if dirty.is_empty() {
        return None;
    }
    let specs: Vec<OsString> = if files.tracked == Tracked::StagedOnly {
        // One file in the way keeps git from writing all others.
        vec![":/".into()]
    } else if paths.is_empty() {
        dirty.iter().map(|file| literal(file)).collect()
    } else {
        paths.iter().map(OsString::from).collect()
    };
    let ignored = matches!(files.untracked, Untracked::AndIgnored | Untracked::InTree);
    let new = files.untracked != Untracked::None;
    let entries = status(&loss.repository, new, ignored, specs.into_iter())?;
    // Git stashes nothing while there are conflicts, or names without content, and then overwrites no file that is named.
    let stashes = matches!(loss.how, How::PutsAway | How::PutsAwayForAWhile);
    let is_conflict = || {
        let paths: &[String] = if stashes { &[] } else { &files.paths };
        let args = ["ls-files", "--unmerged", "-z", "--"]
            .iter()
            .map(OsString::from);
        let args: Vec<OsString> = args.chain(paths.iter().map(OsString::from)).collect();
        let conflicts = loss.repository.ask(&args);
        conflicts.is_some_and(|conflicts| !conflicts.is_empty())
    };
    let is_intent = entries.iter().any(Entry::is_intent);
    let is_named = files.tracked == Tracked::Unstaged;
    if (stashes && is_intent) || ((stashes || is_named) && is_conflict()) {
        return None;
    }
    if files.tracked == Tracked::StagedOnly && gives_up(loss, files, &entries) {
        return None;
    }
    let with = |file: &&DirtyFile| entries.iter().find(|entry| entry.is_of(file));
    let asks_tree = files.tracked == Tracked::InTree
        || matches!(files.untracked, Untracked::InTree | Untracked::Refused);
    let in_tree = match &files.tree {
        Some(tree) if asks_tree => tree_has(loss, tree, &dirty)?,
        _ => BTreeSet::new(),
    };
    let in_tree = |file: &DirtyFile| in_tree.contains(file.path.as_os_str());
    let in_the_way =
        |file: &&DirtyFile| with(file).is_some_and(Entry::is_untracked) && in_tree(file);
    if files.untracked == Untracked::Refused && dirty.iter().any(in_the_way) {
        return None;
    }
    dirty.retain(|file| {
        let Some(entry) = with(file) else {
            return false;
        };
        if entry.is_untracked() {
            return match files.untracked {
                Untracked::None | Untracked::Refused => false,
                Untracked::InTree => in_tree(file),
                Untracked::New => !entry.is_ignored(),
                Untracked::AndIgnored => true,
            };
        }
        match files.tracked {
            Tracked::Changed => true,
            Tracked::InTree => files.tree.is_none() || in_tree(file),
            Tracked::Unstaged => entry.worktree != b' ',
            Tracked::Staged | Tracked::StagedOnly => entry.staged != b' ',
        }
    });
    if loss.how == How::Deletes {
        dirty.retain(|file| look::may_be_there(&file.root.join(&file.path)));
    }
    Some(dirty)
}

/// Whether git does nothing because a file that it would write is changed since it was staged.
fn gives_up(loss: &Loss, files: &Files, entries: &[Entry]) -> bool {
    let tree = files.tree.as_deref().unwrap_or("HEAD");
    let args = [
        "diff",
        "--cached",
        "--name-only",
        "--no-renames",
        "-z",
        tree,
        "--",
    ];
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let written = loss.repository.ask(&args).unwrap_or_default();
    let written: BTreeSet<&[u8]> = written.split(|byte| *byte == 0).collect();
    let is_changed = |entry: &Entry| !entry.is_conflict() && entry.worktree != b' ';
    let in_the_way = |entry: &&Entry| is_changed(entry) && written.contains(&*entry.path);
    entries.iter().any(|entry| in_the_way(&entry))
}

/// Whether a file is in a folder, or is it.
fn is_below(folder: &Path, file: &DirtyFile) -> bool {
    real(&file.root).join(&file.path).starts_with(real(folder))
}

/// Which of these files a tree has.
fn tree_has(loss: &Loss, tree: &str, dirty: &[&DirtyFile]) -> Option<BTreeSet<OsString>> {
    let mut args: Vec<OsString> = [
        "ls-tree",
        "-r",
        "-z",
        "--name-only",
        "--full-tree",
        tree,
        "--",
    ]
    .iter()
    .map(OsString::from)
    .collect();
    args.extend(dirty.iter().map(|file| file.path.clone().into_os_string()));
    let answer = loss.repository.ask(&args)?;
    let names = answer.split(|byte| *byte == 0);
    Some(
        names
            .map(|name| OsStr::from_bytes(name).to_owned())
            .collect(),
    )
}

/// The files that `git clean` would delete: it is asked itself.
fn cleaned<'d>(
    loss: &Loss,
    options: &[String],
    paths: &[String],
    mut dirty: Vec<&'d DirtyFile>,
) -> Option<Vec<&'d DirtyFile>> {
    if dirty.is_empty() {
        return None;
    }
    let mut args: Vec<OsString> = vec!["clean".into(), "-n".into()];
    args.extend(options.iter().map(OsString::from));
    args.push("--".into());
    args.extend(paths.iter().map(OsString::from));
    let answer = loss.repository.ask(&args)?;
    let folder = real(&loss.repository.folder);
    let lines = answer.split(|byte| *byte == b'\n');
    let removed = lines.filter_map(|line| line.strip_prefix(b"Would remove "));
    let removed: Vec<PathBuf> = removed
        .map(|path| plain(&folder.join(OsStr::from_bytes(&unquoted(path)))))
        .collect();
    dirty.retain(|file| {
        let path = real(&file.root).join(&file.path);
        removed.iter().any(|removed| path.starts_with(removed))
    });
    Some(dirty)
}

/// The path with `..` taken away.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// A path as git prints it: in quotes, with escapes, if it has odd characters.
fn unquoted(text: &[u8]) -> Vec<u8> {
    let inner = text
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""));
    let Some(inner) = inner else {
        return text.to_owned();
    };
    let mut bytes = Vec::new();
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let escaped = rest.next().unwrap_or(b'\\');
        bytes.push(match escaped {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'0'..=b'3' => {
                let digit = |byte: Option<u8>| byte.unwrap_or(b'0') & 7;
                (escaped & 3) << 6 | digit(rest.next()) << 3 | digit(rest.next())
            }
            other => other,
        });
    }
    bytes
}

/// The changed files in several work trees that are deleted or reset as a whole.
fn below(mut dirty: Vec<&DirtyFile>, and_new: bool, git_checks: bool) -> Vec<&DirtyFile> {
    let roots: BTreeSet<PathBuf> = dirty.iter().map(|file| file.root.clone()).collect();
    let mut found = Vec::new();
    for root in roots {
        let repository = Repository::at(&root);
        let here: Vec<&DirtyFile> = dirty.extract_if(.., |file| file.root == root).collect();
        let specs = here.iter().map(|file| literal(file));
        let entries = status(&repository, and_new, and_new, specs).unwrap_or_default();
        // Git removes a work tree only if nothing in it is changed or new.
        if git_checks && !is_clean(&repository) {
            continue;
        }
        let is_lost = |file: &&DirtyFile| entries.iter().any(|entry| entry.is_of(file));
        found.extend(here.into_iter().filter(is_lost));
    }
    found
}

fn is_clean(repository: &Repository) -> bool {
    let entries = status(repository, true, false, std::iter::empty());
    entries.is_some_and(|entries| entries.is_empty())
}
