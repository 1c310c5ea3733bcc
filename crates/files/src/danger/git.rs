//! What a git command destroys: [`losses`].

mod options;
mod rules;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tenure_git::{Environment, Git};
use tenure_host::files::look;

use super::calls::{Arg, Call, calls};
use super::{Loss, Place};
use options::Options;

/// How many aliases may lead to one another.
const MOST_ALIASES: usize = 5;

/// The commands of git that are no alias: none can have the name of one.
const COMMANDS: &str = " add am annotate apply archive bisect blame branch bundle cat-file check-ignore checkout \
    checkout-index cherry cherry-pick clean clone commit commit-tree config count-objects describe diff diff-files \
    diff-index diff-tree difftool fast-export fast-import fetch filter-branch for-each-ref format-patch fsck gc grep \
    hash-object help init log ls-files ls-remote ls-tree maintenance merge merge-base merge-file merge-tree mergetool mktree \
    mv name-rev notes prune pull push range-diff read-tree rebase reflog remote repack replace request-pull reset restore \
    rev-list rev-parse revert rm send-email shortlog show show-branch show-ref sparse-checkout stage stash status \
    submodule switch symbolic-ref tag update-index update-ref var verify-commit version whatchanged worktree write-tree ";

/// Where git runs, and what its own options say about the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Repository {
    pub(super) folder: PathBuf,
    /// `--git-dir` and `--work-tree`.
    options: Vec<String>,
}

impl Repository {
    /// The one that a folder belongs to.
    pub(super) fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            options: Vec::new(),
        }
    }

    /// What git prints. The pathspecs are those of the caller: patterns and all.
    pub(super) fn ask(&self, args: &[OsString]) -> Option<Vec<u8>> {
        let git = Git::at(&self.folder, Environment::Alone);
        let options = self.options.iter().map(OsString::from);
        let options = options.chain([OsString::from("--no-literal-pathspecs")]);
        let args: Vec<OsString> = options.chain(args.iter().cloned()).collect();
        git.ask(&args).ok().flatten()
    }

    /// The same as text without its last new line.
    pub(super) fn line(&self, args: &[&str]) -> Option<String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let text = String::from_utf8(self.ask(&args)?).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    }
}

/// A git command whose options have been read.
struct Command<'a> {
    repository: Repository,
    /// The top of the work tree.
    root: PathBuf,
    /// What `-c` sets.
    settings: &'a [(String, String)],
    name: &'a str,
    args: &'a [Arg],
}

impl Command<'_> {
    /// The arguments, of which these options take a value.
    fn options(&self, takes: &[&str]) -> Options {
        Options::read(self.args, takes)
    }

    /// Whether a setting is on.
    fn is_set(&self, name: &str) -> bool {
        let given = self.settings.iter().rev();
        let mut given = given.filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let value = match given.next() {
            Some((_, value)) => Some(value.clone()),
            None => self.repository.line(&["config", "--get", name]),
        };
        let no = ["false", "no", "off", "0"];
        value.is_some_and(|value| !no.contains(&value.to_ascii_lowercase().as_str()))
    }

    /// Whether this is a commit or a tree, so that it is no path.
    fn is_tree(&self, text: &str) -> bool {
        !text.starts_with('-') && {
            let tree = format!("{text}^{{tree}}");
            self.repository
                .line(&["rev-parse", "--verify", "--quiet", &tree])
                .is_some()
        }
    }

    /// Whether one of these is in the folder of git, which tells what is in progress.
    fn is_in_progress(&self, names: &[&str]) -> bool {
        let folder = self.repository.line(&["rev-parse", "--absolute-git-dir"]);
        folder.is_some_and(|folder| {
            let folder = Path::new(&folder);
            names
                .iter()
                .any(|name| look::may_be_there(&folder.join(name)))
        })
    }
}

/// What a git command may destroy.
pub(super) fn losses(call: &Call, place: &Place<'_>) -> Vec<Loss> {
    let mut repository = Repository::at(&call.folder);
    of_call(call, place, &mut repository, &call.args, MOST_ALIASES).unwrap_or_default()
}

