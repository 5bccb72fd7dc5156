use super::super::fixture::{ROME, fabric, plan_refused, planned, rome_with, rome_without};
use super::super::parse;
use super::*;
use control_api::Network;

#[test]
fn every_network_gets_its_cidr() {
    let objects = planned(ROME);

    assert_eq!(network(&objects, "pod-cidr"), "10.244.0.0/16");
    assert_eq!(network(&objects, "service-cidr"), "10.96.0.0/12");
    assert_eq!(network(&objects, "external-cidr"), "10.70.0.0/16");
    assert_eq!(network(&objects, "internal-cidr"), "10.80.0.0/16");
    assert_eq!(network(&objects, "reserved-10-0-0-0-16"), "10.0.0.0/16");
}

#[test]
fn peers_with_overlapping_cidrs_are_remapped_around_reserved_ones() {
    let objects = planned(ROME);

    // 10.0.0.0/16 is reserved, 10.200.0.0/24 is free.
    let milan = remote(&objects, "milan");
    assert_eq!(milan.pod, ["10.1.0.0/16", "10.200.0.0/24"]);
    assert_eq!(milan.external, ["10.2.0.0/16"]);
    let naples = remote(&objects, "naples");
    assert_eq!(naples.pod, ["10.3.0.0/16"]);
    assert_eq!(naples.external, ["10.4.0.0/16"]);
}

#[test]
fn a_peer_without_overlaps_keeps_its_cidrs() {
    let text = rome_with("pod: [10.244.0.0/16]", "pod: [10.50.0.0/16]");

    assert_eq!(remote(&planned(&text), "naples").pod, ["10.50.0.0/16"]);
}

#[test]
fn a_configuration_publishes_the_local_cidrs_and_its_condition() {
    let objects = planned(ROME);

    let configuration = configuration(&objects, "milan");
    let local = configuration.spec.local.as_ref().unwrap();
    assert_eq!(local.cidr.pod, ["10.244.0.0/16"]);
    assert_eq!(local.cidr.external, ["10.70.0.0/16"]);
    let conditions = &configuration.status.as_ref().unwrap().conditions;
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0].type_, "NetworkCIDRsConfigured");
    assert_eq!(conditions[0].status, "True");
}

#[test]
fn each_node_gets_an_address_of_the_external_cidr_after_the_first() {
    let objects = planned(ROME);

    let node = ip(&objects, "node-rome-1");
    assert_eq!(node.spec.ip, "172.18.1.2");
    assert_eq!(
        node.status.as_ref().unwrap().ip.as_deref(),
        Some("10.70.0.1")
    );
    assert_eq!(node.metadata.namespace.as_deref(), Some("liqo"));
    let labels = node.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["ipam.liqo.io/ip-type"], "node");
    assert_eq!(status_ip(&objects, "node-rome-2"), "10.70.0.2");
    assert_eq!(status_ip(&objects, "printer"), "10.70.0.3");
    assert_eq!(status_ip(&objects, "web"), "10.70.0.4");
}

#[test]
fn planning_twice_changes_nothing() {
    let first = planned(ROME);

    let mut second = first.clone();
    plan(&mut second).unwrap();
    let written = planned(&first.to_yaml());

    assert_eq!(second, first);
    assert_eq!(written.to_yaml(), first.to_yaml());
}

#[test]
fn the_order_of_the_documents_does_not_matter() {
    let mut documents: Vec<_> = ROME.split("---\n").collect();
    documents.reverse();

    let reversed = fabric(&documents.join("---\n"));

    assert_eq!(reversed, fabric(ROME));
}

#[test]
fn a_new_peer_changes_no_allocation_of_an_old_one() {
    let without = planned(&rome_without_peer("milan"));
    let old = remote(&without, "naples").clone();
    assert_eq!(old.pod, ["10.1.0.0/16"]);

    let mut objects = without;
    objects.extend(
        parse(ROME)
            .unwrap()
            .iter()
            .filter(|object| object.label_value(labels::REMOTE_CLUSTER_ID) == Some("milan"))
            .cloned(),
    );
    plan(&mut objects).unwrap();

    assert_eq!(remote(&objects, "naples"), &old);
    assert_eq!(remote(&objects, "milan").pod[0], "10.3.0.0/16");
}

#[test]
fn the_cidrs_of_a_deleted_peer_are_allocated_again() {
    let mut objects = planned(ROME);
    objects.retain(|object| object.label_value(labels::REMOTE_CLUSTER_ID) != Some("milan"));
    objects.extend(
        parse(&ROME.replace("milan", "turin"))
            .unwrap()
            .iter()
            .filter(|object| object.label_value(labels::REMOTE_CLUSTER_ID) == Some("turin"))
            .cloned(),
    );

    plan(&mut objects).unwrap();

    assert_eq!(remote(&objects, "turin").pod[0], "10.1.0.0/16");
    assert_eq!(remote(&objects, "naples").pod[0], "10.3.0.0/16");
}

