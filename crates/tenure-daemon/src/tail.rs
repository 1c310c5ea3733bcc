//! The end of the log, and what is added to it: [`Tail`].
//!
//! 1. Only whole lines are shown, each once, in order.
//! 2. A log that was begun anew is followed: what is left of the old one first, then those that came
//!    and went meanwhile, then the new one. What was dropped by then can't be shown.
//! 3. Waiting costs nothing: the kernel tells of a change.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::log::{KEPT, old};

/// How much is read at a time, going back.
const BLOCK: u64 = 64 * 1024;

/// How often to look where the kernel can't tell.
const POLL: Duration = Duration::from_secs(1);

/// A log that is read.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<Reading>,
    news: Option<News>,
}

/// One file of the log, read up to a place.
#[derive(Debug)]
struct Reading {
    file: File,
    id: (u64, u64),
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
}

/// Where the kernel tells of changes.
#[derive(Debug)]
struct News {
    inotify: OwnedFd,
    file: Option<i32>,
}

impl Tail {
    /// The last lines of a log, and where to go on. An error of the kind `NotFound` if there is none.
    pub fn begin(path: &Path, lines: usize) -> io::Result<(Vec<String>, Self)> {
        let mut reading = Reading::open(path)?;
        let mut found = VecDeque::new();
        let end = reading.back(lines, &mut found)?;
        let mut seen = vec![reading.id];
        for number in 1..=KEPT {
            if found.len() >= lines {
                break;
            }
            let Ok(mut older) = Reading::open(&old(path, number)) else {
                continue;
            };
            // Begun anew while we were looking: that one we have read.
            if seen.contains(&older.id) {
                continue;
            }
            seen.push(older.id);
            let missing = lines - found.len();
            older.back(missing, &mut found)?;
        }
        reading.file.seek(SeekFrom::Start(end))?;
        let tail = Self {
            path: path.to_owned(),
            file: Some(reading),
            news: None,
        };
        Ok((found.into(), tail))
    }

    /// Waits until something may have been added.
    pub fn wait(&mut self) -> io::Result<()> {
        if let Some(news) = &self.news {
            return news.wait();
        }
        // From now on; what came before is found by looking once more.
        self.news = News::begin(&self.path);
        if self.news.is_none() {
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The lines that were added since.
    pub fn more(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(reading) = &mut self.file {
            reading.forward(&mut lines)?;
        }
        let there = match Reading::open(&self.path) {
            Ok(there) => there,
            // Between two files, or gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(lines),
            Err(error) => return Err(error),
        };
        if self.file.as_ref().map(|reading| reading.id) == Some(there.id) {
            return Ok(lines);
        }
        // Nobody writes into the old one any more: now it is read to its end.
        if let Some(reading) = &mut self.file {
            reading.forward(&mut lines)?;
        }
        for mut between in self.between(there.id) {
            between.forward(&mut lines)?;
        }
        if let Some(news) = &mut self.news {
            news.turn_to(&self.path);
        }
        let reading = self.file.insert(there);
        reading.forward(&mut lines)?;
        Ok(lines)
    }

    /// The logs that came after the one that was read and before the one that is there, oldest first.
    fn between(&self, now: (u64, u64)) -> Vec<Reading> {
        let Some(before) = &self.file else {
            return Vec::new();
        };
        let Ok(last) = before.file.metadata() else {
            return Vec::new();
        };
        let time = |file: &Metadata| (file.mtime(), file.mtime_nsec());
        let mut between = Vec::new();
        for number in 1..=KEPT {
            let Ok(older) = Reading::open(&old(&self.path, number)) else {
                continue;
            };
            if older.id == before.id {
                break;
            }
            // Ours may be dropped by now, or somebody moved it away: then the time has to tell.
            let later = |file: Metadata| time(&file) >= time(&last);
            if older.id != now && older.file.metadata().is_ok_and(later) {
                between.push(older);
            }
        }
        between.reverse();
        between
    }
}

impl Reading {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let known = file.metadata()?;
        if !known.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        Ok(Self {
            file,
            id: (known.dev(), known.ino()),
            begun: Vec::new(),
        })
    }

    /// Puts the last lines in front of `found`; where the last of them ends.
    fn back(&mut self, lines: usize, found: &mut VecDeque<String>) -> io::Result<u64> {
        let size = self.file.metadata()?.len();
        let mut start = size;
        let mut bytes: Vec<u8> = Vec::new();
        let mut ends = 0;
        // One more than asked for: the end of the line before the first.
        while start > 0 && ends <= lines {
            let from = start.saturating_sub(BLOCK);
            let mut block = vec![0; usize::try_from(start - from).unwrap_or(0)];
            self.file.seek(SeekFrom::Start(from))?;
            self.file.read_exact(&mut block)?;
            ends += block.split(|byte| *byte == b'\n').count() - 1;
            block.append(&mut bytes);
            bytes = block;
            start = from;
        }
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default()).into_owned();
        let all: Vec<&str> = text.lines().collect();
        for line in all.iter().rev().take(lines) {
            found.push_front((*line).to_owned());
        }
        Ok(start + whole as u64)
    }

