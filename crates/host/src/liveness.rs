//! Whether the process behind a lease has exited: [`probe`].
//!
//! A process counts as gone only with proof (G4). Where no test is valid, the answer is "unverifiable".
//!
//! | what the lease records | valid test |
//! |---|---|
//! | another boot, same host | none needed: the machine was restarted. Of a lease, if it is older than this boot ([`is_younger_than_boot`]) |
//! | another boot, same host, a lease that was granted or renewed since this boot | none: another machine has the same name |
//! | another boot, another host | none |
//! | same boot, liveness lock | the lock, in any namespace |
//! | same boot and namespace | the pid and its start time |
//! | same boot, another namespace, no liveness lock | none |

use jiff::{SignedDuration, Timestamp};
use tenure_core::{Binding, Doubt, Evidence, Lease, Liveness, Moment, Process};

use crate::identity;
use crate::liveness_lock::{LivenessFolder, LockState};

/// Tests the process that a lease or ticket is tied to.
pub fn probe(folder: &LivenessFolder, binding: &Binding) -> Liveness {
    match binding {
        Binding::Detached => Liveness::Unverifiable(Doubt::Detached),
        Binding::Process { process } => probe_process(process),
        Binding::LivenessLock { lock, process } => {
            if !process.boot.same(identity::boot()) {
                return probe_process(process);
            }
            match folder.state_of(lock) {
                Ok(LockState::Held) => match probe_process(process) {
                    Liveness::Gone(_) => Liveness::Orphaned,
                    Liveness::Running | Liveness::Orphaned | Liveness::Unverifiable(_) => {
                        Liveness::Running
                    }
                },
                Ok(LockState::Free) => {
                    Liveness::Gone(Evidence::LivenessLockFree { pid: process.pid })
                }
                // A removed file proves nothing, so test the pid.
                Ok(LockState::Missing) => probe_process(process),
                Err(_) => Liveness::Unverifiable(Doubt::Unreadable),
            }
        }
        // Only the server that issued the session knows whether it has ended.
        _ => Liveness::Unverifiable(Doubt::OtherHost),
    }
}

/// How far the wall clocks of two machines, or of two boots, may differ.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(5);

/// Whether a lease was granted or renewed after this machine was started. `now` is by the clock of this boot.
pub fn is_younger_than_boot(now: &Moment, lease: &Lease) -> bool {
    let up = SignedDuration::try_from(now.ticks).unwrap_or(SignedDuration::MAX);
    let booted = now.wall.checked_sub(up).unwrap_or(Timestamp::MIN);
    lease.acquired_at.max(lease.heartbeat_at) > booted + CLOCK_SLACK
}

fn probe_process(process: &Process) -> Liveness {
    if process.boot.differs(identity::boot()) {
        return if process.host.eq_ignore_ascii_case(identity::host()) {
            Liveness::Gone(Evidence::Rebooted {
                recorded: process.boot.0.clone(),
                found: identity::boot().0.clone(),
            })
        } else {
            Liveness::Unverifiable(Doubt::OtherHost)
        };
    }
    if !process.boot.same(identity::boot()) {
        return Liveness::Unverifiable(Doubt::Unreadable);
    }
    if process.namespace.is_empty() || process.namespace != identity::namespace() {
        return Liveness::Unverifiable(Doubt::OtherNamespace);
    }
    let pid = process.pid;
    match identity::start_time(pid) {
        Ok(None) => Liveness::Gone(Evidence::ProcessGone { pid }),
        Ok(Some(found)) if found != process.started => Liveness::Gone(Evidence::PidReused {
            pid,
            recorded: process.started,
            found,
        }),
        Ok(Some(_)) => Liveness::Running,
        Err(_) => Liveness::Unverifiable(Doubt::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness_lock::LivenessLock;
    use tenure_core::{Epoch, LivenessId};

    fn us() -> Process {
        identity::this_process()
    }

    fn probe_pid(process: Process) -> Liveness {
        probe(
            &LivenessFolder::new("nowhere"),
            &Binding::Process { process },
        )
    }

    #[test]
    fn this_process_is_running() {
        assert_eq!(probe_pid(us()), Liveness::Running);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let process = Process { started: 1, ..us() };
        assert!(matches!(
            probe_pid(process),
            Liveness::Gone(Evidence::PidReused { recorded: 1, .. })
        ));
    }

    #[test]
    fn a_reboot_of_this_host_ends_its_processes() {
        let process = Process {
            boot: Epoch("earlier".into()),
            ..us()
        };
        assert!(matches!(
            probe_pid(process),
            Liveness::Gone(Evidence::Rebooted { .. })
        ));
    }

    #[test]
    fn a_process_of_another_host_is_unverifiable() {
        let process = Process {
            boot: Epoch("other".into()),
            host: "elsewhere".into(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(probe_pid(process), Liveness::Unverifiable(Doubt::OtherHost));
    }

    #[test]
    fn a_process_of_another_container_with_the_same_host_name_is_unverifiable() {
        let process = Process {
            namespace: "pid:[1]".into(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(
            probe_pid(process),
            Liveness::Unverifiable(Doubt::OtherNamespace)
        );
    }

    #[test]
    fn a_process_with_an_unknown_boot_is_unverifiable() {
        let process = Process {
            boot: Epoch::unknown(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(
            probe_pid(process),
            Liveness::Unverifiable(Doubt::Unreadable)
        );
    }

    #[test]
    fn a_liveness_lock_is_valid_in_every_container_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let process = Process {
            namespace: "pid:[1]".into(),
            pid: 999_999,
            ..us()
        };
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: process.clone(),
        };
        assert_eq!(probe(&folder, &binding), Liveness::Running);
        crate::files::permissions::create_pipe(&dir.path().join("free")).unwrap();
        let binding = Binding::LivenessLock {
            lock: LivenessId("free".into()),
            process,
        };
        assert_eq!(
            probe(&folder, &binding),
            Liveness::Gone(Evidence::LivenessLockFree { pid: 999_999 })
        );
    }

    #[test]
    fn a_command_that_outlives_the_process_that_started_it_is_an_orphan() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let process = Process { started: 1, ..us() };
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process,
        };
        assert_eq!(probe(&folder, &binding), Liveness::Orphaned);
    }

    #[test]
    fn a_removed_liveness_lock_proves_nothing() {
        let binding = Binding::LivenessLock {
            lock: LivenessId("removed".into()),
            process: us(),
        };
        assert_eq!(
            probe(&LivenessFolder::new("nowhere"), &binding),
            Liveness::Running
        );
    }
}
