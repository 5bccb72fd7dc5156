//! States of a peering of which there are no golden objects. The expected fields are written from upstream's specification:
//! the bytes between clusters (Tenants, ResourceSlices, replication) and the summary of a peer.
//!
//! ```text
//! rome   RSA key; as a provider it grants nothing of the default class (Denied)
//! milan  is reached through its proxy only (in-band), and decides about its consumer (Cordoned, Drained, Active)
//! then   milan consumes from rome too (bidirectional); in the end a Tenant without handshake (TolerateNoHandshake)
//! ```

use super::liqoctl::{Liqoctl, decoded};
use super::rest::Rest;
use super::{is_clean, liqoctl, until_gone};
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::proxy::Proxy;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// A field of an object: the cluster whose object it is, kind and name, the path, and the value; null if it is absent.
type Field = (
    &'static str,
    (&'static str, &'static str),
    &'static str,
    Value,
);

const ROME: &str = "rome";
const MILAN: &str = "milan";

/// The Quota of `milan`'s consumer.
const QUOTA: (&str, &str) = ("Quota", "milan-a8a4c692b93b");

pub(super) async fn states_without_golden_objects_are_as_written(
    _: &'static Fixture,
) -> Result<()> {
    let arguments = [
        "--tls-compatibility-mode",
        "--default-resource-slice-class-enabled=false",
    ];
    let rome = Site::start("rome", "milan", &arguments).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    let proxy = Proxy::start(milan.server()).await?;
    let url = format!("http://{}", proxy.address);
    let sites = Sites {
        rome: &rome,
        milan: &milan,
    };
    let mut upstream = liqoctl(&rome, &milan);
    upstream.proxy = Some(url.clone());

    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    sites.are("in-band", &in_band(&url)).await?;
    sites.has_rsa_key().await?;
    states(&sites, &upstream).await?;
    bidirectional(&sites, &upstream).await?;
    is_clean(&rome, &milan).await?;

    tolerated(&sites).await
}

fn in_band(url: &str) -> Vec<Field> {
    let proxy = |kind, path| (MILAN, kind, path, json!(url));
    vec![
        proxy(("Tenant", ROME), "/spec/proxyURL"),
        proxy(("Tenant", ROME), "/status/authParams/proxyURL"),
        proxy(("ResourceSlice", MILAN), "/status/authParams/proxyURL"),
        proxy(
            ("Renew", "controlplane-milan"),
            "/status/authParams/proxyURL",
        ),
        (
            ROME,
            ("Identity", "controlplane-milan"),
            "/spec/authParams/proxyURL",
            json!(url),
        ),
        (
            ROME,
            ("Identity", "resourceslice-milan"),
            "/spec/authParams/proxyURL",
            json!(url),
        ),
        (
            ROME,
            ("ForeignCluster", MILAN),
            "/status/foreignProxyUrl",
            json!(url),
        ),
        (
            ROME,
            ("ForeignCluster", MILAN),
            "/status/role",
            json!("Provider"),
        ),
        (
            MILAN,
            ("ForeignCluster", ROME),
            "/status/foreignProxyUrl",
            Value::Null,
        ),
    ]
}

