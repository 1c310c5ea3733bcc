//! Reading a log from its end and following it: [`LogTail`].
//!
//! 1. Only whole lines are returned, each once and in order.
//! 2. Rotation is followed: the rest of the old log comes first, then logs that were begun and rotated
//!    in the meantime, then the new one. Lines of a log that was dropped before it was read are lost.
//! 3. Following polls. A reader that is a tenth of a second late is not noticed by a person.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tenure_host::files::beneath;

use crate::log::{LONGEST_LINE, ROTATED, rotated};

/// The pause between two looks at a log that is followed.
const POLL: Duration = Duration::from_millis(100);

/// A position in a log.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    file: LogFile,
}

/// One file of a log, read up to some position.
#[derive(Debug)]
struct LogFile {
    file: File,
    id: (u64, u64),
    /// The beginning of a line whose end has not been written yet.
    partial: Vec<u8>,
}

impl LogTail {
    /// The last `count` lines of a log, and the position after them. Fails with
    /// [`io::ErrorKind::NotFound`] if there is no log.
    pub fn open(path: &Path, count: usize) -> io::Result<(Vec<String>, Self)> {
        let mut files = files(path)?.into_iter();
        let mut file = files.next().ok_or(io::ErrorKind::NotFound)?;
        let mut lines = file.last_lines(count)?;
        for mut older in files {
            if lines.len() >= count {
                break;
            }
            let mut before = older.last_lines(count - lines.len())?;
            before.append(&mut lines);
            lines = before;
        }
        let path = path.to_owned();
        Ok((lines, Self { path, file }))
    }

    /// Waits until it is time to look for new lines again.
    pub fn pause() {
        std::thread::sleep(POLL);
    }

    /// The lines that were added since the last call.
    pub fn read_new(&mut self) -> io::Result<Vec<String>> {
        // Found before the current file is read: once it has a successor, no line is added to it.
        let successors = self.successors()?;
        let mut lines = self.file.read_lines()?;
        for mut file in successors {
            lines.append(&mut file.read_lines()?);
            self.file = file;
        }
        Ok(lines)
    }

    /// The files that were begun after the current one, oldest first.
    fn successors(&self) -> io::Result<Vec<LogFile>> {
        let mut files = files(&self.path)?;
        if let Some(current) = files.iter().position(|file| file.id == self.file.id) {
            files.truncate(current);
        } else {
            // The current file was dropped or moved away: only its age tells which ones are newer.
            let last_write = self.file.last_write()?;
            files.retain(|file| file.last_write().is_ok_and(|at| at >= last_write));
        }
        files.reverse();
        Ok(files)
    }
}

