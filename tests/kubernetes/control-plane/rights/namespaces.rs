//! Tests of the limits for the controller manager's token in namespaces: those of consumers, and offloaded ones.

use super::attack::{Refusal, Request};
use super::{MANAGER, RBAC, SERVICES, administrator, binding, label, manager, service_account};
use crate::fixture::{Fixture, LIQO, Suite, parallel};
use anyhow::Result;
use control_api::ShadowEndpointSlice;
use kube::Api;
use kubernetes_lab::manifest;
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        the_managers_token_writes_namespaces_of_consumers_only,
        the_managers_token_binds_the_roles_of_offloaded_namespaces_there_only,
        the_roles_of_further_kinds_are_bound_like_those_beside_them,
        the_managers_token_repairs_endpoint_slices_of_consumers_there_only,
    );
}

/// The names of the ValidatingAdmissionPolicies.
const NAMESPACES: &str = "liqo-controller-manager-namespaces";
const BINDINGS: &str = "liqo-offloading-bindings";

/// The ClusterRoles of offloaded namespaces.
const OF_MANAGER: &str = "liqo-controller-manager-remote-namespace";
pub(super) const OF_CONSUMER: &str = "liqo-virtual-kubelet-remote";
const OF_KUBELET: &str = "liqo-virtual-kubelet-local-namespace";

/// The ClusterRoles of further kinds, to which administrators add rights.
const OF_CONSUMER_EXTRA: &str = "liqo-virtual-kubelet-remote-extra";
const OF_KUBELET_EXTRA: &str = "liqo-virtual-kubelet-local-extra";

fn namespace(name: &str, labels: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
    })
}

/// Creates a namespace as the manager does for the consumer `buyer`.
pub(super) async fn of_consumer(fixture: &Fixture, name: &str) -> Result<()> {
    let object = namespace(name, &labels(), &annotations());
    manifest::apply(&fixture.control_plane.client().await?, &[object], None).await
}

fn labels() -> Value {
    json!({"liqo.io/remote-cluster-id": "buyer"})
}

fn annotations() -> Value {
    json!({"liqo.io/managed-by-namespace-map": "liqo-tenant-buyer/seller"})
}

fn change(name: &str, metadata: &Value) -> Request {
    Request::Merge {
        kind: "Namespace",
        namespace: None,
        name: name.to_owned(),
        subresource: None,
        patch: json!({"metadata": metadata}),
    }
}

fn delete(name: &str) -> Request {
    Request::Delete {
        kind: "Namespace",
        namespace: None,
        name: name.to_owned(),
    }
}

async fn the_managers_token_writes_namespaces_of_consumers_only(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    let policy = Refusal::Policy(NAMESPACES);
    of_consumer(fixture, "created-for-a-buyer").await?;
    fixture.namespace("kept-from-the-manager").await?;
    label(fixture, "kept-from-the-manager", &json!({"team": "a"})).await?;

    let create = |labels: &Value, annotations: &Value| {
        Request::Create(namespace("created", labels, annotations))
    };
    manager.may(&create(&labels(), &annotations())).await?;
    manager.may(&delete("created-for-a-buyer")).await?;
    let scheduling = |value: Value| json!({"labels": {"liqo.io/scheduling-enabled": value}});
    let security = json!({"labels": {"pod-security.kubernetes.io/enforce": "restricted"}});
    for (name, metadata) in [
        ("kept-from-the-manager", scheduling(json!("true"))),
        ("kept-from-the-manager", scheduling(Value::Null)),
        (
            "kept-from-the-manager",
            json!({"annotations": {"liqo.io/tenant-condition": "Drained"}}),
        ),
        ("created-for-a-buyer", security.clone()),
        (
            "created-for-a-buyer",
            json!({"labels": {"liqo.io/tenant-policy": "buyer"}}),
        ),
    ] {
        manager.may(&change(name, &metadata)).await?;
    }

    for request in [
        create(&json!({}), &json!({})),
        create(&labels(), &json!({})),
        create(&json!({}), &annotations()),
        Request::Create(namespace("kube-created", &labels(), &annotations())),
        delete("kept-from-the-manager"),
        change("kept-from-the-manager", &security),
        change(
            "kept-from-the-manager",
            &json!({"labels": {"liqo.io/tenant-policy": "buyer"}}),
        ),
        change("kept-from-the-manager", &json!({"labels": {"team": "b"}})),
        change("kept-from-the-manager", &json!({"labels": {"team": null}})),
        change("kept-from-the-manager", &json!({"labels": {"other": "b"}})),
        change(
            "kept-from-the-manager",
            &json!({"annotations": annotations()}),
        ),
        change(
            "created-for-a-buyer",
            &json!({"annotations": {"liqo.io/managed-by-namespace-map": null}}),
        ),
        change(
            "created-for-a-buyer",
            &json!({"labels": {"liqo.io/remote-cluster-id": "other"}}),
        ),
    ] {
        manager.may_not(&administrator, &request, policy).await?;
    }
    // Kubernetes itself refuses the deletion of its own namespaces.
    manager.is_refused(&delete(LIQO), policy).await?;

    Ok(())
}