#[test]
fn a_manually_written_status_is_kept_even_outside_of_the_pools() {
    let mut objects = parse(ROME).unwrap();
    set_remote(
        &mut objects,
        "naples",
        &["100.64.0.0/16"],
        &["10.99.0.0/16"],
    );

    // 10.99.0.0/16 overlaps the service CIDR 10.96.0.0/12.
    plan(&mut objects).unwrap();

    assert_eq!(remote(&objects, "naples").pod, ["100.64.0.0/16"]);
    assert_eq!(remote(&objects, "naples").external, ["10.3.0.0/16"]);
}

#[test]
fn an_invalid_status_is_replaced() {
    let mut objects = planned(ROME);
    set_remote(
        &mut objects,
        "milan",
        &["10.1.0.0/17", "10.200.0.0/24", "10.9.0.0/16"],
        &["nonsense"],
    );

    plan(&mut objects).unwrap();

    let milan = remote(&objects, "milan");
    assert_eq!(milan.pod, ["10.1.0.0/16", "10.200.0.0/24"]);
    assert_eq!(milan.external, ["10.2.0.0/16"]);
}

#[test]
fn a_remapped_cidr_with_the_address_of_a_new_node_is_replaced() {
    let objects = planned(&rome_with("10.0.0.0/16", "10.0.0.0/24"));
    assert_eq!(remote(&objects, "milan").pod[0], "10.1.0.0/16");
    let moved = objects.to_yaml().replace("172.18.1.3", "10.1.7.7");

    let objects = planned(&moved);

    assert_eq!(remote(&objects, "milan").pod[0], "10.5.0.0/16");
    assert_eq!(remote(&objects, "naples").pod[0], "10.3.0.0/16");
    assert_eq!(ip(&objects, "node-rome-2").spec.ip, "10.1.7.7");
    assert_eq!(status_ip(&objects, "node-rome-2"), "10.70.0.2");
}

#[test]
fn no_remapped_cidr_contains_an_endpoint() {
    let text = rome_with("203.0.113.7", "10.1.2.3");

    assert_eq!(remote(&planned(&text), "milan").pod[0], "10.2.0.0/16");
}

#[test]
fn the_address_of_a_deleted_node_is_allocated_again() {
    let mut objects = planned(ROME);
    objects.retain(|object| object.label() != "Node rome-1");
    objects.retain(|object| object.kind() != "EndpointSlice");
    let node = planned(&ROME.replace("rome-1", "rome-9"));
    objects.extend(
        node.iter()
            .filter(|object| object.label() == "Node rome-9")
            .cloned(),
    );

    plan(&mut objects).unwrap();

    assert!(
        !objects
            .iter()
            .any(|object| object.label() == "IP liqo/node-rome-1")
    );
    assert_eq!(status_ip(&objects, "node-rome-9"), "10.70.0.1");
    assert_eq!(status_ip(&objects, "node-rome-2"), "10.70.0.2");
}

#[test]
fn an_overlapping_external_cidr_is_remapped_like_any_other() {
    let text = rome_with(
        "    ipam.liqo.io/network-type: external-cidr\nspec:\n  cidr: 10.70.0.0/16",
        "    ipam.liqo.io/network-type: external-cidr\nspec:\n  cidr: 10.244.0.0/16",
    );

    let objects = planned(&text);

    assert_eq!(network(&objects, "external-cidr"), "10.1.0.0/16");
    assert_eq!(status_ip(&objects, "node-rome-1"), "10.1.0.1");
}

#[test]
fn a_fixed_network_with_an_unavailable_cidr_is_refused() {
    let fixed = |cidr| {
        rome_with(
            "    ipam.liqo.io/network-type: internal-cidr\nspec:\n  cidr: 10.80.0.0/16",
            &format!(
                "    ipam.liqo.io/network-type: internal-cidr\n    \
                 ipam.liqo.io/network-not-remapped: \"true\"\nspec:\n  cidr: {cidr}"
            ),
        )
    };

    assert_eq!(
        plan_refused(&fixed("100.64.0.0/16")),
        [
            "document 8, Network liqo/internal-cidr, spec.cidr: 100.64.0.0/16 lies outside of \
             the address pools; use one of 10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12"
        ]
    );
    assert_eq!(
        plan_refused(&fixed("10.0.9.0/24")),
        [
            "document 8, Network liqo/internal-cidr, spec.cidr: 10.0.9.0/24 overlaps a CIDR in \
             use; use another CIDR"
        ]
    );
    assert_eq!(
        network(&planned(&fixed("10.81.0.0/16")), "internal-cidr"),
        "10.81.0.0/16"
    );
}

