//! What a process inherited from the one that started it: [`close_all`].
#![expect(
    unsafe_code,
    reason = "descriptors that nobody in this process owns are reached by number only"
)]

use std::io;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Closes every descriptor but the standard ones. For a process that leaves its starter behind, as the
/// first thing it does: an inherited [`LivenessLock`](crate::LivenessLock) would keep alive what it has no part in.
///
/// To be called before this process opens anything: what is open by then must be inherited.
pub fn close_all() -> io::Result<()> {
    // SAFETY: a plain system call. Nothing that this process owns is closed, as the caller promises.
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
        // SAFETY: as above. The one of the listing itself is closed by now, which is no error here.
        unsafe { libc::close(number) };
    }
    Ok(())
}
