//! What `rm -r` and `mv` destroy: folders that hold a whole work tree.
//!
//! A file or a folder inside a work tree is not looked at here: what a command does to single files is seen after it.

use std::path::{Path, PathBuf};

use super::calls::{Arg, Call};
use super::git::Repository;
use super::{How, Losing, Loss};

/// What `rm` or `mv` may destroy. Whether a folder holds a work tree is asked by [`super::lost`].
pub(super) fn losses(call: &Call) -> Vec<Loss> {
    let options = call.args.iter().filter_map(Arg::text);
    let mut options = options.take_while(|text| *text != "--");
    let is_recursive = options.any(|text| {
        let letters = text.strip_prefix('-').filter(|text| !text.starts_with('-'));
        letters.is_some_and(|letters| letters.contains(['r', 'R'])) || text == "--recursive"
    });
    let mut is_path = false;
    let paths = call.args.iter().filter_map(Arg::text).filter(|text| {
        let is_option = !is_path && text.starts_with('-') && text.len() > 1;
        is_path |= *text == "--";
        !is_option
    });
    let mut paths: Vec<&str> = paths.collect();
    let how = match call.program.as_str() {
        "rm" if is_recursive => How::Deletes,
        "mv" => {
            // To where.
            paths.pop();
            How::Moves
        }
        _ => return Vec::new(),
    };
    let command = |path: &str| format!("{} {path}", call.program);
    let losses = paths.into_iter().filter_map(|path| {
        Some(Loss {
            root: folder(&call.folder, path)?,
            command: command(path),
            how,
            what: Losing::Folder { git_checks: false },
            repository: Repository::default(),
        })
    });
    losses.collect()
}

/// The folder at a path, if it is one: a link is only removed itself.
fn folder(from: &Path, path: &str) -> Option<PathBuf> {
    let path = from.join(path);
    let is_folder = path.symlink_metadata().is_ok_and(|it| it.is_dir());
    is_folder.then(|| path.canonicalize().ok())?
}
