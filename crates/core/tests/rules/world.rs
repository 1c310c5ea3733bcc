//! Simulated clocks that jump, and simulated processes that start, die and become unreadable.
//!
//! Time is counted twice on purpose. `World::now` is the true time, in milliseconds since the simulation
//! began. It never jumps, no reboot resets it, and only the oracle reads it. The rules get a [`Moment`],
//! which the world derives from it as a real host would.

use std::time::Duration;

use jiff::Timestamp;
use tenure_core::{Binding, Doubt, Epoch, Evidence, Liveness, LivenessId, Moment, Process};

/// What the wall clock shows when a simulation begins.
const BEGINNING: i64 = 1_800_000_000_000;

/// How long the machine has been up when a simulation begins.
const UPTIME: i64 = 3_600_000;

/// How long a machine is up before the first claim. The SQLite store parks a waiter by setting back the time
/// at which it last asked, which can't be earlier than the boot.
const STARTING: i64 = 15_000;

/// The pid of the first process.
const FIRST_PID: u32 = 1000;

/// The number of programs. A supervisor restarts each of them; a program runs as one process at a time.
pub(crate) const SLOTS: usize = 5;

/// The slot whose processes run on another machine.
pub(crate) const REMOTE: usize = 3;

/// One run of a program: a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run(usize);

/// The state of a process, and what this machine can find out about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running,
    /// It may run, but its state can't be read.
    Hidden,
    /// It runs on another machine.
    Remote,
    /// It has exited, but a process that inherited its liveness lock runs.
    Orphaned,
    Gone,
}

/// What a lease is tied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelBinding {
    Detached,
    Process(Run),
    LivenessLock(Run),
}

impl ModelBinding {
    pub(crate) fn run(self) -> Option<Run> {
        match self {
            Self::Detached => None,
            Self::Process(run) | Self::LivenessLock(run) => Some(run),
        }
    }
}

