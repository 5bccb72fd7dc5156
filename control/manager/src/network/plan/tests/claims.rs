//! Networks and IPs of users whose labels and statuses are forged.

use super::*;

const FIXED: &str = "ipam.liqo.io/network-not-remapped";
const SHARED: &str = "ipam.liqo.io/network-shared";

/// A Network of a namespace that sorts before Liqo's, with a forged status.
fn network(name: &str, labels: &[&str], spec: &str, status: &Value) -> Value {
    let labels = labels
        .iter()
        .map(|label| ((*label).to_owned(), json!("true")));
    json!({
        "metadata": {
            "name": name,
            "namespace": "a-dev",
            "labels": labels.collect::<serde_json::Map<_, _>>(),
        },
        "spec": {"cidr": spec},
        "status": {"cidr": status},
    })
}

fn ip(name: &str, address: &str, status: &str, reference: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a-dev"},
        "spec": {"ip": address, "networkRef": reference},
        "status": {"ip": status, "cidr": "10.70.0.0/16"},
    })
}

/// Returns the statuses of the objects that users have not created, and of those in a tenant namespace.
fn trusted(rome: &Cluster) -> Vec<(String, Value)> {
    let objects = rome.objects.iter();
    let trusted = objects.filter(|((kind, key), _)| {
        matches!(kind, Kind::Network | Kind::Ip) && key.namespace != "a-dev"
    });
    trusted
        .map(|((_, key), object)| (key.to_string(), object["status"].clone()))
        .collect()
}

fn is_warned(rome: &Cluster, name: &Key) -> bool {
    let mut notices = rome.notices.iter();
    notices.any(|it| it.key == *name && it.is_warning)
}

#[test]
fn a_users_network_takes_no_cidr_of_the_cluster_or_a_peer() {
    for restarts in [false, true] {
        for (labels, cidr) in [
            (&[FIXED][..], "10.244.0.0/16"),
            (&[FIXED, SHARED], "10.244.7.0/24"),
            (&[FIXED], "10.70.0.0/16"),
            (&[FIXED, SHARED], "10.70.0.0/16"),
            (&[FIXED], "10.0.0.0/16"),
            (&[FIXED, SHARED], "10.0.0.0/15"),
        ] {
            let mut rome = rome();
            with_milan(&mut rome);
            let before = trusted(&rome);
            let forged = network("forged", labels, cidr, &json!(cidr));

            let name = rome.put(Kind::Network, forged);
            if restarts {
                rome.restart();
            }
            rome.settle();

            assert_eq!(trusted(&rome), before, "{labels:?} {cidr} {restarts}");
            let status = &rome.get(Kind::Network, &name)["status"];
            assert!(status["cidr"].is_null(), "{labels:?} {cidr}: {status}");
            assert!(is_warned(&rome, &name), "{labels:?} {cidr}");
            assert_eq!(rome.settle(), [], "it has converged");
        }
    }
}

#[test]
fn a_users_network_without_labels_gets_another_cidr_than_the_forged_one() {
    for restarts in [false, true] {
        let mut rome = rome();
        with_milan(&mut rome);
        let before = trusted(&rome);

        let forged = network("forged", &[], "10.0.0.0/16", &json!("10.0.0.0/16"));
        let name = rome.put(Kind::Network, forged);
        if restarts {
            rome.restart();
        }
        rome.settle();

        assert_eq!(trusted(&rome), before);
        let cidr = &rome.get(Kind::Network, &name)["status"]["cidr"];
        assert!(cidr.is_string() && *cidr != "10.0.0.0/16", "{cidr}");
    }
}

#[test]
fn a_network_of_liqo_takes_precedence_over_an_older_one_of_a_user() {
    for labels in [&[][..], &[FIXED], &[FIXED, SHARED]] {
        let mut rome = rome();
        let none = Value::Null;
        let users = rome.put(
            Kind::Network,
            network("first", labels, "10.50.0.0/16", &none),
        );
        let reference = json!({"name": "first", "namespace": "a-dev"});
        let mapped = ip("web", "10.244.2.30", "10.50.0.9", &reference);
        let mapped = rome.put(Kind::Ip, mapped);
        rome.settle();
        assert_eq!(
            rome.get(Kind::Network, &users)["status"]["cidr"],
            "10.50.0.0/16"
        );
        assert_eq!(rome.get(Kind::Ip, &mapped)["status"]["ip"], "10.50.0.9");

        let mut pods = network("pods", &[FIXED, SHARED], "10.50.0.0/16", &none);
        pods["metadata"]["namespace"] = json!("liqo");
        pods["metadata"]["labels"]["ipam.liqo.io/network-type"] = json!("pod-cidr");
        let pods = rome.put(Kind::Network, pods);
        rome.settle();

        assert_eq!(
            rome.get(Kind::Network, &pods)["status"]["cidr"],
            "10.50.0.0/16"
        );
        let cidr = &rome.get(Kind::Network, &users)["status"]["cidr"];
        let address = &rome.get(Kind::Ip, &mapped)["status"]["ip"];
        if labels.is_empty() {
            assert!(cidr.is_string() && *cidr != "10.50.0.0/16", "{cidr}");
            assert!(address.is_string() && *address != "10.50.0.9", "{address}");
        } else {
            assert!(cidr.is_null() && address.is_null(), "{cidr} {address}");
        }
        assert_eq!(rome.settle(), [], "it has converged");
    }
}

#[test]
fn a_forged_address_is_removed_from_an_ip_that_gets_none() {
    for (address, reference) in [
        ("192.0.2.9", json!({"name": "external-cidr"})),
        ("192.0.2.9", json!({"name": "none", "namespace": "liqo"})),
        ("127.0.0.1", Value::Null),
    ] {
        let mut rome = rome();
        let before = trusted(&rome);

        let forged = ip("0", address, "10.70.0.1", &reference);
        let name = rome.put(Kind::Ip, forged);
        rome.settle();

        assert_eq!(trusted(&rome), before);
        let status = &rome.get(Kind::Ip, &name)["status"];
        assert!(
            status["ip"].is_null() && status["cidr"].is_null(),
            "{status}"
        );
        assert!(is_warned(&rome, &name), "{address} {reference}");
    }
}

#[test]
fn a_node_keeps_its_address_despite_an_older_ip_with_a_forged_one() {
    let mut rome = rome();
    let name = rome.put(Kind::Ip, ip("0", "192.0.2.9", "10.70.0.9", &Value::Null));
    rome.settle();
    rome.put(Kind::Node, node("rome-3", "172.18.1.4"));
    rome.settle();
    let before = trusted(&rome);
    let of_node = &rome.get(Kind::Ip, &Key::new("liqo", "node-rome-3"))["status"]["ip"];
    let forged = json!({"status": {"ip": of_node}});

    rome.edit(Kind::Ip, &name, forged.clone());
    rome.restart();
    rome.settle();

    assert_eq!(trusted(&rome), before);
    assert_ne!(
        rome.get(Kind::Ip, &name)["status"]["ip"],
        forged["status"]["ip"]
    );
}

#[test]
fn a_terminating_ip_takes_no_address_of_another() {
    let mut rome = rome();
    let name = rome.put(Kind::Ip, ip("0", "192.0.2.9", "10.70.0.9", &Value::Null));
    rome.settle();

    let leaving = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]},
        "status": {"ip": "10.70.0.1"},
    });
    rome.edit(Kind::Ip, &name, leaving);
    rome.settle();

    assert_eq!(rome.get(Kind::Ip, &name)["status"]["ip"], "10.70.0.9");
}
