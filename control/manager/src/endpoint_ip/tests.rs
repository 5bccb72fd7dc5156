//! The controller in memory and under virtual time.

use super::EndpointIpController;
use control_api::{IP, NamespaceOffloading, Network, VirtualNode};
use control_runtime::simulation::Simulation;
use control_runtime::{Cluster, Key};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

/// The cluster `rome`, which has offloaded the namespace `shop`.
struct Rome {
    simulation: Simulation,
}

impl Rome {
    fn new(seed: u64, providers: &[&str]) -> Self {
        let make = || EndpointIpController::new("liqo".to_owned());
        let simulation = Simulation::new(seed).host(make).replicas(2);
        let mut rome = Self { simulation };
        for (type_, cidr) in [
            ("pod-cidr", "10.244.0.0/16"),
            ("service-cidr", "10.96.0.0/12"),
            ("external-cidr", "10.70.0.0/16"),
            ("internal-cidr", "10.80.0.0/16"),
        ] {
            rome.put::<Network>(json!({
                "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
                "metadata": {"name": type_, "namespace": "liqo", "labels": {"ipam.liqo.io/network-type": type_}},
                "spec": {"cidr": cidr},
            }));
        }
        for (name, labels) in [
            ("rome-1", json!({})),
            ("milan", virtual_node("milan")),
            ("turin", virtual_node("turin")),
        ] {
            let addresses = json!([{"type": "InternalIP", "address": "172.18.0.3"}]);
            let cidrs = match name {
                "milan" => json!({"liqo.io/remote-pod-cidrs": "10.244.0.0/16=10.71.0.0/16"}),
                "turin" => json!({"liqo.io/remote-pod-cidrs": "10.72.0.0/16=10.72.0.0/16"}),
                _ => json!({}),
            };
            let addresses = if name == "rome-1" {
                addresses
            } else {
                json!([])
            };
            rome.put::<Node>(json!({
                "metadata": {"name": name, "labels": labels, "annotations": cidrs},
                "status": {"addresses": addresses},
            }));
        }
        rome.put::<Namespace>(json!({"metadata": {"name": "shop"}}));
        for provider in ["milan", "turin"] {
            rome.put_virtual_node(provider, &[]);
        }
        rome.offload(providers);
        rome.pass();
        rome
    }

    fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    /// Creates or replaces the VirtualNode of a provider, with these arguments of its virtual kubelet.
    fn put_virtual_node(&mut self, provider: &str, arguments: &[&str]) {
        let container = json!({"name": "virtual-kubelet", "args": arguments});
        self.put::<VirtualNode>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
            "metadata": {"name": provider, "namespace": format!("liqo-tenant-{provider}")},
            "spec": {"clusterID": provider, "template": {"spec": {
                "selector": {}, "template": {"spec": {"containers": [container]}},
            }}},
        }));
    }

    fn offload(&mut self, providers: &[&str]) {
        let conditions = providers.iter().map(|it| {
            let required = json!([{"type": "OffloadingRequired", "status": "True"}]);
            ((*it).to_owned(), required)
        });
        let conditions: serde_json::Map<_, _> = conditions.collect();
        self.put::<NamespaceOffloading>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": "shop"},
            "spec": {},
            "status": {"remoteNamespacesConditions": conditions},
        }));
    }

    /// Creates or replaces an EndpointSlice with these addresses and nodes.
    fn put_slice(&mut self, name: &str, endpoints: &[(&str, Option<&str>)]) {
        let endpoints = endpoints
            .iter()
            .map(|(address, node)| json!({"addresses": [address], "nodeName": node}));
        self.put::<EndpointSlice>(json!({
            "metadata": {"name": name, "namespace": "shop"},
            "addressType": "IPv4",
            "endpoints": Vec::from_iter(endpoints),
        }));
        self.pass();
    }

    fn pass(&mut self) {
        self.simulation.pass(MOMENT);
    }

    /// Returns the addresses of the IP objects of the namespace.
    fn ips(&mut self) -> Vec<String> {
        let ips = self.simulation.local().all::<IP>().into_iter();
        let ips = ips.filter(|it| it["metadata"]["namespace"] == "shop");
        ips.map(|it| it["spec"]["ip"].as_str().unwrap().to_owned())
            .collect()
    }

    fn events(&self) -> Vec<String> {
        let events = self.simulation.events(0).iter();
        events
            .map(|it| format!("{}: {}", it.reason, it.note))
            .collect()
    }

    fn assert_settled(&mut self) {
        assert!(self.simulation.redundant().is_empty());
        let again = self.simulation.replan(Duration::from_secs(600)).unwrap();
        assert!(again.is_empty(), "{again:?}");
    }
}

