//! Closes the descriptors that a process inherited: [`close_all`].
#![expect(
    unsafe_code,
    reason = "inherited descriptors have no owner in this process, only a number"
)]

use std::io;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Closes every descriptor except standard input, output and error. A daemon calls this first: an inherited
/// [`LivenessLock`](crate::LivenessLock) would keep a lease alive that the daemon has nothing to do with.
///
/// The caller must not have opened any descriptor yet, because this would close it.
pub fn close_all() -> io::Result<()> {
    // SAFETY: a plain system call. By the contract above, this process owns none of the descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    // Before Linux 5.9.
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| u32::try_from(*number).is_ok_and(|number| number >= FIRST))
        .collect();
    for number in numbers {
        // SAFETY: as above. The descriptor of the listing itself is closed already, so closing it fails.
        unsafe { libc::close(number) };
    }
    Ok(())
}
