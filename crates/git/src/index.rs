//! Reads git's index, without a git process: which files git tracks in a work tree.
//!
//! Only the names and the kinds of the entries are read. Whether a file differs from its entry is git's business.
//!
//! | the index | what is read |
//! |---|---|
//! | versions 2, 3 and 4, of either hash | all entries |
//! | a sparse index | all entries; a folder that is not checked out is one of them |
//! | a split index, or an extension that a reader has to know | [`None`]: ask git |
//!
//! git replaces the file by renaming a new one, so no lock is needed, and a lock of another process does not matter.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use tenure_host::files::beneath::read_following;
use tenure_host::files::look::{if_there, unreadable};

/// The largest index that is read, in bytes: one of ten million files.
const LARGEST: u64 = 1 << 30;

/// What stands before the id in an entry: two times and six numbers.
const NUMBERS: usize = 40;

/// Where the mode is among them.
const MODE: usize = 24;

/// Lengths of an id, by the hash of the repository. The index does not say which it is.
const IDS: [usize; 2] = [20, 32];

const EXTENDED: u16 = 0x4000;
const LENGTH: u16 = 0x0fff;
const SKIP_WORKTREE: u16 = 0x4000;

/// What an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file or a link.
    File,
    /// The folder of a submodule.
    Submodule,
    /// A file, or a folder of a sparse index, that need not be in the work tree.
    Skipped,
}

/// A name in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The path from the top of the work tree.
    pub path: &'a [u8],
    /// What it stands for.
    pub kind: Kind,
}

#[derive(Debug)]
struct Place {
    begin: u32,
    end: u32,
    kind: Kind,
}

/// The names in an index, in the order of their bytes. One with a conflict is there more than once.
#[derive(Debug, Default)]
pub struct Index {
    /// The file, or the paths one after another, each with a NUL at its end.
    text: Vec<u8>,
    places: Vec<Place>,
}

impl Index {
    /// The index of a work tree, whose own folder of git this is. `None` if only git can read it. Where none was written
    /// yet it is empty.
    pub fn read(own: &Path) -> io::Result<Option<Self>> {
        let path = own.join("index");
        let read = if_there(read_following(&path, LARGEST));
        let Some(text) = read.map_err(|error| unreadable(&path, &error))? else {
            return Ok(Some(Self::default()));
        };
        Ok(Self::parse(text))
    }

    fn parse(text: Vec<u8>) -> Option<Self> {
        let mut header = Reader::at(&text, 0);
        (header.take(4)? == b"DIRC").then_some(())?;
        let (version, count) = (header.number()?, header.number()?);
        for id in IDS {
            let mut paths = Vec::new();
            let Some((places, end)) = entries(&text, id, version, count, &mut paths) else {
                continue;
            };
            return extensions(&text, end, id).then_some(Self {
                text: if version == 4 { paths } else { text },
                places,
            });
        }
        None
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// An entry, by its number.
    pub fn get(&self, number: usize) -> Option<Entry<'_>> {
        let place = self.places.get(number)?;
        let path = self.text.get(place.begin as usize..place.end as usize)?;
        let kind = place.kind;
        Some(Entry { path, kind })
    }

    /// The end of an entry's path, from this byte of it on, for the kernel.
    pub fn name(&self, number: usize, from: usize) -> Option<&CStr> {
        let place = self.places.get(number)?;
        let name = (place.begin as usize).checked_add(from)?..=place.end as usize;
        CStr::from_bytes_with_nul(self.text.get(name)?).ok()
    }

    /// What this path is in the index.
    pub fn kind(&self, path: &[u8]) -> Option<Kind> {
        let found = self.get(self.first_from(path))?;
        (found.path == path).then_some(found.kind)
    }

    /// Whether something in the folder of this path is in the index. What is in a folder `a` need not follow a file `a`: a
    /// file `a-b` may be between them.
    pub fn has_folder(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        let found = self.get(self.first_from(&inside));
        found.is_some_and(|found| found.path.starts_with(&inside))
    }

