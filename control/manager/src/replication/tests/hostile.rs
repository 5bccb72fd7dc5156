//! Secrets and annotations by which a peering user or a consumer would decide about other peerings.

use super::peering::{LOCAL, MOMENT, Peering, kubeconfig_of, milan};
use control_api::ResourceSlice;
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
