use super::super::fixture::{ROME, expect_one, fabric, plan_refused, rome_with, rome_without};
use super::super::{parse, plan};
use super::view::Role;
use super::*;
use crate::cidr::CIDRS_MAX;

#[test]
fn cidrs_must_be_well_formed() {
    for (from, to, expected) in [
        (
            "cidr: 10.244.0.0/16",
            "cidr: 10.244.7.0/16",
            "Network liqo/pod-cidr, spec.cidr: 10.244.7.0/16 has bits set behind the prefix; write 10.244.0.0/16",
        ),
        (
            "cidr: 10.96.0.0/12",
            "cidr: fd00:96::/112",
            "Network liqo/service-cidr, spec.cidr: `fd00:96::/112`: IPv6 is not supported yet; use an IPv4 one",
        ),
        (
            "10.200.0.0/24",
            "10.200.0.0",
            "milan, spec.remote.cidr.pod[1]: `10.200.0.0` is not a CIDR; write it as 10.244.0.0/16",
        ),
        (
            "10.200.0.0/24",
            "169.254.18.0/24",
            "milan, spec.remote.cidr.pod[1]: 169.254.18.0/24 contains addresses that are never routed (of \
             169.254.0.0/16); use a CIDR of the private address space",
        ),
        (
            "  ip: 192.0.2.9",
            "  ip: 192.0.2.256",
            "IP office/printer, spec.ip: `192.0.2.256` is not an IPv4 address; write it as 10.244.1.10",
        ),
        (
            "  ip: 192.0.2.9",
            "  ip: 127.0.0.1",
            "IP office/printer, spec.ip: 127.0.0.1 is never routed (of 127.0.0.0/8); use an address that other \
             hosts can reach",
        ),
        (
            "  ip: 192.0.2.9",
            "  ip: 169.254.169.254",
            "IP office/printer, spec.ip: 169.254.169.254 is never routed (of 169.254.0.0/16); use an address that \
             other hosts can reach",
        ),
        (
            "  ip: 192.0.2.9",
            "  ip: 10.244.2.100",
            "IP office/printer, spec.ip: 10.244.2.100 is the gateway replica of document 4, EndpointSlice gateway, \
             endpoints, and peers must not reach a gateway through its own tunnels; use another address",
        ),
        (
            "      address: 172.18.1.3",
            "      address: fd00::3",
            "Node rome-2, status.addresses: `fd00::3`: IPv6 is not supported yet; use an IPv4 one",
        ),
    ] {
        expect_one(&rome_with(from, to), expected);
    }
}

#[test]
fn cidrs_of_one_cluster_must_not_overlap() {
    expect_one(
        &rome_with("cidr: 10.96.0.0/12", "cidr: 10.244.96.0/20"),
        "Network liqo/service-cidr, spec.cidr: 10.244.96.0/20 overlaps 10.244.0.0/16 of document 5, \
         Network liqo/pod-cidr, spec.cidr; use another CIDR; if the CIDR is in a status, run `gateway plan FILE`",
    );
    expect_one(
        &rome_with("10.200.0.0/24", "10.244.7.0/24"),
        "milan, spec.remote.cidr.pod[1]: 10.244.7.0/24 overlaps 10.244.0.0/16 of document 13, \
         Configuration liqo-tenant-milan/milan, spec.remote.cidr.pod[0]; use another CIDR; if the CIDR is in a \
         status, run `gateway plan FILE`",
    );
    expect_one(
        &rome_with("podCIDRs: [10.244.2.0/24]", "podCIDRs: [10.244.1.128/25]"),
        "Node rome-1, spec.podCIDRs: 10.244.1.0/24 overlaps 10.244.1.128/25 of document 2, Node \
         rome-2, spec.podCIDRs; use another CIDR; if the CIDR is in a status, run `gateway plan FILE`",
    );
}