async fn the_managers_token_binds_the_roles_of_offloaded_namespaces_there_only(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    of_consumer(fixture, "bound-for-a-buyer").await?;
    fixture.namespace("bound-for-kubelets").await?;
    let (remote, local) = ("bound-for-a-buyer", "bound-for-kubelets");
    let group = |name: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": name});
    let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let kubelet = || account("liqo-tenant-seller", "seller");
    let request = |namespace: &str, name: &str, role: &str, subject: Value| {
        Request::Create(binding(namespace, name, role, subject))
    };
    for allowed in [
        request(remote, OF_MANAGER, OF_MANAGER, service_account()),
        request(remote, "liqo-tenant-buyer", OF_CONSUMER, group("buyer")),
        request(local, OF_KUBELET, OF_KUBELET, kubelet()),
    ] {
        manager.may(&allowed).await?;
    }

    for refused in [
        request(local, OF_MANAGER, OF_MANAGER, service_account()),
        request(remote, OF_MANAGER, OF_MANAGER, account(LIQO, "other")),
        request(remote, OF_MANAGER, OF_MANAGER, group("buyer")),
        request(remote, "other", OF_MANAGER, service_account()),
        request(local, "liqo-tenant-buyer", OF_CONSUMER, group("buyer")),
        request(remote, "liqo-tenant-buyer", OF_CONSUMER, group("other")),
        request(
            remote,
            "liqo-tenant-buyer",
            OF_CONSUMER,
            group("system:authenticated"),
        ),
        request(remote, "liqo-tenant-buyer", OF_CONSUMER, kubelet()),
        request(local, "other", OF_KUBELET, kubelet()),
        request(local, OF_KUBELET, OF_KUBELET, group("system:authenticated")),
        request(local, OF_KUBELET, OF_KUBELET, account(LIQO, MANAGER)),
        request(
            local,
            OF_KUBELET,
            OF_KUBELET,
            account("kube-system", "default"),
        ),
        request(LIQO, OF_KUBELET, OF_KUBELET, kubelet()),
        request("kube-system", OF_KUBELET, OF_KUBELET, kubelet()),
    ] {
        let policy = Refusal::Policy(BINDINGS);
        manager.is_refused(&refused, policy).await?;
        // The policy applies to all users.
        administrator.is_refused(&refused, policy).await?;
    }
    for (namespace, role) in [(remote, "cluster-admin"), (local, "edit")] {
        let request = request(namespace, "other", role, kubelet());
        manager
            .may_not(&administrator, &request, Refusal::Rbac)
            .await?;
    }

    Ok(())
}

async fn the_roles_of_further_kinds_are_bound_like_those_beside_them(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    of_consumer(fixture, "extra-of-a-buyer").await?;
    fixture.namespace("extra-of-kubelets").await?;
    let (remote, local) = ("extra-of-a-buyer", "extra-of-kubelets");
    let group = |name: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": name});
    let kubelet =
        || json!({"kind": "ServiceAccount", "name": "seller", "namespace": "liqo-tenant-seller"});
    let request = |namespace: &str, role: &str, subject: Value| {
        Request::Create(binding(namespace, role, role, subject))
    };
    for allowed in [
        request(remote, OF_CONSUMER_EXTRA, group("buyer")),
        request(local, OF_KUBELET_EXTRA, kubelet()),
    ] {
        manager.may(&allowed).await?;
    }

    for refused in [
        request(local, OF_CONSUMER_EXTRA, group("buyer")),
        request(remote, OF_CONSUMER_EXTRA, group("other")),
        request(remote, OF_CONSUMER_EXTRA, kubelet()),
        request(local, OF_KUBELET_EXTRA, group("system:authenticated")),
        request(LIQO, OF_KUBELET_EXTRA, kubelet()),
        Request::Create(binding(local, "other", OF_KUBELET_EXTRA, kubelet())),
    ] {
        let policy = Refusal::Policy(BINDINGS);
        manager.is_refused(&refused, policy).await?;
        administrator.is_refused(&refused, policy).await?;
    }

    Ok(())
}

/// A user has removed the label `liqo.io/managed` from the objects, which have a ShadowEndpointSlice as owner.
async fn the_managers_token_repairs_endpoint_slices_of_consumers_there_only(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    let client = fixture.control_plane.client().await?;
    let (remote, local) = ("endpoints-of-a-buyer", "endpoints-of-a-user");
    of_consumer(fixture, remote).await?;
    fixture.namespace(local).await?;

    for namespace in [remote, local] {
        let shadow = json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "ShadowEndpointSlice",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"template": {"addressType": "IPv4"}},
        });
        manifest::apply(&client, &[shadow], None).await?;
        let shadows: Api<ShadowEndpointSlice> = Api::namespaced(client.clone(), namespace);
        let metadata = json!({
            "name": "web",
            "namespace": namespace,
            "ownerReferences": [{
                "apiVersion": "offloading.liqo.io/v1beta1",
                "kind": "ShadowEndpointSlice",
                "name": "web",
                "uid": shadows.get("web").await?.metadata.uid,
                "controller": true,
            }],
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": "IPv4",
            "endpoints": [],
        });
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"port": 80}]},
        });
        manifest::apply(&client, &[slice, service], None).await?;
        for kind in ["EndpointSlice", "Service"] {
            let change = Request::Merge {
                kind,
                namespace: Some(namespace.to_owned()),
                name: "web".to_owned(),
                subresource: None,
                patch: json!({"metadata": {"labels": {"liqo.io/managed": "true"}}}),
            };
            let delete = Request::Delete {
                kind,
                namespace: Some(namespace.to_owned()),
                name: "web".to_owned(),
            };
            for request in [change, delete] {
                if namespace == remote && kind == "EndpointSlice" {
                    manager.may(&request).await?;
                } else {
                    let policy = Refusal::Policy(SERVICES);
                    manager.may_not(&administrator, &request, policy).await?;
                }
            }
        }
    }

    Ok(())
}
