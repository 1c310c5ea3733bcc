//! Random stories of runners and their tasks, against a simple model.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{Acquired, Granted, HistoryQuery, Key, Priority, Reap, Records, Store, Token};
use tenure_sqlite::SqliteStore;
use tenure_tasks::{
    Change, NewTask, Proof, Runner, Shortage, Status, TaskError, TaskQuery, TaskStore as _,
};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, history};
use world::*;

use crate::world;

/// A lease in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    /// Which runner, and which process of it.
    by: (usize, u32),
    until: Duration,
    token: Token,
}

#[derive(Debug, Clone)]
struct Item {
    id: String,
    section: Option<usize>,
    status: Status,
    priority: u8,
    depends_on: BTreeSet<usize>,
    lease: Option<Held>,
    /// Who was granted it last, and with which token.
    last: Option<(usize, Token)>,
    lost: BTreeSet<usize>,
    /// Whether a reaper ended its last lease.
    reaped: bool,
    not_before: Option<Duration>,
    attempts: u32,
}

/// What a key is for a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Mine,
    Free,
    Another,
}

/// Two runners with detached leases and two that are tied to a process. The last one is no runner:
/// an admin, who never begins anything.
const RUNNERS: [&str; 5] = ["a", "b", "p", "q", "admin"];
const DETACHED: usize = 2;

/// What should be, told independently of the store.
struct Model {
    now: Duration,
    lives: [u32; 5],
    sections: Vec<(String, Option<Held>)>,
    tasks: Vec<Item>,
}

impl Model {
    fn over(&self, held: &Held) -> bool {
        held.until <= self.now || self.dead(held)
    }

    fn dead(&self, held: &Held) -> bool {
        held.by.0 >= DETACHED && self.lives[held.by.0] != held.by.1
    }

    fn section_for(&self, section: usize, runner: usize) -> For {
        match self.sections[section].1 {
            Some(held) if !self.dead(&held) && held.by.0 == runner => For::Mine,
            Some(held) if !self.over(&held) && !self.outlived(section, held) => For::Another,
            _ => For::Free,
        }
    }

    /// A detached section's lease ends with the tasks that its runner had in it.
    fn outlived(&self, section: usize, held: Held) -> bool {
        let runner = held.by.0;
        let mut tasks = self.tasks.iter().filter(|task| {
            task.section == Some(section)
                && task.status == Status::InProgress
                && task.last.is_some_and(|(last, _)| last == runner)
        });
        let over = |task: &Item| task.lease.map_or(task.reaped, |lease| self.over(&lease));
        let live = |task: &Item| task.lease.is_some_and(|lease| !self.over(&lease));
        runner < DETACHED && !tasks.clone().any(live) && tasks.any(over)
    }

    fn task_for(&self, task: usize, runner: usize) -> For {
        match self.tasks[task].lease {
            Some(held) if self.over(&held) => For::Free,
            None => For::Free,
            Some(held) if held.by.0 == runner && runner < DETACHED => For::Mine,
            Some(_) => For::Another,
        }
    }

    fn blocked(&self, task: usize) -> bool {
        let mut before = self.tasks[task].depends_on.iter();
        before.any(|&on| !self.tasks[on].status.is_done())
    }

    fn works_in(&self, section: usize, runner: usize) -> bool {
        self.tasks.iter().any(|task| {
            task.section == Some(section)
                && task.status == Status::InProgress
                && task.lease.is_some_and(|held| held.by.0 == runner)
        })
    }

    fn open_in(&self, section: usize) -> bool {
        self.tasks
            .iter()
            .any(|task| task.section == Some(section) && task.status.is_open())
    }

    fn is_ready(&self, task: usize) -> bool {
        let item = &self.tasks[task];
        item.status.is_open()
            && !self.blocked(task)
            && item.not_before.is_none_or(|at| at <= self.now)
    }

    /// Whether nothing but a pause keeps it from being ready.
    fn is_put_off(&self, task: usize) -> bool {
        let item = &self.tasks[task];
        item.status.is_open()
            && !self.blocked(task)
            && item.not_before.is_some_and(|at| at > self.now)
    }