#[test]
fn a_cluster_needs_one_id_that_is_a_label() {
    expect_one(
        &rome_without("CLUSTER_ID"),
        "the ConfigMap with this cluster's id is missing; add a ConfigMap with the label \
         app.kubernetes.io/name=clusterid-configmap and the data CLUSTER_ID",
    );
    expect_one(
        &rome_with("CLUSTER_ID: rome", "ID: rome"),
        "data.CLUSTER_ID: is missing; add it",
    );
    expect_one(
        &rome_with("CLUSTER_ID: rome", "CLUSTER_ID: Rome"),
        "data.CLUSTER_ID: `Rome` is not a cluster id; use at most 63 lower-case letters, digits and inner hyphens",
    );
    let second = ROME
        .split("---\n")
        .next()
        .unwrap()
        .replace("liqo-clusterid", "other");
    expect_one(
        &format!("{ROME}---\n{second}"),
        "ConfigMap liqo/other-configmap: document 1, ConfigMap liqo/liqo-clusterid-configmap already sets the \
         cluster id; remove one of the ConfigMaps",
    );
}

#[test]
fn each_network_type_is_known_and_used_once() {
    expect_one(
        &rome_without("network-type: pod-cidr"),
        "no Network has the type `pod-cidr`; add one with the label ipam.liqo.io/network-type=pod-cidr",
    );
    expect_one(
        &rome_with("network-type: internal-cidr", "network-type: external-cidr"),
        "Network liqo/internal-cidr: document 7, Network liqo/external-cidr already has the type \
         `external-cidr`; remove one of them",
    );
    expect_one(
        &rome_with("network-type: internal-cidr", "network-type: secret-cidr"),
        "Network liqo/internal-cidr, metadata.labels[ipam.liqo.io/network-type]: unknown network type \
         `secret-cidr`; use one of pod-cidr, service-cidr, external-cidr, internal-cidr, reserved",
    );
}

#[test]
fn nodes_and_replicas_must_be_complete_and_distinct() {
    for (from, to, expected) in [
        (
            "    - type: InternalIP\n      address: 172.18.1.3",
            "    - type: ExternalIP\n      address: 172.18.1.3",
            "Node rome-2, status.addresses: the node has no address of type InternalIP; add one to status.addresses",
        ),
        (
            "  podCIDRs: [10.244.2.0/24]",
            "  podCIDRs: [10.9.2.0/24]",
            "Node rome-2, spec.podCIDRs: 10.9.2.0/24 is not within the cluster's pod CIDRs; correct it, or add a \
             Network of type pod-cidr around it",
        ),
        (
            "      address: 172.18.1.3",
            "      address: 172.18.1.2",
            "Node rome-1, status.addresses: document 2, Node rome-2, status.addresses already has the \
             address 172.18.1.2; use another address",
        ),
        (
            "nodeName: rome-1",
            "nodeName: rome-7",
            "EndpointSlice gateway, endpoints[0].nodeName: the gateway replica runs on the unknown node `rome-7`; \
             add the Node, or remove the endpoint",
        ),
        (
            "    nodeName: rome-1\n",
            "",
            "EndpointSlice gateway, endpoints[0].nodeName: is missing; add it",
        ),
        (
            "    targetRef: {kind: Pod, name: gateway-b}\n",
            "",
            "EndpointSlice gateway, endpoints[0].targetRef.name: is missing; add it",
        ),
        (
            "gateway-b",
            "gateway-a",
            "EndpointSlice gateway, endpoints[1]: document 4, EndpointSlice gateway, endpoints[0] already has \
             the gateway replica `gateway-a`; remove one of the endpoints",
        ),
        (
            "10.244.1.100",
            "10.244.2.100",
            "EndpointSlice gateway, endpoints[1]: document 4, EndpointSlice gateway, endpoints[0] already has \
             the address 10.244.2.100; use another address",
        ),
    ] {
        expect_one(&rome_with(from, to), expected);
    }
}

#[test]
fn a_dual_stack_node_is_used_by_its_ipv4_address() {
    let text = rome_with("podCIDRs: [", "podCIDRs: [\"fd00:244::/64\", ");
    let text = text.replace(
        "    - type: InternalIP\n      address: 172.18.1.3",
        "    - type: InternalIP\n      address: fd00::3\n    - type: InternalIP\n      address: 172.18.1.3",
    );

    assert_eq!(fabric(&text), fabric(ROME));
}

