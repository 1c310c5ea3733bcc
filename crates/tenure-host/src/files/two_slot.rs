//! Something small that is changed often, and survives a writer that is killed halfway: [`TwoSlotFile`].
//!
//! It is written into the older of two files, in place: a line with its revision, digest and length,
//! then the rest. Whoever reads takes the newer one that is whole, so a writer that is killed halfway
//! has changed nothing. (Replacing one file by rename was measured to take 3 ms on ext4, which then
//! begins to write the new one to disk at once.)
//!
//! One writes at a time: that is for the caller to see to. Nothing is synced.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tenure_core::StoreError;

use crate::files::atomic;
use crate::files::fault::explain;
use crate::files::protocol::digest;

/// The newer one that is whole: its revision, which half it is, what is in it.
pub type Newest = Option<(u64, usize, Vec<u8>)>;

/// Two files, `BASE.a` and `BASE.b`.
#[derive(Debug, Clone)]
pub struct TwoSlotFile([PathBuf; 2]);

impl TwoSlotFile {
    pub fn new(base: &Path) -> Self {
        let half = |end: &str| {
            let mut path = base.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        };
        Self([half(".a"), half(".b")])
    }

    /// Both, in the order in which they are counted.
    pub fn paths(&self) -> &[PathBuf; 2] {
        &self.0
    }

    /// Reads the newer one that is whole, and says of one that is not.
    pub fn read(&self) -> Result<(Newest, Option<String>), StoreError> {
        let mut newest: Newest = None;
        let mut flaw = None;
        for (half, path) in self.0.iter().enumerate() {
            match fs::read(path) {
                Ok(bytes) => match whole(&bytes) {
                    Some((revision, rest)) => {
                        if newest.as_ref().is_none_or(|(than, ..)| revision > *than) {
                            newest = Some((revision, half, rest.to_vec()));
                        }
                    }
                    None => flaw = Some(format!("{} is not whole", path.display())),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(explain("read", path, error)),
            }
        }
        Ok((newest, flaw))
    }

    /// Writes into the half that is not `newest`; which one that is.
    pub fn write(&self, revision: u64, newest: usize, rest: &[u8]) -> Result<usize, StoreError> {
        let [a, b] = &self.0;
        let (half, path) = if newest == 0 { (1, b) } else { (0, a) };
        let write = || {
            let (length, digest) = (rest.len(), digest(rest));
            let mut bytes = format!("{revision} {digest:016x} {length}\n").into_bytes();
            bytes.extend(rest);
            let mut file = fs::File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.write_all(&bytes)?;
            file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
        };
        write().map_err(|error| explain("written", path, error))?;
        Ok(half)
    }

    /// Removes both, the newer one last: whoever comes in between must not find an older state.
    pub fn remove(&self, newest: usize) -> Result<(), StoreError> {
        let [a, b] = &self.0;
        let (first, last) = if newest == 0 { (b, a) } else { (a, b) };
        for path in [first, last] {
            atomic::unlink(path).map_err(|error| explain("removed", path, error))?;
        }
        Ok(())
    }
}

/// The revision of one half, and what follows it, if it is whole.
fn whole(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let mut fields = std::str::from_utf8(line).ok()?.split(' ');
    let revision = fields.next()?.parse().ok()?;
    let written = u64::from_str_radix(fields.next()?, 16).ok()?;
    let length = fields.next()?.parse().ok()?;
    let json = rest.get(1..)?.get(..length)?;
    (digest(json) == written).then_some((revision, json))
}
