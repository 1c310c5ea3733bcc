//! The processes above this one: [`ancestors`].

use tenure_core::Process;

use crate::identity;

/// How many are looked at.
const MOST: usize = 64;

/// The namespace of process ids that a machine starts with: its number is part of the kernel's interface.
const MACHINE: &str = "pid:[4026531836]";

/// The processes above this one, the nearest first. Process 1 of a machine starts and adopts everything, so it is left
/// out. That of a container may be an agent or a shell.
pub fn ancestors() -> Vec<Process> {
    let mut found = Vec::new();
    let above = std::iter::successors(parent(std::process::id()), |pid| parent(*pid));
    let is_machine = identity::namespace() == MACHINE;
    for pid in above.take_while(|pid| *pid > 1 || !is_machine).take(MOST) {
        found.extend(identity::process(pid).ok().flatten());
    }
    found
}

/// The process that started this one, or adopted it; `None` if it can't be seen.
pub fn parent(pid: u32) -> Option<u32> {
    let fields = identity::fields(pid).ok()?;
    let parent = fields.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (parent > 0).then_some(parent)
}