#[test]
fn a_node_without_pod_cidrs_is_part_of_the_fabric() {
    let text = rome_with("  podCIDRs: [10.244.2.0/24]", "  podCIDRs: []");

    let fabric = fabric(&text);

    let node = &fabric.nodes[1];
    assert_eq!((&*node.name, &*node.pod_cidrs), ("rome-2", &[][..]));
    assert_eq!(node.external_ip, self::fabric(ROME).nodes[1].external_ip);
}

#[test]
fn a_virtual_node_is_not_part_of_the_fabric() {
    let text = format!(
        "{ROME}---\napiVersion: v1\nkind: Node\nmetadata:\n  name: milan\n  labels: {{liqo.io/type: virtual-node}}\n"
    );

    assert_eq!(fabric(&text), fabric(ROME));
}

#[test]
fn a_peer_needs_configuration_gateway_and_key_once_each() {
    let label = "metadata.labels[liqo.io/remote-cluster-id]";
    for (text, expected) in [
        (
            rome_without("kind: PublicKey"),
            "Configuration liqo-tenant-milan/milan: the peer `milan` has no PublicKey; add a PublicKey with the \
             label liqo.io/remote-cluster-id=milan"
                .to_owned(),
        ),
        (
            rome_without("kind: GatewayServer"),
            "Configuration liqo-tenant-milan/milan: the peer `milan` has no GatewayServer and no GatewayClient; add \
             a GatewayServer or GatewayClient with the label liqo.io/remote-cluster-id=milan"
                .to_owned(),
        ),
        (
            rome_with(
                "  name: naples\n  namespace: liqo-tenant-naples\n  labels:\n    liqo.io/remote-cluster-id: naples\nspec:\n  publicKey",
                "  name: naples\n  namespace: liqo-tenant-naples\nspec:\n  publicKey",
            ),
            format!(
                "PublicKey liqo-tenant-naples/naples, {label}: the label is missing; set \
                 liqo.io/remote-cluster-id to the cluster id of the peer"
            ),
        ),
    ] {
        let errors = plan_refused(&text);
        assert!(errors.iter().any(|error| error.contains(&expected)), "{errors:#?}");
    }
    let errors = plan_refused(&rome_without("kind: Configuration"));
    assert_eq!(errors.len(), 2);
    assert!(errors[0].contains(&format!(
        "GatewayServer liqo-tenant-milan/milan, {label}: unknown peer `milan`; add a Configuration with the \
         label liqo.io/remote-cluster-id=milan, or remove this object"
    )));
    assert!(errors[1].contains(&format!(
        "PublicKey liqo-tenant-milan/milan, {label}: unknown peer `milan`"
    )));
}

#[test]
fn a_peer_is_unique_and_not_this_cluster() {
    let server = ROME
        .split("---\n")
        .find(|document| document.contains("kind: GatewayServer"))
        .unwrap();
    expect_one(
        &format!(
            "{ROME}---\n{}",
            server.replace("name: milan", "name: second")
        ),
        "GatewayServer liqo-tenant-milan/second: the peer `milan` already has document 14, GatewayServer \
         liqo-tenant-milan/milan; remove one of the two",
    );
    let client = ROME
        .split("---\n")
        .find(|document| document.contains("kind: GatewayClient"))
        .unwrap();
    expect_one(
        &format!(
            "{ROME}---\n{}",
            client
                .replace("cluster-id: naples", "cluster-id: milan")
                .replace("to-naples", "to-milan")
        ),
        "GatewayClient liqo-tenant-naples/to-milan: the peer `milan` already has document 14",
    );
    let configuration = ROME
        .split("---\n")
        .find(|document| document.contains("kind: Configuration"))
        .unwrap();
    expect_one(
        &format!(
            "{ROME}---\n{}",
            configuration.replace("name: naples", "name: again")
        ),
        "Configuration liqo-tenant-naples/again: the peer `naples` already has document 10",
    );
    let errors = plan_refused(&ROME.replace("cluster-id: milan", "cluster-id: rome"));
    assert!(errors[0].contains("`rome` is the id of this cluster; set the label"));
}