    /// The number of the first entry that is not before this path.
    fn first_from(&self, path: &[u8]) -> usize {
        self.places.partition_point(|place| {
            let known = self.text.get(place.begin as usize..place.end as usize);
            known.is_some_and(|known| known < path)
        })
    }
}

/// The entries and where they end; `None` if they can't be those of ids of this length. Version 4 writes of each path only
/// what differs from the one before; the whole paths go to `paths`.
fn entries(
    text: &[u8],
    id: usize,
    version: u32,
    count: u32,
    paths: &mut Vec<u8>,
) -> Option<(Vec<Place>, usize)> {
    (2..=4).contains(&version).then_some(())?;
    // An entry has more bytes than this.
    let mut places: Vec<Place> = Vec::with_capacity((count as usize).min(text.len() / NUMBERS));
    let mut reader = Reader::at(text, 12);
    for _ in 0..count {
        let start = reader.at;
        let numbers = reader.take(NUMBERS)?;
        let mode = u32::from_be_bytes(numbers.get(MODE..MODE + 4)?.try_into().ok()?);
        reader.take(id)?;
        let flags = reader.short()?;
        let more = match flags & EXTENDED {
            0 => 0,
            _ => reader.short()?,
        };
        let (begin, end) = if version == 4 {
            let last = places.last().map_or(0..0, |last| last.begin..last.end);
            let kept = (last.end - last.start) as usize;
            let kept = kept.checked_sub(reader.removed()?)?;
            let kept = last.start as usize..last.start as usize + kept;
            let begin = paths.len();
            paths.extend_from_within(kept);
            paths.extend_from_slice(reader.until_nul()?);
            paths.push(0);
            (begin, paths.len() - 1)
        } else {
            let begin = reader.at;
            let length = reader.until_nul()?.len();
            // Filled with NULs to a multiple of eight bytes.
            reader.at = start + (begin + length - start + 8) / 8 * 8;
            (begin, begin + length)
        };
        let length = u16::try_from(end - begin).unwrap_or(u16::MAX).min(LENGTH);
        (length > 0 && length == flags & LENGTH).then_some(())?;
        places.push(Place {
            begin: u32::try_from(begin).ok()?,
            end: u32::try_from(end).ok()?,
            kind: match mode & 0o170_000 {
                _ if more & SKIP_WORKTREE != 0 => Kind::Skipped,
                0o160_000 => Kind::Submodule,
                0o100_000 | 0o120_000 => Kind::File,
                _ => return None,
            },
        });
    }
    Some((places, reader.at))
}

/// Whether all extensions may be ignored, and the file ends after them with its hash. The name of one that a reader has to
/// know begins with a small letter; `sdir` only says that folders may be entries.
fn extensions(text: &[u8], from: usize, id: usize) -> bool {
    let mut reader = Reader::at(text, from);
    while text.len().saturating_sub(reader.at) > id {
        let (Some(name), Some(size)) = (reader.take(4), reader.number()) else {
            return false;
        };
        let may_ignore = name == b"sdir" || name.first().is_some_and(u8::is_ascii_uppercase);
        if !may_ignore || reader.take(size as usize).is_none() {
            return false;
        }
    }
    text.len().saturating_sub(reader.at) == id
}