/// `None` for what can't be understood.
fn of_call(
    call: &Call,
    place: &Place<'_>,
    repository: &mut Repository,
    args: &[Arg],
    aliases: usize,
) -> Option<Vec<Loss>> {
    let mut args = args.iter();
    let mut settings = Vec::new();
    let (mut git_dir, mut work_tree) = (None, None);
    let name = loop {
        let text = args.next()?.text()?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (text, None),
        };
        let mut value = || value.or_else(|| args.next()?.text());
        match name {
            "-C" => {
                let folder = repository.folder.join(value()?);
                repository.folder = look::may_be_folder(&folder).then_some(folder)?;
            }
            "-c" => {
                let setting = value()?;
                let (name, value) = setting.split_once('=').unwrap_or((setting, "true"));
                settings.push((name.to_owned(), value.to_owned()));
            }
            "--git-dir" => git_dir = Some(value()?.to_owned()),
            "--work-tree" => work_tree = Some(value()?.to_owned()),
            "--namespace" | "--super-prefix" | "--config-env" | "--attr-source" => {
                value()?;
            }
            "--help" | "-h" | "--version" | "-v" => return None,
            name if name.starts_with('-') => {}
            name => break name.to_owned(),
        }
    };
    let args: Vec<Arg> = args.cloned().collect();
    let variable = |name: &str| match call.variables.get(name) {
        // Without a value, it can't be told where the command works.
        Some(value) => value.clone().map(Some).ok_or(()),
        None => Ok((place.variable)(name).filter(|value| !value.is_empty())),
    };
    if variable("GIT_INDEX_FILE").ok()?.is_some() {
        return None;
    }
    for (option, given, name) in [
        ("--git-dir", git_dir, "GIT_DIR"),
        ("--work-tree", work_tree, "GIT_WORK_TREE"),
    ] {
        let value = match given {
            Some(value) => Some(value),
            None => variable(name).ok()?,
        };
        if let Some(value) = value.filter(|_| repository.options.len() < 2) {
            repository.options.push(format!("{option}={value}"));
        }
    }
    if COMMANDS.contains(&format!(" {name} ")) {
        if !rules::may_destroy(&name, &args) {
            return Some(Vec::new());
        }
        let root = repository.line(&["rev-parse", "--show-toplevel"])?;
        let command = Command {
            repository: repository.clone(),
            root: PathBuf::from(root),
            settings: &settings,
            name: &name,
            args: &args,
        };
        return Some(rules::losses(&command));
    }
    if aliases == 0 {
        return None;
    }
    let key = format!("alias.{name}");
    let given = settings.iter().rev();
    let mut given = given.filter(|(given, _)| given.eq_ignore_ascii_case(&key));
    let meaning = match given.next() {
        Some((_, meaning)) => meaning.clone(),
        None if name == "filter-repo" => return None,
        None => repository.line(&["config", "--get", &key])?,
    };
    let Some(line) = meaning.strip_prefix('!') else {
        let mut words = words(&meaning)?;
        let sets = settings
            .iter()
            .flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
        let mut all: Vec<Arg> = sets.map(Arg::Known).collect();
        all.append(&mut words);
        all.extend(args);
        return of_call(call, place, repository, &all, aliases - 1);
    };
    // The shell runs it at the top of the work tree, and gives it the arguments.
    let top = repository.line(&["rev-parse", "--show-toplevel"])?;
    let top = PathBuf::from(top);
    let mut line = line.to_owned();
    for arg in &args {
        // What can't be told is a variable without a value.
        let word = arg.text().map_or("$_unknown_".to_owned(), quoted);
        line = format!("{line} {word}");
    }
    let inside = Place {
        folder: &top,
        variable: place.variable,
    };
    let mut losses = Vec::new();
    for call in calls(&line, &inside) {
        if call.program == "git" {
            let mut repository = Repository {
                folder: call.folder.clone(),
                options: repository.options.clone(),
            };
            let found = of_call(&call, place, &mut repository, &call.args, aliases - 1);
            losses.extend(found.unwrap_or_default());
        } else {
            losses.extend(super::folders::losses(&call));
        }
    }
    Some(losses)
}

/// A word that the shell reads as this text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The words of an alias, split as git does it.
fn words(text: &str) -> Option<Vec<Arg>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            c if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            c if quote.is_none() && c.is_ascii_whitespace() => {
                words.extend(word.take().map(Arg::Known));
            }
            '\\' if quote != Some('\'') => word.get_or_insert_default().push(rest.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(Arg::Known));
    quote.is_none().then_some(words)
}