#[test]
fn two_peers_must_not_have_the_same_key() {
    let naples = "Mff4yxtyO/xaHJRQ0eQEpEJcPfFMwGq5/KoSHOaZI2g=";
    let milan = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    expect_one(
        &rome_with(naples, milan),
        "spec.publicKey: document 15, PublicKey liqo-tenant-milan/milan has the same key; gateways cannot \
         distinguish two peers with one key: publish a separate key for each peer",
    );
}

#[test]
fn the_number_of_cidrs_of_a_peer_is_limited() {
    let cidrs = |count: usize| {
        let cidrs: Vec<_> = (0..count).map(|n| format!("10.244.{n}.0/24")).collect();
        format!("pod: [{}]", cidrs.join(", "))
    };
    let with = |count| rome_with("pod: [10.244.0.0/16]", &cidrs(count));

    assert!(Spec::read(&parse(&with(CIDRS_MAX)).unwrap()).is_ok());
    expect_one(
        &with(CIDRS_MAX + 1),
        "naples, spec.remote.cidr.pod: there are more than 32 CIDRs; remove some",
    );
}

#[test]
fn gateways_and_keys_must_be_usable() {
    for (from, to, expected) in [
        (
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "AAECAwQF",
            "PublicKey liqo-tenant-milan/milan, spec.publicKey: the key has 6 bytes but must have 32; write the \
             peer's WireGuard public key in base64",
        ),
        (
            "mtu: 1280",
            "mtu: 575",
            "spec.mtu: 575 is not between 576 and 9000; correct the value",
        ),
        (
            "mtu: 1280",
            "mtu: 9001",
            "spec.mtu: 9001 is not between 576 and 9000; correct the value",
        ),
        (
            "port: 51840",
            "port: 0",
            "spec.endpoint.port: 0 is not between 1 and 65535; correct the value",
        ),
        (
            "port: 31110",
            "port: 70000",
            "spec.endpoint.port: 70000 is not between 1 and 65535",
        ),
        (
            "    port: 31110\n",
            "",
            "spec.endpoint.port: is missing; add it",
        ),
        (
            "protocol: UDP",
            "protocol: TCP",
            "spec.endpoint.protocol: the gateway supports UDP only; set UDP",
        ),
        (
            "[gw.naples.example, 203.0.113.7]",
            "[]",
            "spec.endpoint.addresses: is missing; add it",
        ),
        (
            "203.0.113.7",
            "203.0.113.7:51840",
            "spec.endpoint.addresses[1]: `203.0.113.7:51840` is neither an address nor a host name; correct it",
        ),
        (
            "pod: [10.244.0.0/16]",
            "pod: []",
            "spec.remote.cidr.pod: the peer has no pod CIDR; list the peer's pod CIDRs",
        ),
    ] {
        expect_one(&rome_with(from, to), expected);
    }
    for mtu in ["576", "9000"] {
        assert_eq!(
            fabric(&rome_with("1280", mtu)).peers[1].mtu.to_string(),
            mtu
        );
    }
    let default = rome_with("    port: 51840\n", "");
    assert_eq!(fabric(&default).peers[0].role, Role::Server { port: 51840 });
}

#[test]
fn all_errors_are_returned_in_the_order_of_the_documents() {
    let text = rome_with("mtu: 1280", "mtu: 5");
    let text = text.replace("cidr: 10.96.0.0/12", "cidr: 10.96.0.1/12");
    let text = text.replace("address: 172.18.1.3", "address: there");

    let errors = plan_refused(&text);

    assert_eq!(errors.len(), 3);
    assert!(errors[0].starts_with("document 2,"));
    assert!(errors[1].starts_with("document 6,"));
    assert!(errors[2].starts_with("document 11,"));
}

#[test]
fn errors_of_objects_that_were_not_parsed_name_no_document() {
    let mut objects = Objects::default();
    objects.extend(parse(ROME).unwrap().iter().cloned());
    objects.retain(|object| object.kind() != "PublicKey");

    let errors = plan(&mut objects).unwrap_err();

    assert!(
        errors
            .to_string()
            .starts_with("Configuration liqo-tenant-milan/milan: the peer")
    );
}
