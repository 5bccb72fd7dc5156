//! Tests of the provider's limits for consumers, and of the policy about cluster IDs.

use crate::authentication::site::Site;
use crate::authentication::tenant;
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, parallel, serial, until};
use crate::rights::attack::{Refusal, Request, User};
use anyhow::{Result, ensure};
use control_api::{ResourceSlice, Tenant};
use control_credentials::{ClusterKey, KeyType, Subject, request};
use k8s_openapi::ByteString;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use kubernetes_lab::manifest;
use kubernetes_lab::pki;
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_tenant_policy_is_checked_by_the_api_server,
        neither_consumers_nor_peering_users_nor_owners_of_namespaces_write_tenant_policies,
        cluster_ids_of_label_object_and_namespace_are_equal,
        label_and_cluster_id_of_a_tenant_are_fixed,
    );
    serial!(
        suite,
        a_policy_bounds_the_slices_of_a_consumer_and_a_refused_tenant_has_a_condition,
    );
}

const GROUP: &str = "authentication.liqo.io/v1beta1";
const RBAC: &str = "rbac.authorization.k8s.io";
const CLUSTER_IDS: &str = "liqo-cluster-ids";

fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": GROUP,
        "kind": "TenantPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

/// Returns the objects of a kind of `authentication.liqo.io`.
fn api(client: &Client, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("authentication.liqo.io", "v1beta1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Creates an object as a dry run. Returns the message of a refusal, or an empty text.
async fn dry_run(client: &Client, object: &Value) -> Result<String> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let plural = match kind {
        "TenantPolicy" => "tenantpolicies",
        "Identity" => "identities",
        "Tenant" => "tenants",
        _ => "resourceslices",
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let api = api(client, kind, plural, text("namespace"));
    match api.create(&params, &object).await {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
    }
}

async fn a_tenant_policy_is_checked_by_the_api_server(fixture: &'static Fixture) -> Result<()> {
    let client = fixture.control_plane.client().await?;
    let whole = json!({
        "podSecurity": "restricted",
        "serviceAccounts": ["builder"],
        "runtimeClasses": [],
        "priorityClasses": ["batch.low"],
        "namespaces": {"max": 3, "allowedNames": ["rome-*"], "deniedNames": ["rome-admin"]},
        "objects": {"services": 0, "ingresses.networking.k8s.io": 7},
        "endpointCIDRs": ["10.0.0.0/8", "fd00::/8"],
        "ingressHosts": ["*.rome.example"],
        "serviceTypes": ["ClusterIP"],
        "resources": {"cpu": 4, "memory": "1.5Gi", "example.com/gpu": "1e1"},
    });
    for (name, spec) in [("default", json!({})), ("rome", whole.clone())] {
        let message = dry_run(&client, &policy(LIQO, name, &spec)).await?;
        ensure!(message.is_empty(), "{name}: {message}");
    }

    for (path, value) in [
        ("podSecurity", json!("none")),
        ("serviceAccounts", json!(["Builder"])),
        ("runtimeClasses", json!("gvisor")),
        ("priorityClasses", json!(["a", "a"])),
        ("namespaces.max", json!(-1)),
        ("namespaces.allowedNames", json!(["rome_*"])),
        ("namespaces.deniedNames", json!([""])),
        ("objects.services", json!(-1)),
        ("endpointCIDRs", json!(["10.0.0.0/33"])),
        ("endpointCIDRs", json!(["10.0.0.1"])),
        ("ingressHosts", json!(["https://rome.example"])),
        ("serviceTypes", json!(["Node"])),
        ("resources.cpu", json!("-1")),
        ("resources.cpu", json!(-1)),
        ("resources.cpu", json!("lots")),
        ("resources.cpu", json!(true)),
    ] {
        let mut spec = whole.clone();
        match path.split_once('.') {
            Some((parent, child)) => spec[parent][child] = value.clone(),
            None => spec[path] = value.clone(),
        }
        let message = dry_run(&client, &policy(LIQO, "rome", &spec)).await?;
        let field = path.split('.').next().unwrap_or(path);
        ensure!(
            message.contains(&format!("spec.{field}")),
            "{path} {value}: {message}"
        );
    }
    for name in ["Rome", "rome.example", &"a".repeat(64)] {
        let message = dry_run(&client, &policy(LIQO, name, &whole)).await?;
        ensure!(message.contains("metadata.name"), "{name}: {message}");
    }
    Ok(())
}

async fn neither_consumers_nor_peering_users_nor_owners_of_namespaces_write_tenant_policies(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = fixture.control_plane.client().await?;
    let tenant = "tenant-of-a-policy";
    of_peer(fixture, tenant, "policed").await?;
    let bind = |namespace: &str, kind: &str, role: &str, user: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        })
    };
    let bindings = [
        bind(tenant, "ClusterRole", "liqo-remote-controlplane", "policed"),
        bind(
            tenant,
            "ClusterRole",
            "liqo-peering-user-tenant-ns",
            "policed-user",
        ),
        bind(LIQO, "Role", "liqo-peering-user-liqo-ns", "policed-user"),
        bind(tenant, "ClusterRole", "admin", "policed-owner"),
    ];
    manifest::apply(&administrator, &bindings, None).await?;

    let open = json!({"podSecurity": "privileged"});
    let names = ["policed", "default"];
    for name in names {
        let message = dry_run(&administrator, &policy(LIQO, name, &open)).await?;
        ensure!(message.is_empty(), "{message}");
        // Elsewhere, it would have no effect.
        let message = dry_run(&administrator, &policy(tenant, name, &open)).await?;
        ensure!(message.contains("liqo-tenant-policies"), "{message}");
    }
    for (user, group) in [
        ("policed", "liqo.io"),
        ("policed-user", "liqo.io"),
        ("policed-owner", "policed"),
    ] {
        let subject = pki::Subject {
            user,
            group: Some(group),
        };
        let attacker = fixture.control_plane.client_as(subject).await?;
        for (name, namespace) in names.iter().flat_map(|name| [(name, LIQO), (name, tenant)]) {
            let message = dry_run(&attacker, &policy(namespace, name, &open)).await?;
            ensure!(
                message.contains("cannot create resource \"tenantpolicies\""),
                "{user}: {message}"
            );
            let policies = api(&attacker, "TenantPolicy", "tenantpolicies", namespace);
            let patch = Patch::Merge(json!({"spec": open}));
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::default()
            };
            let patched = policies.patch(name, &params, &patch).await;
            let Err(kube::Error::Api(status)) = patched else {
                anyhow::bail!("{user} has patched {namespace}/{name}");
            };
            ensure!(status.code == 403, "{user}: {status:?}");
        }
    }
    Ok(())
}

