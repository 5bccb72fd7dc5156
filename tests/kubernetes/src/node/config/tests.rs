use super::*;
use crate::spec::Spec;

fn plan(ipv6: bool) -> Plan {
    let mut spec = Spec::new("rome");
    spec.ipv6 = ipv6;
    let nodes = NodeSpec::all(&spec, 1, "172.18.0.0/16".parse().unwrap());

    Plan {
        spec,
        node: nodes[0].clone(),
        nodes,
        artifacts: "/artifacts".into(),
        folder: "/nodes/rome-control-plane".into(),
        socket: "/run/rome-control-plane".into(),
        load_balancers: [172, 18, 1],
    }
}

#[test]
fn routes_to_pod_cidrs_use_their_nodes_as_gateway() {
    assert_eq!(
        routes(&plan(false)),
        ["route replace 10.244.1.0/24 via 172.18.1.3"]
    );
    assert_eq!(routes(&plan(true)).len(), 2);
}

#[test]
fn pods_have_ipv6_addresses_only_in_clusters_with_ipv6() {
    let ranges = |ipv6| {
        let conflist = cni(&plan(ipv6).node);
        conflist["plugins"][0]["ipam"]["ranges"]
            .as_array()
            .unwrap()
            .len()
    };

    assert_eq!((ranges(false), ranges(true)), (1, 2));
    assert!(!masquerade(&plan(false)).contains("ip6"));
    assert!(masquerade(&plan(true)).contains("ip6 saddr fd00:10:244::/48"));
}

#[test]
fn a_cluster_without_kube_proxy_has_no_configuration_for_it() {
    let mut plan = plan(false);
    assert!(
        files(&plan)
            .iter()
            .any(|(path, _)| path.ends_with("proxy.yaml"))
    );

    plan.spec.kube_proxy = crate::spec::KubeProxy::None;

    assert!(
        !files(&plan)
            .iter()
            .any(|(path, _)| path.ends_with("proxy.yaml"))
    );
}
