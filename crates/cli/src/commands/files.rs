//! `tenure files`: versions of files that were kept, and how they come back.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenure::store::{Clock as _, Moment};
use tenure::text::flat;
use tenure::wire::{ErrorCode, KeptFileJson, KeptFilesJson, RestoredFileJson};
use tenure_files::agents::record::Records;
use tenure_files::kept::{Kept, KeptError, Source, Version};
use tenure_host::HostClock;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::files::Files;
use crate::commands::reserve::work_tree;
use crate::context;
use crate::table::Table;
use crate::words;

/// So much of an id is shown.
const SHORT: usize = 10;

pub(crate) fn files(global: &Global, files: Files) -> Result<Answer, Failure> {
    let project = context::existing_project(&context::start()?)?;
    let kept = Kept::beside(project.state());
    let now = HostClock::new().now();
    match files {
        Files::List { path } => list(global, &kept, path.as_deref(), &now),
        Files::Restore { path, from, to } => {
            let tree = work_tree(global)?;
            let path = path.map(|path| inside(global, &path)).transpose()?;
            let source = match (path.as_deref(), from.as_deref()) {
                (Some(path), None) => Source::Newest(path),
                (Some(path), Some(id)) => Source::Of(path, id),
                (None, id) => Source::Id(id.unwrap_or_default()),
            };
            let restored = match &to {
                Some(file) => kept.export(tree.root(), source, file, now.wall)?,
                None => kept.restore(tree.root(), source, &context::caller(global)?, now.wall)?,
            };
            if to.is_none() {
                // Otherwise the session that puts the file back is blamed for one change more.
                let Version { owner, path, .. } = &restored.version;
                let _ = Records::of(&project).put_back(owner, tree.root(), path);
            }
            let text = match (&restored.before, restored.written) {
                (_, false) => format!(
                    "{} has these bytes already; for another version: tenure files list",
                    shown(&restored.place)
                ),
                (None, true) => String::new(),
                (Some(before), true) => format!(
                    "What was there is kept as version {}.",
                    short(before.blob.as_deref())
                ),
            };
            let done = restored.written.then(|| {
                format!(
                    "Wrote {} as {} had it at {} to {}.",
                    shown(&restored.version.path),
                    restored.version.owner,
                    words::time(restored.version.at),
                    shown(&restored.place)
                )
            });
            let lines: Vec<String> = done
                .into_iter()
                .chain((!text.is_empty()).then_some(text))
                .collect();
            let data = RestoredFileJson {
                version: json_of(&restored.version),
                file: restored.place.to_string_lossy().into_owned(),
                written: restored.written,
                before: restored.before.as_ref().map(json_of),
            };
            Ok(Answer::confirmed(global, data, lines.join("\n")))
        }
    }
}

/// The path of a file from the top of the work tree, as it is named: no link is followed.
fn inside(global: &Global, path: &Path) -> Result<PathBuf, Failure> {
    let tree = work_tree(global)?;
    let is_plain = |part: std::path::Component<'_>| part != std::path::Component::ParentDir;
    let whole = context::start()?.join(path);
    match whole.strip_prefix(tree.root()) {
        Ok(inside) if path.components().all(is_plain) => Ok(inside.components().collect()),
        _ => Err(KeptError::Outside(path.to_owned()).into()),
    }
}

fn list(
    global: &Global,
    kept: &Kept,
    path: Option<&Path>,
    now: &Moment,
) -> Result<Answer, Failure> {
    let path = path.map(|path| inside(global, path)).transpose()?;
    let mut versions = kept.versions(now.wall)?;
    if let Some(path) = &path {
        versions.retain(|version| version.path == *path);
    }
    let data = KeptFilesJson {
        files: versions.iter().map(json_of).collect(),
    };
    if versions.is_empty() {
        let of = path.map_or_else(String::new, |path| format!(" of {}", shown(&path)));
        return Ok(Answer::new(data, format!("Nothing was kept{of}.")));
    }
    let mut columns = vec!["WHEN", "ID", "SIZE", "HOLDER", "NAME"];
    let first = versions.first().map(|version| &version.worktree);
    let has_several = versions
        .iter()
        .any(|version| Some(&version.worktree) != first);
    if has_several {
        columns.push("WORKTREE");
    }
    let mut table = Table::new(&columns);
    for version in &versions {
        let worktree = has_several.then(|| version.worktree.display().to_string());
        let row = [
            words::ago(now, version.at),
            short(version.blob.as_deref()),
            version.size.to_string(),
            version.owner.to_string(),
            shown(&version.path),
        ];
        table.row(row.into_iter().chain(worktree));
    }
    let mut lines = vec![table.text()];
    if versions.iter().any(|version| version.blob.is_none()) {
        let most = tenure_files::kept::LARGEST >> 20;
        lines.push(format!("not kept: larger than {most} MB"));
    }
    Ok(Answer::new(data, lines.join("\n")))
}

/// A path in a sentence.
fn shown(path: &Path) -> String {
    flat(&path.to_string_lossy())
}

fn short(id: Option<&str>) -> String {
    let id = id.unwrap_or("not kept");
    id.get(..SHORT).unwrap_or(id).to_owned()
}

fn json_of(version: &Version) -> KeptFileJson {
    KeptFileJson {
        id: version.blob.clone(),
        path: version.path.to_string_lossy().into_owned(),
        worktree: version.worktree.to_string_lossy().into_owned(),
        owner: version.owner.clone(),
        at: version.at.into(),
        size: version.size,
        link: version.is_link(),
    }
}

impl From<KeptError> for Failure {
    fn from(error: KeptError) -> Self {
        let message = error.to_string();
        match error {
            KeptError::Git(error) => error.into(),
            KeptError::File(error) => error.into(),
            KeptError::Lock(error) => error.into(),
            KeptError::Outside(_) => Self::new(ErrorCode::BadName, message),
            KeptError::NotKept(what) => {
                Self::new(ErrorCode::NotFound, message).details(json!({ "file": what }))
            }
            KeptError::Ambiguous { id, versions } => {
                let each = versions.iter().map(|version| {
                    let known = version.blob.clone().unwrap_or_default();
                    format!("  {known}  {}", shown(&version.path))
                });
                let each: Vec<String> = each.collect();
                let ids: Vec<_> = versions.into_iter().filter_map(|it| it.blob).collect();
                Self::new(
                    ErrorCode::Ambiguous,
                    format!("{message}\n{}", each.join("\n")),
                )
                .details(json!({ "id": id, "candidates": ids }))
            }
            KeptError::InTheWay { .. } => Self::new(ErrorCode::PermissionDenied, message),
            // `Damaged`, and errors that a later version of the library adds.
            _ => Self::new(ErrorCode::Io, message),
        }
    }
}
