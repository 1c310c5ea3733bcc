//! Starts a program without copying this process: [`Exec`].
//!
//! The standard library forks as soon as something has to happen between fork and exec. A fork copies the page
//! tables of this process, and afterwards both processes copy every page that they write. For a short command
//! that is a large part of its time. This is what `posix_spawn` does, with a step in between: the child shares
//! the memory of this process (`CLONE_VM`) on a stack of its own, and the calling thread is suspended until
//! the child has executed its program or has failed (`CLONE_VFORK`).
//!
//! # Invariants
//!
//! 1. All memory that the child needs is prepared before it is started. In the child nothing is allocated or
//!    freed, and no lock is taken: another thread of this process may have it.
//! 2. No signal handler of this process runs in the child: all signals are blocked until their handlers are
//!    reset, which changes the child alone.
//! 3. The program starts as the standard library would start it: with no signal blocked, and with SIGPIPE at
//!    its default. A signal that this process was started to ignore stays ignored.
#![expect(
    unsafe_code,
    reason = "a process that shares memory is made with clone, and may only make system calls"
)]

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use rustix::process::Pid;

use crate::signal::with_signals_blocked;

/// The size of the child's stack, besides one pointer for each argument: libc copies them there to run a script
/// without a first line that names its interpreter.
const STACK: usize = 64 * 1024;

