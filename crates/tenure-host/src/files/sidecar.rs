//! The folder beside a lock: what tenure knows beyond the protocol ([`Sidecar`]).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use tenure_core::StoreError;

use crate::LivenessFolder;
use crate::files::fault::explain;

/// The side folder.
#[derive(Debug, Clone)]
pub struct Sidecar(PathBuf, Transit);

/// Where a lock is on its way to or from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transit {
    Inside,
    Beside,
}

impl Sidecar {
    /// The folder at this path. It is made when something is first written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into(), Transit::Inside)
    }

    /// The same for a lock that is a folder: it is prepared and taken away under names beside the
    /// side folder (`SIDE-next`, `SIDE-aside`), in the folder of its place. A folder that may not be
    /// written into can be renamed only there.
    pub fn for_folder(path: impl Into<PathBuf>) -> Self {
        Self(path.into(), Transit::Beside)
    }

    fn transit(&self, name: &str) -> PathBuf {
        match self.1 {
            Transit::Inside => self.0.join(name),
            Transit::Beside => {
                let mut path = self.0.clone().into_os_string();
                path.push("-");
                path.push(name);
                path.into()
            }
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder, if it is not there.
    pub fn make(&self) -> Result<(), StoreError> {
        let ignore = self.0.join(".gitignore");
        if ignore.metadata().is_ok_and(|there| there.len() > 0) {
            return Ok(());
        }
        fs::create_dir_all(&self.0)
            .and_then(|()| fs::write(&ignore, "*\n"))
            .map_err(|error| explain("written", &self.0, error))
    }

    /// The file that the guard locks.
    pub fn guard(&self) -> PathBuf {
        self.0.join("guard")
    }

    /// A lock on its way to its place, or swapped out of it.
    pub fn next(&self) -> PathBuf {
        self.transit("next")
    }

    /// A lock that was taken from its place.
    pub fn aside(&self) -> PathBuf {
        self.transit("aside")
    }

    /// The lives of those who hold and wait.
    pub fn liveness_folder(&self) -> LivenessFolder {
        LivenessFolder::new(self.0.join("live"))
    }

    /// The file of events, one JSON object a line.
    pub fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// Notes something that is no event: something happened to the record itself.
    pub fn note(&self, at: Timestamp, words: &str) -> Result<(), StoreError> {
        let path = self.history();
        let write = || {
            let mut file = open_history(&path)?;
            cut_torn_line(&mut file)?;
            let mut line = serde_json::to_vec(&Note {
                at,
                note: words.into(),
            })?;
            line.push(b'\n');
            file.write_all(&line)
        };
        write().map_err(|error| explain("written", &path, error))
    }
}

/// A line that is no event.
#[derive(Debug, Serialize)]
struct Note {
    at: Timestamp,
    note: String,
}

/// How much of the end of the history is read to find the last line.
const TAIL: u64 = 64 * 1024;

/// Opens the file of events, making it if need be.
pub fn open_history(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
}

/// Cuts off a last line that a power cut tore; returns the whole lines at the end.
pub fn cut_torn_line(file: &mut File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    if whole < tail.len() {
        let kept = u64::try_from(whole).unwrap_or(0);
        file.set_len(from.saturating_add(kept))?;
        tail.truncate(whole);
    }
    Ok(tail)
}
