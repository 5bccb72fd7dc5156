//! `gateway plan` on a file and the manager on the same objects allocate the same addresses.

use super::*;
use control_fabric::{Object, parse, plan};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// CIDRs that overlap those of the cluster, each other, or none. No CIDR of the first half overlaps one of the
/// second half, since a peer whose pod and external CIDRs overlap is refused.
const CIDRS: [&str; 8] = [
    "10.244.0.0/16",
    "10.244.0.0/17",
    "10.50.0.0/16",
    "10.96.0.0/12",
    "10.70.0.0/16",
    "10.51.0.0/24",
    "172.18.0.0/16",
    "100.64.0.0/24",
];

/// Kinds in a file.
const KINDS: [Kind; 7] = [
    Kind::ConfigMap,
    Kind::Node,
    Kind::Network,
    Kind::Configuration,
    Kind::GatewayServer,
    Kind::PublicKey,
    Kind::Ip,
];

/// Objects of users, by index of [`CIDRS`].
#[derive(Clone, Debug)]
struct Given {
    networks: Vec<usize>,
    /// The Network that each IP names; the external CIDR if there is none.
    ips: Vec<usize>,
    peers: Vec<(usize, usize)>,
    /// Peers that are deleted, and created again at the end, with other keys and names.
    moved: Vec<bool>,
}

fn given() -> impl Strategy<Value = Given> {
    (
        prop::collection::vec(0..CIDRS.len(), 0..3),
        prop::collection::vec(0..5_usize, 0..5),
        prop::collection::vec((0..4_usize, 4..8_usize), 1..5),
        prop::collection::vec(any::<bool>(), 5),
    )
        .prop_map(|(networks, ips, peers, moved)| Given {
            networks,
            ips,
            peers,
            moved,
        })
}

fn create(rome: &mut Cluster, given: &Given) {
    for (number, cidr) in given.networks.iter().enumerate() {
        let metadata = json!({"name": format!("lab-{number}"), "namespace": "office"});
        let object = json!({"metadata": metadata, "spec": {"cidr": CIDRS[*cidr]}});
        rome.put(Kind::Network, object);
        rome.settle();
    }
    for (number, network) in given.ips.iter().enumerate() {
        let name = format!("lab-{network}");
        let reference =
            (*network < given.networks.len()).then(|| json!({"name": name, "namespace": "office"}));
        let metadata = json!({"name": format!("web-{number}"), "namespace": "office"});
        let spec = json!({"ip": "192.0.2.9", "networkRef": reference});
        rome.put(Kind::Ip, json!({"metadata": metadata, "spec": spec}));
        rome.settle();
    }
    for (number, (pods, external)) in given.peers.iter().enumerate() {
        create_peer(
            rome,
            &format!("peer-{number}"),
            number,
            CIDRS[*pods],
            CIDRS[*external],
        );
    }
}

fn create_peer(rome: &mut Cluster, name: &str, number: usize, pods: &str, external: &str) {
    rome.put(
        Kind::Configuration,
        configuration(name, &[pods], &[external]),
    );
    rome.put(Kind::GatewayServer, server(name, &json!({"port": 51840})));
    let byte = 10 + u8::try_from(number).unwrap();
    rome.put(Kind::PublicKey, public_key(name, byte));
    rome.settle();
}