#[test]
fn a_users_network_gets_a_cidr_and_is_a_pool_of_addresses() {
    let text = format!(
        "{ROME}---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {{name: lab, namespace: office}}
spec: {{cidr: 10.244.0.0/24, preAllocated: 10}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {{name: scope, namespace: office}}
spec: {{ip: 192.0.2.77, networkRef: {{name: lab, namespace: office}}}}
"
    );

    let objects = planned(&text);

    assert_eq!(network(&objects, "lab"), "10.1.0.0/24");
    assert_eq!(status_ip(&objects, "scope"), "10.1.0.10");
}

#[test]
fn too_many_addresses_are_an_error() {
    let text = ROME.replace("cidr: 10.70.0.0/16", "cidr: 10.70.0.0/30");
    let errors = plan_refused(&text);

    assert_eq!(
        errors,
        [
            "document 17, IP demo/web, spec.ip: no free address is left in 10.70.0.0/30; \
             use a larger external CIDR, or remove IP objects"
        ]
    );
}

#[test]
fn a_peer_too_large_for_the_pools_is_an_error() {
    let text = rome_with("pod: [10.244.0.0/16]", "pod: [32.0.0.0/8]");

    assert_eq!(
        plan_refused(&text),
        [
            "document 10, Configuration liqo-tenant-naples/naples, spec.remote.cidr.pod[0]: \
             no free /8 is left in the address pools; remove reserved Networks, or peers"
        ]
    );
}

#[test]
fn a_hundred_peers_with_the_same_cidrs_all_get_their_own() {
    let one: Vec<_> = ROME
        .split("---\n")
        .filter(|document| document.contains("remote-cluster-id: milan"))
        .collect();
    let one = one.join("---\n");
    let mut text = rome_without_peer("milan");
    for number in 0..100 {
        let own = one.replace("milan", &format!("peer-{number:03}"));
        text += "---\n";
        // In base64, four letters stand for three bytes.
        text += &own.replace("publicKey: AAEC", &format!("publicKey: {number:04}"));
    }

    let fabric = fabric(&text);

    // `Fabric::try_from` has compared all of them.
    assert_eq!(fabric.peers.len(), 101);
}

#[test]
fn connections_and_networks_of_configurations_are_ignored() {
    let text = format!(
        "{ROME}---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: milan-pod-10-244-0-0-16
  labels: {{configuration.liqo.io/cidr-type: pod, liqo.io/remote-cluster-id: milan}}
spec: {{cidr: 10.244.0.0/16}}
status: {{cidr: 10.71.0.0/16}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {{name: gw-milan}}
spec: {{gatewayRef: {{}}, type: Server}}
"
    );

    assert_eq!(fabric(&text), fabric(ROME));
}

#[test]
fn a_cluster_without_a_required_network_is_refused() {
    let errors = plan_refused(&rome_without("network-type: external-cidr"));

    assert_eq!(
        errors,
        [
            "no Network has the type `external-cidr`; add one with the label \
             ipam.liqo.io/network-type=external-cidr"
        ]
    );
}

fn rome_without_peer(peer: &str) -> String {
    ROME.split("---\n")
        .filter(|document| !document.contains(&format!("remote-cluster-id: {peer}")))
        .collect::<Vec<_>>()
        .join("---\n")
}

fn network<'a>(objects: &'a Objects, name: &str) -> &'a str {
    let mut networks = objects.of::<Network>();
    let network = networks.find(|network| network.metadata.name.as_deref() == Some(name));
    let status = network.unwrap().status.as_ref().unwrap();
    status.cidr.as_deref().unwrap()
}

fn configuration<'a>(objects: &'a Objects, peer: &str) -> &'a Configuration {
    objects
        .of::<Configuration>()
        .find(|configuration| configuration.metadata.name.as_deref() == Some(peer))
        .unwrap()
}

fn remote<'a>(objects: &'a Objects, peer: &str) -> &'a ClusterCidrs {
    remote_status(configuration(objects, peer)).unwrap()
}

fn set_remote(objects: &mut Objects, peer: &str, pod: &[&str], external: &[&str]) {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    for object in objects.iter_mut() {
        if let Object::Configuration(configuration) = object
            && configuration.metadata.name.as_deref() == Some(peer)
        {
            let cidr = ClusterCidrs {
                pod: own(pod),
                external: own(external),
            };
            let status = configuration.status.get_or_insert_default();
            status.remote = Some(ClusterConfig { cidr });
        }
    }
}

fn ip<'a>(objects: &'a Objects, name: &str) -> &'a IP {
    objects
        .of::<IP>()
        .find(|ip| ip.metadata.name.as_deref() == Some(name))
        .unwrap()
}

fn status_ip<'a>(objects: &'a Objects, name: &str) -> &'a str {
    let status = ip(objects, name).status.as_ref().unwrap();
    status.ip.as_deref().unwrap()
}
