//! Where git runs the hooks of a repository: [`here`], [`work_tree`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tenure_git::{Environment, Git, folder};
use tenure_host::files::look;

use crate::Error;

/// Git in this folder, as the hook that this process may be would run it.
pub fn here(folder: &Path) -> Git<'static> {
    Git::at(folder, Environment::Caller)
}

/// The work tree of a repository whose own directory a hook may run in: git runs the hooks of a push in the directory of the
/// repository that receives it. Any other folder, such as a bare repository, is itself.
pub(crate) fn work_tree(git: &Path) -> Result<PathBuf, Error> {
    let has = |name: &str| look::link_at(&git.join(name)).map(|there| there.is_some());
    if !has("HEAD")? || !(has("objects")? || has("commondir")?) {
        return Ok(git.to_owned());
    }
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    // A linked worktree says where it is, and a submodule does so in its configuration.
    match folder::entry_of(git) {
        Ok(entry) => {
            if let Some(linked) = parent(&entry) {
                return Ok(linked);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(look::unreadable(&git.join("gitdir"), &error).into()),
    }
    if let Some(path) = here(git).ask(&["config", "core.worktree"])? {
        let path = path.strip_suffix(b"\n").unwrap_or(&path);
        return Ok(git.join(OsStr::from_bytes(path)));
    }
    let own = (git.file_name() == Some(OsStr::new(".git"))).then(|| parent(git));
    Ok(own.flatten().unwrap_or_else(|| git.to_owned()))
}
