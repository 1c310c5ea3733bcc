//! A cluster that answers, and may still refuse what it is asked next: alarms, members, logins.

use tenure::wire::StoreCheckJson;
use tenure::{StoreUrl, Tenure};

use super::{Finding, Remedy};

pub(super) fn examine(url: &StoreUrl, found: &mut Vec<Finding>) {
    let StoreUrl::Etcd(cluster) = url else { return };
    let mut check = StoreCheckJson::default();
    if let Err(error) = Tenure::check_etcd(cluster, &mut check) {
        check.problems.push(error.to_string());
    }
    found.extend(check.problems.into_iter().map(|problem| {
        Finding::problem("cluster", problem)
            .store(url)
            .means("Commands that use the cluster are refused, or will be soon.")
            .remedy(Remedy::Command("tenure store check".into()))
    }));
}