/// Cordons, drains and activates the Tenant, as upstream's `liqoctl` does.
async fn states(sites: &Sites<'_>, upstream: &Liqoctl) -> Result<()> {
    sites.set_condition(upstream, "Cordoned").await?;
    sites.are("Cordoned", &cordoned()).await?;
    // A request of a cordoned Tenant that has no verdict yet.
    let slice = json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "extra",
            "namespace": "liqo-tenant-milan",
            "labels": {
                "liqo.io/remote-cluster-id": MILAN,
                "liqo.io/remoteID": MILAN,
                "liqo.io/replication": "true",
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": "default", "providerClusterID": MILAN},
    });
    upstream.consumer.rest.create(&slice).await?;
    let extra = ("ResourceSlice", "extra");
    let denied = (
        "ResourceSliceResourcesDenied",
        "ResourceSlice resources denied",
    );
    sites
        .are("Cordoned, another slice", &verdicts(ROME, extra, denied))
        .await?;
    let [quotas, nodes] = [(MILAN, "Quota"), (ROME, "VirtualNode")];
    ensure!(sites.names(quotas).await? == [QUOTA.1]);
    ensure!(sites.names(nodes).await? == [MILAN]);

    sites.set_condition(upstream, "Drained").await?;
    sites.are("Drained", &drained()).await?;
    for kind in ["ResourceSlice", "Quota", "RoleBinding"] {
        let selector = match kind {
            "RoleBinding" => "app.kubernetes.io/managed-by=liqo",
            _ => "",
        };
        until_gone(&upstream.provider.rest, kind, "liqo-tenant-rome", selector).await?;
    }
    let bindings = "app.kubernetes.io/managed-by=liqo";
    until_gone(&upstream.provider.rest, "ClusterRoleBinding", "", bindings).await?;

    sites.set_condition(upstream, "Active").await?;
    let accepted = (
        "ResourceSliceResourcesAccepted",
        "ResourceSlice resources accepted",
    );
    for name in [MILAN, "extra"] {
        let fields = verdicts(ROME, ("ResourceSlice", name), accepted);
        sites.are("Active", &fields).await?;
    }
    sites
        .are("Active", &[(MILAN, QUOTA, "/spec/cordoned", Value::Null)])
        .await
}

fn cordoned() -> Vec<Field> {
    let slice = ("ResourceSlice", MILAN);
    let accepted = (
        "ResourceSliceResourcesAccepted",
        "ResourceSlice resources accepted",
    );
    let mut fields = verdicts(MILAN, slice, accepted);
    let annotation = "/metadata/annotations/liqo.io~1cordon-tenant";
    fields.extend([
        (
            MILAN,
            ("Tenant", ROME),
            "/spec/tenantCondition",
            json!("Cordoned"),
        ),
        (MILAN, slice, annotation, json!("true")),
        (MILAN, QUOTA, "/spec/cordoned", json!(true)),
        (ROME, slice, annotation, Value::Null),
    ]);
    fields.extend(authentication(MILAN, ROME, &[TENANT]));
    fields
}

fn drained() -> Vec<Field> {
    let condition = |index, field, value: &str| {
        let path = match (index, field) {
            (1, "status") => "/status/conditions/1/status",
            (1, "reason") => "/status/conditions/1/reason",
            _ => "/status/conditions/1/type",
        };
        (ROME, ("ResourceSlice", MILAN), path, json!(value))
    };
    let mut fields = vec![
        (
            MILAN,
            ("Tenant", ROME),
            "/spec/tenantCondition",
            json!("Drained"),
        ),
        condition(1, "type", "Resources"),
        condition(1, "status", "Denied"),
        condition(1, "reason", "ReplicationForbidden"),
    ];
    fields.extend(authentication(ROME, MILAN, &[IDENTITY_NOT_READY]));
    fields
}

