//! The slices that a change concerns.

use super::endpoint;
use super::side::settings;
use crate::shadow_endpoint_slice::{Metrics, ShadowEndpointSliceController, registrations};
use control_runtime::{Cache, Changed, Controller as _, Registration};
use serde_json::{Value, json};

/// A cache with three slices of `rome` and one of `naples`. One of `rome` has an address of `naples`.
struct Fixture {
    registrations: Vec<Registration>,
    cache: Cache,
    controller: ShadowEndpointSliceController,
}

impl Fixture {
    fn new() -> Self {
        let registrations = registrations("liqo");
        let mut fixture = Self {
            cache: Cache::fixture(&registrations).unwrap(),
            registrations,
            controller: ShadowEndpointSliceController::new(settings(), Metrics::default()),
        };
        for peer in ["rome", "naples"] {
            let id = json!({"liqo.io/remote-cluster-id": peer});
            let tenant =
                json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
            let map = format!("liqo-tenant-{peer}/milan");
            let map = json!({"liqo.io/managed-by-namespace-map": map});
            fixture.put(
                "Namespace",
                "",
                &format!("liqo-tenant-{peer}"),
                json!({"metadata": {"labels": tenant}}),
            );
            fixture.put(
                "Namespace",
                "",
                &format!("of-{peer}"),
                json!({"metadata": {"labels": id, "annotations": map}}),
            );
            fixture.put(
                "Namespace",
                "",
                &format!("also-of-{peer}"),
                json!({"metadata": {"labels": id, "annotations": map}}),
            );
        }
        let data = json!({"clusterAddresses": {"naples": ["10.244.0.2"]}}).to_string();
        let direct =
            json!({"metadata": {"annotations": {"liqo.io/direct-connections-data": data}}});
        fixture.put("ShadowEndpointSlice", "of-rome", "a", json!({}));
        fixture.put("ShadowEndpointSlice", "of-rome", "b", direct);
        fixture.put("ShadowEndpointSlice", "also-of-rome", "c", json!({}));
        fixture.put("ShadowEndpointSlice", "of-naples", "d", json!({}));
        fixture
    }

    /// Puts an object, and returns the slices that the change concerns.
    fn put(&mut self, kind: &str, namespace: &str, name: &str, mut object: Value) -> Vec<String> {
        let mut registrations = self.registrations.iter();
        let registration = registrations.find(|it| it.resource.kind == kind).unwrap();
        object["apiVersion"] = registration.resource.api_version().into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        let entry = registration.decode(&object.to_string()).unwrap();
        let changed = self.cache.fixture_put(registration, entry);

        changed.map_or_else(Vec::new, |changed| self.observe(&changed))
    }

    fn observe(&mut self, changed: &Changed) -> Vec<String> {
        let items = self.controller.observe(&changed.as_change(), &self.cache);
        items.iter().map(|item| item.key.to_string()).collect()
    }

    fn foreign_cluster(&mut self, peer: &str, status: &str) -> Vec<String> {
        let conditions = json!([{"type": "NetworkConnectionStatus", "status": status}]);
        let off = json!({"enabled": false});
        self.put(
            "ForeignCluster",
            "",
            peer,
            json!({"spec": {"clusterID": peer}, "status": {"role": "Consumer", "modules": {
                "authentication": off,
                "networking": {"enabled": true, "conditions": conditions},
                "offloading": off,
            }}}),
        )
    }
}

const OF_ROME: [&str; 3] = ["also-of-rome/c", "of-rome/a", "of-rome/b"];
const OF_NAPLES: [&str; 2] = ["of-naples/d", "of-rome/b"];