/// Returns the objects as documents of a file.
fn file(rome: &Cluster, with_status: bool) -> String {
    let objects = rome.objects.iter().filter(|((kind, _), object)| {
        let labels = &object["metadata"]["labels"];
        let is_managed = labels["liqo.io/managed"] == "true";
        KINDS.contains(kind) && (with_status || !is_managed)
    });
    let documents = objects.map(|((kind, _), object)| {
        let mut object = object.clone();
        if *kind == Kind::Node {
            let number = if object["metadata"]["name"] == "rome-1" {
                1
            } else {
                2
            };
            object["spec"] = json!({"podCIDRs": [format!("10.244.{number}.0/24")]});
        } else if !with_status {
            object["status"].take();
            object["metadata"]["creationTimestamp"].take();
        }
        object.to_string()
    });
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// Returns the addresses in statuses, by object. Those of a peer's Networks are in its Configuration.
fn addresses(text: &str, is_of_user: impl Fn(&Object) -> bool) -> BTreeMap<String, String> {
    let objects = parse(text).unwrap();
    let statuses = objects
        .iter()
        .filter(|it| is_of_user(it))
        .filter_map(|object| {
            let status = match object {
                Object::Network(network) => json!(network.status),
                Object::IP(ip) => json!(ip.status),
                Object::Configuration(it) => json!(it.status.as_ref().map(|status| &status.remote)),
                Object::ConfigMap(_)
                | Object::Node(_)
                | Object::EndpointSlice(_)
                | Object::GatewayServer(_)
                | Object::GatewayClient(_)
                | Object::PublicKey(_)
                | Object::Connection(_) => return None,
            };
            let labels = object.metadata().labels.as_ref();
            let is_of_peer =
                labels.is_some_and(|it| it.contains_key("configuration.liqo.io/cidr-type"));
            (!is_of_peer).then(|| (name(object), status.to_string()))
        });
    statuses.collect()
}

fn name(object: &Object) -> String {
    let key = control_runtime::key_of(object.metadata());
    format!("{} {key}", object.kind())
}

fn planned(text: &str) -> Result<String, String> {
    let mut objects = parse(text).map_err(|error| error.to_string())?;
    plan(&mut objects).map_err(|error| error.to_string())?;
    Ok(objects.to_yaml())
}

#[test]
fn a_file_and_a_cluster_refuse_a_peer_whose_pod_and_external_cidrs_overlap() {
    let mut rome = rome();
    create_peer(&mut rome, "milan", 0, "10.50.0.0/16", "10.50.1.0/24");

    let configuration = rome.get(Kind::Configuration, &Key::new("liqo-tenant-milan", "milan"));
    let condition = &configuration["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("InvalidCIDR"))
    );
    assert_eq!(configuration["status"]["remote"], Value::Null);
    let refusal = planned(&file(&rome, false)).unwrap_err();
    assert!(
        refusal.contains("spec.remote.cidr.external[0]"),
        "{refusal}"
    );
}

#[test]
fn a_file_and_a_cluster_reserve_the_first_external_address_without_pre_allocation() {
    let mut rome = rome();
    let external = Key::new("liqo", "external-cidr");
    rome.edit(
        Kind::Network,
        &external,
        json!({"spec": {"preAllocated": null}}),
    );
    create(
        &mut rome,
        &Given {
            networks: vec![],
            ips: vec![9],
            peers: vec![],
            moved: vec![],
        },
    );

    let planned = planned(&file(&rome, false)).unwrap();

    let expected = addresses(&file(&rome, true), |_| true);
    assert!(
        !expected
            .values()
            .any(|status| status.contains("10.70.0.0\"")),
        "{expected:?}"
    );
    assert_eq!(addresses(&planned, |_| true), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_file_and_a_cluster_get_the_same_addresses(given in given()) {
        let mut rome = rome();
        create(&mut rome, &given);

        let planned = planned(&file(&rome, false)).map_err(TestCaseError::fail)?;

        let is_known = |object: &Object| !name(object).ends_with("unknown-source");
        let expected = addresses(&file(&rome, true), is_known);
        prop_assert_eq!(addresses(&planned, is_known), expected);
    }

    /// Deleted peers leave gaps, so the addresses depend on the history.
    #[test]
    fn a_file_and_a_restarted_manager_keep_the_addresses_of_a_cluster(given in given()) {
        let mut rome = rome();
        create(&mut rome, &given);
        for (number, (pods, external)) in given.peers.iter().enumerate() {
            if given.moved[number] {
                let name = format!("peer-{number}");
                let key = Key::new(format!("liqo-tenant-{name}"), name);
                for kind in [Kind::Configuration, Kind::GatewayServer, Kind::PublicKey] {
                    rome.delete(kind, &key);
                }
                rome.settle();
                let name = format!("again-{number}");
                create_peer(&mut rome, &name, 10 + number, CIDRS[*external], CIDRS[*pods]);
            }
        }
        let before = addresses(&file(&rome, true), |_| true);

        let planned = planned(&file(&rome, true)).map_err(TestCaseError::fail)?;
        rome.restart();
        rome.settle();

        prop_assert_eq!(&addresses(&planned, |_| true), &before);
        prop_assert_eq!(&addresses(&file(&rome, true), |_| true), &before);
    }
}
