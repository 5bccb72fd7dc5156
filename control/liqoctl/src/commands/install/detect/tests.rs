//! Tests of the detection with objects of real clusters.

use super::*;

const KUBEADM: &str = "apiServer:\n  timeoutForControlPlane: 4m0s\napiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nnetworking:\n  dnsDomain: cluster.local\n  podSubnet: 10.200.0.0/16,fd00:10:244::/56\n  serviceSubnet: 10.96.0.0/12\n";
const KUBE_PROXY: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nclusterCIDR: 10.33.0.0/16\nkind: KubeProxyConfiguration\n";

fn node(cidrs: &[&str]) -> NodeFacts {
    NodeFacts {
        name: "node".into(),
        pod_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        ..NodeFacts::default()
    }
}

fn texts(found: Option<Found>) -> Vec<String> {
    let cidrs = found.map(|found| found.cidrs).unwrap_or_default();
    cidrs.iter().map(ToString::to_string).collect()
}

#[test]
fn kubeadm_has_both_cidrs_and_ipv6_is_skipped() {
    let observed = Observed {
        kubeadm: Some(KUBEADM.into()),
        kube_proxy: Some(KUBE_PROXY.into()),
        ..Observed::default()
    };

    assert_eq!(texts(pod_cidrs(&observed, None)), ["10.200.0.0/16"]);
    assert_eq!(texts(service_cidr(&observed, None)), ["10.96.0.0/12"]);
}

#[test]
fn kube_proxy_has_the_pod_cidr() {
    let observed = Observed {
        kube_proxy: Some(KUBE_PROXY.into()),
        ..Observed::default()
    };

    assert_eq!(texts(pod_cidrs(&observed, None)), ["10.33.0.0/16"]);
}

#[test]
fn flags_are_read_with_an_equals_sign_or_a_space() {
    let words = |text: &str| Observed {
        control_plane: text.split(' ').map(ToOwned::to_owned).collect(),
        ..Observed::default()
    };
    let joined = words(
        "kube-controller-manager --cluster-cidr=10.1.0.0/16 --service-cluster-ip-range=10.2.0.0/16",
    );
    let apart = words("kube-controller-manager --cluster-cidr 10.1.0.0/16");

    assert_eq!(texts(pod_cidrs(&joined, None)), ["10.1.0.0/16"]);
    assert_eq!(texts(service_cidr(&joined, None)), ["10.2.0.0/16"]);
    assert_eq!(texts(pod_cidrs(&apart, None)), ["10.1.0.0/16"]);
    assert_eq!(
        pod_cidrs(&words("x --cluster-cidrs=10.1.0.0/16"), None),
        None
    );
}

#[test]
fn nodes_within_a_well_known_default_identify_it() {
    let observed = Observed {
        nodes: vec![node(&["10.244.0.0/24"]), node(&["10.244.7.0/24"])],
        service_cidrs: vec!["10.96.0.0/16".into()],
        ..Observed::default()
    };

    let found = pod_cidrs(&observed, None).unwrap();

    assert_eq!(found.cidrs, ["10.244.0.0/16".parse::<Ipv4Net>().unwrap()]);
    assert!(found.source.contains("well-known"));
    assert_eq!(texts(service_cidr(&observed, None)), ["10.96.0.0/16"]);
}

#[test]
fn nodes_outside_of_one_default_identify_no_cidr() {
    let outside = Observed {
        nodes: vec![node(&["10.7.0.0/24"])],
        ..Observed::default()
    };
    let in_two_defaults = Observed {
        nodes: vec![node(&["10.244.0.0/24"]), node(&["10.42.0.0/24"])],
        ..Observed::default()
    };

    assert_eq!(pod_cidrs(&outside, None), None);
    assert_eq!(pod_cidrs(&in_two_defaults, None), None);
    assert_eq!(pod_cidrs(&Observed::default(), None), None);
    assert_eq!(service_cidr(&Observed::default(), None), None);
}

#[test]
fn k3s_has_its_defaults_unless_nodes_have_other_cidrs() {
    let k3s = Some(&Provider::K3s);
    let other = Observed {
        nodes: vec![node(&["10.7.0.0/24"])],
        ..Observed::default()
    };

    assert_eq!(
        texts(pod_cidrs(&Observed::default(), k3s)),
        ["10.42.0.0/16"]
    );
    assert_eq!(
        texts(service_cidr(&Observed::default(), k3s)),
        ["10.43.0.0/16"]
    );
    assert_eq!(pod_cidrs(&other, k3s), None);
}

#[test]
fn the_network_plugin_precedes_kubeadm() {
    let observed = Observed {
        kubeadm: Some(KUBEADM.into()),
        plugin_cidrs: vec!["172.20.0.0/16".into(), "172.21.0.0/16".into()],
        ..Observed::default()
    };

    assert_eq!(
        texts(pod_cidrs(&observed, None)),
        ["172.20.0.0/16", "172.21.0.0/16"]
    );
}

#[test]
fn openshift_has_both_cidrs() {
    let observed = Observed {
        openshift: Some((vec!["10.128.0.0/14".into()], vec!["172.30.0.0/16".into()])),
        ..Observed::default()
    };

    assert_eq!(texts(pod_cidrs(&observed, None)), ["10.128.0.0/14"]);
    assert_eq!(texts(service_cidr(&observed, None)), ["172.30.0.0/16"]);
}

#[test]
fn invalid_config_maps_are_skipped() {
    let observed = Observed {
        kubeadm: Some("networking: [".into()),
        kube_proxy: Some("\t".into()),
        service_cidrs: vec!["wrong".into()],
        ..Observed::default()
    };

    assert_eq!(pod_cidrs(&observed, None), None);
    assert_eq!(service_cidr(&observed, None), None);
}
