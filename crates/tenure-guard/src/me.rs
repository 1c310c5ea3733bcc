//! Which reservations belong to the process that git runs the hook for: [`Me`].
//!
//! A hook is started by git, which a shell or an agent started. With a name (`--as`, `TENURE_HOLDER`), the reservations of
//! that name are its own. Without one, those are that a process above it made without a name, and those that are tied to
//! a process above it.

use std::fs;

use tenure_core::{Binding, Holder, HolderId, Process};
use tenure_host::identity;

/// How many processes above this one are looked at.
const MAX_ANCESTORS: usize = 64;

/// The holder that the hook acts for.
#[derive(Debug, Clone)]
pub struct Me {
    names: Vec<HolderId>,
    above: Vec<Process>,
    is_named: bool,
}

impl Me {
    /// A holder with a name.
    pub fn named(name: HolderId) -> Self {
        Self {
            names: vec![name],
            above: Vec::new(),
            is_named: true,
        }
    }

    /// A holder without a name. `generated` is the name that a command gets if this process calls it.
    pub fn unnamed(generated: impl Fn(u32) -> Option<HolderId>) -> Self {
        let above = ancestors();
        Self {
            names: above
                .iter()
                .filter_map(|process| generated(process.pid))
                .collect(),
            above,
            is_named: false,
        }
    }

    /// Whether the holder has a name that was chosen.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether a lease of this holder is ours.
    pub fn is(&self, holder: &Holder) -> bool {
        self.names.contains(&holder.id)
            || matches!(&holder.binding, Binding::Process { process } if self.above.contains(process))
    }

    /// Our names. A process without a name has one for each shell that it may have been started from.
    pub fn names(&self) -> &[HolderId] {
        &self.names
    }
}

/// The processes above this one, the nearest first.
fn ancestors() -> Vec<Process> {
    let mut found = Vec::new();
    let mut pid = std::process::id();
    while let Some(parent) = parent(pid) {
        // Process 1 and the kernel start everything.
        if parent <= 1 || found.len() == MAX_ANCESTORS {
            break;
        }
        found.extend(identity::process(parent).ok().flatten());
        pid = parent;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have any character.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
