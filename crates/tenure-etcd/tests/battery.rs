//! The battery on real etcd clusters, with one member and with three.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure_etcd::{Address, EtcdOptions, EtcdStore};
use tenure_testkit::{Etcd, Subject};

/// A prefix of its own in a cluster of this process, for the store of this folder.
fn prepare(place: &Path, cluster: &Etcd) {
    let prefix = uuid::Uuid::new_v4().simple().to_string();
    fs::write(place.join("address"), cluster.address(&prefix)).unwrap();
}

fn open(place: &Path) -> EtcdStore {
    let address = fs::read_to_string(place.join("address")).unwrap();
    let address = Address::parse(&address).unwrap();
    EtcdStore::open(address, &place.join("live"), EtcdOptions::default()).unwrap()
}

fn subject_in(prepare: fn(&Path)) -> Subject {
    Subject::opened_by(|place| Box::new(open(place)))
        .prepared_by(prepare)
        .slower(20)
        .shortest_ttl(Duration::from_secs(2))
}

mod one {
    use super::*;
    tenure_testkit::battery!(subject_in(|place| prepare(place, Etcd::shared())));
}

mod three {
    use super::*;
    tenure_testkit::battery!(
        subject_in(|place| prepare(place, Etcd::shared_of_three())).slower(60)
    );
}