#[test]
fn a_change_of_a_peer_concerns_its_own_slices_and_those_with_its_addresses() {
    let mut milan = Fixture::new();
    assert_eq!(milan.foreign_cluster("rome", "Established"), OF_ROME);
    assert_eq!(milan.foreign_cluster("naples", "Established"), OF_NAPLES);
    assert_eq!(milan.foreign_cluster("turin", "Established"), [""; 0]);
    assert_eq!(milan.foreign_cluster("rome", "Error"), OF_ROME);

    for (peer, expected) in [("rome", &OF_ROME[..]), ("naples", &OF_NAPLES)] {
        let labels = json!({"liqo.io/remote-cluster-id": peer});
        let tenant = format!("liqo-tenant-{peer}");
        let configuration = json!({"metadata": {"labels": labels}, "spec": {}});
        assert_eq!(
            milan.put("Configuration", &tenant, peer, configuration),
            expected
        );
        let policy = json!({"spec": {"endpointCIDRs": ["10.0.0.0/8"]}});
        assert_eq!(milan.put("TenantPolicy", "liqo", peer, policy), expected);
    }
    let policy = json!({"spec": {"endpointCIDRs": ["10.0.0.0/8"]}});
    assert_eq!(
        milan.put("TenantPolicy", "liqo", "default", policy),
        [""; 0]
    );
}

#[test]
fn a_change_that_no_slice_depends_on_concerns_none() {
    let mut milan = Fixture::new();
    milan.foreign_cluster("rome", "Error");
    let mut object = json!({"spec": {"clusterID": "rome"}, "status": {"role": "Unknown", "modules": {
        "authentication": {"enabled": true},
        "networking": {"enabled": true, "conditions": [
            {"type": "NetworkConnectionStatus", "status": "Pending", "message": "x"},
        ]},
        "offloading": {"enabled": true},
    }}});
    assert_eq!(
        milan.put("ForeignCluster", "", "rome", object.clone()),
        [""; 0]
    );
    object["status"]["modules"]["networking"]["enabled"] = json!(false);
    assert_eq!(milan.put("ForeignCluster", "", "rome", object), OF_ROME);

    let policy = json!({"spec": {"podSecurity": "baseline"}});
    milan.put("TenantPolicy", "liqo", "rome", policy);
    let policy = json!({"spec": {"podSecurity": "restricted"}});
    assert_eq!(milan.put("TenantPolicy", "liqo", "rome", policy), [""; 0]);
    let pods = json!({
        "metadata": {"labels": {"ipam.liqo.io/network-type": "pod-cidr"}},
        "spec": {"cidr": "10.9.0.0/16"},
    });
    assert_eq!(milan.put("Network", "liqo", "pod-cidr", pods), [""; 0]);
    let own = json!({
        "metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "controller-manager.liqo.io"}},
        "addressType": "IPv4",
        "endpoints": [],
    });
    assert_eq!(milan.put("EndpointSlice", "of-rome", "a", own), [""; 0]);
}

#[test]
fn a_node_concerns_the_slices_with_addresses_of_its_subnet() {
    let mut milan = Fixture::new();
    let slice = |address: &str| {
        json!({
            "metadata": {"labels": {"liqo.io/managed-by": "shadowendpointslice"}},
            "addressType": "IPv4",
            "endpoints": [endpoint(address)],
        })
    };
    assert_eq!(
        milan.put("EndpointSlice", "of-rome", "a", slice("10.71.0.1")),
        ["of-rome/a"]
    );
    milan.put("EndpointSlice", "of-rome", "b", slice("10.71.1.1"));

    let node = |address: &str, ready: &str| {
        json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": ready}],
        }})
    };
    assert_eq!(
        milan.put("Node", "", "x", node("10.71.0.1", "True")),
        ["of-rome/a"]
    );
    assert_eq!(
        milan.put("Node", "", "x", node("10.71.0.1", "False")),
        [""; 0]
    );
    assert_eq!(
        milan.put("Node", "", "y", node("10.71.2.1", "True")),
        [""; 0]
    );
    let mut virtual_node = node("10.71.1.1", "True");
    virtual_node["metadata"]["labels"] = json!({"liqo.io/type": "virtual-node"});
    assert_eq!(milan.put("Node", "", "z", virtual_node), [""; 0]);
}
