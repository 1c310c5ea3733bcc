//! The lines in the repository's configuration that make git use a folder of ours: [`include`] and [`exclude`].
//!
//! 1. They are the last section of the file: in git, the last value of a setting counts.
//! 2. [`exclude`] undoes [`include`] byte for byte, also in a file without a newline at its end.
//! 3. The file is replaced under git's own lock, `config.lock`, so no change of another program is lost.
//! 4. A lock that a killed process of ours left is told from git's: it is a hard link to a file of ours, which is beside it
//!    and whose `flock` that process held. [`drop_left_lock`] removes such a lock and nothing else.
//!
//! | killed after | what is left | what the next one does |
//! |---|---|---|
//! | the new content is written | `config.tenure-PID` | removes it |
//! | it is linked as git's lock | that, and `config.lock`, the same file | removes both |
//! | the lock is renamed to the configuration | `config.tenure-PID`, the same file as `config` | removes it |

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tenure_host::files::{beneath, look};

/// What git includes, relative to the configuration.
pub(crate) const INCLUDED: &str = "tenure-guard/config";

const SECTION: &[u8] = b"[include]\n\tpath = tenure-guard/config";

/// Adds the section to this file.
pub(crate) fn include(config: &Path) -> io::Result<()> {
    edit(config, |text| Some(with(text))).map(drop)
}

/// Takes the section out; `false` if it is not there as it was written.
pub(crate) fn exclude(config: &Path) -> io::Result<bool> {
    edit(config, without)
}

fn with(text: &[u8]) -> Vec<u8> {
    match text.last() {
        None | Some(b'\n') => [text, SECTION, b"\n"].concat(),
        // The missing newline tells that it was missing before.
        Some(_) => [text, b"\n", SECTION].concat(),
    }
}

fn without(text: &[u8]) -> Option<Vec<u8>> {
    let begin = text
        .windows(SECTION.len())
        .rposition(|window| window == SECTION)?;
    let (before, rest) = text.split_at_checked(begin)?;
    let rest = rest.get(SECTION.len()..)?;
    if rest.is_empty() {
        return Some(before.strip_suffix(b"\n").unwrap_or(before).to_vec());
    }
    let rest = rest.strip_prefix(b"\n")?;
    // Another program may have added a value to the section, which needs its header.
    let mut lines = rest.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let next = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    (next.is_none_or(|line| line.starts_with(b"["))).then(|| [before, rest].concat())
}

/// The largest configuration that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// How often the file may change while its new content is made.
const TRIES: usize = 10;

/// After the name of the configuration, before a pid: the new content, and the proof that a lock is ours.
const OWN: &str = ".tenure-";

