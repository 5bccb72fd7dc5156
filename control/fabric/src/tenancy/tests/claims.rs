//! Objects of a namespace that sorts before Liqo's, which claim CIDRs, addresses or keys of others.

use super::*;
use k8s_openapi::ByteString;

/// Returns the objects after an object of a developer, as in a list by namespace.
fn with_first(object: impl Into<Object>, objects: &Objects) -> Objects {
    let mut all = Objects::default();
    all.push(object);
    all.extend(objects.iter().cloned());
    all
}

fn at(second: i64) -> Option<Time> {
    Some(Time(Timestamp::from_second(second).unwrap()))
}

/// A Network of a developer, older than any other object.
fn network(name: &str, labels: &[&str], spec: &str, status: &str) -> Network {
    let labels = labels
        .iter()
        .map(|label| (format!("ipam.liqo.io/{label}"), "true"));
    from_value(json!({
        "metadata": {
            "name": name,
            "namespace": "a-dev",
            "creationTimestamp": Time(Timestamp::UNIX_EPOCH),
            "labels": labels.collect::<std::collections::BTreeMap<_, _>>(),
        },
        "spec": {"cidr": spec},
        "status": {"cidr": status},
    }))
    .unwrap()
}

/// An IP of a developer with a forged address.
fn ip(address: &str, status: &str, created: i64, reference: Option<&str>) -> IP {
    from_value(json!({
        "metadata": {"name": "0", "namespace": "a-dev", "creationTimestamp": at(created)},
        "spec": {"ip": address, "networkRef": reference.map(|name| json!({"name": name}))},
        "status": {"ip": status},
    }))
    .unwrap()
}

fn status_ip(objects: &Objects, name: &str) -> String {
    let named = |ip: &&IP| ip.metadata.name.as_deref() == Some(name);
    let found = objects.of::<IP>().find(named).unwrap();
    found.status.as_ref().unwrap().ip.clone().unwrap()
}

#[track_caller]
fn expect_refused_alone(objects: Objects, text: &str, expected: &str) {
    let resolution = resolved(&tenancy(), objects);

    assert_eq!(resolution.fabric, Ok(fabric(text)), "{expected}");
    let refused: Vec<_> = resolution.refused.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&*refused, [one] if one.starts_with(expected)),
        "{refused:#?}"
    );
}

#[test]
fn a_users_network_displaces_neither_the_clusters_networks_nor_a_peer() {
    const FIXED: &str = "network-not-remapped";
    const SHARED: &str = "network-shared";

    for (labels, spec, status) in [
        // Pods, the external CIDR, and Services of this cluster.
        (&[FIXED][..], "10.244.0.0/16", "10.244.0.0/16"),
        (&[FIXED, SHARED], "10.244.1.0/24", "10.244.1.0/24"),
        (&[], "10.9.0.0/16", "10.70.0.0/16"),
        (&[], "10.0.0.0/8", "10.0.0.0/8"),
        (&[FIXED], "10.96.7.0/24", "10.96.7.0/24"),
        // The remapped pod CIDR of milan.
        (&[], "10.9.0.0/16", "10.1.0.0/16"),
        (&[FIXED], "10.1.128.0/17", "10.1.128.0/17"),
        (&[FIXED, SHARED], "10.1.0.0/16", "10.1.0.0/16"),
    ] {
        let forged = network("forged", labels, spec, status);
        let objects = with_first(forged, &planned(ROME));

        expect_refused_alone(objects, ROME, "Network a-dev/forged");
    }
}

#[test]
fn a_users_network_without_overlap_is_used() {
    let objects = with_first(
        network("own", &[], "10.60.0.0/24", "10.60.0.0/24"),
        &planned(ROME),
    );
    let before = objects.iter().count();
    let mut pruned = objects;

    let refused = tenancy().prune(&mut pruned);

    assert_eq!(refused, []);
    assert_eq!(pruned.iter().count(), before);
}

