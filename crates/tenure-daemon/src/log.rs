//! The log: [`Log`], a line each with its time in front, begun anew when it has become too large.
//!
//! 1. A line is one write at the end of the file, so that two writers never mix.
//! 2. Old logs are `FILE.1`, the newest, to `FILE.3`. They are only ever renamed, the oldest first: killed
//!    anywhere, nothing is lost but what was due to be dropped.
//! 3. Nothing that goes wrong here stops anything: lines that could not be written are counted, and
//!    told of once writing works again.
//! 4. A log that somebody moved or removed is begun anew at its place.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::OFlags;

/// The file's name, in the project's folder, unless another is given.
pub const FILE: &str = "daemon.log";

/// How many old logs are kept.
pub const KEPT: usize = 3;

/// The longest line, in bytes. What programs say has no end by itself.
const LONGEST: usize = 4096;

/// A log that is written to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    most: u64,
    file: Option<Open>,
    /// Lines that could not be written since the last one that was.
    lost: u64,
    error: Option<String>,
}

#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    /// Whether the last line has no end, because somebody was cut off.
    torn: bool,
}

impl Log {
    /// The log at this path. Nothing is opened yet.
    pub fn new(path: PathBuf, most: u64) -> Self {
        Self {
            path,
            most,
            file: None,
            lost: 0,
            error: None,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the last line could not be written, if so.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// How large it may become from now on.
    pub fn limit(&mut self, most: u64) {
        self.most = most;
    }

    /// Opens it, to know whether it can be.
    pub fn open(&mut self) -> io::Result<()> {
        let opened = self.opened().map(drop);
        self.error = opened.as_ref().err().map(ToString::to_string);
        opened
    }

    /// Opens it anew with the next line.
    pub fn reopen(&mut self) {
        self.file = None;
    }

    /// Writes what was said at that time, a line for each of its lines.
    pub fn say(&mut self, at: Timestamp, text: &str) {
        for line in text.lines() {
            self.line(at, line);
        }
    }

    fn line(&mut self, at: Timestamp, text: &str) {
        if self.lost > 0 {
            let why = self.error.as_deref().unwrap_or("unknown");
            let note = format!(
                "{} lines before this one could not be written: {why}",
                self.lost
            );
            if self.append(&rendered(at, &note)).is_err() {
                self.lost += 1;
                return;
            }
            self.lost = 0;
        }
        match self.append(&rendered(at, text)) {
            Ok(()) => self.error = None,
            Err(error) => {
                self.lost += 1;
                self.error = Some(error.to_string());
                // Perhaps another file can be written: what is open is opened anew.
                self.file = None;
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let most = self.most;
        let open = self.opened()?;
        let known = open.file.metadata()?;
        let size = known.len();
        if known.is_file() && size > 0 && size.saturating_add(line.len() as u64) > most {
            self.file = None;
            rotate(&self.path)?;
        }
        let open = self.opened()?;
        let whole: Vec<u8> = if open.torn {
            [b"\n", line].concat()
        } else {
            line.to_vec()
        };
        let written = open.file.write(&whole)?;
        open.torn = written < whole.len();
        if open.torn {
            return Err(io::Error::from(rustix::io::Errno::NOSPC));
        }
        Ok(())
    }

    /// What is at the path, open.
    fn opened(&mut self) -> io::Result<&mut Open> {
        let there = fs::metadata(&self.path).ok().map(|file| id(&file));
        let open = match self.file.take() {
            Some(open) if Some(open.id) == there => open,
            _ => open(&self.path)?,
        };
        Ok(self.file.insert(open))
    }
}

fn id(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn open(path: &Path) -> io::Result<Open> {
    // A pipe must not make us wait for its reader.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let mut options = File::options();
    let options = options.append(true).create(true).custom_flags(flags);
    // Reading is for the last byte only, and not every log can be read.
    let mut file = match options.clone().read(true).open(path) {
        Ok(file) => file,
        Err(_) => options.open(path)?,
    };
    let known = file.metadata()?;
    let mut last = [b'\n'];
    if known.is_file() && known.len() > 0 {
        let _ = file
            .seek(SeekFrom::End(-1))
            .and_then(|_| file.read_exact(&mut last));
    }
    Ok(Open {
        file,
        id: id(&known),
        torn: last != [b'\n'],
    })
}

/// Makes room for a new log.
fn rotate(path: &Path) -> io::Result<()> {
    // Only as far as needed: a rotation that was cut off has left a gap, which is filled first.
    let free = (1..KEPT).find(|number| !old(path, *number).exists());
    for number in (1..free.unwrap_or(KEPT)).rev() {
        rename(&old(path, number), &old(path, number + 1))?;
    }
    rename(path, &old(path, 1))
}

/// The name of an old log.
pub(crate) fn old(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The line as it is written.
fn rendered(at: Timestamp, text: &str) -> Vec<u8> {
    let mut line = format!("{at:.3} ");
    for c in text.chars() {
        if line.len() >= LONGEST {
            line.push('…');
            break;
        }
        // Whatever somebody called a branch or a holder must not move a reader's cursor.
        line.push(if c.is_control() { ' ' } else { c });
    }
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_has_its_time_in_front_and_no_other_line_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.say(at(0), "first\nsecond\u{7}");
        assert_eq!(
            lines(&path),
            [
                "1970-01-01T00:00:00.000Z first",
                "1970-01-01T00:00:00.000Z second "
            ]
        );
    }

    #[test]
    fn a_log_that_is_full_is_begun_anew_and_three_old_ones_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 100);
        for number in 0..100 {
            log.say(at(number), &format!("line {number}"));
        }
        let mut all = Vec::new();
        for number in (1..=KEPT).rev() {
            let old = old(&path, number);
            assert!(fs::metadata(&old).unwrap().len() <= 100);
            all.extend(lines(&old));
        }
        all.extend(lines(&path));
        assert!(!old(&path, KEPT + 1).exists());
        // The newest lines, each once and in order.
        let first = 100 - all.len();
        assert!(first > 0);
        for (line, number) in all.iter().zip(first..) {
            assert!(line.ends_with(&format!(" line {number}")), "{line}");
        }
    }

    #[test]
    fn a_rotation_that_was_cut_off_loses_nothing() {
        for cut in 0..=KEPT {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE);
            for number in 1..=KEPT {
                fs::write(old(&path, number), format!("old {number}\n")).unwrap();
            }
            fs::write(&path, "newest\n").unwrap();
            // As far as `rotate` came.
            for number in (KEPT - cut..KEPT).rev() {
                let from = if number == 0 {
                    path.clone()
                } else {
                    old(&path, number)
                };
                fs::rename(from, old(&path, number + 1)).unwrap();
            }
            let mut log = Log::new(path.clone(), 30);
            log.say(at(0), "goes on");
            let mut all = Vec::new();
            for number in 1..=KEPT {
                all.extend(lines(&old(&path, number)));
            }
            all.extend(lines(&path));
            for kept in ["newest", "old 1", "old 2"] {
                assert!(
                    all.iter().any(|line| line == kept),
                    "{cut}: {kept} in {all:?}"
                );
            }
            assert!(
                all.iter().any(|line| line.ends_with("goes on")),
                "{cut}: {all:?}"
            );
        }
    }

    #[test]
    fn a_log_that_was_removed_or_moved_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.say(at(0), "one");
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        log.say(at(0), "two");
        assert_eq!(lines(&path).len(), 1);
        fs::remove_file(&path).unwrap();
        log.say(at(0), "three");
        assert!(lines(&path)[0].ends_with("three"));
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing").join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.say(at(0), "one");
        log.say(at(0), "two");
        assert!(log.error().is_some());
        fs::create_dir(path.parent().unwrap()).unwrap();
        log.say(at(1), "three");
        assert_eq!(log.error(), None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("2 lines before this one could not be written: No such file"));
        assert!(lines[1].ends_with("three"));
    }

    #[test]
    fn a_line_without_an_end_stays_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "torn").unwrap();
        Log::new(path.clone(), 1000).say(at(0), "whole");
        let lines = lines(&path);
        assert_eq!(lines[0], "torn");
        assert!(lines[1].ends_with(" whole"));
    }

    #[test]
    fn a_full_disk_is_survived() {
        // Every write to it fails as on a full disk.
        let path = PathBuf::from("/dev/full");
        let mut log = Log::new(path, 1000);
        log.say(at(0), "one");
        assert!(log.error().unwrap().contains("No space left"), "{log:?}");
    }

    #[test]
    fn a_line_is_never_longer_than_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        Log::new(path.clone(), 1 << 20).say(at(0), &"x".repeat(100_000));
        assert!(fs::metadata(&path).unwrap().len() < 4200);
    }
}
