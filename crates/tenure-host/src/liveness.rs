//! What can be proven about the process behind a lease (G4): death is proven, never guessed.
//!
//! | what is known | which test is valid |
//! |---|---|
//! | another boot, same host | the machine was restarted: gone |
//! | another boot, another host | none |
//! | same boot, life lock | the lock: any namespace, any pid |
//! | same boot and namespace | the pid with its start time |
//! | same boot, another namespace, no life lock | none |

use tenure_core::{Binding, Doubt, Evidence, Liveness, Process};

use crate::identity;
use crate::liveness_lock::{LivenessFolder, LockState};

/// Looks at the process a lease or ticket is tied to.
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
                // Somebody removed the file, which proves nothing: the pid has to tell.
                Ok(LockState::Missing) => probe_process(process),
                Err(_) => Liveness::Unverifiable(Doubt::Unreadable),
            }
        }
        // Only the server that gave out the session can judge it.
        _ => Liveness::Unverifiable(Doubt::OtherHost),
    }
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

    fn look(process: Process) -> Liveness {
        probe(
            &LivenessFolder::new("nowhere"),
            &Binding::Process { process },
        )
    }

    #[test]
    fn a_running_process_runs() {
        assert_eq!(look(us()), Liveness::Running);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let process = Process { started: 1, ..us() };
        assert!(matches!(
            look(process),
            Liveness::Gone(Evidence::PidReused { recorded: 1, .. })
        ));
    }

    #[test]
    fn another_boot_of_this_host_ended_its_processes() {
        let process = Process {
            boot: Epoch("earlier".into()),
            ..us()
        };
        assert!(matches!(
            look(process),
            Liveness::Gone(Evidence::Rebooted { .. })
        ));
    }

    #[test]
    fn another_host_is_never_judged() {
        let process = Process {
            boot: Epoch("other".into()),
            host: "elsewhere".into(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(look(process), Liveness::Unverifiable(Doubt::OtherHost));
    }

    #[test]
    fn the_same_host_name_in_another_container_is_unknown() {
        let process = Process {
            namespace: "pid:[1]".into(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(look(process), Liveness::Unverifiable(Doubt::OtherNamespace));
    }

    #[test]
    fn a_machine_that_does_not_tell_its_boot_is_unknown() {
        let process = Process {
            boot: Epoch::unknown(),
            pid: 999_999,
            ..us()
        };
        assert_eq!(look(process), Liveness::Unverifiable(Doubt::Unreadable));
    }

    #[test]
    fn a_life_lock_is_believed_in_any_container_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let process = Process {
            namespace: "pid:[1]".into(),
            pid: 999_999,
            ..us()
        };
        let binding = Binding::LivenessLock {
            lock: life.id().clone(),
            process: process.clone(),
        };
        assert_eq!(probe(&folder, &binding), Liveness::Running);
        std::fs::File::create(dir.path().join("free")).unwrap();
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
    fn a_command_that_outlives_its_tenure_is_an_orphan() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let process = Process { started: 1, ..us() };
        let binding = Binding::LivenessLock {
            lock: life.id().clone(),
            process,
        };
        assert_eq!(probe(&folder, &binding), Liveness::Orphaned);
    }

    #[test]
    fn a_removed_life_file_proves_nothing() {
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
