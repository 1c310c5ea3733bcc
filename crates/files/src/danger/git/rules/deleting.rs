//! Commands that delete or replace single files.

use tenure_host::files::look;

use crate::danger::calls::Arg;
use crate::danger::git::Command;
use crate::danger::git::options::pathspecs;
use crate::danger::{Files, How, Losing, Loss, Tracked, Untracked};

pub(super) fn clean(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["-e", "--exclude"]);
    if options.asks() || options.has(&["-n", "--dry-run"]) {
        return None;
    }
    let force = options.count(&["-f", "--force"]);
    let name = "clean.requireForce";
    let is_off = || {
        let given = command
            .settings
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name));
        let known = given
            || command
                .repository
                .line(&["config", "--get", name])
                .is_some();
        known && !command.is_set(name)
    };
    if force == 0 && !is_off() {
        return None;
    }
    let paths = match options.all() {
        paths if paths.is_empty() => Vec::new(),
        paths => pathspecs(&paths)?,
    };
    let mut given: Vec<String> = Vec::new();
    for (name, long) in [("-d", "-d"), ("-x", "-x"), ("-X", "-X")] {
        if options.has(&[name, long]) {
            given.push(name.to_owned());
        }
    }
    given.extend((0..force).map(|_| "-f".to_owned()));
    for value in options.values_of(&["-e", "--exclude"]) {
        given.push(format!("--exclude={}", value.text()?));
    }
    let options = given;
    Some(command.loss(How::Deletes, Losing::Cleaned { options, paths }))
}

pub(super) fn rm(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["--pathspec-from-file"]);
    let is_harmless = options.has(&["-n", "--dry-run", "--cached"]) || options.asks();
    if is_harmless || !options.has(&["-f", "--force"]) {
        return None;
    }
    let paths = pathspecs(&options.all())?;
    Some(command.tracked(How::Deletes, Tracked::Changed, paths))
}

pub(super) fn mv(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[]);
    if !options.has(&["-f", "--force"]) || options.has(&["-n", "--dry-run"]) {
        return None;
    }
    let all = options.all();
    let (target, sources) = all.split_last()?;
    let target = target.text()?;
    let is_folder = look::may_be_folder(&command.repository.folder.join(target));
    let inside = sources.iter().filter_map(Arg::text).filter_map(|source| {
        let name = source.trim_end_matches('/').rsplit('/').next()?;
        Some(format!(":(literal){}/{name}", target.trim_end_matches('/')))
    });
    let paths = if is_folder {
        inside.collect()
    } else {
        vec![format!(":(literal){target}")]
    };
    let files = Files {
        paths,
        tracked: Tracked::Changed,
        untracked: Untracked::AndIgnored,
        tree: None,
    };
    Some(command.loss(How::Overwrites, Losing::Files(files)))
}