/// Returns an object of a peer with this label and this cluster ID; `None` leaves them out.
fn object(kind: &str, namespace: &str, label: Option<&str>, id: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": GROUP,
        "kind": kind,
        "metadata": {"name": "ids", "namespace": namespace, "labels": {}},
        "spec": {},
    });
    if let Some(label) = label {
        object["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!(label);
    }
    if let Some(id) = id {
        object["spec"]["clusterID"] = json!(id);
    }
    object
}

async fn cluster_ids_of_label_object_and_namespace_are_equal(
    fixture: &'static Fixture,
) -> Result<()> {
    let client = fixture.control_plane.client().await?;
    let (tenant, other) = ("tenant-of-ids", "no-tenant-of-ids");
    of_peer(fixture, tenant, "ids").await?;
    fixture.namespace(other).await?;
    for kind in ["Tenant", "Identity"] {
        // Upstream's objects, those that lack the label, and those of a namespace without label.
        for object in [
            object(kind, tenant, Some("ids"), Some("ids")),
            object(kind, tenant, None, Some("ids")),
            object(kind, other, Some("other"), Some("other")),
        ] {
            let message = dry_run(&client, &object).await?;
            ensure!(message.is_empty(), "{object}: {message}");
        }
        for object in [
            object(kind, tenant, Some("other"), Some("ids")),
            object(kind, tenant, Some("ids"), Some("other")),
            object(kind, tenant, Some("other"), Some("other")),
            object(kind, tenant, None, Some("other")),
            object(kind, other, Some("a"), Some("b")),
        ] {
            until(Deadline::after(SOON), "the policy", async || {
                let message = dry_run(&client, &object).await?;
                ensure!(message.contains(CLUSTER_IDS), "{object}: {message}");
                Ok(())
            })
            .await?;
        }
    }
    let slice = |label| object("ResourceSlice", tenant, Some(label), None);
    let message = dry_run(&client, &slice("other")).await?;
    ensure!(message.contains(CLUSTER_IDS), "{message}");
    let message = dry_run(&client, &slice("ids")).await?;
    ensure!(message.is_empty(), "{message}");
    Ok(())
}

