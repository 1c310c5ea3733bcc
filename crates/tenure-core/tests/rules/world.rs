//! The world the rules are asked about: clocks that jump, and processes that live, hide and die.
//!
//! Time is counted twice on purpose. `World::now` is the truth, in milliseconds since the story
//! began: it never jumps and no boot resets it, and only the oracle may read it. The rules get a
//! [`Moment`], made from it the way a machine would.

use std::time::Duration;

use jiff::Timestamp;
use tenure_core::{Binding, Doubt, Epoch, Evidence, Liveness, LivenessId, Moment, Process};

/// What the wall clock shows when a story begins.
const BEGINNING: i64 = 1_800_000_000_000;

/// How long the machine has been up when a story begins.
const UPTIME: i64 = 3_600_000;

/// How long a machine is up before anybody asks. The SQLite store parks a waiter by setting back
/// when it was heard, which can't be set back beyond the start of the machine.
const STARTING: i64 = 15_000;

/// The first pid that is given out.
const FIRST_PID: u32 = 1000;

/// Programs that a supervisor starts again and again; each runs as one process at a time.
pub(crate) const SLOTS: usize = 5;

/// The slot whose processes run on another machine.
pub(crate) const REMOTE: usize = 3;

/// One process, among all that ever ran in a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run(usize);

/// What became of a process, and what this machine can tell of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Running,
    /// Whether it runs can't be read. It may.
    Hidden,
    /// It runs on another machine.
    Remote,
    /// It is gone; what it started, and what inherited its life lock, is not.
    Orphaned,
    Gone,
}

/// What a lease is tied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    Nothing,
    Process(Run),
    LivenessLock(Run),
}

impl Tie {
    pub(crate) fn run(self) -> Option<Run> {
        match self {
            Self::Nothing => None,
            Self::Process(run) | Self::LivenessLock(run) => Some(run),
        }
    }
}

/// What is true of one process.
#[derive(Debug)]
struct Facts {
    slot: usize,
    fate: Fate,
    boot: u32,
    /// Whether it has a life lock yet: it is made when a lease or a ticket first needs it.
    begun: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) boot: u32,
    booted: i64,
    wall_ahead: i64,
    runs: Vec<Facts>,
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

    /// This instant as the machine knows it.
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

    /// Starts the machine anew. A process elsewhere goes on, but whoever asks next in its slot is
    /// another one: to this machine the difference can't be seen.
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.booted = self.now - STARTING;
    }

    /// The process that acts for a slot. If the last one can't, the supervisor starts another.
    pub(crate) fn acting(&mut self, slot: usize) -> Run {
        if let Some(run) = self.latest(slot)
            && self.can_act(run)
        {
            return run;
        }
        self.start(slot)
    }

    fn start(&mut self, slot: usize) -> Run {
        self.runs.push(Facts {
            slot,
            fate: if slot == REMOTE {
                Fate::Remote
            } else {
                Fate::Running
            },
            boot: self.boot,
            begun: false,
        });
        Run(self.runs.len() - 1)
    }

    pub(crate) fn latest(&self, slot: usize) -> Option<Run> {
        self.runs.iter().rposition(|run| run.slot == slot).map(Run)
    }

    pub(crate) fn can_act(&self, run: Run) -> bool {
        let facts = &self.runs[run.0];
        facts.boot == self.boot
            && matches!(facts.fate, Fate::Running | Fate::Hidden | Fate::Remote)
            && self.latest(facts.slot) == Some(run)
    }

    pub(crate) fn fate(&self, run: Run) -> Fate {
        self.runs[run.0].fate
    }

    pub(crate) fn boot_of(&self, run: Run) -> u32 {
        self.runs[run.0].boot
    }

    /// Ends the orphans of a slot, or else its process. The end of one that nobody can look at
    /// changes nothing that can be seen, except that another process acts from now on.
    pub(crate) fn die(&mut self, slot: usize) {
        let mut orphans = 0;
        for run in self.runs.iter_mut().filter(|run| run.slot == slot) {
            if run.fate == Fate::Orphaned {
                run.fate = Fate::Gone;
                orphans += 1;
            }
        }
        let Some(last) = self.latest(slot).filter(|_| orphans == 0) else {
            return;
        };
        match self.runs[last.0].fate {
            Fate::Running => self.runs[last.0].fate = Fate::Gone,
            Fate::Hidden | Fate::Remote => {
                self.start(slot);
            }
            Fate::Orphaned | Fate::Gone => {}
        }
    }

    /// Turns the process of a slot from one fate to another, if it has that one.
    pub(crate) fn turn(&mut self, slot: usize, from: Fate, to: Fate) {
        if let Some(run) = self.latest(slot).filter(|run| self.can_act(*run))
            && self.runs[run.0].fate == from
        {
            self.runs[run.0].fate = to;
        }
    }

    /// Makes the life lock of a process, if it has none.
    pub(crate) fn begin_life(&mut self, run: Run) {
        self.runs[run.0].begun = true;
    }

    /// The life lock of a process, if it has one.
    pub(crate) fn liveness_lock(&self, run: Run) -> Option<LivenessId> {
        self.runs[run.0].begun.then(|| life_name(run))
    }

    pub(crate) fn process(&self, run: Run) -> Process {
        let remote = self.runs[run.0].fate == Fate::Remote;
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

    pub(crate) fn binding(&self, tie: Tie) -> Binding {
        match tie {
            Tie::Nothing => Binding::Detached,
            Tie::Process(run) => Binding::Process {
                process: self.process(run),
            },
            Tie::LivenessLock(run) => Binding::LivenessLock {
                lock: life_name(run),
                process: self.process(run),
            },
        }
    }

    /// What the host finds out about the process behind a binding, as `tenure_host::liveness` does.
    pub(crate) fn probe(&self, binding: &Binding) -> Liveness {
        let Some(process) = binding.process() else {
            return Liveness::Unverifiable(Doubt::Detached);
        };
        let run = Run(usize::try_from(process.pid - FIRST_PID).unwrap());
        let facts = &self.runs[run.0];
        let pid = process.pid;
        if facts.fate == Fate::Remote {
            return Liveness::Unverifiable(Doubt::OtherHost);
        }
        if facts.boot != self.boot {
            return Liveness::Gone(Evidence::Rebooted {
                recorded: boot_name(facts.boot),
                found: boot_name(self.boot),
            });
        }
        match (facts.fate, binding.liveness_lock()) {
            (Fate::Running | Fate::Remote, _) => Liveness::Running,
            (Fate::Hidden, Some(_)) => Liveness::Unverifiable(Doubt::Unreadable),
            (Fate::Hidden, None) => Liveness::Unverifiable(Doubt::OtherNamespace),
            (Fate::Orphaned, Some(_)) => Liveness::Orphaned,
            (Fate::Gone, Some(_)) => Liveness::Gone(Evidence::LivenessLockFree { pid }),
            (Fate::Orphaned | Fate::Gone, None) if pid % 2 == 0 => {
                Liveness::Gone(Evidence::ProcessGone { pid })
            }
            (Fate::Orphaned | Fate::Gone, None) => Liveness::Gone(Evidence::PidReused {
                pid,
                recorded: process.started,
                found: process.started + 1,
            }),
        }
    }
}

pub(crate) fn pid(run: Run) -> u32 {
    FIRST_PID + u32::try_from(run.0).unwrap()
}

pub(crate) fn boot_name(boot: u32) -> String {
    format!("boot-{boot}")
}

fn life_name(run: Run) -> LivenessId {
    LivenessId(format!("life-{}", run.0))
}
