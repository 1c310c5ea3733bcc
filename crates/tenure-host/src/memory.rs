//! Memory that is no longer needed.
#![expect(
    unsafe_code,
    reason = "the C library's call for it takes no pointer and cannot be misused"
)]

/// Hands what was freed back to the system. A process that rests for long after it worked on much
/// should not keep what it needed for that.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only looks at the allocator's own lists, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
