//! Tests of authentication: two clusters, with the requests and waits of upstream's `liqoctl authenticate`.

pub(crate) mod site;

use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, serial, until};
use crate::rights::attack::{Refusal, Request, User};
use anyhow::{Context as _, Result, ensure};
use control_api::{ForeignCluster, Identity, Tenant};
use control_credentials::{ClusterKey, KeyType, Subject, request};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use site::{Site, tenant_namespace};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_consumer_gets_its_rights_by_upstreams_requests_and_no_others,
    );
}

/// Name of the binding of a consumer's group.
const CLUSTER_WIDE: &str = "liqo-binding-liqo-virtual-kubelet-remote-clusterwide-rome";

const TENANTS: &str = "authentication.liqo.io/v1beta1";

/// The policy about the objects of consumers.
const OBJECTS: &str = "liqo-consumer-objects";

async fn a_consumer_gets_its_rights_by_upstreams_requests_and_no_others(
    _: &'static Fixture,
) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;

    // One of the manager's name with another role is not trusted.
    let bindings: Api<ClusterRoleBinding> = Api::all(milan.client.clone());
    let binding = serde_json::from_value(json!({
        "metadata": {
            "name": CLUSTER_WIDE,
            "labels": {"app.kubernetes.io/managed-by": "liqo", "liqo.io/remote-cluster-id": "rome"},
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "rome"}],
    }))?;
    bindings.create(&PostParams::default(), &binding).await?;

    let nonce = milan.nonce().await?;
    ensure!(nonce.len() == 88, "{nonce:?}");
    let key = rome.cluster_key().await?;
    let signature = rome.signature(&nonce).await?;
    key.public_key().verify(&nonce, &signature)?;
    let tenant = tenant(&key, &signature)?;
    milan.apply(&tenant).await?;
    let status = milan.status().await?;
    ensure!(
        status["tenantNamespace"] == tenant_namespace("rome"),
        "{status}"
    );
    let parameters = &status["authParams"];
    ensure!(
        parameters["apiServer"] == milan.server(),
        "{}",
        parameters["apiServer"]
    );

    let role = bindings.get(CLUSTER_WIDE).await?.role_ref.name;
    ensure!(role == "liqo-virtual-kubelet-remote-clusterwide", "{role}");

    let consumer = rome.credentials(parameters).await?;
    let user = user(&consumer).await?;
    ensure!(user.0 == "rome", "{user:?}");
    ensure!(user.1.contains(&"liqo.io".to_owned()), "{user:?}");
    rights(&User(consumer.clone()), &User(milan.client.clone())).await?;
    milan.until_summary("Consumer", "AuthTenantStatus").await?;
    rome.until_summary("Provider", "AuthIdentityControlPlaneStatus")
        .await?;

    // The same key may present the nonce again; another one is refused.
    milan.apply(&tenant).await?;
    let other = ClusterKey::generate(KeyType::Ed25519, [7; 32])?;
    let other = self::tenant(&other, &other.sign(&nonce)?)?;
    milan.delete_secret("liqo-remote-certificate").await?;
    milan.apply(&other).await?;
    milan.until_event("NonceUsed").await?;

    milan.delete_tenant().await?;
    let list = Request::List {
        kind: "ResourceSlice",
        namespace: Some(tenant_namespace("rome")),
    };
    User(consumer).is_refused(&list, Refusal::Rbac).await?;
    let labels = ListParams::default().labels("liqo.io/remote-cluster-id=rome");
    ensure!(bindings.list(&labels).await?.items.is_empty());

    Ok(())
}

/// Returns the Tenant of `rome`, as upstream's `liqoctl` writes it.
pub(crate) fn tenant(key: &ClusterKey, signature: &[u8]) -> Result<Value> {
    let csr = request::create(key, &Subject::control_plane("rome"))?;
    Ok(json!({
        "apiVersion": TENANTS,
        "kind": "Tenant",
        "metadata": {
            "name": "rome",
            "namespace": tenant_namespace("rome"),
            "labels": {"liqo.io/remote-cluster-id": "rome"},
        },
        "spec": {
            "clusterID": "rome",
            "publicKey": ByteString(key.public_key().to_pem().into_bytes()),
            "csr": ByteString(csr.into_bytes()),
            "signature": ByteString(signature.to_vec()),
        },
    }))
}

