//! The processes above this one: [`ancestors`].

use tenure_core::Process;

use crate::identity;

/// How many are looked at.
const MOST: usize = 64;

/// The processes above this one, the nearest first. Process 1 starts and adopts everything, so it is left out.
pub fn ancestors() -> Vec<Process> {
    let mut found = Vec::new();
    let above = std::iter::successors(parent(std::process::id()), |pid| parent(*pid));
    for pid in above.take_while(|pid| *pid > 1).take(MOST) {
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