    /// What `next` should find.
    fn best(&self, runner: usize) -> Option<usize> {
        let mut ready: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| self.is_ready(task))
            .collect();
        ready.sort_by_key(|&task| (10 - self.tasks[task].priority, task));
        ready.into_iter().find(|&task| {
            let section = self.tasks[task].section;
            section.is_none_or(|section| self.section_for(section, runner) != For::Another)
                && self.task_for(task, runner) == For::Free
        })
    }

    /// A runner that looks for a task keeps only the sections that it works in.
    fn leave_idle_sections(&mut self, runner: usize) {
        for section in 0..self.sections.len() {
            let theirs = |held: &Held| held.by == (runner, self.lives[runner]);
            let has = self.sections[section].1.as_ref().is_some_and(theirs);
            if has && !self.works_in(section, runner) {
                self.sections[section].1 = None;
            }
        }
    }

    fn shortage(&self) -> &'static str {
        if (0..self.tasks.len()).any(|task| self.is_ready(task)) {
            "locked"
        } else if (0..self.tasks.len()).any(|task| self.is_put_off(task)) {
            "later"
        } else if self.tasks.iter().any(|task| task.status.is_open()) {
            "blocked"
        } else {
            "nothing left"
        }
    }

    fn grant(&mut self, task: usize, runner: usize, token: Token) {
        let item = &mut self.tasks[task];
        let before = item.last.map(|(last, _)| last);
        if item.status == Status::InProgress && before != Some(runner) {
            item.lost.extend(before);
        }
        item.lost.remove(&runner);
        item.reaped = false;
        item.last = Some((runner, token));
        item.lease = Some(Held {
            by: (runner, self.lives[runner]),
            until: self.now + HOUR,
            token,
        });
    }

    fn begin(&mut self, task: usize, runner: usize, token: Token) {
        if let Some(section) = self.tasks[task].section {
            self.sections[section].1 = Some(Held {
                by: (runner, self.lives[runner]),
                until: self.now + 2 * HOUR,
                token: Token::NONE,
            });
        }
        self.grant(task, runner, token);
        let item = &mut self.tasks[task];
        if !item.status.is_open() {
            item.attempts = 0;
        }
        item.status = Status::InProgress;
        item.not_before = None;
    }

    fn may_change(&self, task: usize, by: Result<usize, Token>) -> Refusal {
        let item = &self.tasks[task];
        let held = item.lease.filter(|held| !self.over(held));
        match by {
            Ok(runner) if held.is_some_and(|held| held.by.0 == runner) => Refusal::None,
            Ok(runner) if item.lost.contains(&runner) => Refusal::Superseded,
            Ok(_) if held.is_some() => Refusal::Locked,
            Ok(_) => Refusal::None,
            Err(token) => {
                let newest = item.last.is_some_and(|(_, last)| last == token);
                // By whom it was granted last may have been overruled by name since.
                let lost = item.last.is_some_and(|(last, _)| item.lost.contains(&last));
                let overruled = held.is_none() && lost;
                if newest && !overruled && held.is_none_or(|held| held.token == token) {
                    Refusal::None
                } else {
                    Refusal::Superseded
                }
            }
        }
    }

    fn change(&mut self, task: usize, by: Result<usize, Token>, change: &Change) {
        let item = &mut self.tasks[task];
        let last = item.last.map(|(last, _)| last);
        let by = by.unwrap_or_else(|_| last.unwrap());
        if item.status == Status::InProgress && last != Some(by) {
            item.lost.extend(last);
        }
        item.status = change.status();
        if *change != Change::GiveBack {
            item.not_before = None;
        }
        match change {
            Change::Retry { .. } => {
                item.attempts += 1;
                let pause = 1_u64 << (item.attempts - 1).min(20);
                item.not_before = Some(self.now + Duration::from_secs(pause.min(60)));
            }
            Change::To(Status::Failed) | Change::Failed { .. } => item.attempts += 1,
            Change::To(Status::Pending) => item.attempts = 0,
            Change::To(_) | Change::GiveBack => {}
        }
        let lease = item.lease.take();
        let Some(section) = item.section else { return };
        let (whose, process) = lease.map_or((by, None), |held| (held.by.0, Some(held.by.1)));
        let by_hand = matches!(change, Change::To(Status::Pending) | Change::GiveBack);
        let done_here = if by_hand {
            !self.works_in(section, whose)
        } else {
            !self.open_in(section)
        };
        let lease = &mut self.sections[section].1;
        let theirs = lease.is_some_and(|held| {
            held.by.0 == whose && (whose < DETACHED || process == Some(held.by.1))
        });
        if done_here && theirs {
            *lease = None;
        }
    }
}

/// One story: a store, the model, and the processes.
struct Story<'a> {
    world: &'a World,
    stores: Vec<Option<SqliteStore>>,
    model: Model,
    chance: Chance,
    tokens: Vec<(usize, Token)>,
    told: Vec<String>,
}