pub(crate) async fn user(client: &Client) -> Result<(String, Vec<String>)> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|status| status.user_info);
    let user = user.context("no user")?;

    Ok((
        user.username.unwrap_or_default(),
        user.groups.unwrap_or_default(),
    ))
}

/// Asserts that a consumer may write replicas of its own objects, and nothing else.
async fn rights(consumer: &User, administrator: &User) -> Result<()> {
    let slice = |namespace: &str, labels: Value| {
        Request::Create(json!({
            "apiVersion": TENANTS,
            "kind": "ResourceSlice",
            "metadata": {"name": "slice", "namespace": namespace, "labels": labels},
            "spec": {"class": "default"},
        }))
    };
    let own = tenant_namespace("rome");
    let replica = json!({
        "liqo.io/replicated": "true", "liqo.io/replication": "false", "liqo.io/originID": "rome",
    });
    consumer.may(&slice(&own, replica.clone())).await?;
    for (label, value) in [
        ("liqo.io/replicated", "false"),
        ("liqo.io/replication", "true"),
        ("liqo.io/originID", "turin"),
    ] {
        let mut labels = replica.clone();
        labels[label] = json!(value);
        let request = slice(&own, labels);
        let refusal = Refusal::Policy(OBJECTS);
        consumer.may_not(administrator, &request, refusal).await?;
    }
    let mut owned = json!({
        "apiVersion": TENANTS,
        "kind": "Renew",
        "metadata": {"name": "owned", "namespace": own, "labels": replica, "finalizers": ["liqo.io/hold"]},
        "spec": {"consumerClusterID": "rome", "identityType": "ControlPlane"},
    });
    let held = Request::Create(owned.clone());
    let refusal = Refusal::Policy(OBJECTS);
    consumer.may_not(administrator, &held, refusal).await?;
    owned["metadata"]["finalizers"] = json!([]);
    consumer.may(&Request::Create(owned)).await?;

    let refused = [
        slice("default", replica.clone()),
        Request::List {
            kind: "Secret",
            namespace: Some(own.clone()),
        },
        Request::Get {
            kind: "Secret",
            namespace: LIQO.to_owned(),
            name: "authentication-keys".to_owned(),
        },
        Request::Merge {
            kind: "Tenant",
            namespace: Some(own.clone()),
            name: "rome".to_owned(),
            subresource: None,
            patch: json!({"spec": {"tenantCondition": "Active"}}),
        },
        Request::Create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "more", "namespace": own},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "liqo-remote-controlplane"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "turin"}],
        })),
    ];
    for request in refused {
        consumer
            .may_not(administrator, &request, Refusal::Rbac)
            .await?;
    }

    Ok(())
}

impl Site {
    /// Creates the nonce of the peer, and waits until it is filled.
    pub(crate) async fn nonce(&self) -> Result<Vec<u8>> {
        let labels = json!({"liqo.io/nonce": "true"});
        self.create_secret("liqo-nonce", &labels, &json!({}))
            .await?;
        self.secret(&self.tenant_namespace(), "liqo-nonce", "nonce")
            .await
    }

    /// Has a nonce of the peer signed.
    pub(crate) async fn signature(&self, nonce: &[u8]) -> Result<Vec<u8>> {
        let labels = json!({"liqo.io/signed-nonce": "true"});
        let data = json!({"nonce": ByteString(nonce.to_vec())});
        self.create_secret("liqo-signed-nonce", &labels, &data)
            .await?;
        self.secret(&self.tenant_namespace(), "liqo-signed-nonce", "signedNonce")
            .await
    }

    pub(crate) async fn cluster_key(&self) -> Result<ClusterKey> {
        let text = self
            .secret(LIQO, "authentication-keys", "privateKey")
            .await?;
        ClusterKey::from_pem(&text).context("the key is invalid")
    }