/// `milan` consumes from `rome` too, which grants nothing. Each direction ends by itself.
async fn bidirectional(sites: &Sites<'_>, upstream: &Liqoctl) -> Result<()> {
    let reverse = liqoctl(sites.milan, sites.rome);
    ensure!(reverse.peer().await? == ["Accepted", "Denied"]);
    let disabled = (
        "DefaultResourceSliceClassDisabled",
        "the default ResourceSlice class has been administratively disabled on the provider",
    );
    let mut fields = verdicts(MILAN, ("ResourceSlice", ROME), disabled);
    for (cluster, peer) in [(ROME, MILAN), (MILAN, ROME)] {
        let summary = ("ForeignCluster", peer);
        fields.push((
            cluster,
            summary,
            "/status/role",
            json!("ConsumerAndProvider"),
        ));
        fields.extend(authentication(cluster, peer, &[TENANT, IDENTITY]));
    }
    sites.are("bidirectional", &fields).await?;
    // The certificate is issued whatever the verdict about the resources.
    let issued = ("Identity", "resourceslice-rome");
    let kind = (MILAN, issued, "/spec/type", json!("ResourceSlice"));
    sites.are("Denied", &[kind]).await?;
    ensure!(sites.names((MILAN, "VirtualNode")).await?.is_empty());

    upstream.unpeer().await?;
    let mut fields = vec![
        (
            ROME,
            ("ForeignCluster", MILAN),
            "/status/role",
            json!("Consumer"),
        ),
        (
            MILAN,
            ("ForeignCluster", ROME),
            "/status/role",
            json!("Provider"),
        ),
    ];
    fields.extend(authentication(ROME, MILAN, &[TENANT]));
    fields.extend(authentication(MILAN, ROME, &[IDENTITY]));
    sites.are("the reverse direction alone", &fields).await?;

    reverse.unpeer().await
}

/// A Tenant whose consumer has credentials of another kind: no certificate, and no rights in the tenant namespace.
async fn tolerated(sites: &Sites<'_>) -> Result<()> {
    let rest = Rest::new(sites.milan.client.clone(), "kubectl");
    rest.create(&json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Tenant",
        "metadata": {
            "name": ROME,
            "namespace": "liqo-tenant-rome",
            "labels": {"liqo.io/remote-cluster-id": ROME},
        },
        "spec": {"clusterID": ROME, "authzPolicy": "TolerateNoHandshake"},
    }))
    .await?;
    let tenant = ("Tenant", ROME);
    let wide = (
        "ClusterRoleBinding",
        "liqo-binding-liqo-virtual-kubelet-remote-clusterwide-rome",
    );
    let mut fields = vec![
        (
            MILAN,
            tenant,
            "/status",
            json!({"tenantNamespace": "liqo-tenant-rome"}),
        ),
        (MILAN, wide, "/subjects/0/kind", json!("Group")),
        (MILAN, wide, "/subjects/0/name", json!(ROME)),
        (
            MILAN,
            ("ForeignCluster", ROME),
            "/status/role",
            json!("Consumer"),
        ),
    ];
    fields.extend(authentication(MILAN, ROME, &[TENANT]));
    sites.are("TolerateNoHandshake", &fields).await?;
    let bindings = "app.kubernetes.io/managed-by=liqo";
    let bindings = rest
        .list("RoleBinding", "liqo-tenant-rome", bindings)
        .await?;
    ensure!(bindings.is_empty(), "{bindings:?}");

    Ok(())
}

type Condition = (&'static str, &'static str, &'static str, &'static str);

const TENANT: Condition = (
    "AuthTenantStatus",
    "Ready",
    "TenantReady",
    "The tenant has been successfully configured",
);
const IDENTITY: Condition = (
    "AuthIdentityControlPlaneStatus",
    "Ready",
    "IdentityReady",
    "The identity has been successfully configured",
);
const IDENTITY_NOT_READY: Condition = (
    "AuthIdentityControlPlaneStatus",
    "NotReady",
    "IdentityNotReady",
    "The identity is not correctly configured",
);

/// Returns the authentication module of a ForeignCluster.
fn authentication(cluster: &'static str, peer: &'static str, expected: &[Condition]) -> [Field; 1] {
    let conditions = expected.iter().map(|(type_, status, reason, message)| {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    });
    let module = json!({"enabled": true, "conditions": Value::from_iter(conditions)});

    [(
        cluster,
        ("ForeignCluster", peer),
        "/status/modules/authentication",
        module,
    )]
}