/// The files of a log, newest first: when a rotation happens meanwhile, a file can turn up twice (and is
/// left out the second time), but none is missed.
fn files(path: &Path) -> io::Result<Vec<LogFile>> {
    let mut files: Vec<LogFile> = Vec::new();
    let names = (1..=ROTATED).map(|number| rotated(path, number));
    for name in std::iter::once(path.to_owned()).chain(names) {
        match LogFile::open(&name) {
            Ok(file) if files.iter().any(|seen| seen.id == file.id) => {}
            Ok(file) => files.push(file),
            // A rotated log that is missing or can't be read is one that there is nothing to show of.
            Err(error) if name != path || error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let path = beneath::resolve_file(path)?;
        let (file, known) = beneath::open_known(&path, OFlags::RDONLY)?;
        Ok(Self {
            file,
            id: (known.dev(), known.ino()),
            partial: Vec::new(),
        })
    }

    fn last_write(&self) -> io::Result<(i64, i64)> {
        let known = self.file.metadata()?;
        Ok((known.mtime(), known.mtime_nsec()))
    }

    /// The last `count` lines of the whole file.
    fn last_lines(&mut self, count: usize) -> io::Result<Vec<String>> {
        // Two lines more than asked for: the first may be cut in half, the last may have no end yet.
        let enough = (count as u64)
            .saturating_add(2)
            .saturating_mul(LONGEST_LINE);
        let start = self.file.metadata()?.len().saturating_sub(enough);
        self.file.seek(SeekFrom::Start(start))?;
        let mut lines = self.read_lines()?;
        if start > 0 && !lines.is_empty() {
            lines.remove(0);
        }
        lines.drain(..lines.len().saturating_sub(count));
        Ok(lines)
    }

    /// The whole lines from the current position on.
    fn read_lines(&mut self) -> io::Result<Vec<String>> {
        if self.file.stream_position()? > self.file.metadata()?.len() {
            // The file was truncated.
            self.file.seek(SeekFrom::Start(0))?;
            self.partial.clear();
        }
        self.file.read_to_end(&mut self.partial)?;
        let end = self.partial.iter().rposition(|byte| *byte == b'\n');
        let rest = self.partial.split_off(end.map_or(0, |at| at + 1));
        let whole = std::mem::replace(&mut self.partial, rest);
        let text = String::from_utf8_lossy(&whole);
        Ok(text.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use jiff::Timestamp;

    fn log(folder: &Path, most: u64) -> (PathBuf, Log) {
        let path = folder.join("log");
        (path.clone(), Log::new(path, most))
    }

    fn write(log: &mut Log, numbers: std::ops::Range<usize>) {
        for number in numbers {
            log.write(Timestamp::UNIX_EPOCH, &format!("line {number}"));
        }
    }

    fn numbers(lines: &[String]) -> Vec<usize> {
        let number = |line: &String| line.rsplit_once(' ').unwrap().1.parse().unwrap();
        lines.iter().map(number).collect()
    }

    #[test]
    fn the_last_lines_are_found_across_rotated_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 100);
        assert_eq!(
            LogTail::open(&path, 3).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        write(&mut log, 0..10);
        for many in [0, 1, 2, 3, 5, 8] {
            let (lines, _) = LogTail::open(&path, many).unwrap();
            assert_eq!(numbers(&lines), (10 - many..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_last_lines_of_a_long_log_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 10_000_000);
        write(&mut log, 0..5000);
        let (lines, _) = LogTail::open(&path, 4000).unwrap();
        assert_eq!(numbers(&lines), (1000..5000).collect::<Vec<_>>());
    }

    #[test]
    fn each_new_line_is_returned_once_across_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 120);
        write(&mut log, 0..1);
        let (first, mut tail) = LogTail::open(&path, 10).unwrap();
        let mut shown = numbers(&first);
        let mut next = 1;
        // A log holds up to three lines: several are begun and rotated between two looks.
        for step in [0, 1, 2, 3, 4, 7, 9, 1, 5, 2, 8] {
            write(&mut log, next..next + step);
            next += step;
            shown.extend(numbers(&tail.read_new().unwrap()));
        }
        assert_eq!(shown, (0..next).collect::<Vec<_>>());
    }

    #[test]
    fn half_a_line_is_returned_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "line 1\nli").unwrap();
        let (lines, mut tail) = LogTail::open(&path, 5).unwrap();
        assert_eq!(lines, ["line 1"]);
        assert_eq!(tail.read_new().unwrap(), Vec::<String>::new());
        std::fs::write(&path, "line 1\nline 2\n").unwrap();
        assert_eq!(tail.read_new().unwrap(), ["line 2"]);
        std::fs::write(&path, "3\n").unwrap();
        assert_eq!(tail.read_new().unwrap(), ["3"], "the file was truncated");
    }

    #[test]
    fn a_log_is_followed_into_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 300);
        write(&mut log, 0..1);
        let (_, mut tail) = LogTail::open(&path, 0).unwrap();
        let writer = std::thread::spawn(move || {
            for number in 1..=20 {
                write(&mut log, number..number + 1);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut shown = Vec::new();
        while shown.last() != Some(&20) {
            LogTail::pause();
            shown.extend(numbers(&tail.read_new().unwrap()));
        }
        writer.join().unwrap();
        assert_eq!(shown, (1..=20).collect::<Vec<_>>());
    }

    #[test]
    fn no_line_is_missed_while_the_log_is_rotated_under_the_reader() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        const LAST: usize = 12_000;
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 400);
        write(&mut log, 0..1);
        let (first, mut tail) = LogTail::open(&path, 1).unwrap();
        let mut shown = numbers(&first);
        let seen = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=LAST {
                    // Never so far ahead that a log is dropped before it is read.
                    while number > seen.load(Ordering::SeqCst) + 20 {
                        std::thread::yield_now();
                    }
                    write(&mut log, number..number + 1);
                }
            });
            while shown.len() <= LAST {
                shown.extend(numbers(&tail.read_new().unwrap()));
                let last = shown.last().copied().unwrap();
                seen.store(last, Ordering::SeqCst);
                if last == LAST {
                    break;
                }
            }
        });
        assert_eq!(shown, (0..=LAST).collect::<Vec<_>>());
    }
}
