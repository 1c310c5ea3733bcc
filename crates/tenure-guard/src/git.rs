//! Runs the user's git, as the hook that it is started by would: [`Git`].

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tenure_host::files::{beneath, look};

use crate::judge::GuardError;

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// It is not installed.
    #[error("git is not installed, or not in PATH")]
    Missing,
    /// It failed.
    #[error("git {what} failed: {said}")]
    Failed {
        /// The command.
        what: String,
        /// The first line that it printed.
        said: String,
    },
    /// It could not be run.
    #[error("git can't be run ({0})")]
    Io(io::Error),
}

/// Git in one folder, with the environment of this process.
#[derive(Debug, Clone)]
pub struct Git {
    folder: PathBuf,
}

impl Git {
    /// Git, run in this folder.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The top of the work tree; `None` in a bare repository.
    pub fn top(&self) -> Result<Option<PathBuf>, GitError> {
        if self.run(&["rev-parse", "--is-inside-work-tree"])? != b"true\n" {
            return Ok(None);
        }
        let mut top = self.run(&["rev-parse", "--show-toplevel"])?;
        top.pop_if(|byte| *byte == b'\n');
        Ok(Some(PathBuf::from(OsString::from_vec(top))))
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut git = Command::new("git");
        git.args(args)
            .current_dir(&self.folder)
            // Messages are shown to people, but never parsed.
            .env("GIT_OPTIONAL_LOCKS", "0")
            // A replacement would show other paths than those that are pushed.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_LITERAL_PATHSPECS", "1");
        git
    }

    /// What a command prints that has to succeed.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, GitError> {
        let output = self.output(args)?;
        succeeded(args, output)
    }

    /// The same, or `None` if there is no such setting or name, which git tells by the exit code 1.
    pub(crate) fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Option<Vec<u8>>, GitError> {
        let output = self.output(args)?;
        if output.status.code() == Some(1) {
            return Ok(None);
        }
        succeeded(args, output).map(Some)
    }

    fn output<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output, GitError> {
        let mut git = self.command(args);
        git.stdin(Stdio::null()).output().map_err(not_run)
    }

    /// What a command prints that reads this input and has to succeed.
    pub(crate) fn feed<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        let mut git = self.command(args);
        let git = git
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = git.spawn().map_err(not_run)?;
        let stdin = child.stdin.take();
        // A thread, because git may write before it has read everything.
        let writer = std::thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
        let output = child.wait_with_output().map_err(GitError::Io)?;
        let written = writer.join();
        let output = succeeded(args, output)?;
        match written {
            Ok(Some(Err(error))) => Err(GitError::Io(error)),
            _ => Ok(output),
        }
    }
}

/// The work tree of a repository whose own directory a hook may run in: git runs the hooks of a push in the directory of the
/// repository that receives it. Any other folder, such as a bare repository, is itself.
pub(crate) fn work_tree(folder: &Path) -> Result<PathBuf, GuardError> {
    let has = |name: &str| look::link_at(&folder.join(name)).map(|there| there.is_some());
    if !has("HEAD")? || !(has("objects")? || has("commondir")?) {
        return Ok(folder.to_owned());
    }
    let line = |bytes: &[u8]| {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        folder.join(OsStr::from_bytes(line))
    };
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    // A linked worktree says where it is, and a submodule does so in its configuration.
    let gitdir = folder.join("gitdir");
    match beneath::read_following(&gitdir, 1 << 20) {
        Ok(gitdir) => {
            if let Some(linked) = parent(&line(&gitdir)) {
                return Ok(linked);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(look::unreadable(&gitdir, &error).into()),
    }
    if let Some(path) = Git::at(folder).ask(&["config", "core.worktree"])? {
        return Ok(line(&path));
    }
    let own = (folder.file_name() == Some(OsStr::new(".git"))).then(|| parent(folder));
    Ok(own.flatten().unwrap_or_else(|| folder.to_owned()))
}

fn not_run(error: io::Error) -> GitError {
    match error.kind() {
        io::ErrorKind::NotFound => GitError::Missing,
        _ => GitError::Io(error),
    }
}

fn succeeded<S: AsRef<OsStr>>(args: &[S], output: Output) -> Result<Vec<u8>, GitError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it printed no reason");
    let said = said.trim_start_matches("fatal: ").to_owned();
    let what = args.first().map(|arg| arg.as_ref().to_string_lossy());
    Err(GitError::Failed {
        what: what.unwrap_or_default().into_owned(),
        said,
    })
}

/// The lines of an answer, without what is not UTF-8.
pub(crate) fn lines(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer);
    text.lines().map(str::to_owned).collect()
}