    /// The whole lines from where we are.
    fn forward(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        // Somebody emptied it.
        if self.file.stream_position()? > self.file.metadata()?.len() {
            self.file.seek(SeekFrom::Start(0))?;
            self.begun.clear();
        }
        self.file.read_to_end(&mut self.begun)?;
        let whole = self
            .begun
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let rest = self.begun.split_off(whole);
        let text = std::mem::replace(&mut self.begun, rest);
        let text = String::from_utf8_lossy(&text);
        lines.extend(text.lines().map(str::to_owned));
        Ok(())
    }
}

impl News {
    /// `None` where the kernel can't tell.
    fn begin(path: &Path) -> Option<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let folder = path.parent()?;
        let appears = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, folder, appears).ok()?;
        let mut news = Self {
            inotify,
            file: None,
        };
        news.turn_to(path);
        Some(news)
    }

    /// Listens to the file that is at the path now.
    fn turn_to(&mut self, path: &Path) {
        if let Some(before) = self.file.take() {
            // Gone by itself if its file is.
            let _ = inotify::remove_watch(&self.inotify, before);
        }
        let changes = WatchFlags::MODIFY | WatchFlags::MOVE_SELF;
        self.file = inotify::add_watch(&self.inotify, path, changes).ok();
    }

    fn wait(&self) -> io::Result<()> {
        // If there is a file that can't be listened to, it is looked at now and then.
        let now_and_then = Timespec::try_from(POLL).ok();
        let limit = now_and_then.filter(|_| self.file.is_none());
        match poll(
            &mut [PollFd::new(&self.inotify, PollFlags::IN)],
            limit.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while reader.next().is_ok() {}
        Ok(())
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

    fn say(log: &mut Log, numbers: std::ops::Range<usize>) {
        for number in numbers {
            log.say(Timestamp::UNIX_EPOCH, &format!("line {number}"));
        }
    }

    fn numbers(lines: &[String]) -> Vec<usize> {
        let number = |line: &String| line.rsplit_once(' ').unwrap().1.parse().unwrap();
        lines.iter().map(number).collect()
    }

    #[test]
    fn the_last_lines_are_found_across_old_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 100);
        assert_eq!(
            Tail::begin(&path, 3).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        say(&mut log, 0..10);
        for many in [0, 1, 2, 3, 5, 8] {
            let (lines, _) = Tail::begin(&path, many).unwrap();
            assert_eq!(numbers(&lines), (10 - many..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_last_lines_of_a_long_log_are_found_without_reading_all() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 10_000_000);
        say(&mut log, 0..5000);
        let (lines, _) = Tail::begin(&path, 4000).unwrap();
        assert_eq!(numbers(&lines), (1000..5000).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_added_is_shown_once_across_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 120);
        say(&mut log, 0..1);
        let (first, mut tail) = Tail::begin(&path, 10).unwrap();
        let mut shown = numbers(&first);
        let mut next = 1;
        // Up to three lines fit into one: so many come and go between two looks.
        for step in [0, 1, 2, 3, 4, 7, 9, 1, 5, 2, 8] {
            say(&mut log, next..next + step);
            next += step;
            shown.extend(numbers(&tail.more().unwrap()));
        }
        assert_eq!(shown, (0..next).collect::<Vec<_>>());
    }

    #[test]
    fn half_a_line_is_shown_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "line 1\nli").unwrap();
        let (lines, mut tail) = Tail::begin(&path, 5).unwrap();
        assert_eq!(lines, ["line 1"]);
        assert_eq!(tail.more().unwrap(), Vec::<String>::new());
        std::fs::write(&path, "line 1\nline 2\n").unwrap();
        assert_eq!(tail.more().unwrap(), ["line 2"]);
        std::fs::write(&path, "3\n").unwrap();
        assert_eq!(tail.more().unwrap(), ["3"], "somebody emptied it");
    }

    #[test]
    fn a_wait_ends_when_a_line_is_added_here_or_in_the_next_log() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 100);
        say(&mut log, 0..1);
        let (_, mut tail) = Tail::begin(&path, 0).unwrap();
        let writer = std::thread::spawn(move || {
            for number in 1..=20 {
                say(&mut log, number..number + 1);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut shown = Vec::new();
        while shown.last() != Some(&20) {
            tail.wait().unwrap();
            shown.extend(numbers(&tail.more().unwrap()));
        }
        writer.join().unwrap();
        assert_eq!(shown, (1..=20).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_missed_while_logs_are_begun_anew_under_the_reader() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        const LAST: usize = 12_000;
        let dir = tempfile::tempdir().unwrap();
        let (path, mut log) = log(dir.path(), 400);
        say(&mut log, 0..1);
        let (first, mut tail) = Tail::begin(&path, 1).unwrap();
        let mut shown = numbers(&first);
        let seen = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=LAST {
                    // Never so far ahead that logs are dropped before they are read.
                    while number > seen.load(Ordering::SeqCst) + 20 {
                        std::thread::yield_now();
                    }
                    say(&mut log, number..number + 1);
                }
            });
            while shown.len() <= LAST {
                shown.extend(numbers(&tail.more().unwrap()));
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