/// A program that can be started any number of times, with its arguments and its environment.
#[derive(Debug)]
pub struct Exec {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Exec {
    /// A program with its arguments, of which the first is its own name. It inherits this process's environment, in
    /// which `changed` variables have another value.
    pub fn new<'a>(
        program: &Path,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        changed: &[(&str, String)],
    ) -> io::Result<Self> {
        let c_string = |text: &OsStr| CString::new(text.as_bytes());
        let inherited =
            std::env::vars_os().filter(|(name, _)| !changed.iter().any(|(other, _)| name == other));
        let changed = changed
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let variable = |(mut text, value): (OsString, OsString)| {
            text.push("=");
            text.push(value);
            CString::new(text.into_vec())
        };
        Ok(Self {
            program: c_string(program.as_os_str())?,
            arguments: arguments
                .into_iter()
                .map(c_string)
                .collect::<Result<_, _>>()?,
            environment: inherited
                .chain(changed)
                .map(variable)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Starts it. `prepare` runs in the child.
    ///
    /// # Safety
    ///
    /// `prepare` shares all memory with this process. It may only make system calls, and must not allocate,
    /// free, lock or panic.
    pub(crate) unsafe fn start(&self, prepare: &dyn Fn() -> io::Result<()>) -> io::Result<Pid> {
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            let texts = texts.iter().map(|text| text.as_ptr());
            texts.chain([ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let mut child = Child {
            program: self.program.as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            prepare,
            error: 0,
        };
        // In units of 16 bytes, as a stack is aligned.
        let mut stack: Vec<u128> = Vec::with_capacity((STACK + 8 * arguments.len()) / 16);
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = with_signals_blocked(|| {
            // SAFETY: the stack is large enough, and it, `child` and all it points to outlive the child's use of
            // them: this thread goes on when the child has executed the program or exited. `run` keeps
            // to the invariants above, and `prepare` does by the contract of this function.
            let pid = unsafe {
                libc::clone(
                    run,
                    top.cast(),
                    flags,
                    ptr::from_mut(&mut child).cast::<c_void>(),
                )
            };
            if pid == -1 {
                Err(io::Error::last_os_error())
            } else {
                Ok(pid)
            }
        })?;
        // SAFETY: a value on the stack. The child, which is not known to the compiler, may have written it.
        let error = unsafe { ptr::read_volatile(&raw const child.error) };
        if error != 0 {
            // SAFETY: waits for the child, which has exited. There is nothing to do if that fails.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            return Err(io::Error::from_raw_os_error(error));
        }
        Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// What the child works with.
struct Child<'a> {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    prepare: &'a dyn Fn() -> io::Result<()>,
    /// Why it failed, for the parent.
    error: c_int,
}

/// The child, from its start to its program.
extern "C" fn run(child: *mut c_void) -> c_int {
    // SAFETY: the parent is suspended and its stack as it was. Everything here is a system call, or a function of libc
    // that makes system calls on memory that it is given.
    unsafe {
        let child = &mut *child.cast::<Child<'_>>();
        reset_signals();
        let error = match (child.prepare)() {
            Ok(()) => {
                libc::execvpe(child.program, child.arguments, child.environment);
                io::Error::last_os_error().raw_os_error()
            }
            Err(error) => error.raw_os_error(),
        };
        ptr::write_volatile(&raw mut child.error, error.unwrap_or(libc::EPIPE));
        libc::_exit(127)
    }
}

/// Gives every signal that has a handler its default action, and SIGPIPE; then unblocks all signals.
unsafe fn reset_signals() {
    // SAFETY: structs on the stack. The child has its own table of handlers and its own mask.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=libc::SIGRTMAX() {
            let mut found: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(signal, ptr::null(), &raw mut found) == 0;
            let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&found.sa_sigaction);
            if is_known && (has_handler || signal == libc::SIGPIPE) {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::process::{WaitOptions, getpid, waitpid};

    use super::*;

    fn sh(script: &str, changed: &[(&str, String)]) -> Exec {
        let arguments = ["sh", "-c", script].map(OsStr::new);
        Exec::new(Path::new("/bin/sh"), arguments, changed).unwrap()
    }

    fn start(exec: &Exec, prepare: &dyn Fn() -> io::Result<()>) -> io::Result<i32> {
        // SAFETY: the closures of these tests store a number and return.
        let pid = unsafe { exec.start(prepare) }?;
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        Ok(status.exit_status().unwrap_or(-1))
    }

    #[test]
    fn a_program_gets_its_arguments_and_its_environment() {
        let changed = [("TENURE_A", "1 2".to_owned()), ("HOME", "/x".to_owned())];
        let exec = sh(
            r#"test "$TENURE_A-$HOME-${PATH:+set}" = "1 2-/x-set""#,
            &changed,
        );
        assert_eq!(start(&exec, &|| Ok(())).unwrap(), 0);
    }

    #[test]
    fn what_is_prepared_runs_in_the_child_and_shares_memory() {
        static PID: AtomicI32 = AtomicI32::new(0);
        let prepare = || {
            PID.store(getpid().as_raw_nonzero().get(), Ordering::SeqCst);
            Ok(())
        };
        assert_eq!(start(&sh("exit 7", &[]), &prepare).unwrap(), 7);
        let ran_in = PID.load(Ordering::SeqCst);
        assert!(ran_in != 0 && ran_in != getpid().as_raw_nonzero().get());
    }

    #[test]
    fn an_error_of_either_step_is_reported_and_leaves_no_process() {
        let missing = Exec::new(Path::new("/nowhere/at/all"), [OsStr::new("x")], &[]).unwrap();
        let error = start(&missing, &|| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        let error = start(&sh("true", &[]), &refused).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let nul = Exec::new(Path::new("/bin/sh"), [OsStr::new("a\0b")], &[]);
        assert!(nul.is_err());
    }

    #[test]
    fn no_signal_is_blocked_or_ignored_that_was_not_before() {
        // The runtime ignores SIGPIPE. The program that started this test may have ignored others.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:\t"))
            .unwrap();
        let ignored = u64::from_str_radix(ignored, 16).unwrap() & !(1 << (libc::SIGPIPE - 1));
        let masks = r"grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\t\n'";
        let script = format!("test \"$({masks})\" = SigBlk:0000000000000000SigIgn:{ignored:016x}");
        let exec = sh(&script, &[]);
        let code = with_signals_blocked(|| start(&exec, &|| Ok(())));
        assert_eq!(code.unwrap(), 0);
    }
}
