//! Signals as a login shell hands them down: [`default_signals`].
//!
//! A child inherits which signals its parent ignores and blocks. Under nohup(1) that is SIGHUP, in
//! the background of a script SIGINT and SIGQUIT, under some CI runners SIGPIPE. Tenure honours an
//! ignored signal on purpose, so a test that sends one would depend on how the test itself was
//! started. Every program that a test starts therefore goes through [`default_signals`].
//!
//! The test process keeps its own dispositions: a test run under nohup(1) survives a hang-up.
#![expect(
    unsafe_code,
    reason = "dispositions and the signal mask of a child can be set between fork and exec only"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The numbers of the standard signals on Linux. Real-time signals are ignored by no common parent.
const STANDARD: std::ops::RangeInclusive<libc::c_int> = 1..=31;

/// Has the command start with the default action for every signal, and with no signal blocked.
///
/// ```
/// use std::process::Command;
/// use tenure_testkit::default_signals;
///
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "kill -HUP $$; exit 1"]);
/// let status = default_signals(&mut shell).status().unwrap();
/// assert_eq!(status.code(), None, "SIGHUP ends it, even under nohup");
/// ```
pub fn default_signals(command: &mut Command) -> &mut Command {
    // SAFETY: signal, sigemptyset and sigprocmask are async-signal-safe, and the closure neither
    // allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| {
            for signal in STANDARD {
                // SIGKILL and SIGSTOP refuse, and have no other action than the default one.
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Process, job, report};

    /// The standard signals that a program started so ignores, as a bit set.
    fn ignored(with: impl FnOnce(&mut Command) -> &mut Command) -> u64 {
        let mut cat = Command::new("cat");
        let output = with(cat.arg("/proc/self/status")).output().unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        // The next ones belong to the C library.
        u64::from_str_radix(bits.unwrap().trim(), 16).unwrap() & 0x7fff_ffff
    }

    #[test]
    fn a_program_starts_with_default_signals_although_its_parent_ignores_some() {
        const NAME: &str = "default_signals::tests::a_program_starts_with_default_signals_although_its_parent_ignores_some";
        if job().is_some() {
            let inherited = ignored(|command| command);
            report(&format!("{inherited:x} {:x}", ignored(default_signals)));
            return;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP INT QUIT TERM; exec \"$0\" \"$@\""]);
        let child = Process::start_through(&mut shell, NAME, "look");
        assert_eq!(child.report(), "4007 0");
    }
}