    /// Returns the status of the Tenant once it has credentials.
    pub(crate) async fn status(&self) -> Result<Value> {
        let tenants: Api<Tenant> = Api::namespaced(self.client.clone(), &self.tenant_namespace());
        until(Deadline::after(SOON), "the credentials", async || {
            let tenant = tenants.get(&self.peer).await?;
            let status = json!(tenant.status);
            let certificate = &status["authParams"]["signedCRT"];
            ensure!(certificate.is_string(), "{status}");
            Ok(status)
        })
        .await
    }

    /// Creates the Identity at the peer, and returns a client with its kubeconfig.
    pub(crate) async fn credentials(&self, parameters: &Value) -> Result<Client> {
        let namespace = self.tenant_namespace();
        let name = format!("controlplane-{}", self.peer);
        self.apply(&json!({
            "apiVersion": TENANTS,
            "kind": "Identity",
            "metadata": {"name": name, "namespace": namespace, "labels": {"liqo.io/remote-cluster-id": self.peer}},
            "spec": {
                "clusterID": self.peer,
                "type": "ControlPlane",
                "namespace": tenant_namespace(&self.name),
                "authParams": parameters,
            },
        }))
        .await?;
        let identities: Api<Identity> = Api::namespaced(self.client.clone(), &namespace);
        let secret = until(Deadline::after(SOON), "the Identity", async || {
            let identity = identities.get(&name).await?;
            let secret = identity.status.and_then(|it| it.kubeconfig_secret_ref);
            Ok(secret.context("no Secret")?.name)
        })
        .await?;
        let certificate = parameters["signedCRT"].as_str().context("no certificate")?;
        let text = until(Deadline::after(SOON), "the kubeconfig", async || {
            let text = self.secret(&namespace, &secret, "kubeconfig").await?;
            let text = String::from_utf8(text)?;
            ensure!(text.contains(certificate), "it has another certificate");
            Ok(text)
        })
        .await?;

        site::client(&text).await
    }

    /// Waits for the role of the peer, and for a condition of authentication to be ready.
    async fn until_summary(&self, role: &str, type_: &str) -> Result<()> {
        let summaries: Api<ForeignCluster> = Api::all(self.client.clone());
        until(Deadline::after(SOON), "the ForeignCluster", async || {
            let summary = summaries.get(&self.peer).await?;
            let status = serde_json::to_value(&summary.status)?;
            let conditions = status["modules"]["authentication"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let is_ready = conditions.any(|it| it["type"] == type_ && it["status"] == "Ready");
            ensure!(status["role"] == role && is_ready, "{status}");
            Ok(())
        })
        .await
    }

    async fn delete_secret(&self, name: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.tenant_namespace());
        secrets
            .delete(name, &kube::api::DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Deletes the Tenant, and waits until it and the rights of the consumer are gone.
    pub(crate) async fn delete_tenant(&self) -> Result<()> {
        let tenants: Api<Tenant> = Api::namespaced(self.client.clone(), &self.tenant_namespace());
        tenants
            .delete(&self.peer, &kube::api::DeleteParams::default())
            .await?;
        let bindings: Api<RoleBinding> =
            Api::namespaced(self.client.clone(), &self.tenant_namespace());
        until(Deadline::after(SOON), "the deletion", async || {
            ensure!(tenants.get_opt(&self.peer).await?.is_none());
            let bindings = bindings.list(&ListParams::default()).await?.items;
            let names: Vec<_> = bindings.iter().map(|it| it.name_any()).collect();
            ensure!(
                !names.contains(&"liqo-binding-liqo-remote-controlplane".to_owned()),
                "{names:?}"
            );
            Ok(())
        })
        .await
    }

    /// Waits until an Event about the tenant namespace has this reason.
    pub(crate) async fn until_event(&self, reason: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.tenant_namespace());
        until(Deadline::after(SOON), reason, async || {
            let events = events.list(&ListParams::default()).await?.items;
            let reasons: Vec<_> = events
                .iter()
                .filter_map(|it| it.reason.as_deref())
                .collect();
            ensure!(reasons.contains(&reason), "{reasons:?}");
            Ok(())
        })
        .await
    }
}
