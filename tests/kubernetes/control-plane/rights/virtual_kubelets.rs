//! Tests of the limits for the ServiceAccounts of virtual kubelets.

use super::attack::{Refusal, Request, User};
use super::{RBAC, administrator, binding, label};
use crate::fixture::{Fixture, Suite, parallel};
use anyhow::Result;
use kubernetes_lab::manifest;
use serde_json::json;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(suite, a_virtual_kubelet_changes_pods_of_its_node_only);
}

async fn a_virtual_kubelet_changes_pods_of_its_node_only(fixture: &'static Fixture) -> Result<()> {
    const NAMESPACE: &str = "pods-of-two-nodes";
    const NODE: &str = "frontier";

    let administrator = administrator(fixture).await?;
    let client = fixture.namespace(NAMESPACE).await?;
    label(
        fixture,
        NAMESPACE,
        &json!({"liqo.io/tenant-namespace": "true"}),
    )
    .await?;
    let account = json!({"kind": "ServiceAccount", "name": NODE, "namespace": NAMESPACE});
    let pod = |name: &str, node: Option<&str>| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "web", "image": "web"}],
                "nodeName": node,
                "schedulerName": "none",
            },
        })
    };
    let objects = [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NODE, "namespace": NAMESPACE},
        }),
        binding(
            NAMESPACE,
            "tenant",
            "liqo-virtual-kubelet-tenant",
            account.clone(),
        ),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "pods-of-two-nodes"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "liqo-virtual-kubelet-local"},
            "subjects": [account],
        }),
        // All rights in one namespace, as of programs that deploy others.
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "deployer", "namespace": NAMESPACE},
        }),
        binding(
            NAMESPACE,
            "deployer",
            "cluster-admin",
            json!({"kind": "ServiceAccount", "name": "deployer", "namespace": NAMESPACE}),
        ),
        pod("own", Some(NODE)),
        pod("of-another", Some("node-1")),
        pod("of-none", None),
    ];
    manifest::apply(&client, &objects, None).await?;
    let kubelet = User(fixture.control_plane.client_of(NAMESPACE, NODE).await?);
    let requests = |name: &str| {
        let (namespace, name) = (Some(NAMESPACE.to_owned()), name.to_owned());
        let change = Request::Merge {
            kind: "Pod",
            namespace: namespace.clone(),
            name: name.clone(),
            subresource: Some("status"),
            patch: json!({"metadata": {"labels": {"app": "a"}}, "status": {"phase": "Failed"}}),
        };
        let delete = Request::Delete {
            kind: "Pod",
            namespace,
            name,
        };
        [change, delete]
    };

    for request in requests("own") {
        kubelet.may(&request).await?;
    }
    let deployer = User(
        fixture
            .control_plane
            .client_of(NAMESPACE, "deployer")
            .await?,
    );
    for request in requests("of-another") {
        deployer.may(&request).await?;
    }
    let policy = Refusal::Policy("liqo-virtual-kubelet-objects");
    for request in ["of-another", "of-none"].iter().flat_map(|it| requests(it)) {
        kubelet.may_not(&administrator, &request, policy).await?;
    }

    Ok(())
}
