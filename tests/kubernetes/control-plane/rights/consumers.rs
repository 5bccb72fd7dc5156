//! Tests of the limits for the rights of consumers, and for tokens in the namespaces of peers.

use super::attack::{Refusal, Request, User};
use super::{RBAC, administrator, binding, label, manager};
use crate::fixture::{Fixture, Suite, parallel};
use anyhow::Result;
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        the_managers_token_binds_the_roles_of_consumers_to_them_only,
        a_secret_gives_no_token_of_a_service_account_in_the_namespace_of_a_peer,
        a_consumer_writes_neither_quotas_nor_virtual_nodes_nor_what_the_provider_grants,
    );
}

/// The names of the ValidatingAdmissionPolicies.
const BINDINGS: &str = "liqo-consumer-bindings";
const TOKENS: &str = "liqo-consumer-tokens";

/// The ClusterRoles of consumers.
const CONTROL_PLANE: &str = "liqo-remote-controlplane";
const CLUSTER_WIDE: &str = "liqo-virtual-kubelet-remote-clusterwide";

async fn the_managers_token_binds_the_roles_of_consumers_to_them_only(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    let tenant = "tenant-of-a-consumer";
    of_peer(fixture, tenant, "consumer").await?;
    fixture.namespace("of-no-consumer").await?;
    let name = format!("liqo-binding-{CONTROL_PLANE}");
    let of_namespace = |namespace: &str, name: &str, user: &str| {
        let subject = json!({"apiGroup": RBAC, "kind": "User", "name": user});
        Request::Create(binding(namespace, name, CONTROL_PLANE, subject))
    };
    let policy = Refusal::Policy(BINDINGS);

    manager
        .may(&of_namespace(tenant, &name, "consumer"))
        .await?;
    for request in [
        of_namespace(tenant, &name, "another"),
        of_namespace(tenant, "another", "consumer"),
    ] {
        manager.may_not(&administrator, &request, policy).await?;
    }
    // The administrator may bind the role to other users, but only in the namespaces of peers.
    let request = of_namespace("of-no-consumer", &name, "consumer");
    manager.is_refused(&request, policy).await?;
    administrator.is_refused(&request, policy).await?;

    let of_cluster = |group: &str, role: &str| {
        Request::Create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("liqo-binding-{CLUSTER_WIDE}-{group}")},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
        }))
    };
    manager.may(&of_cluster("consumer", CLUSTER_WIDE)).await?;
    for request in [
        of_cluster("system:authenticated", CLUSTER_WIDE),
        of_cluster("consumer", CONTROL_PLANE),
    ] {
        manager.is_refused(&request, policy).await?;
    }
    let request = of_cluster("consumer", "view");
    manager
        .may_not(&administrator, &request, Refusal::Rbac)
        .await?;
    let delete = Request::Delete {
        kind: "ClusterRoleBinding",
        namespace: None,
        name: "cluster-admin".to_owned(),
    };
    manager.may_not(&administrator, &delete, policy).await
}

async fn a_secret_gives_no_token_of_a_service_account_in_the_namespace_of_a_peer(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let tenant = "tenant-with-tokens";
    of_peer(fixture, tenant, "tokens").await?;
    let client = fixture.control_plane.client().await?;
    let subject = json!({"apiGroup": RBAC, "kind": "User", "name": "writer-of-secrets"});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "writer-of-secrets"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]}],
    });
    let bound = binding(tenant, "writer", "writer-of-secrets", subject);
    manifest::apply(&client, &[role, bound], None).await?;
    let user = "writer-of-secrets";
    let subject = Subject { user, group: None };
    let writer = User(fixture.control_plane.client_as(subject).await?);
    let secret = |type_: &str| {
        Request::Create(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "token",
                "namespace": tenant,
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
            "type": type_,
        }))
    };

    writer.may(&secret("Opaque")).await?;
    let token = secret("kubernetes.io/service-account-token");
    writer
        .may_not(&administrator, &token, Refusal::Policy(TOKENS))
        .await
}

async fn a_consumer_writes_neither_quotas_nor_virtual_nodes_nor_what_the_provider_grants(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let (tenant, user) = ("tenant-with-a-quota", "limited");
    of_peer(fixture, tenant, user).await?;
    let object = |group: &str, kind: &str, spec: Value| {
        json!({
            "apiVersion": format!("{group}.liqo.io/v1beta1"),
            "kind": kind,
            "metadata": {"name": "present", "namespace": tenant},
            "spec": spec,
        })
    };
    let present = [
        binding(
            tenant,
            &format!("liqo-binding-{CONTROL_PLANE}"),
            CONTROL_PLANE,
            json!({"apiGroup": RBAC, "kind": "User", "name": user}),
        ),
        object(
            "offloading",
            "Quota",
            json!({"user": user, "resources": {"cpu": "1"}}),
        ),
        object("offloading", "VirtualNode", json!({"clusterID": user})),
        object(
            "authentication",
            "ResourceSlice",
            json!({"class": "default"}),
        ),
    ];
    let client = fixture.control_plane.client().await?;
    manifest::apply(&client, &present, None).await?;
    let subject = Subject { user, group: None };
    let consumer = User(fixture.control_plane.client_as(subject).await?);
    let namespace = Some(tenant.to_owned());
    let kind = "ResourceSlice";
    consumer
        .may(&Request::List {
            kind,
            namespace: namespace.clone(),
        })
        .await?;

    let mut requests = vec![Request::Merge {
        kind,
        namespace: namespace.clone(),
        name: "present".to_owned(),
        subresource: Some("status"),
        patch: json!({"status": {"resources": {"cpu": "1000"}}}),
    }];
    for (kind, patch) in [
        (
            "Quota",
            json!({"spec": {"user": user, "resources": {"cpu": "1000"}}}),
        ),
        ("VirtualNode", json!({"spec": {"clusterID": "other"}})),
    ] {
        let (namespace, name) = (namespace.clone(), "present".to_owned());
        let mut created = object("offloading", kind, patch["spec"].clone());
        created["metadata"]["name"] = json!("new");
        requests.extend([
            Request::Create(created),
            Request::List {
                kind,
                namespace: namespace.clone(),
            },
            Request::Merge {
                kind,
                namespace: namespace.clone(),
                name: name.clone(),
                subresource: None,
                patch,
            },
            Request::Delete {
                kind,
                namespace,
                name,
            },
        ]);
    }
    for request in requests {
        consumer
            .may_not(&administrator, &request, Refusal::Rbac)
            .await?;
    }

    Ok(())
}

/// Creates the tenant namespace of a peer.
async fn of_peer(fixture: &Fixture, namespace: &str, peer: &str) -> Result<()> {
    fixture.namespace(namespace).await?;
    let labels: Value =
        json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer});
    label(fixture, namespace, &labels).await
}