/// The true state of one process.
#[derive(Debug)]
struct ProcessFacts {
    slot: usize,
    state: ProcessState,
    boot: u32,
    /// Whether it has taken its liveness lock. It does when a lease or a ticket first needs one.
    has_lock: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) boot: u32,
    booted: i64,
    wall_ahead: i64,
    runs: Vec<ProcessFacts>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            boot: 1,
            booted: -UPTIME,
            wall_ahead: 0,
            runs: Vec::new(),
        }
    }

    /// The current moment by the machine's clocks.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            wall: Timestamp::from_millisecond(self.wall()).unwrap(),
            ticks: self.uptime(),
            epoch: Epoch(boot_name(self.boot)),
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.now - self.booted).unwrap())
    }

    /// What the wall clock shows, in milliseconds.
    pub(crate) fn wall(&self) -> i64 {
        BEGINNING + self.now + self.wall_ahead
    }

    pub(crate) fn pass(&mut self, time: i64) {
        self.now += time;
    }

    pub(crate) fn jump_wall(&mut self, by: i64) {
        self.wall_ahead += by;
    }

    /// Reboots the machine. A remote process goes on, but the next claim of its slot comes from a new
    /// process: this machine can't tell the difference.
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.booted = self.now - STARTING;
    }

    /// The process that runs in a slot. If the last one does not run, the supervisor starts another.
    pub(crate) fn acting(&mut self, slot: usize) -> Run {
        if let Some(run) = self.latest(slot)
            && self.can_act(run)
        {
            return run;
        }
        self.start(slot)
    }

    fn start(&mut self, slot: usize) -> Run {
        self.runs.push(ProcessFacts {
            slot,
            state: if slot == REMOTE {
                ProcessState::Remote
            } else {
                ProcessState::Running
            },
            boot: self.boot,
            has_lock: false,
        });
        Run(self.runs.len() - 1)
    }

    pub(crate) fn latest(&self, slot: usize) -> Option<Run> {
        self.runs.iter().rposition(|run| run.slot == slot).map(Run)
    }

    pub(crate) fn can_act(&self, run: Run) -> bool {
        let process_facts = &self.runs[run.0];
        process_facts.boot == self.boot
            && matches!(
                process_facts.state,
                ProcessState::Running | ProcessState::Hidden | ProcessState::Remote
            )
            && self.latest(process_facts.slot) == Some(run)
    }

    pub(crate) fn state(&self, run: Run) -> ProcessState {
        self.runs[run.0].state
    }

    pub(crate) fn boot_of(&self, run: Run) -> u32 {
        self.runs[run.0].boot
    }

    /// Ends the orphans of a slot or, if it has none, its process. For a process whose state can't be read,
    /// the only visible change is that another process runs from now on.
    pub(crate) fn die(&mut self, slot: usize) {
        let mut orphans = 0;
        for run in self.runs.iter_mut().filter(|run| run.slot == slot) {
            if run.state == ProcessState::Orphaned {
                run.state = ProcessState::Gone;
                orphans += 1;
            }
        }
        let Some(last) = self.latest(slot).filter(|_| orphans == 0) else {
            return;
        };
        match self.runs[last.0].state {
            ProcessState::Running => self.runs[last.0].state = ProcessState::Gone,
            ProcessState::Hidden | ProcessState::Remote => {
                self.start(slot);
            }
            ProcessState::Orphaned | ProcessState::Gone => {}
        }
    }

    /// Changes the state of the process of a slot, if it is in the state `from`.
    pub(crate) fn change_state(&mut self, slot: usize, from: ProcessState, to: ProcessState) {
        if let Some(run) = self.latest(slot).filter(|run| self.can_act(*run))
            && self.runs[run.0].state == from
        {
            self.runs[run.0].state = to;
        }
    }

    /// Takes the liveness lock of a process, if it has not.
    pub(crate) fn take_liveness_lock(&mut self, run: Run) {
        self.runs[run.0].has_lock = true;
    }

    /// The liveness lock of a process, if it has taken one.
    pub(crate) fn liveness_lock(&self, run: Run) -> Option<LivenessId> {
        self.runs[run.0].has_lock.then(|| lock_id(run))
    }

    pub(crate) fn process(&self, run: Run) -> Process {
        let remote = self.runs[run.0].state == ProcessState::Remote;
        Process {
            pid: pid(run),
            started: u64::from(pid(run)) * 10,
            boot: Epoch(if remote {
                "elsewhere".into()
            } else {
                boot_name(self.runs[run.0].boot)
            }),
            namespace: "pid:[1]".into(),
            host: if remote { "far" } else { "here" }.into(),
        }
    }

    pub(crate) fn binding(&self, binding: ModelBinding) -> Binding {
        match binding {
            ModelBinding::Detached => Binding::Detached,
            ModelBinding::Process(run) => Binding::Process {
                process: self.process(run),
            },
            ModelBinding::LivenessLock(run) => Binding::LivenessLock {
                lock: lock_id(run),
                process: self.process(run),
            },
        }
    }

    /// What a probe of the process behind a binding finds, as `tenure_host::liveness` does it.
    pub(crate) fn probe(&self, binding: &Binding) -> Liveness {
        let Some(process) = binding.process() else {
            return Liveness::Unverifiable(Doubt::Detached);
        };
        let run = Run(usize::try_from(process.pid - FIRST_PID).unwrap());
        let process_facts = &self.runs[run.0];
        let pid = process.pid;
        if process_facts.state == ProcessState::Remote {
            return Liveness::Unverifiable(Doubt::OtherHost);
        }
        if process_facts.boot != self.boot {
            return Liveness::Gone(Evidence::Rebooted {
                recorded: boot_name(process_facts.boot),
                found: boot_name(self.boot),
            });
        }
        match (process_facts.state, binding.liveness_lock()) {
            (ProcessState::Running | ProcessState::Remote, _) => Liveness::Running,
            (ProcessState::Hidden, Some(_)) => Liveness::Unverifiable(Doubt::Unreadable),
            (ProcessState::Hidden, None) => Liveness::Unverifiable(Doubt::OtherNamespace),
            (ProcessState::Orphaned, Some(_)) => Liveness::Orphaned,
            (ProcessState::Gone, Some(_)) => Liveness::Gone(Evidence::LivenessLockFree { pid }),
            (ProcessState::Orphaned | ProcessState::Gone, None) if pid % 2 == 0 => {
                Liveness::Gone(Evidence::ProcessGone { pid })
            }
            (ProcessState::Orphaned | ProcessState::Gone, None) => {
                Liveness::Gone(Evidence::PidReused {
                    pid,
                    recorded: process.started,
                    found: process.started + 1,
                })
            }
        }
    }
}

pub(crate) fn pid(run: Run) -> u32 {
    FIRST_PID + u32::try_from(run.0).unwrap()
}

pub(crate) fn boot_name(boot: u32) -> String {
    format!("boot-{boot}")
}

fn lock_id(run: Run) -> LivenessId {
    LivenessId(format!("lock-{}", run.0))
}
