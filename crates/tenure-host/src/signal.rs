//! Blocks SIGTTOU for one call, and tests whether a signal is ignored.
#![expect(
    unsafe_code,
    reason = "only libc gives access to signal masks and dispositions"
)]

/// Calls `act` with SIGTTOU blocked. The kernel stops a background process that changes the terminal
/// without blocking that signal.
pub fn without_stopping(act: impl FnOnce()) {
    // SAFETY: a signal set on the stack, changed for this thread only and restored.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// Whether this process was started with a signal ignored, as nohup(1) does with SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: only reads the disposition, into a struct on the stack.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut found) == 0
            && found.sa_sigaction == libc::SIG_IGN
    }
}
