//! Random ids: [`random_uuid`].
#![expect(unsafe_code, reason = "getrandom has no safe form in libc")]

use std::io;

use uuid::{Builder, Uuid};

/// A random UUID, from the kernel directly. The usual way opens a file where the C library does not know the system call,
/// and panics if no descriptor is free.
pub fn random_uuid() -> Uuid {
    let mut bytes = [0_u8; 16];
    loop {
        // SAFETY: it writes at most this many bytes.
        let filled =
            unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0_u32) };
        // So few bytes come at once or not at all.
        if usize::try_from(filled) == Ok(bytes.len()) {
            return Builder::from_random_bytes(bytes).into_uuid();
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Uuid::new_v4();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        let ids: std::collections::HashSet<Uuid> = (0..1000).map(|_| random_uuid()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.get_version_num() == 4));
    }
}