fn virtual_node(cluster: &str) -> Value {
    json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": cluster})
}

#[test]
fn an_address_outside_of_the_pod_cidr_has_an_ip_object_while_a_slice_has_it() {
    for seed in 0..20 {
        let mut rome = Rome::new(seed, &["milan"]);
        rome.put_slice("printers", &[("192.0.2.7", None), ("10.244.0.9", None)]);
        rome.put_slice(
            "other",
            &[("192.0.2.7", None), ("192.0.2.8", Some("rome-1"))],
        );
        assert_eq!(rome.ips(), ["192.0.2.7", "192.0.2.8"], "seed {seed}");

        rome.put_slice("other", &[]);
        assert_eq!(rome.ips(), ["192.0.2.7"], "seed {seed}");
        rome.simulation.crash(0);
        rome.simulation.pass(Duration::from_secs(60));
        assert_eq!(rome.ips(), ["192.0.2.7"], "seed {seed}");
        let key = Key::new("shop", "printers");
        rome.simulation.local().remove::<EndpointSlice>(&key);
        rome.pass();
        assert_eq!(rome.ips(), [""; 0], "seed {seed}");
        rome.assert_settled();
    }
}

#[test]
fn a_changed_pod_cidr_changes_the_ip_objects() {
    let mut rome = Rome::new(1, &["milan"]);
    rome.put_slice(
        "web",
        &[("10.244.0.9", Some("rome-1")), ("10.200.0.9", None)],
    );
    assert_eq!(rome.ips(), ["10.200.0.9"]);

    rome.put::<Network>(json!({
        "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
        "metadata": {"name": "pod-cidr", "namespace": "liqo", "labels": {"ipam.liqo.io/network-type": "pod-cidr"}},
        "spec": {"cidr": "10.200.0.0/16"},
    }));
    rome.pass();

    assert_eq!(rome.ips(), ["10.244.0.9"]);
    rome.assert_settled();
}

#[test]
fn pods_of_a_provider_need_one_for_other_providers_only() {
    let mut rome = Rome::new(1, &["milan"]);
    let endpoints = [("10.71.0.5", Some("milan")), ("10.72.0.5", Some("gone"))];
    rome.put_slice("web", &endpoints);
    assert_eq!(rome.ips(), [""; 0]);

    rome.offload(&["milan", "turin"]);
    rome.pass();
    assert_eq!(rome.ips(), ["10.71.0.5"]);
    rome.offload(&["milan"]);
    rome.pass();
    assert_eq!(rome.ips(), [""; 0]);
    rome.assert_settled();
}

#[test]
fn the_ip_objects_end_with_the_offloading() {
    let mut rome = Rome::new(1, &["milan"]);
    rome.put_slice("printers", &[("192.0.2.7", None)]);
    let key = Key::new("shop", "offloading");
    rome.simulation.local().remove::<NamespaceOffloading>(&key);
    rome.pass();

    assert_eq!(rome.ips(), [""; 0]);
    rome.assert_settled();
}

/// `security.md`, rule 15.
#[test]
fn addresses_of_this_cluster_are_refused_unless_the_namespace_is_labelled() {
    let own = ["10.96.0.1", "10.70.0.9", "10.80.0.1", "172.18.0.3"];
    let never = ["127.0.0.1", "169.254.169.254", "224.0.0.1", "168.63.129.16"];
    let all = own.iter().chain(&never).map(|it| (*it, None));
    let mut rome = Rome::new(1, &["milan"]);
    rome.put_slice("web", &Vec::from_iter(all));
    assert_eq!(rome.ips(), [""; 0]);
    for address in own.iter().chain(&never) {
        let start = format!("AddressRefused: {address} gets no IP object");
        let events = rome.events();
        assert!(
            events.iter().any(|it| it.starts_with(&start)),
            "{address} {events:?}"
        );
    }

    let labels = json!({"ipam.liqo.io/allow-internal-addresses": "true"});
    rome.put::<Namespace>(json!({"metadata": {"name": "shop", "labels": labels}}));
    rome.pass();
    let mut permitted = own.map(str::to_owned);
    permitted.sort();
    let mut found = rome.ips();
    found.sort();
    assert_eq!(found, permitted);

    rome.put::<Namespace>(json!({"metadata": {"name": "shop"}}));
    rome.pass();
    assert_eq!(rome.ips(), [""; 0]);
}

