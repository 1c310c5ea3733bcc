use proptest::prelude::*;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn task(created: i64) -> TaskCopy {
    TaskCopy {
        created_at: at(created),
        title: Stamped::new("t".into(), at(created)),
        description: Stamped::new(None, at(created)),
        section: Stamped::new(None, at(created)),
        priority: Stamped::new(5, at(created)),
        progress: Stamped::new(Progress::new(Status::Pending, 0, None), at(created)),
        depends_on: BTreeMap::new(),
    }
}

prop_compose! {
    fn some_task()(
        created in 0i64..3,
        title in (0u8..3, 0i64..4),
        section in (0u8..4, 0i64..4),
        priority in (0u8..10, 0i64..4),
        status in (0usize..6, 0i64..4),
        edges in proptest::collection::vec((0u8..5, any::<bool>(), 0i64..4), 0..4),
    ) -> TaskCopy {
        let mut copy = task(created);
        copy.title = Stamped::new(format!("title {}", title.0), at(title.1));
        copy.section = Stamped::new([None, Some("Docs"), Some("docs"), Some("Backend")][usize::from(section.0)].map(str::to_owned), at(section.1));
        copy.priority = Stamped::new(priority.0, at(priority.1));
        copy.progress = Stamped::new(Progress::new(Status::ALL[status.0], 0, None), at(status.1));
        for (on, present, when) in edges {
            copy.depends_on.insert(on.to_string(), Stamped::new(present, at(when)));
        }
        copy
    }
}

prop_compose! {
    fn some_replica()(
        tasks in proptest::collection::btree_map(0u8..5, some_task(), 0..5),
        deleted in proptest::collection::btree_map(0u8..5, 0i64..4, 0..2),
        sections in proptest::collection::vec((0usize..3, 0i64..4, any::<bool>(), 0i64..4), 0..3),
    ) -> Replica {
        let mut replica = Replica::default();
        for (name, when, deleted, changed) in sections {
            let mut section = SectionCopy::added(["Docs", "docs", "Backend"][name].to_owned(), at(when));
            section.deleted.merge(Stamped::new(deleted, at(changed)));
            replica.add_section(section);
        }
        for (id, copy) in tasks {
            replica.add_task(id.to_string(), copy);
        }
        for (id, when) in deleted {
            replica.delete(id.to_string(), at(when));
        }
        replica.tidy();
        replica
    }
}

fn merged(a: &Replica, b: &Replica) -> Replica {
    let mut a = a.clone();
    a.merge(b.clone());
    a
}

/// Whether all tasks can be done one after another, each after what it depends on.
fn can_be_done_in_some_order(replica: &Replica) -> bool {
    let mut left: Vec<&String> = replica.tasks.keys().collect();
    loop {
        let before = left.len();
        let is_left = left.clone();
        left.retain(|id| {
            let mut edges = replica.tasks[*id].depends_on.iter();
            edges.any(|(on, edge)| edge.value && is_left.contains(&on))
        });
        if left.is_empty() || left.len() == before {
            return left.is_empty();
        }
    }
}

proptest! {
    #[test]
    fn the_order_of_merging_does_not_matter(a in some_replica(), b in some_replica(), c in some_replica()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    #[test]
    fn merging_twice_changes_nothing_more(a in some_replica(), b in some_replica()) {
        let once = merged(&a, &b);
        prop_assert_eq!(merged(&once, &b), once.clone());
        prop_assert_eq!(merged(&once, &a), once);
    }

    #[test]
    fn what_was_deleted_stays_deleted(a in some_replica(), b in some_replica()) {
        let both = merged(&a, &b);
        for id in a.deleted.keys().chain(b.deleted.keys()) {
            prop_assert!(!both.tasks.contains_key(id));
            prop_assert!(both.deleted.contains_key(id));
            prop_assert!(both.tasks.values().all(|task| !task.depends_on.contains_key(id)));
        }
    }

    #[test]
    fn nothing_depends_on_itself_once_cycles_are_broken(a in some_replica(), b in some_replica()) {
        let mut left = merged(&a, &b);
        let mut right = merged(&b, &a);
        let none = HashSet::new();
        prop_assert_eq!(left.untangle_among(&none), right.untangle_among(&none));
        prop_assert_eq!(&left, &right);
        prop_assert!(can_be_done_in_some_order(&left));
        prop_assert!(left.clone().untangle_among(&none).is_empty());
    }
}

#[test]
fn the_later_change_of_a_field_stands_and_other_fields_are_kept() {
    let mut a = Replica::default();
    a.add_task("1".into(), task(0));
    let mut b = a.clone();
    a.tasks.get_mut("1").unwrap().title = Stamped::new("from a".into(), at(10));
    b.tasks.get_mut("1").unwrap().title = Stamped::new("from b".into(), at(9));
    b.tasks.get_mut("1").unwrap().priority = Stamped::new(9, at(9));
    let both = merged(&a, &b);
    assert_eq!(both.tasks["1"].title.value, "from a");
    assert_eq!(both.tasks["1"].priority.value, 9);
}

#[test]
fn the_dependency_that_closed_the_circle_goes() {
    let mut replica = Replica::default();
    for (id, on, when) in [("a", "b", 1), ("b", "c", 2), ("c", "a", 3), ("d", "a", 9)] {
        let mut copy = task(0);
        copy.depends_on
            .insert(on.into(), Stamped::new(true, at(when)));
        copy.depends_on
            .insert("nobody".into(), Stamped::new(true, at(0)));
        replica.add_task(id.into(), copy);
    }
    assert_eq!(
        replica.untangle_among(&HashSet::new()),
        [("c".to_owned(), "a".to_owned())]
    );
    assert!(replica.tasks["d"].depends_on["a"].value);
    assert!(!replica.tasks["d"].depends_on.contains_key("nobody"));
}