/// Replaces the file by what the function makes of it; `false` if it makes nothing.
fn edit(config: &Path, change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> io::Result<bool> {
    // Git follows a link, too.
    let config = config.canonicalize()?;
    drop_left_lock(&config)?;
    for _ in 0..TRIES {
        let before = beneath::read_linked(&config, LARGEST)?;
        let Some(text) = change(&before) else {
            return Ok(false);
        };
        let own = Own::write(&config, &text)?;
        let lock = Lock::take(&config, &own)?;
        // Git may have changed it before the lock was taken.
        if beneath::read_linked(&config, LARGEST)? != before {
            continue;
        }
        fs::rename(&lock.0, &config)?;
        std::mem::forget(lock);
        drop(own);
        if let Some(folder) = config.parent() {
            File::open(folder)?.sync_all()?;
        }
        return Ok(true);
    }
    let message = "another program changes it again and again";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

fn beside(config: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(config);
    name.push(ending);
    PathBuf::from(name)
}

/// A file with the new content, which this process has locked as long as it lives.
struct Own {
    path: PathBuf,
    file: File,
}

impl Own {
    fn write(config: &Path, text: &[u8]) -> io::Result<Self> {
        let path = beside(config, &format!("{OWN}{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        let mut own = Self { path, file };
        flock(&own.file, FlockOperation::NonBlockingLockExclusive)?;
        own.file
            .set_permissions(fs::metadata(config)?.permissions())?;
        own.file.write_all(text)?;
        own.file.sync_all()?;
        Ok(own)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Git's lock, which this process has made. It is given back if the file stays as it is.
struct Lock(PathBuf);

impl Lock {
    fn take(config: &Path, own: &Own) -> io::Result<Self> {
        let lock = beside(config, ".lock");
        match fs::hard_link(&own.path, &lock) {
            // A file system without hard links, where nothing can prove that a lock is ours.
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists) => {
                let mut options = OpenOptions::new();
                let mut file = options.write(true).create_new(true).open(&lock)?;
                let lock = Self(lock);
                file.set_permissions(own.file.metadata()?.permissions())?;
                file.write_all(&fs::read(&own.path)?)?;
                file.sync_all()?;
                Ok(lock)
            }
            linked => linked.map(|()| Self(lock)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    one.dev() == other.dev() && one.ino() == other.ino()
}

/// Git's lock of this configuration, if a process of ours left it that has ended, and the file that proves it.
fn left(config: &Path) -> io::Result<Vec<(PathBuf, File)>> {
    let (Some(folder), Some(name)) = (config.parent(), config.file_name()) else {
        return Ok(Vec::new());
    };
    let mut begin = name.to_owned();
    begin.push(OWN);
    let begin = begin.as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let pid = name.strip_prefix(begin);
        let is_ours = pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit));
        if !is_ours || !fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
            continue;
        }
        // Its process has ended if its lock is free.
        if let Ok(file) = beneath::open(&path, OFlags::RDONLY, Mode::empty())
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            found.push((path, file));
        }
    }
    Ok(found)
}

/// Git's lock of this configuration, if a process of ours left it that has ended.
pub(crate) fn left_lock(config: &Path) -> io::Result<Option<PathBuf>> {
    let config = config.canonicalize()?;
    let lock = beside(&config, ".lock");
    let Some(there) = look::link_at(&lock)? else {
        return Ok(None);
    };
    let mut left = left(&config)?.into_iter();
    let is_it = |(_, file): &(PathBuf, File)| file.metadata().is_ok_and(|it| is_same(&it, &there));
    Ok(left.any(|own| is_it(&own)).then_some(lock))
}

/// Removes what processes of ours left that have ended, and tells whether git's lock was among it.
pub(crate) fn drop_left_lock(config: &Path) -> io::Result<bool> {
    let config = config.canonicalize()?;
    let lock = beside(&config, ".lock");
    // No process has this pid, so it is no name of new content; but if we are killed, too, it is swept like one.
    let aside = beside(&config, &format!("{OWN}0{}", std::process::id()));
    let mut dropped = false;
    for (path, file) in left(&config)? {
        let own = file.metadata()?;
        let is_it = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| is_same(&it, &own));
        if is_it(&lock) {
            // Moved away first, so that what is removed is what was looked at.
            fs::rename(&lock, &aside)?;
            if !is_it(&aside) {
                fs::hard_link(&aside, &lock)?;
            }
            fs::remove_file(&aside)?;
            dropped = true;
        }
        match fs::remove_file(&path) {
            // Another process was faster.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_the_section_out_restores_every_byte() {
        for before in [
            "",
            "[core]\n\tbare = false\n",
            "[core]\n\tbare = false",
            "[core]\r\n\tbare = false\r\n",
            "[include]\n",
            "[include]\n\tpath = mine\n[core]\n",
            "[core]\n\n\n",
            "# end",
        ] {
            let after = with(before.as_bytes());
            assert!(String::from_utf8_lossy(&after).contains(INCLUDED));
            assert_eq!(
                without(&after).as_deref(),
                Some(before.as_bytes()),
                "{before:?}"
            );
            // Git adds sections after ours.
            let newline = if after.ends_with(b"\n") { "" } else { "\n" };
            let more = format!("{newline}# c\n[remote]\n");
            let undone = without(&[&after[..], more.as_bytes()].concat()).unwrap();
            let expected = match (before, newline) {
                ("", _) | (_, "") => format!("{before}# c\n[remote]\n"),
                _ => format!("{before}\n# c\n[remote]\n"),
            };
            assert_eq!(String::from_utf8_lossy(&undone), expected);
        }
    }

    #[test]
    fn a_value_that_was_added_to_the_section_keeps_its_header() {
        let after = [&with(b"")[..], b"\n\tpath = mine\n"].concat();
        assert_eq!(without(&after), None);
        assert_eq!(without(b"[core]\n"), None);
    }

    #[test]
    fn the_file_is_left_alone_while_another_program_has_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        fs::write(&config, "[core]\n").unwrap();
        let lock = dir.path().join("config.lock");
        fs::write(&lock, "").unwrap();
        let refused = include(&config).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&config).unwrap(), b"[core]\n");
        assert!(lock.exists());
        fs::remove_file(&lock).unwrap();
        include(&config).unwrap();
        assert!(exclude(&config).unwrap() && !exclude(&config).unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"[core]\n");
        assert!(!lock.exists());
    }

    #[test]
    fn a_lock_that_a_killed_process_left_is_removed_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        fs::write(&config, "[core]\n").unwrap();
        let config = config.canonicalize().unwrap();
        let lock = beside(&config, ".lock");
        let own = beside(&config, ".tenure-1");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        // Killed after the content was written; after it was linked; after it was renamed.
        fs::write(&own, "new").unwrap();
        assert!(!drop_left_lock(&config).unwrap());
        assert_eq!(names(), 1);
        fs::write(&own, "new").unwrap();
        fs::hard_link(&own, &lock).unwrap();
        assert_eq!(left_lock(&config).unwrap(), Some(lock.clone()));
        assert!(drop_left_lock(&config).unwrap());
        assert_eq!(names(), 1);
        fs::hard_link(&config, &own).unwrap();
        assert!(!drop_left_lock(&config).unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"[core]\n");
        assert_eq!(names(), 1);
        // Git's own, beside what we left; and one whose process is alive.
        fs::write(&own, "new").unwrap();
        fs::write(&lock, "new").unwrap();
        assert_eq!(left_lock(&config).unwrap(), None);
        assert!(!drop_left_lock(&config).unwrap());
        assert!(lock.exists());
        fs::remove_file(&lock).unwrap();
        let alive = Own::write(&config, b"new").unwrap();
        let taken = Lock::take(&config, &alive).unwrap();
        assert!(!drop_left_lock(&config).unwrap());
        assert!(lock.exists() && alive.path.exists());
        drop(taken);
        drop(alive);
        include(&config).unwrap();
        assert_eq!(names(), 1);
    }
}
