//! How far a command is that changes many keys, one after the other: [`Progress`].

use std::io::IsTerminal as _;
use std::time::Duration;

use tenure_host::clock::since_boot;

use crate::answer::remark;
use crate::args::Global;

/// How often a line is written; the first one so long after the beginning.
const ON_A_TERMINAL: Duration = Duration::from_secs(1);
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Writes now and then how many keys are done, unless `--quiet` or `--json` is given.
pub(crate) struct Progress<'a> {
    global: &'a Global,
    /// What was done to them.
    done: &'static str,
    count: usize,
    total: usize,
    told: Duration,
    every: Duration,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(global: &'a Global, done: &'static str, total: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self {
            global,
            done,
            count: 0,
            total,
            told: since_boot(),
            every: if is_terminal {
                ON_A_TERMINAL
            } else {
                ELSEWHERE
            },
        }
    }

    pub(crate) fn one_more(&mut self) {
        if let Some(line) = self.line(since_boot()) {
            remark(self.global, &line);
        }
    }

    /// Counts one more, and returns what to say about it at this time.
    fn line(&mut self, now: Duration) -> Option<String> {
        self.count += 1;
        if now.saturating_sub(self.told) < self.every || self.count == self.total {
            return None;
        }
        self.told = now;
        let Self {
            done, count, total, ..
        } = self;
        Some(format!("{done} {count} of {total}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_now_and_then_and_not_at_the_end() {
        let global = Global::default();
        let mut progress = Progress::new(&global, "released", 5);
        let begun = progress.told;
        progress.every = ON_A_TERMINAL;
        let mut after = |milliseconds| progress.line(begun + Duration::from_millis(milliseconds));
        assert_eq!(after(900), None);
        assert_eq!(after(1100).as_deref(), Some("released 2 of 5"));
        assert_eq!(after(2000), None);
        assert_eq!(after(2100).as_deref(), Some("released 4 of 5"));
        assert_eq!(after(9000), None);
    }
}
