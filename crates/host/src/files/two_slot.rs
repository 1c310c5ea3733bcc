//! [`TwoSlotFile`]: a small record that changes often and survives a writer that is killed halfway.
//!
//! A write goes into the older of two files, in place: a line with the revision, digest and length,
//! then the contents. A reader takes the newer file that is complete, so a write that is interrupted
//! changes nothing. (Replacing one file by rename took 3 ms on ext4, which then starts to write the
//! new file to disk at once.)
//!
//! The caller makes sure that there is one writer at a time. Nothing is synced to disk.

use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tenure_core::StoreError;

use crate::files::atomic;
use crate::files::beneath;
use crate::files::fault::explain;
use crate::files::look::if_there;
use crate::files::permissions::open_or_create;
use crate::files::protocol::digest;

/// The largest slot that is read, in bytes: far more than any record has.
const LARGEST: u64 = 64 << 20;

/// The newer complete slot: its revision, its number (0 or 1), its contents.
pub type Newest = Option<(u64, usize, Vec<u8>)>;

/// The two files `BASE.a` and `BASE.b`.
#[derive(Debug, Clone)]
pub struct TwoSlotFile([PathBuf; 2]);

impl TwoSlotFile {
    /// The slots of this base name. They need not exist.
    pub fn new(base: &Path) -> Self {
        let slot = |end: &str| {
            let mut path = base.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        };
        Self([slot(".a"), slot(".b")])
    }

    /// The paths of slot 0 and slot 1.
    pub fn paths(&self) -> &[PathBuf; 2] {
        &self.0
    }

    /// Reads the newer complete slot, and names a slot that is incomplete.
    pub fn read(&self) -> Result<(Newest, Option<String>), StoreError> {
        let mut newest: Newest = None;
        let mut flaw = None;
        for (slot, path) in self.0.iter().enumerate() {
            let bytes = if_there(beneath::read(path, LARGEST));
            let Some(bytes) = bytes.map_err(|error| explain("read", path, error))? else {
                continue;
            };
            match parse(&bytes) {
                Some((revision, contents)) => {
                    if newest.as_ref().is_none_or(|(than, ..)| revision > *than) {
                        newest = Some((revision, slot, contents.to_vec()));
                    }
                }
                None => flaw = Some(format!("{} is incomplete", path.display())),
            }
        }
        Ok((newest, flaw))
    }

    /// Writes into the slot that is not `newest`, and returns its number.
    pub fn write(
        &self,
        revision: u64,
        newest: usize,
        contents: &[u8],
    ) -> Result<usize, StoreError> {
        let [a, b] = &self.0;
        let (slot, path) = if newest == 0 { (1, b) } else { (0, a) };
        let write = || {
            let (length, digest) = (contents.len(), digest(contents));
            let mut bytes = format!("{revision} {digest:016x} {length}\n").into_bytes();
            bytes.extend(contents);
            let mut file = open_or_create(path, OFlags::WRONLY)?;
            file.write_all(&bytes)?;
            file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
        };
        write().map_err(|error| explain("written", path, error))?;
        Ok(slot)
    }

    /// Removes both slots, the newer one last: a reader in between must not find an older record.
    pub fn remove(&self, newest: usize) -> Result<(), StoreError> {
        let [a, b] = &self.0;
        let (first, last) = if newest == 0 { (b, a) } else { (a, b) };
        for path in [first, last] {
            atomic::unlink(path).map_err(|error| explain("removed", path, error))?;
        }
        Ok(())
    }
}

/// The revision and the contents of one slot, if it is complete.
fn parse(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let mut fields = std::str::from_utf8(line).ok()?.split(' ');
    let revision = fields.next()?.parse().ok()?;
    let written = u64::from_str_radix(fields.next()?, 16).ok()?;
    let length = fields.next()?.parse().ok()?;
    let contents = rest.get(1..)?.get(..length)?;
    (digest(contents) == written).then_some((revision, contents))
}