#[test]
fn an_ip_object_of_a_user_is_used_and_not_changed() {
    let mut rome = Rome::new(1, &["milan"]);
    let ip = |name: &str, address: &str| {
        json!({"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"ip": address}})
    };
    rome.put::<IP>(ip("printer", "192.0.2.7"));
    rome.put::<IP>(ip("endpoint-192-0-2-8", "192.0.2.9"));
    rome.put_slice("printers", &[("192.0.2.7", None), ("192.0.2.8", None)]);
    rome.put_slice("printers", &[]);

    let mut found = rome.ips();
    found.sort();
    assert_eq!(found, ["192.0.2.7", "192.0.2.9"]);
    assert_eq!(rome.simulation.log().len(), 0);
}

#[test]
fn a_namespace_has_a_bounded_number() {
    let mut rome = Rome::new(1, &["milan"]);
    let addresses = (0..1100_u32).map(|it| format!("192.168.{}.{}", it / 250, it % 250 + 1));
    let addresses = Vec::from_iter(addresses);
    let endpoints = addresses.iter().map(|it| (it.as_str(), None));
    rome.put_slice("many", &Vec::from_iter(endpoints));
    rome.simulation.pass(Duration::from_secs(60));

    // Requests in flight are not counted yet.
    let count = rome.ips().len();
    assert!((1000..1100).contains(&count), "{count}");
    assert!(
        rome.events()
            .iter()
            .any(|it| it.starts_with("TooManyAddresses"))
    );

    // The others get one once there is room.
    let rest = addresses[600..].iter().map(|it| (it.as_str(), None));
    rome.put_slice("many", &Vec::from_iter(rest));
    rome.simulation.pass(Duration::from_secs(1800));
    assert_eq!(rome.ips().len(), 500);
    rome.assert_settled();
}

#[test]
fn slices_of_other_clusters_and_of_namespaces_that_are_not_offloaded_need_none() {
    let mut rome = Rome::new(1, &["milan"]);
    let by = |manager: &str| json!({"endpointslice.kubernetes.io/managed-by": manager});
    for (namespace, name, labels) in [
        ("shop", "reflected", by("endpointslice.reflection.liqo.io")),
        ("shop", "imported", by("multicluster.liqo.io")),
        ("books", "web", json!({})),
    ] {
        rome.put::<EndpointSlice>(json!({
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.7"]}],
        }));
    }
    rome.pass();

    assert!(
        rome.simulation
            .cluster(&Cluster::Local)
            .all::<IP>()
            .is_empty()
    );
}

#[test]
fn slices_that_are_not_reflected_need_none() {
    let skip = || json!({"liqo.io/skip-reflection": "true"});
    let allow = || json!({"liqo.io/allow-reflection": "true"});
    let service = |annotations: Value| json!({"metadata": {"name": "web", "namespace": "shop", "annotations": annotations}});
    let slice = |annotations: Value| {
        json!({
            "metadata": {"name": "web-1", "namespace": "shop", "annotations": annotations,
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.7"]}],
        })
    };
    let none: [&str; 0] = [];
    let mut rome = Rome::new(1, &["milan"]);
    rome.put::<EndpointSlice>(slice(Value::Null));
    rome.pass();
    assert_eq!(rome.ips(), ["192.0.2.7"]);
    rome.put::<Service>(service(skip()));
    rome.pass();
    assert_eq!(rome.ips(), none);
    rome.put::<EndpointSlice>(slice(allow()));
    rome.pass();
    assert_eq!(rome.ips(), ["192.0.2.7"]);
    rome.put::<EndpointSlice>(slice(skip()));
    rome.put::<Service>(service(Value::Null));
    rome.pass();
    assert_eq!(rome.ips(), none);

    rome.put::<EndpointSlice>(slice(Value::Null));
    rome.put::<Namespace>(json!({"metadata": {"name": "shop", "annotations": skip()}}));
    rome.pass();
    assert_eq!(rome.ips(), none);
    rome.put::<Namespace>(json!({"metadata": {"name": "shop"}}));
    rome.pass();
    assert_eq!(rome.ips(), ["192.0.2.7"]);

    rome.put_virtual_node("milan", &["--service-reflection-type", "AllowList"]);
    rome.pass();
    assert_eq!(rome.ips(), none);
    rome.put::<Service>(service(allow()));
    rome.pass();
    assert_eq!(rome.ips(), ["192.0.2.7"]);
    rome.put_virtual_node("milan", &["--service-reflection-type=DenyList"]);
    rome.put::<Service>(service(skip()));
    rome.pass();
    assert_eq!(rome.ips(), none);
    rome.put::<Service>(service(Value::Null));
    rome.pass();
    assert_eq!(rome.ips(), ["192.0.2.7"]);
    rome.put_virtual_node("milan", &["--endpointslice-reflection-workers=0"]);
    rome.pass();
    assert_eq!(rome.ips(), none);
    rome.assert_settled();
}

#[test]
fn pods_at_a_provider_need_one_while_there_is_another_provider() {
    let mut rome = Rome::new(1, &["milan"]);
    let pod = |name: &str, node: &str, address: &str, of_host: bool| {
        json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"liqo.io/shadowPod": "true"}},
            "spec": {"nodeName": node, "hostNetwork": of_host}, "status": {"podIP": address},
        })
    };
    rome.put::<Pod>(pod("client", "milan", "10.71.0.5", false));
    rome.put::<Pod>(pod("agent", "milan", "10.71.0.9", true));
    // As a provider without networking reports it.
    rome.put::<Pod>(pod("forged", "milan", "192.168.1.10", false));
    rome.put::<Pod>(pod("local", "rome-1", "10.200.0.5", false));
    let mut done = pod("done", "milan", "10.71.0.8", false);
    done["status"]["phase"] = "Succeeded".into();
    rome.put::<Pod>(done);
    rome.pass();
    assert_eq!(rome.ips(), [""; 0]);

    rome.offload(&["milan", "turin"]);
    rome.pass();
    assert_eq!(rome.ips(), ["10.71.0.5"]);
    rome.simulation.crash(0);
    rome.simulation.pass(Duration::from_secs(60));
    rome.put::<Pod>(pod("client", "milan", "10.71.0.6", false));
    rome.pass();
    assert_eq!(rome.ips(), ["10.71.0.6"]);
    rome.simulation
        .local()
        .terminate::<Pod>(&Key::new("shop", "client"));
    rome.pass();
    assert_eq!(rome.ips(), [""; 0]);

    rome.put::<Pod>(pod("client", "milan", "10.71.0.7", false));
    rome.pass();
    assert_eq!(rome.ips(), ["10.71.0.7"]);
    rome.offload(&["milan"]);
    rome.pass();
    assert_eq!(rome.ips(), [""; 0]);
    rome.assert_settled();
}

/// Its address may be that of a managed control plane.
#[test]
fn the_api_server_needs_none() {
    let mut rome = Rome::new(1, &["milan"]);
    rome.put::<Namespace>(json!({"metadata": {"name": "default"}}));
    let offloading = rome
        .simulation
        .local()
        .get::<NamespaceOffloading>(&Key::new("shop", "offloading"));
    let mut offloading = offloading.cloned().unwrap();
    offloading["metadata"] = json!({"name": "offloading", "namespace": "default"});
    rome.put::<NamespaceOffloading>(offloading);
    for name in ["kubernetes", "web"] {
        rome.put::<EndpointSlice>(json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [if name == "web" { "192.0.2.7" } else { "192.0.2.6" }]}],
        }));
    }
    rome.pass();

    let ips = rome.simulation.local().all::<IP>().into_iter();
    let ips: Vec<_> = ips.map(|it| it["spec"]["ip"].clone()).collect();
    assert_eq!(ips, ["192.0.2.7"]);
}