#[test]
fn the_older_of_two_users_networks_keeps_its_cidr() {
    let cidr = "10.60.0.0/24";
    let both = ["network-not-remapped", "network-shared"];
    for (labels, expected) in [(&[][..], vec!["Network a-dev/a-young"]), (&both, vec![])] {
        let mut young = network("a-young", labels, cidr, cidr);
        young.metadata.creation_timestamp = at(9);
        let objects = with_first(network("old", labels, cidr, cidr), &planned(ROME));
        let mut objects = with_first(young, &objects);

        let refused = tenancy().prune(&mut objects);

        let refused: Vec<_> = refused.iter().map(|it| &it.place.object).collect();
        assert_eq!(refused, expected);
    }
}

#[test]
fn an_ip_cannot_take_the_address_of_another() {
    let objects = planned(ROME);
    let of_printer = status_ip(&objects, "printer");
    let of_node = status_ip(&objects, "node-rome-1");

    // Without a namespace the reference is to the IP's own, which has no such Network.
    let referring = ip("192.0.2.66", &of_printer, 0, Some("external-cidr"));
    // The others are older.
    let young = ip("192.0.2.66", &of_printer, 9, None);
    for forged in [referring, young] {
        let objects = with_first(forged, &objects);
        expect_refused_alone(objects, ROME, "IP a-dev/0");
    }

    // A node keeps its address independent of the age of the objects.
    let mut objects = with_first(ip("192.0.2.66", &of_node, 0, None), &objects);
    for object in objects.iter_mut() {
        if let Object::IP(ip) = object
            && ip.metadata.namespace.as_deref() == Some("liqo")
        {
            ip.metadata.creation_timestamp = at(9);
        }
    }
    expect_refused_alone(objects, ROME, "IP a-dev/0");
}

#[test]
fn an_ip_with_an_invalid_address_takes_none() {
    let objects = planned(ROME);
    let outside = ip(
        "192.0.2.66",
        &status_ip(&objects, "printer"),
        0,
        Some("own"),
    );
    let own = network("own", &[], "10.60.0.0/24", "10.60.0.0/24");
    let mut objects = with_first(own, &with_first(outside, &objects));
    for object in objects.iter_mut() {
        if let Object::IP(ip) = object
            && ip.metadata.name.as_deref() == Some("printer")
        {
            ip.metadata.creation_timestamp = at(9);
        }
    }

    expect_refused_alone(objects, ROME, "IP a-dev/0");
}

#[test]
fn a_newer_ip_cannot_take_the_address_of_a_peers_pod() {
    let text = format!(
        "{ROME}---\napiVersion: ipam.liqo.io/v1alpha1\nkind: IP\nmetadata:\n  name: web-of-naples\n  \
         namespace: demo\nspec:\n  ip: 10.3.1.10\n"
    );
    let young = ip("10.3.1.10", "10.70.0.200", 9, None);

    expect_refused_alone(with_first(young, &planned(&text)), &text, "IP a-dev/0");
}

#[test]
fn a_key_belongs_to_the_peer_with_the_older_tenant_namespace() {
    for (ages, served, refused) in [([9, 1], "naples", "milan"), ([1, 9], "milan", "naples")] {
        let mut objects = planned(ROME);
        // The copy is the older object: its author has edited an old PublicKey.
        for object in objects.iter_mut() {
            let Object::PublicKey(key) = object else {
                continue;
            };
            let is_copy = key.metadata.name.as_deref() == Some(refused);
            key.metadata.creation_timestamp = at(if is_copy { 0 } else { 5 });
            key.spec.public_key = Some(ByteString(vec![7; 32]));
        }
        let mut tenancy = tenancy();
        for (namespace, age) in tenancy.labelled.iter_mut().zip(ages) {
            namespace.creation_timestamp = at(age);
        }

        let resolution = resolved(&tenancy, objects);

        assert_eq!(peers(&resolution), [served]);
        let copied = |it: &&Error| matches!(it.problem, Problem::CopiedKey { .. });
        let error = resolution.refused.iter().find(copied).unwrap().to_string();
        assert!(error.contains(&format!("liqo-tenant-{served}")), "{error}");
        assert_eq!(resolution.unserved[refused], error);
    }
}
