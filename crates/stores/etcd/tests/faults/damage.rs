//! Records that were removed or damaged by hand.

use tenure_core::{
    Acquired, ErrorKind, Fenced, Forced, HolderId, Key, Released, Renewed, Store, Verdict,
};
use tenure_etcd::{EtcdStore, Repair};
use tenure_tasks::{Change, Edit, NewTask, Proof, Status, Task, TaskError, TaskQuery, TaskStore};
use tenure_testkit::task_battery::{new_task, runner};
use tenure_testkit::{Ask, Etcd, soon};

use super::{LONG, key, open};

/// Runs `etcdctl` on the cluster that all tests share.
pub(crate) fn etcdctl(arguments: &[&str]) -> String {
    let said = Etcd::shared().etcdctl(arguments);
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// The name of the only ticket.
fn ticket(prefix: &str) -> String {
    let tickets = format!("{prefix}/k/build/t/");
    let names = etcdctl(&["get", "--prefix", "--keys-only", &tickets]);
    names.trim().to_owned()
}

#[test]
fn a_key_whose_guard_was_removed_is_not_granted_again() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("guardless");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
    etcdctl(&["del", "guardless/k/build/g"]);
    let ask = || Ask::new(&key(), "bob").ttl(LONG);
    assert!(matches!(ask().once(&there), Acquired::Busy(_)));
    let fenced = there.fence(&key(), held.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
    // The key is as usable as before.
    assert!(matches!(ask().waiting().once(&there), Acquired::Busy(_)));
    etcdctl(&["del", "guardless/k/build/g"]);
    let renewed = here.renew(&held.grant(), LONG, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    let released = here.release(&held.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    let next = ask().granted(&there);
    assert!(next.token > held.token, "{next:?} after {held:?}");
    let fenced = there.fence(&key(), held.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)), "{fenced:?}");
}

#[test]
fn a_damaged_lease_is_named_and_hides_no_other() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("damaged");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let other = Key::parse("other").unwrap();
    let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
    let whole = Ask::new(&other, "carol").ttl(LONG).granted(&here);
    etcdctl(&["put", "damaged/k/build/l/0", "{nothing"]);
    let all = there.list(soon()).unwrap();
    let [damaged, listed] = all.as_slice() else {
        panic!("two keys are held: {all:?}")
    };
    assert_eq!(listed.leases[0].0.token, whole.token);
    assert_eq!(damaged.leases[0].1, Verdict::Malformed);
    let problem = &damaged.problems[0];
    assert!(problem.contains("damaged/k/build/l/0"), "{problem}");
    // Its holder may be at work, so nobody else gets the key; and it learns that its lease is not what it was.
    let bob = Ask::new(&key(), "bob").ttl(LONG);
    assert!(matches!(bob.once(&there), Acquired::Busy(_)));
    let renewed = here.renew(&held.grant(), LONG, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
    let me = HolderId::parse("me").unwrap();
    let forced = there.force(&key(), None, &me, None, soon()).unwrap();
    assert!(matches!(forced, Forced::Freed(_)), "{forced:?}");
    assert!(bob.granted(&there).token > held.token);
    // Once its life has ended, it has expired, whatever it says.
    etcdctl(&["put", "damaged/k/other/l/0", ""]);
    etcdctl(&["del", "damaged/k/other/a/0"]);
    assert!(Ask::new(&other, "bob").granted(&there).token > whole.token);
}

#[test]
fn a_damaged_ticket_is_named_and_keeps_nobody_from_the_key() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("ticketless");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
    let bob = Ask::new(&key(), "bob").ttl(LONG).waiting();
    assert!(matches!(bob.once(&there), Acquired::Busy(_)));
    let name = ticket("ticketless");
    etcdctl(&["put", &name, "null"]);
    let snapshot = here.inspect(&key(), soon()).unwrap();
    let problem = &snapshot.problems[0];
    assert!(problem.contains(&name), "{problem}");
    // Its owner queues again.
    assert!(matches!(bob.once(&there), Acquired::Busy(_)));
    assert_eq!(here.inspect(&key(), soon()).unwrap().queue.len(), 1);
    let released = here.release(&held.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(bob.granted(&there).token > held.token);
    // What is left is still named.
    let all = here.list(soon()).unwrap();
    assert_eq!(all[0].problems.len(), 1, "{all:?}");
}

/// Repairs everything, and returns what was done.
fn repair(store: &EtcdStore) -> Vec<String> {
    let everything = Repair::All { restored: false };
    let repaired = store.repair(everything, soon()).unwrap();
    assert!(repaired.left.is_empty(), "{repaired:?}");
    repaired.done
}

#[test]
fn what_is_left_of_a_damaged_key_is_removed_by_repair() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("repaired");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
    let waits = Ask::new(&key(), "bob").ttl(LONG).waiting().once(&there);
    assert!(matches!(waits, Acquired::Busy(_)));
    etcdctl(&["put", &ticket("repaired"), "null"]);
    etcdctl(&["del", "repaired/k/build/g"]);
    etcdctl(&["put", "repaired/k/build/l/0", "nonsense"]);
    let repaired = here.repair(Repair::Key(&key()), soon()).unwrap();
    assert_eq!(repaired.done.len(), 2, "{repaired:?}");
    // It may be in use.
    let left = &repaired.left[0];
    assert!(left.contains(&held.token.to_string()), "{left}");
    let claim = Ask::new(&key(), "carol").ttl(LONG);
    assert!(matches!(claim.once(&there), Acquired::Busy(_)));
    etcdctl(&["del", "repaired/k/build/a/0"]);
    assert_eq!(repair(&here).len(), 1);
    assert_eq!(etcdctl(&["get", "--prefix", "repaired/k/"]), "");
    assert_eq!(etcdctl(&["get", "--prefix", "repaired/w/"]), "");
    assert!(claim.granted(&there).token > held.token);
}