/// Bytes that are read one after another.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn at(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    fn take(&mut self, many: usize) -> Option<&'a [u8]> {
        let taken = self.text.get(self.at..self.at.checked_add(many)?)?;
        self.at += many;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// The bytes before the next NUL, which is skipped.
    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let rest = self.text.get(self.at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        self.at += end + 1;
        rest.get(..end)
    }

    /// How many bytes of the path before are left out: seven bits in each byte, the highest first.
    fn removed(&mut self) -> Option<usize> {
        let mut value = 0_usize;
        for _ in 0..5 {
            let byte = *self.take(1)?.first()?;
            value = (value << 7) | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Some(value);
            }
            // Each further byte begins where shorter numbers end.
            value += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, args: &str) -> bool {
        let mut git = Command::new("git");
        git.current_dir(folder)
            .env("HOME", folder)
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args.split(' '))
            .output()
            .unwrap()
            .status
            .success()
    }

    fn repository(options: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        assert!(git(place.path(), &format!("init -q{options}")));
        for folder in ["a/b", "a-b", "z"] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        let long = "l".repeat(250);
        for name in ["a/b/c", "a/b/d", "a-b/x", "a.c", "z/é\n", &long] {
            fs::write(place.path().join(name), name).unwrap();
        }
        assert!(git(place.path(), "add -A"));
        place
    }

    fn names(place: &Path) -> Option<Vec<String>> {
        let index = Index::read(&place.join(".git")).unwrap()?;
        let all = (0..index.len()).map(|number| {
            let entry = index.get(number).unwrap();
            let whole = index.name(number, 0).unwrap().to_bytes();
            assert_eq!(whole, entry.path);
            String::from_utf8_lossy(entry.path).into_owned()
        });
        Some(all.collect())
    }

    #[test]
    fn every_version_and_hash_is_read() {
        let long = "l".repeat(250);
        let expected = ["a-b/x", "a.c", "a/b/c", "a/b/d", &long, "z/é\n"];
        for options in ["", " --object-format=sha256"] {
            let place = repository(options);
            for version in ["2", "4", "2"] {
                let arg = format!("update-index --index-version {version}");
                assert!(git(place.path(), &arg));
                assert_eq!(names(place.path()).unwrap(), expected, "{version}{options}");
            }
            assert!(git(place.path(), "update-index --skip-worktree a.c"));
            assert_eq!(names(place.path()).unwrap(), expected, "version 3");
            let index = Index::read(&place.path().join(".git")).unwrap().unwrap();
            assert_eq!(index.get(1).unwrap().kind, Kind::Skipped);
            assert_eq!(index.get(2).unwrap().kind, Kind::File);
        }
    }

    #[test]
    fn a_path_of_thousands_of_bytes_is_read_in_every_version() {
        let place = tempfile::tempdir().unwrap();
        assert!(git(place.path(), "init -q"));
        let folder = place.path().join("f".repeat(200)).join("g".repeat(200));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("h".repeat(200)), "").unwrap();
        fs::write(place.path().join("z"), "").unwrap();
        assert!(git(place.path(), "add -A"));
        for version in ["2", "4"] {
            let arg = format!("update-index --index-version {version}");
            assert!(git(place.path(), &arg));
            let names = names(place.path()).unwrap();
            assert_eq!(names.len(), 2);
            assert_eq!(names[0].len(), 602);
        }
    }

    #[test]
    fn a_split_index_is_left_to_git() {
        let place = repository("");
        assert!(git(place.path(), "update-index --split-index"));
        assert_eq!(names(place.path()), None);
    }

    #[test]
    fn a_file_and_a_folder_are_found_among_names_that_sort_between_them() {
        let place = repository("");
        let index = Index::read(&place.path().join(".git")).unwrap().unwrap();
        for folder in ["a", "a/b", "a-b", "z"] {
            assert!(index.has_folder(folder.as_bytes()), "{folder}");
            assert_eq!(index.kind(folder.as_bytes()), None);
        }
        for file in ["a/b/c", "a.c"] {
            assert!(!index.has_folder(file.as_bytes()), "{file}");
            assert_eq!(index.kind(file.as_bytes()), Some(Kind::File));
        }
        for neither in ["b", "a/", "a/b/cc", "a/c", "", "zz"] {
            assert!(!index.has_folder(neither.as_bytes()), "{neither}");
            assert_eq!(index.kind(neither.as_bytes()), None);
        }
    }

    #[test]
    fn no_cut_and_no_changed_byte_makes_it_fail() {
        let place = repository("");
        let whole = fs::read(place.path().join(".git/index")).unwrap();
        assert!(Index::parse(whole.clone()).is_some());
        for end in 0..whole.len() {
            assert!(Index::parse(whole[..end].to_vec()).is_none(), "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            // Nothing but an answer is asked for.
            let _ = Index::parse(changed);
        }
        let none = place.path().join("none");
        assert!(Index::read(&none).unwrap().unwrap().is_empty());
    }
}
