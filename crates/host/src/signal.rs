//! Blocks signals for one call, tests whether a signal is ignored, and turns limits of the machine into
//! errors.
#![expect(
    unsafe_code,
    reason = "only libc gives access to signal masks and dispositions"
)]

/// Calls `act` with SIGTTOU blocked. The kernel stops a background process that changes the terminal
/// without blocking that signal.
pub fn without_stopping(act: impl FnOnce()) {
    // SAFETY: a signal set on the stack.
    let only = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTTOU);
        set
    };
    with_blocked(&only, act);
}

/// Calls `start` with all signals of this thread blocked, for a child that inherits the mask: the program's
/// signal handlers must not run there.
pub(crate) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set on the stack.
    let all = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    };
    with_blocked(&all, start)
}

/// Calls `act` with these signals blocked, too.
fn with_blocked<T>(signals: &libc::sigset_t, act: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets on the stack, changed for this thread only and restored.
    unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, signals, &raw mut before);
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
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

/// What is printed when a mapped file can't be read or written.
const MAPPED_FILE_FAILED: &str = "error: a file of the store could not be used (SIGBUS): no space is left for it, or another program truncated it\n  free some space and try again\n";

/// Turns two signals of the kernel into errors. For the command's own process, once, before it opens anything.
///
/// - At the limit on the size of files (`ulimit -f`) a write fails, instead of SIGXFSZ.
/// - If a mapped file can't be written because the disk is full, the process says so and exits with 1, instead of
///   SIGBUS. (SQLite maps a file that may have holes.)
///
/// Both are handlers, so the processes that this one starts have the defaults.
pub fn report_limits() {
    // SAFETY: sets two dispositions, from structs on the stack; the handlers only make calls that are
    // safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigemptyset(&raw mut action.sa_mask);
        if !is_ignored(libc::SIGXFSZ) {
            action.sa_sigaction = on_file_limit as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
        action.sa_sigaction = on_mapped_file_failure as *const () as libc::sighandler_t;
        // By default, the second time.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// The write that met the limit returns an error.
extern "C" fn on_file_limit(_signal: libc::c_int) {}

extern "C" fn on_mapped_file_failure(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid struct; write, _exit and raise are safe in a handler.
    unsafe {
        if (*info).si_code == libc::BUS_ADRERR {
            let text = MAPPED_FILE_FAILED;
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(1);
        }
        libc::raise(signal);
    }
}