async fn label_and_cluster_id_of_a_tenant_are_fixed(fixture: &'static Fixture) -> Result<()> {
    let client = fixture.control_plane.client().await?;
    let (tenant, other) = ("tenant-of-fixed-ids", "no-tenant-of-fixed-ids");
    of_peer(fixture, tenant, "ids").await?;
    fixture.namespace(other).await?;
    let administrator = User(client.clone());
    let merge = |namespace: &str, patch: Value| Request::Merge {
        kind: "Tenant",
        namespace: Some(namespace.to_owned()),
        name: "ids".to_owned(),
        subresource: None,
        patch,
    };
    let label = |value: Value| {
        let labels = json!({"liqo.io/remote-cluster-id": value});
        merge(tenant, json!({"metadata": {"labels": labels}}))
    };
    let refusal = Refusal::Policy(CLUSTER_IDS);

    // A missing label can be added. Neither the label nor the cluster ID can be changed or removed.
    let present = object("Tenant", tenant, None, Some("ids"));
    manifest::apply(&client, &[present], None).await?;
    administrator.may(&label(json!("ids"))).await?;
    administrator
        .is_refused(&label(json!("other")), refusal)
        .await?;
    let labelled = object("Tenant", tenant, Some("ids"), Some("ids"));
    manifest::apply(&client, &[labelled], None).await?;
    for request in [
        label(Value::Null),
        label(json!("other")),
        merge(tenant, json!({"spec": {"clusterID": null}})),
    ] {
        administrator.is_refused(&request, refusal).await?;
    }

    // An object that differs already can be changed otherwise, so that its deletion ends.
    let stale = object("Tenant", other, None, Some("other"));
    manifest::apply(&client, &[stale], None).await?;
    let labels = json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "ids"});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other, "labels": labels},
    });
    manifest::apply(&client, &[namespace], None).await?;
    let finalizers = json!({"metadata": {"finalizers": ["liqo.io/test"]}});
    administrator.may(&merge(other, finalizers)).await
}

/// Creates the tenant namespace of a peer.
async fn of_peer(fixture: &Fixture, namespace: &str, peer: &str) -> Result<()> {
    fixture.namespace(namespace).await?;
    let labels = json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer});
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
    });
    manifest::apply(&fixture.control_plane.client().await?, &[object], None).await
}

async fn a_policy_bounds_the_slices_of_a_consumer_and_a_refused_tenant_has_a_condition(
    _: &'static Fixture,
) -> Result<()> {
    let milan = Site::start("milan", "rome", &[]).await?;
    let key = ClusterKey::generate(KeyType::Ed25519, [3; 32])?;
    // Before there is a nonce, the condition says so. It ends when the Tenant is accepted.
    milan.apply(&tenant(&key, &key.sign(b"no nonce")?)?).await?;
    let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), &milan.tenant_namespace());
    until(Deadline::after(SOON), "the condition", async || {
        let status = json!(tenants.get("rome").await?.status);
        ensure!(
            status["conditions"][0]["reason"] == "NonceNotFound",
            "{status}"
        );
        Ok(())
    })
    .await?;
    let nonce = milan.nonce().await?;
    milan.apply(&tenant(&key, &key.sign(&nonce)?)?).await?;
    let status = milan.status().await?;
    ensure!(status["conditions"].is_null(), "{status}");

    milan
        .apply(&policy(LIQO, "rome", &json!({"resources": {"cpu": 6}})))
        .await?;
    for name in ["first", "second"] {
        let subject = Subject::resource_slice("rome", name);
        let csr = ByteString(request::create(&key, &subject)?.into_bytes());
        let labels = json!({
            "liqo.io/originID": "rome", "liqo.io/remote-cluster-id": "rome",
            "liqo.io/replicated": "true", "liqo.io/replication": "false",
        });
        let metadata =
            json!({"name": name, "namespace": milan.tenant_namespace(), "labels": labels});
        let slice = json!({
            "apiVersion": GROUP,
            "kind": "ResourceSlice",
            "metadata": metadata,
            "spec": {"class": "default", "consumerClusterID": "rome", "csr": csr, "resources": {"cpu": "4"}},
        });
        milan.apply(&slice).await?;
    }
    // Two that are created in the same second are ordered by their names.
    verdicts(&milan, "Accepted", "Denied").await?;
    milan
        .apply(&policy(LIQO, "rome", &json!({"resources": {"cpu": 8}})))
        .await?;
    verdicts(&milan, "Accepted", "Accepted").await
}

/// Waits for the verdicts about the resources of both ResourceSlices.
async fn verdicts(milan: &Site, first: &str, second: &str) -> Result<()> {
    let slices: Api<ResourceSlice> =
        Api::namespaced(milan.client.clone(), &milan.tenant_namespace());
    for (name, expected) in [("first", first), ("second", second)] {
        until(Deadline::after(SOON), "the verdict", async || {
            let status = json!(slices.get(name).await?.status);
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let resources = conditions.iter().find(|it| it["type"] == "Resources");
            let verdict = resources.cloned().unwrap_or_default();
            ensure!(verdict["status"] == expected, "{name}: {status}");
            let message = verdict["message"].as_str().unwrap_or_default();
            ensure!(
                expected == "Accepted"
                    || message.contains("TenantPolicy rome permits: 2 is left of 6"),
                "{message}"
            );
            Ok(())
        })
        .await?;
    }
    Ok(())
}
