//! What an agent is told whose command would destroy the work of others: [`refusal`].

use std::fmt::Write as _;
use std::path::Path;

use tenure::text::{flat, plural, quoted, quoted_bytes};

use super::{DirtyFile, How, Losing, Loss};

/// The most files that are named, of all sessions together.
const SHOWN: usize = 10;

/// A session that would lose something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// What people call it.
    pub session: String,
    /// Its files, as the reader finds them.
    pub files: Vec<String>,
}

/// The sessions that own these files. The files are named from `folder`, where the reader works.
pub fn victims(lost: &[&DirtyFile], folder: &Path) -> Vec<Victim> {
    let mut victims: Vec<(&DirtyFile, Victim)> = Vec::new();
    for file in lost {
        let path = file.root.join(&file.path);
        let path = path.strip_prefix(folder).unwrap_or(&path);
        let path = quoted_bytes(path.as_os_str());
        let of_owner = |(other, _): &&mut (&DirtyFile, Victim)| other.owner == file.owner;
        match victims.iter_mut().find(of_owner) {
            Some((_, victim)) => victim.files.push(path),
            None => victims.push((
                file,
                Victim {
                    session: file.session.clone(),
                    files: vec![path],
                },
            )),
        }
    }
    victims.into_iter().map(|(_, victim)| victim).collect()
}

/// What a command does to the work of others, in words.
fn harm(loss: &Loss) -> &'static str {
    match (&loss.what, loss.how) {
        (Losing::Stashes(_), _) => "would delete stashes, which hold the work of other sessions",
        (Losing::Branch(_), _) => "would take away the branch that another session works on",
        (Losing::Unreferenced, _) => {
            "would delete the uncommitted work that tenure keeps for other sessions"
        }
        (Losing::Folder { .. }, How::Moves) => "would move the folder that other sessions work in",
        (Losing::Folder { .. }, _) => "would delete the folder that other sessions work in",
        (_, How::Overwrites) => "would overwrite the uncommitted changes of other sessions",
        (_, How::Deletes) => "would delete the uncommitted files of other sessions",
        (_, How::PutsAway) => "would put the uncommitted changes of other sessions away",
        (_, How::PutsAwayForAWhile) => {
            "would put the uncommitted changes of other sessions away while it works"
        }
        (_, How::Moves) => "would move the uncommitted files of other sessions",
    }
}

/// What to do instead.
fn instead(loss: &Loss) -> Option<&'static str> {
    Some(match (&loss.what, loss.how) {
        (Losing::Files(_), How::PutsAway) => {
            "put away only your own files: git stash push -- YOUR FILES; or commit them: git commit -- YOUR FILES"
        }
        (Losing::Files(_), How::PutsAwayForAWhile) => {
            "commit your own files first (git commit -- YOUR FILES), and leave --autostash out: --no-autostash"
        }
        (Losing::Files(_), How::Overwrites) => {
            "put back only your own files: git restore -- YOUR FILES"
        }
        (Losing::Files(_) | Losing::Cleaned { .. }, _) => {
            "delete only your own files, by their names: rm -- YOUR FILES"
        }
        (Losing::Folder { .. }, _) => "wait until they are done, and leave the folder where it is",
        (Losing::Stashes(_), _) => {
            "delete only a stash that you made, by its number: see git stash list"
        }
        (Losing::Submodules { .. }, _) => "leave --force out",
        (Losing::Branch(_), _) => "make a branch of your own: git branch NAME COMMIT",
        (Losing::Unreferenced, _) => return None,
    })
}

/// The lines of a refusal: what the command would do to whom, what to do instead, and how a person allows it once with
/// this code. Names and paths of others are escaped.
pub fn refusal(loss: &Loss, victims: &[Victim], code: Option<&str>) -> Vec<String> {
    let command: String = flat(&loss.command).chars().take(200).collect();
    let mut lines = vec![format!("{command} was not run: it {}.", harm(loss))];
    let mut left = SHOWN;
    for victim in victims {
        let session = flat(&victim.session);
        let shown: Vec<String> = victim
            .files
            .iter()
            .take(left)
            .map(|file| flat(file))
            .collect();
        left -= shown.len();
        let hidden = victim.files.len() - shown.len();
        let mut line = format!("  {session}");
        if !shown.is_empty() {
            let _ = write!(line, ": {}", shown.join(", "));
        }
        match (hidden, shown.is_empty()) {
            (0, _) => {}
            (number, true) => {
                let _ = write!(line, ": {}", plural::count(number, "file"));
            }
            (number, false) => {
                let _ = write!(line, " and {number} more");
            }
        }
        lines.push(line);
    }
    if let Some(instead) = instead(loss) {
        lines.push(format!("Instead, {instead}."));
    }
    if let Some(file) = victims.iter().find_map(|victim| victim.files.first()) {
        lines.push(format!(
            "To ask for the files: tenure ask {} --note {}",
            flat(file),
            quoted("why you need it")
        ));
    }
    if let Some(code) = code {
        lines.push(format!(
            "Only the person at the keyboard can allow it, once, in a terminal of their own: tenure allow {code}"
        ));
    }
    lines
}