#[test]
fn a_task_that_was_removed_or_damaged_by_hand_does_not_stop_the_queue() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("queue");
    let store = open(&address, &place.path().join("here"));
    let titles = ["Removed", "Damaged", "Third", "Fourth"];
    let tasks = titles.map(|title| store.add_task(&new_task(title), soon()).unwrap());
    etcdctl(&["del", &format!("queue/t/t/{}", tasks[0].id)]);
    etcdctl(&["put", &format!("queue/t/t/{}", tasks[1].id), "{"]);
    let next = |name: &str| {
        let Acquired::Granted(begun) = store.next(&runner(&store, name), soon()).unwrap() else {
            panic!("two tasks are ready")
        };
        begun.task.title
    };
    assert_eq!(next("first"), "Third");
    let problem = store.find_task(&tasks[1].id, soon()).unwrap().problem;
    assert!(problem.is_some_and(|problem| problem.contains(&tasks[1].id)));
    let damaged = store
        .start(&tasks[1].id, &runner(&store, "first"), soon())
        .map(|_| ())
        .unwrap_err();
    let TaskError::Store(damaged) = damaged else {
        panic!("{damaged}")
    };
    assert_eq!(damaged.kind, ErrorKind::Damaged);
    let fix = damaged.fix.unwrap();
    assert!(
        fix.contains("tenure store repair") && !fix.contains("etcdctl"),
        "{fix}"
    );
    let done = repair(&store).join("\n");
    assert!(done.contains(&tasks[1].id), "{done}");
    assert_eq!(store.tasks(&TaskQuery::default(), soon()).unwrap().len(), 2);
    assert_eq!(next("second"), "Fourth");
    assert!(repair(&store).is_empty());
}

#[test]
fn a_damaged_task_keeps_what_can_be_understood_and_spoils_no_other() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("salvaged");
    let store = open(&address, &place.path().join("here"));
    let section = store.add_section("Backend", soon()).unwrap();
    let new = |title: &str| NewTask {
        section: Some(section.id.clone()),
        ..new_task(title)
    };
    let [damaged, first] =
        ["Damaged", "First"].map(|title| store.add_task(&new(title), soon()).unwrap());
    let after = |on: &Task, title: &str| NewTask {
        depends_on: vec![on.id.clone()],
        ..new(title)
    };
    let blocked = store.add_task(&after(&damaged, "Blocked"), soon()).unwrap();
    let then = store.add_task(&after(&first, "Then"), soon()).unwrap();
    let name = format!("salvaged/t/t/{}", damaged.id);
    let record = etcdctl(&["get", "--print-value-only", &name]);
    etcdctl(&["put", &name, &record.replace("\"pending\"", "\"wip\"")]);
    let all = || store.tasks(&TaskQuery::default(), soon()).unwrap();
    let shown = all()
        .into_iter()
        .find(|task| task.id == damaged.id)
        .unwrap();
    assert_eq!(shown.title, "Damaged");
    assert_eq!(shown.section, Some(section.clone()));
    let problem = shown.problem.unwrap();
    assert!(problem.contains("status \"wip\""), "{problem}");
    // Whether it is done is not known, so what depends on it waits.
    let waits = all()
        .into_iter()
        .find(|task| task.id == blocked.id)
        .unwrap();
    assert_eq!((waits.blockers, waits.problem), (1, None));
    let mut lines = Vec::new();
    let mut add = |line: &str| lines.push(line.to_owned());
    store.export(&mut add, soon()).unwrap();
    assert_eq!(lines.len(), 5, "{lines:?}");
    // Runners get and end the others, of the same section, too, and those that are blocked by them.
    etcdctl(&["put", &format!("salvaged/t/s/{}", section.id), "null"]);
    for title in ["First", "Then"] {
        let me = runner(&store, "me");
        let Acquired::Granted(begun) = store.next(&me, soon()).unwrap() else {
            panic!("{title} is ready")
        };
        assert_eq!(begun.task.title, title);
        let proof = Proof::Token(begun.lease.token);
        let (done, edit) = (Change::To(Status::Completed), Edit::default());
        let ended = store.change(&begun.task.id, &proof, &done, &edit, soon());
        assert_eq!(ended.unwrap().task.status, Status::Completed);
    }
    assert!(then.problem.is_none());
    // A section that can't be understood is not said to be missing.
    let refused = store.find_section("Backend", soon()).unwrap_err();
    assert!(refused.to_string().contains(&section.id), "{refused}");
}

#[test]
fn tasks_whose_guard_was_removed_are_not_hidden() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("hidden");
    let store = open(&address, &place.path().join("here"));
    store.add_task(&new_task("First"), soon()).unwrap();
    etcdctl(&["del", "hidden/t/g"]);
    let refused = store.tasks(&TaskQuery::default(), soon()).unwrap_err();
    assert!(refused.to_string().contains("hidden/t/g"), "{refused}");
    repair(&store);
    assert_eq!(store.tasks(&TaskQuery::default(), soon()).unwrap().len(), 1);
    // The locks of tasks need it, too.
    let task = Key::parse("task:a").unwrap();
    Ask::new(&task, "alice").ttl(LONG).granted(&store);
}
