//! Secrets and annotations by which a peering user or a consumer would decide about other peerings.

use super::peering::{LOCAL, MOMENT, Peering, kubeconfig_of, local, milan, remote};
use control_api::{NamespaceMap, ResourceSlice};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::json;

#[test]
fn credentials_in_the_namespace_of_another_peer_are_not_used() {
    let mut peering = Peering::new(1);
    let server = peering.simulation.local();
    // The name precedes the one of the tenant namespace of `milan`.
    let other = "liqo-tenant-aosta";
    let labels = json!({"liqo.io/remote-cluster-id": "aosta", "liqo.io/tenant-namespace": "true"});
    server.put::<Namespace>(json!({"metadata": {"name": other, "labels": labels}}));
    let role = "liqo-controller-manager-tenant";
    server.put::<RoleBinding>(json!({
        "metadata": {"name": role, "namespace": other},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}],
    }));
    server.put::<Secret>(json!({
        "metadata": {
            "name": "kubeconfig-hostile",
            "namespace": other,
            "labels": {"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"},
            "annotations": {"liqo.io/remote-tenant-namespace": "elsewhere"},
        },
        "data": {"kubeconfig": ByteString(kubeconfig_of("https://192.0.2.66:6443").into_bytes())},
    }));
    peering.run(MOMENT);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);

    let replica = peering.replica("milan").unwrap();
    assert_eq!(replica["spec"]["resources"]["cpu"], "2");
    let elsewhere = peering.simulation.cluster(&milan()).all::<ResourceSlice>();
    assert_eq!(elsewhere.len(), 1);
}

#[test]
fn a_replica_is_created_without_the_cordons_of_the_provider() {
    let mut peering = Peering::new(1);
    peering.put_slice("milan", "2");
    let key = control_runtime::Key::new(LOCAL, "milan");
    let server = peering.simulation.local();
    let mut slice = server.get::<ResourceSlice>(&key).unwrap().clone();
    slice["metadata"]["annotations"]["liqo.io/cordon"] = json!("true");
    slice["metadata"]["annotations"]["liqo.io/cordon-tenant"] = json!("true");
    server.put::<ResourceSlice>(slice);
    peering.run(MOMENT);

    let replica = peering.replica("milan").unwrap();
    assert_eq!(
        replica["metadata"]["annotations"],
        json!({"liqo.io/create-virtual-node": "true"})
    );
}

/// The virtual kubelets would watch the namespace, and get rights there.
#[test]
fn a_provider_names_no_namespaces_of_its_own_choice() {
    let mut peering = Peering::new(1);
    peering.simulation.local().put::<NamespaceMap>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceMap",
        "metadata": {
            "name": "milan",
            "namespace": LOCAL,
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
        },
        "spec": {"desiredMapping": {"shop": "shop-rome"}},
    }));
    peering.run(MOMENT);
    let server = peering.simulation.cluster(&milan());
    let mut replica = server
        .get::<NamespaceMap>(&remote("milan"))
        .unwrap()
        .clone();
    let entry = |name: &str| json!({"remoteNamespace": name, "phase": "Accepted"});
    replica["status"] =
        json!({"currentMapping": {"shop": entry("shop-rome"), "kube-system": entry("x")}});
    server.put::<NamespaceMap>(replica);
    peering.run(MOMENT);

    let map = peering
        .simulation
        .local()
        .get::<NamespaceMap>(&local("milan"));
    let expected = json!({"shop": entry("shop-rome")});
    assert_eq!(map.unwrap()["status"]["currentMapping"], expected);
}