/// Returns the conditions of a ResourceSlice whose request is authenticated.
fn verdicts(
    cluster: &'static str,
    slice: (&'static str, &'static str),
    (reason, message): (&str, &str),
) -> Vec<Field> {
    let status = match reason {
        "ResourceSliceResourcesAccepted" => "Accepted",
        _ => "Denied",
    };
    let conditions = json!([
        {
            "type": "Authentication",
            "status": "Accepted",
            "reason": "ResourceSliceAuthenticationAccepted",
            "message": "ResourceSlice authentication accepted",
        },
        {"type": "Resources", "status": status, "reason": reason, "message": message},
    ]);
    vec![(cluster, slice, "/status/conditions", conditions)]
}

struct Sites<'a> {
    rome: &'a Site,
    milan: &'a Site,
}

impl Sites<'_> {
    fn site(&self, cluster: &str) -> &Site {
        if cluster == ROME {
            self.rome
        } else {
            self.milan
        }
    }

    fn rest(&self, cluster: &str) -> Rest {
        Rest::new(self.site(cluster).client.clone(), "kubectl")
    }

    /// Waits until the objects have these fields.
    async fn are(&self, state: &str, fields: &[Field]) -> Result<()> {
        for (cluster, (kind, name), path, expected) in fields {
            let (site, rest) = (self.site(cluster), self.rest(cluster));
            let namespace = match *kind {
                "ForeignCluster" | "ClusterRoleBinding" => String::new(),
                _ => site.tenant_namespace(),
            };
            let what = format!("{state}: {path} of {kind} {name} in {cluster}");
            until(Deadline::after(SOON), &what, async || {
                let object = rest.get(kind, &namespace, name).await?;
                let found = object.pointer(path).map(without_times).unwrap_or_default();
                ensure!(found == *expected, "{found}, not {expected}");
                Ok(())
            })
            .await?;
        }

        Ok(())
    }

    async fn names(&self, (cluster, kind): (&str, &str)) -> Result<Vec<String>> {
        let namespace = self.site(cluster).tenant_namespace();
        let objects = self.rest(cluster).list(kind, &namespace, "").await?;
        let names = objects.iter().map(|it| it["metadata"]["name"].as_str());

        Ok(names.flatten().map(str::to_owned).collect())
    }

    /// Asserts that the key of `rome` is RSA, in its Secret, in the Tenant and in both requests.
    async fn has_rsa_key(&self) -> Result<()> {
        const BITS: usize = 2048;
        let keys = self
            .rest(ROME)
            .get("Secret", "liqo", "authentication-keys")
            .await?;
        let tenant = self
            .rest(MILAN)
            .get("Tenant", "liqo-tenant-rome", ROME)
            .await?;
        ensure!(tenant["spec"]["publicKey"] == keys["data"]["publicKey"]);
        ensure!(decoded(&tenant["spec"]["signature"])?.len() == BITS / 8);
        let text = String::from_utf8(decoded(&keys["data"]["publicKey"])?)?;
        let key = control_credentials::PublicKey::from_bytes(text.as_bytes())?;
        // rsaEncryption, without parameters but NULL (RFC 8017).
        let algorithm = [
            0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
        ];
        let der = key.to_der();
        ensure!(
            der.windows(algorithm.len()).any(|it| it == algorithm),
            "{text}"
        );

        Ok(())
    }

    /// Sets the condition of the Tenant, as upstream's `liqoctl` does.
    async fn set_condition(&self, upstream: &Liqoctl, condition: &str) -> Result<()> {
        let rest = &upstream.provider.rest;
        let tenants = rest.list("Tenant", "", "").await?;
        let tenant = tenants
            .into_iter()
            .find(|it| it["metadata"]["name"] == ROME);
        let mut tenant = tenant.context("no Tenant")?;
        tenant["spec"]["tenantCondition"] = json!(condition);
        rest.update(&tenant).await?;

        Ok(())
    }
}

/// Returns a value without the times of conditions.
fn without_times(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(key, _)| *key != "lastTransitionTime");
            Value::Object(
                fields
                    .map(|(key, it)| (key.clone(), without_times(it)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_times).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
