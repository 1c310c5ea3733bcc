//! The daemon's log: [`Log`], timestamped lines in a file that is rotated when it grows too large.
//!
//! 1. A line is one write at the end of the file, so lines of two writers never mix.
//! 2. Rotated logs are `FILE.1` (the newest) to `FILE.3`. Rotation only renames, oldest first: killed
//!    anywhere, it loses nothing but the log that was due to be dropped.
//! 3. No failure here stops the daemon. Lines that could not be written are counted, and the count is
//!    logged once writing works again.
//! 4. The file is opened for every line. A log that was moved or removed is created again, and no
//!    descriptor keeps a full disk or a removed folder busy.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::OFlags;
use tenure_core::text::flat;
use tenure_host::files::beneath;
use tenure_host::files::permissions::create_new;

/// The file's name, in the `.tenure` folder, unless the daemon is given another path.
pub const FILE: &str = "daemon.log";

/// How many rotated logs are kept.
pub const ROTATED: usize = 3;

/// The longest text in bytes. The output of other programs is cut off here.
const LONGEST_TEXT: usize = 4096;

/// No line in a log has more bytes than this, its end included.
pub(crate) const LONGEST_LINE: u64 = LONGEST_TEXT as u64 + 8;

/// The writing end of a log.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    max_size: u64,
    /// How many lines could not be written since the last one that was.
    lost: u64,
    error: Option<String>,
}