impl Story<'_> {
    fn runner(&self, runner: usize) -> Runner {
        match &self.stores[runner] {
            Some(store) => living(store, RUNNERS[runner]),
            None => detached(RUNNERS[runner]),
        }
    }

    fn store(&self, runner: usize) -> &SqliteStore {
        self.stores[runner].as_ref().unwrap_or(&self.world.store)
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }

    fn add(&mut self) {
        let chance = &mut self.chance;
        if chance.one_in(4) {
            self.model.now += Duration::from_millis(7);
            self.world.clock.pass(Duration::from_millis(7));
        }
        let section = (!chance.one_in(4)).then(|| chance.index(self.model.sections.len()));
        let priority = u8::try_from(3 + chance.below(3)).unwrap();
        let known = self.model.tasks.len();
        let depends_on: BTreeSet<usize> = (0..chance.below(3))
            .filter(|_| known > 0)
            .map(|_| chance.index(known))
            .collect();
        let task = NewTask {
            title: format!("Task {known}"),
            description: None,
            section: section.map(|section| self.model.sections[section].0.clone()),
            priority: Priority::new(priority).unwrap(),
            depends_on: depends_on
                .iter()
                .map(|&on| self.model.tasks[on].id.clone())
                .collect(),
        };
        let id = self.world.store.add_task(&task, soon()).unwrap().id;
        self.tell(format!(
            "add {known} in {section:?} after {depends_on:?}, priority {priority}"
        ));
        self.model.tasks.push(Item {
            id,
            section,
            status: Status::Pending,
            priority,
            depends_on,
            lease: None,
            last: None,
            lost: BTreeSet::new(),
            reaped: false,
            not_before: None,
            attempts: 0,
        });
    }

    fn depend(&mut self) {
        let (task, on) = (
            self.chance.index(self.model.tasks.len()),
            self.chance.index(self.model.tasks.len()),
        );
        let mut before = BTreeSet::from([on]);
        let mut look = vec![on];
        while let Some(at) = look.pop() {
            for &on in &self.model.tasks[at].depends_on {
                if before.insert(on) {
                    look.push(on);
                }
            }
        }
        let drop = self.chance.one_in(2);
        self.tell(format!("{task} depends on {on} (drop: {drop})"));
        let ids = vec![self.model.tasks[on].id.clone()];
        let mut edit = tenure_tasks::Edit::default();
        if drop {
            edit.drop_dependencies = ids;
        } else {
            edit.add_dependencies = ids;
        }
        let done = self
            .world
            .store
            .edit_task(&self.model.tasks[task].id, &edit, soon());
        if drop {
            done.unwrap();
            self.model.tasks[task].depends_on.remove(&on);
        } else if before.contains(&task) {
            assert!(
                matches!(done, Err(TaskError::Circle { .. })),
                "{:#?}",
                self.told
            );
        } else {
            done.unwrap();
            self.model.tasks[task].depends_on.insert(on);
        }
    }

    fn start(&mut self) {
        let (task, runner) = (
            self.chance.index(self.model.tasks.len()),
            self.chance.index(4),
        );
        let id = self.model.tasks[task].id.clone();
        let answer = self.store(runner).start(&id, &self.runner(runner), soon());
        self.tell(format!("{} starts {task}: {answer:?}", RUNNERS[runner]));
        let section = self.model.tasks[task].section;
        let section_busy =
            section.filter(|&section| self.model.section_for(section, runner) == For::Another);
        match answer {
            Err(TaskError::Blocked { .. }) => assert!(self.model.blocked(task), "{:#?}", self.told),
            Err(error) => panic!("{error}: {:#?}", self.told),
            Ok(Acquired::Granted(begun)) => {
                assert!(!self.model.blocked(task), "{:#?}", self.told);
                assert_eq!(section_busy, None, "{:#?}", self.told);
                assert_ne!(
                    self.model.task_for(task, runner),
                    For::Another,
                    "{:#?}",
                    self.told
                );
                self.model.begin(task, runner, begun.lease.token);
                self.tokens.push((task, begun.lease.token));
            }
            Ok(Acquired::Busy(busy)) => {
                let wanted = match section_busy {
                    Some(section) => format!("section:{}", self.model.sections[section].0),
                    None => format!("task:{id}"),
                };
                assert_eq!(busy.key.as_str(), wanted, "{:#?}", self.told);
                let task_busy = self.model.task_for(task, runner) == For::Another;
                assert!(section_busy.is_some() || task_busy, "{:#?}", self.told);
            }
            Ok(Acquired::Deadlock(_) | Acquired::Cancelled) => {
                panic!("no runner waits: {:#?}", self.told)
            }
        }
    }

    fn next(&mut self) {
        let runner = self.chance.index(4);
        let answer = self
            .store(runner)
            .next(&self.runner(runner), soon())
            .unwrap();
        self.tell(format!("{} takes the next: {answer:?}", RUNNERS[runner]));
        let wanted = self.model.best(runner);
        match answer {
            Acquired::Granted(begun) => {
                let found = self
                    .model
                    .tasks
                    .iter()
                    .position(|task| task.id == begun.task.id);
                assert_eq!(found, wanted, "{:#?}", self.told);
                self.model.begin(wanted.unwrap(), runner, begun.lease.token);
                self.tokens.push((wanted.unwrap(), begun.lease.token));
                self.model.leave_idle_sections(runner);
            }
            other @ (Acquired::Deadlock(_) | Acquired::Cancelled) => panic!("{other:?}"),
            Acquired::Busy(want) => {
                assert_eq!(None, wanted, "{:#?}", self.told);
                let words = match want.shortage.unwrap() {
                    Shortage::Locked => "locked",
                    Shortage::Later { .. } => "later",
                    Shortage::Blocked => "blocked",
                    Shortage::LeftToOthers => "left to others",
                    Shortage::NothingLeft => "nothing left",
                };
                assert_eq!(words, self.model.shortage(), "{:#?}", self.told);
                self.model.leave_idle_sections(runner);
            }
        }
    }

    fn change(&mut self) {
        let changes = [
            Change::To(Status::Completed),
            Change::To(Status::Completed),
            Change::To(Status::Review),
            Change::To(Status::Skipped),
            Change::To(Status::Failed),
            Change::To(Status::Pending),
            Change::Failed { error: "no".into() },
            Change::Retry { error: "no".into() },
            Change::GiveBack,
        ];
        let change = changes[self.chance.index(changes.len())].clone();
        let (task, by) = if self.chance.one_in(2) && !self.tokens.is_empty() {
            let (task, token) = self.tokens[self.chance.index(self.tokens.len())];
            (task, Err(token))
        } else {
            let task = self.chance.index(self.model.tasks.len());
            (task, Ok(self.chance.index(RUNNERS.len())))
        };
        let proof = match by {
            Ok(runner) => name(RUNNERS[runner]),
            Err(token) => Proof::Token(token),
        };
        let id = self.model.tasks[task].id.clone();
        let refusal = attempt(self.world, &id, &proof, &change);
        self.tell(format!("{proof:?} changes {task}: {change:?}: {refusal:?}"));
        assert_eq!(refusal, self.model.may_change(task, by), "{:#?}", self.told);
        if refusal == Refusal::None {
            self.model.change(task, by, &change);
        }
    }

    /// Ends a lease otherwise, or takes one by hand.
    fn meddle(&mut self) {
        match self.chance.below(5) {
            0 => {
                let task = self.chance.index(self.model.tasks.len());
                self.tell(format!("force task {task}"));
                self.world
                    .force(&format!("task:{}", self.model.tasks[task].id));
                let item = &mut self.model.tasks[task];
                if let Some(held) = item.lease.take() {
                    item.lost.insert(held.by.0);
                    item.reaped = false;
                }
            }
            1 => {
                let section = self.chance.index(self.model.sections.len());
                self.tell(format!("force section {section}"));
                self.world
                    .force(&format!("section:{}", self.model.sections[section].0));
                self.model.sections[section].1 = None;
            }
            2 => {
                let runner = 2 + self.chance.index(2);
                self.tell(format!("{} dies", RUNNERS[runner]));
                die(self.world, self.stores[runner].take().unwrap());
                self.stores[runner] = Some(self.world.other());
                self.model.lives[runner] += 1;
            }
            3 => {
                self.tell("reap".into());
                let _ = self.world.store.reap(Reap::Free, soon()).unwrap();
                for task in 0..self.model.tasks.len() {
                    let over = self.model.tasks[task]
                        .lease
                        .filter(|held| self.model.over(held));
                    if over.is_some() {
                        self.model.tasks[task].lease = None;
                        self.model.tasks[task].reaped = true;
                    }
                }
                for section in 0..self.model.sections.len() {
                    let over = self.model.sections[section]
                        .1
                        .filter(|held| self.model.over(held));
                    if over.is_some() {
                        self.model.sections[section].1 = None;
                    }
                }
            }
            _ => {
                let task = self.chance.index(self.model.tasks.len());
                let runner = self.chance.index(DETACHED);
                let key = Key::parse(format!("task:{}", self.model.tasks[task].id)).unwrap();
                let ask = Ask::new(&key, RUNNERS[runner]).detached();
                let answer = ask.once(&self.world.store);
                self.tell(format!("{} acquires {task}: {answer:?}", RUNNERS[runner]));
                match answer {
                    Acquired::Granted(Granted { lease, .. }) => {
                        assert_ne!(self.model.task_for(task, runner), For::Another);
                        self.model.grant(task, runner, lease.token);
                        self.tokens.push((task, lease.token));
                    }
                    _ => assert_eq!(self.model.task_for(task, runner), For::Another),
                }
            }
        }
    }

    fn pass(&mut self) {
        let times = [1, 4, 30, 90, 20 * 60, 61 * 60, 150 * 60];
        let time = Duration::from_secs(times[self.chance.index(times.len())]);
        self.tell(format!("{time:?} pass"));
        self.world.clock.pass(time);
        self.model.now += time;
    }

    /// Everything that can be seen is as the model says.
    fn compare(&self) {
        let told = &self.told;
        let recount: i64 = self.world.ask(RECOUNT);
        assert_eq!(recount, 0, "blockers: {told:#?}");
        let snapshots = self.world.store.list(soon()).unwrap();
        let holder = |key: String| {
            let found = snapshots.iter().find(|known| known.key.as_str() == key);
            let (lease, verdict) = found?.lease()?;
            let held = verdict.ended().is_none();
            held.then(|| lease.holder.id.to_string())
        };
        let model = &self.model;
        let statuses = self
            .world
            .store
            .tasks(&TaskQuery::default(), soon())
            .unwrap();
        for (number, task) in model.tasks.iter().enumerate() {
            let known = statuses.iter().find(|known| known.id == task.id).unwrap();
            assert_eq!(known.status, task.status, "task {number}: {told:#?}");
            let live = task.lease.filter(|held| !model.over(held));
            let wanted = live.map(|held| RUNNERS[held.by.0].to_owned());
            assert_eq!(
                holder(format!("task:{}", task.id)),
                wanted,
                "task {number}: {told:#?}"
            );
        }
        for (number, (id, lease)) in model.sections.iter().enumerate() {
            let live = lease.filter(|held| !model.over(held));
            let wanted = live.map(|held| RUNNERS[held.by.0].to_owned());
            assert_eq!(
                holder(format!("section:{id}")),
                wanted,
                "section {number}: {told:#?}"
            );
        }
        let both = "SELECT count(*) FROM task_locks t FULL JOIN (SELECT substr(key, 6) id, holder FROM leases
                    WHERE key LIKE 'task:%') l ON l.id = t.task_id AND l.holder = t.runner_id WHERE l.id IS NULL OR t.task_id IS NULL";
        let apart: i64 = self.world.ask(both);
        assert_eq!(apart, 0, "both tables say the same: {told:#?}");
    }
}

