//! The lines in the repository's configuration that make git use a folder of ours: [`include`] and [`exclude`].
//!
//! 1. They are the last section of the file: in git, the last value of a setting counts.
//! 2. [`exclude`] undoes [`include`] byte for byte, also in a file without a newline at its end.
//! 3. The file is replaced under git's own lock, `config.lock`, so no change of another program is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// Replaces the file by what the function makes of it; `false` if it makes nothing.
fn edit(config: &Path, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> io::Result<bool> {
    // Git follows a link, too.
    let config = config.canonicalize()?;
    let mut lock = config.clone().into_os_string();
    lock.push(".lock");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(&lock)?;
    let lock = Lock(PathBuf::from(lock));
    let Some(text) = change(&fs::read(&config)?) else {
        return Ok(false);
    };
    file.set_permissions(fs::metadata(&config)?.permissions())?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&lock.0, &config)?;
    std::mem::forget(lock);
    if let Some(folder) = config.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(true)
}

/// Git's lock, which this process has made. It is given back if the file stays as it is.
struct Lock(PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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
}