impl Log {
    /// The log at this path. Opens nothing yet.
    pub fn new(path: PathBuf, max_size: u64) -> Self {
        Self {
            path,
            max_size,
            lost: 0,
            error: None,
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the last line could not be written, if it could not.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Sets the size at which the log is rotated.
    pub fn set_max_size(&mut self, max_size: u64) {
        self.max_size = max_size;
    }

    /// Creates the file if it is missing, and tells whether it can be written.
    pub fn check(&mut self) -> io::Result<()> {
        let opened = open(&self.path).map(drop);
        self.error = opened.as_ref().err().map(ToString::to_string);
        opened
    }

    /// Writes each line of `text` with this time in front of it.
    pub fn write(&mut self, at: Timestamp, text: &str) {
        for line in text.lines() {
            self.write_line(at, line);
        }
    }

    fn write_line(&mut self, at: Timestamp, text: &str) {
        if self.lost > 0 {
            let why = self.error.as_deref().unwrap_or("unknown");
            let note = format!("{} earlier lines could not be written: {why}", self.lost);
            if self.append(&format_line(at, &note)).is_err() {
                self.lost += 1;
                return;
            }
            self.lost = 0;
        }
        self.error = match self.append(&format_line(at, text)) {
            Ok(()) => None,
            Err(error) => {
                self.lost += 1;
                Some(error.to_string())
            }
        };
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut file = open(&self.path)?;
        let known = file.metadata()?;
        let size = if known.is_file() { known.len() } else { 0 };
        if size > 0 && size.saturating_add(line.len() as u64) > self.max_size {
            rotate(&self.path)?;
            file = open(&self.path)?;
        }
        // A writer that was killed, or met a full disk, leaves a line without an end.
        let line = if ends_within_a_line(&mut file) {
            &[b"\n", line].concat()
        } else {
            line
        };
        if file.write(line)? < line.len() {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    // NONBLOCK: a log that is a pipe must not make the daemon wait for a reader.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let mut options = File::options();
    let options = options.append(true).custom_flags(flags);
    // A user may have named any file, or put a link there.
    let path = &beneath::resolve_file(path)?;
    if path.symlink_metadata().is_ok_and(|known| known.is_file()) {
        beneath::must_be_file_or_missing(path)?;
    }
    // Reading is needed only to see the last byte, and the log may be one that can't be read.
    let opened = options.clone().read(true).open(path);
    match opened.or_else(|_| options.open(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_new(path, OFlags::RDWR | OFlags::APPEND)
        }
        opened => opened,
    }
}

/// Whether the last byte of a file is something other than the end of a line.
fn ends_within_a_line(file: &mut File) -> bool {
    let mut last = [b'\n'];
    let read = file
        .seek(SeekFrom::End(-1))
        .and_then(|_| file.read_exact(&mut last));
    read.is_ok() && last != [b'\n']
}

/// Moves the log out of the way of a new one.
fn rotate(path: &Path) -> io::Result<()> {
    // A rotation that was killed left a gap in the numbers: only the logs before it have to move.
    let free = (1..ROTATED).find(|number| !rotated(path, *number).exists());
    for number in (1..free.unwrap_or(ROTATED)).rev() {
        rename(&rotated(path, number), &rotated(path, number + 1))?;
    }
    rename(path, &rotated(path, 1))
}

/// The path of a rotated log.
pub(crate) fn rotated(path: &Path, number: usize) -> PathBuf {
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

fn format_line(at: Timestamp, text: &str) -> Vec<u8> {
    let mut line = format!("{at:.3} ");
    // The name of a branch or a holder must not move a reader's cursor, nor look like another.
    for c in flat(text).chars() {
        if line.len() >= LONGEST_TEXT {
            line.push('…');
            break;
        }
        line.push(c);
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
    fn a_line_starts_with_its_time_and_holds_no_control_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.write(at(0), "first\nsecond\u{7}\u{202e}");
        assert_eq!(
            lines(&path),
            [
                "1970-01-01T00:00:00.000Z first",
                "1970-01-01T00:00:00.000Z second\\u{7}\\u{202e}"
            ]
        );
    }

    #[test]
    fn a_full_log_is_rotated_and_three_rotated_logs_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 100);
        for number in 0..100 {
            log.write(at(number), &format!("line {number}"));
        }
        let mut all = Vec::new();
        for number in (1..=ROTATED).rev() {
            let old = rotated(&path, number);
            assert!(fs::metadata(&old).unwrap().len() <= 100);
            all.extend(lines(&old));
        }
        all.extend(lines(&path));
        assert!(!rotated(&path, ROTATED + 1).exists());
        // The newest lines, each once and in order.
        let first = 100 - all.len();
        assert!(first > 0);
        for (line, number) in all.iter().zip(first..) {
            assert!(line.ends_with(&format!(" line {number}")), "{line}");
        }
    }

    #[test]
    fn a_rotation_that_was_killed_loses_nothing() {
        for cut in 0..=ROTATED {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE);
            for number in 1..=ROTATED {
                fs::write(rotated(&path, number), format!("old {number}\n")).unwrap();
            }
            fs::write(&path, "newest\n").unwrap();
            // The renames that `rotate` had done when it was killed.
            for number in (ROTATED - cut..ROTATED).rev() {
                let from = if number == 0 {
                    path.clone()
                } else {
                    rotated(&path, number)
                };
                fs::rename(from, rotated(&path, number + 1)).unwrap();
            }
            let mut log = Log::new(path.clone(), 30);
            log.write(at(0), "goes on");
            let mut all = Vec::new();
            for number in 1..=ROTATED {
                all.extend(lines(&rotated(&path, number)));
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
    fn a_log_that_was_removed_or_moved_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.write(at(0), "one");
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        log.write(at(0), "two");
        assert_eq!(lines(&path).len(), 1);
        fs::remove_file(&path).unwrap();
        log.write(at(0), "three");
        assert!(lines(&path)[0].ends_with("three"));
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing").join(FILE);
        let mut log = Log::new(path.clone(), 1000);
        log.write(at(0), "one");
        log.write(at(0), "two");
        assert!(log.error().is_some());
        fs::create_dir(path.parent().unwrap()).unwrap();
        log.write(at(1), "three");
        assert_eq!(log.error(), None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("2 earlier lines could not be written: No such file"));
        assert!(lines[1].ends_with("three"));
    }

    #[test]
    fn a_torn_line_stays_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "torn").unwrap();
        Log::new(path.clone(), 1000).write(at(0), "whole");
        let lines = lines(&path);
        assert_eq!(lines[0], "torn");
        assert!(lines[1].ends_with(" whole"));
    }

    #[test]
    fn a_full_disk_is_survived() {
        // Every write to this device fails as on a full disk.
        let path = PathBuf::from("/dev/full");
        let mut log = Log::new(path, 1000);
        log.write(at(0), "one");
        assert!(log.error().unwrap().contains("No space left"), "{log:?}");
    }

    #[test]
    fn a_line_is_never_longer_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        Log::new(path.clone(), 1 << 20).write(at(0), &"x".repeat(100_000));
        assert!(fs::metadata(&path).unwrap().len() <= LONGEST_LINE);
        Log::new(path.clone(), 1 << 20).write(at(0), &"€".repeat(100_000));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().all(|line| (line.len() as u64) < LONGEST_LINE));
    }
}