/// One task is never two's, status and locks agree, and `next` finds what it should: whatever
/// happens, in whatever order.
#[test]
fn random_verbs_match_a_simple_model() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let world = World::new();
    for number in 0..120 {
        let mut chance = Chance::apart(seed, &format!("story {number}"));
        world.sql(
            "DELETE FROM task_dependencies; DELETE FROM task_locks; DELETE FROM section_locks; DELETE FROM leases;
             DELETE FROM tickets; DELETE FROM tasks; DELETE FROM sections; DELETE FROM history;",
        );
        let sections = (0..=chance.below(3))
            .map(|number| (world.section(&format!("Section {number}")), None))
            .collect();
        let mut story = Story {
            world: &world,
            stores: vec![None, None, Some(world.other()), Some(world.other()), None],
            model: Model {
                now: Duration::ZERO,
                lives: [0; 5],
                sections,
                tasks: vec![],
            },
            chance,
            tokens: vec![],
            told: vec![format!("seed {seed}, story {number}")],
        };
        for _ in 0..3 {
            story.add();
        }
        for _ in 0..45 {
            match story.chance.below(20) {
                0..=1 => story.add(),
                2 => story.depend(),
                3..=6 => story.start(),
                7..=11 => story.next(),
                12..=15 => story.change(),
                16..=17 => story.meddle(),
                _ => story.pass(),
            }
            story.compare();
        }
        let events = world
            .store
            .history(&HistoryQuery::default(), soon())
            .unwrap();
        assert_eq!(history::contradictions(&events), [], "{:#?}", story.told);
    }
}
