//! Requests as Go's clients send them: whole objects by POST and PUT, and server-side apply, but no other patches.

use super::informer::Informer;
use crate::fixture::{Deadline, SOON, until};
use anyhow::{Context as _, Result, ensure};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Client;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::core::Request;
use serde_json::Value;

/// A client of one cluster. The API server derives the field manager from the name of the program.
#[derive(Clone)]
pub(crate) struct Rest {
    client: Client,
    program: &'static str,
}

/// Kind, plural and path of the resources that upstream's programs use.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("Namespace", "namespaces", "/api/v1"),
    ("Secret", "secrets", "/api/v1"),
    ("ConfigMap", "configmaps", "/api/v1"),
    ("Node", "nodes", "/api/v1"),
    ("Pod", "pods", "/api/v1"),
    ("Service", "services", "/api/v1"),
    ("PersistentVolumeClaim", "persistentvolumeclaims", "/api/v1"),
    ("Event", "events", "/api/v1"),
    ("Ingress", "ingresses", "/apis/networking.k8s.io/v1"),
    (
        "EndpointSlice",
        "endpointslices",
        "/apis/discovery.k8s.io/v1",
    ),
    ("Lease", "leases", "/apis/coordination.k8s.io/v1"),
    ("Deployment", "deployments", "/apis/apps/v1"),
    (
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "/apis/certificates.k8s.io/v1",
    ),
    (
        "RoleBinding",
        "rolebindings",
        "/apis/rbac.authorization.k8s.io/v1",
    ),
    (
        "ClusterRoleBinding",
        "clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1",
    ),
    // The custom resource of a test.
    ("Widget", "widgets", "/apis/example.com/v1"),
    ("Tenant", "tenants", AUTHENTICATION),
    ("Identity", "identities", AUTHENTICATION),
    ("ResourceSlice", "resourceslices", AUTHENTICATION),
    ("Renew", "renews", AUTHENTICATION),
    ("NamespaceMap", "namespacemaps", OFFLOADING),
    ("VirtualNode", "virtualnodes", OFFLOADING),
    ("Quota", "quotas", OFFLOADING),
    ("NamespaceOffloading", "namespaceoffloadings", OFFLOADING),
    ("ShadowPod", "shadowpods", OFFLOADING),
    ("ShadowEndpointSlice", "shadowendpointslices", OFFLOADING),
    (
        "ForeignCluster",
        "foreignclusters",
        "/apis/core.liqo.io/v1beta1",
    ),
    ("Network", "networks", "/apis/ipam.liqo.io/v1alpha1"),
    ("Configuration", "configurations", NETWORKING),
    ("GatewayServer", "gatewayservers", NETWORKING),
    ("GatewayClient", "gatewayclients", NETWORKING),
    ("PublicKey", "publickeies", NETWORKING),
    ("Connection", "connections", NETWORKING),
];

const AUTHENTICATION: &str = "/apis/authentication.liqo.io/v1beta1";
const OFFLOADING: &str = "/apis/offloading.liqo.io/v1beta1";
const NETWORKING: &str = "/apis/networking.liqo.io/v1beta1";

/// Returns the path of the objects of a kind. An empty namespace stands for all, or for none.
fn path(kind: &str, namespace: &str) -> Result<String> {
    let known = RESOURCES.iter().find(|(known, _, _)| *known == kind);
    let (_, plural, group) = known.with_context(|| format!("no path for {kind}"))?;

    Ok(if namespace.is_empty() {
        format!("{group}/{plural}")
    } else {
        format!("{group}/namespaces/{namespace}/{plural}")
    })
}

/// Returns kind and namespace of an object, and the path of its kind.
fn place(object: &Value) -> Result<(String, String)> {
    let kind = object["kind"].as_str().context("no kind")?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().context("no name")?;

    Ok((path(kind, namespace)?, name.to_owned()))
}

impl Rest {
    /// Returns a client of a program, such as `liqoctl`.
    pub(crate) fn new(client: Client, program: &'static str) -> Self {
        Self { client, program }
    }

    async fn send(&self, mut request: http::Request<Vec<u8>>) -> kube::Result<Value> {
        let agent = format!("{}/v1.2.0 (linux/amd64) kubernetes/$Format", self.program);
        if let Ok(agent) = HeaderValue::from_str(&agent) {
            request.headers_mut().insert(USER_AGENT, agent);
        }
        self.client.request(request).await
    }

    /// Returns an object.
    pub(crate) async fn get(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let found = self.get_opt(kind, namespace, name).await?;
        found.with_context(|| format!("{kind} {namespace}/{name} does not exist"))
    }

    pub(crate) async fn get_opt(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>> {
        let request = Request::new(path(kind, namespace)?).get(name, &Default::default())?;
        let answer = self.send(request).await;
        found(answer).with_context(|| format!("failed to read {kind} {name}"))
    }

    /// Reads a path that has no objects.
    pub(crate) async fn read(&self, path: &str) -> kube::Result<Value> {
        let request = http::Request::get(path).body(Vec::new());
        self.send(request.map_err(kube::Error::HttpError)?).await
    }

    /// Returns the objects of a kind with these labels, each with its kind.
    pub(crate) async fn list(
        &self,
        kind: &str,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Value>> {
        Ok(self.list_at(kind, namespace, labels).await?.0)
    }

    /// Returns the objects of a kind with these labels, and the resourceVersion of the list.
    async fn list_at(
        &self,
        kind: &str,
        namespace: &str,
        labels: &str,
    ) -> Result<(Vec<Value>, String)> {
        let parameters = ListParams::default().labels(labels);
        let request = Request::new(path(kind, namespace)?).list(&parameters)?;
        let list = self.send(request).await;
        let list = list.with_context(|| format!("failed to list {kind}"))?;
        let items = list["items"].as_array().context("no items")?.iter();
        let items = items.map(|item| {
            let mut item = item.clone();
            item["kind"] = kind.into();
            item["apiVersion"] = list["apiVersion"].clone();
            item
        });
        let version = list["metadata"]["resourceVersion"].as_str();

        Ok((items.collect(), version.context("no version")?.to_owned()))
    }

    /// Lists the objects of a kind, and watches them from then on.
    pub(super) async fn follow(&self, kind: &str, namespace: &str) -> Result<Informer> {
        let (items, version) = self.list_at(kind, namespace, "").await?;
        let parameters = WatchParams::default();
        let request = Request::new(path(kind, namespace)?).watch(&parameters, &version)?;
        let events = self.client.request_events(request).await;
        let events = events.with_context(|| format!("failed to watch {kind}"))?;

        Ok(Informer::new(kind, items, Box::pin(events)))
    }

    /// Returns the only object of a kind with these labels.
    pub(crate) async fn only(&self, kind: &str, namespace: &str, labels: &str) -> Result<Value> {
        let mut found = self.list(kind, namespace, labels).await?;
        ensure!(found.len() == 1, "{} {kind} with {labels}", found.len());
        found.pop().context("none")
    }

    pub(crate) async fn create(&self, object: &Value) -> Result<Value> {
        self.create_with(object, &PostParams::default()).await
    }

    pub(crate) async fn create_with(
        &self,
        object: &Value,
        parameters: &PostParams,
    ) -> Result<Value> {
        let kind = object["kind"].as_str().context("no kind")?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let body = serde_json::to_vec(object)?;
        let request = Request::new(path(kind, namespace)?).create(parameters, body)?;
        let answer = self.send(request).await;
        answer.with_context(|| format!("failed to create {object}"))
    }

    /// Applies an object as a field manager, and takes its fields from others.
    pub(crate) async fn apply(&self, object: &Value, manager: &str) -> Result<Value> {
        let (path, name) = place(object)?;
        let parameters = PatchParams::apply(manager).force();
        let request = Request::new(path).patch(&name, &parameters, &Patch::Apply(object))?;
        let answer = self.send(request).await;
        answer.with_context(|| format!("failed to apply {object}"))
    }

    /// Replaces an object, which has the resourceVersion that was read.
    pub(crate) async fn update(&self, object: &Value) -> Result<Value> {
        let (path, name) = place(object)?;
        let body = serde_json::to_vec(object)?;
        let request = Request::new(path).replace(&name, &PostParams::default(), body)?;
        let answer = self.send(request).await;
        answer.with_context(|| format!("failed to update {object}"))
    }

    /// Replaces a subresource.
    pub(crate) async fn update_part(&self, part: &str, object: &Value) -> Result<Value> {
        let (path, name) = place(object)?;
        let body = serde_json::to_vec(object)?;
        let parameters = PostParams::default();
        let request = Request::new(path).replace_subresource(part, &name, &parameters, body)?;
        let answer = self.send(request).await;
        answer.with_context(|| format!("failed to update {part} of {object}"))
    }

    /// Deletes an object. Returns whether it existed.
    pub(crate) async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<bool> {
        let request =
            Request::new(path(kind, namespace)?).delete(name, &DeleteParams::default())?;
        let answer = self.send(request).await;
        let found = found(answer).with_context(|| format!("failed to delete {kind} {name}"))?;

        Ok(found.is_some())
    }

    /// Deletes this object, and no other of its name.
    pub(crate) async fn delete_object(&self, object: &Value) -> Result<()> {
        let (path, name) = place(object)?;
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let preconditions = Preconditions {
            uid,
            resource_version: None,
        };
        let parameters = DeleteParams::default().preconditions(preconditions);
        let answer = self
            .send(Request::new(path).delete(&name, &parameters)?)
            .await;
        answer.with_context(|| format!("failed to delete {name}"))?;

        Ok(())
    }

    /// Reads an object, and creates it, or updates it if `change` changes it: Go's `CreateOrUpdate`.
    pub(crate) async fn create_or_update(
        &self,
        object: &Value,
        change: impl Fn(&mut Value),
    ) -> Result<Value> {
        let kind = object["kind"].as_str().context("no kind")?;
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().context("no name")?;
        let Some(present) = self.get_opt(kind, namespace, name).await? else {
            let mut object = object.clone();
            object["metadata"]["creationTimestamp"] = Value::Null;
            change(&mut object);
            return self.create(&object).await;
        };
        let mut changed = present.clone();
        change(&mut changed);
        if changed == present {
            return Ok(present);
        }

        self.update(&changed).await
    }

    /// Waits until an object exists and `check` accepts it.
    pub(crate) async fn until(
        &self,
        key: (&str, &str, &str),
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.until_checked(key, |object| {
            ensure!(check(object), "{object}");
            Ok(())
        })
        .await
    }

    /// Waits until an object exists and `check` finds no fault.
    pub(crate) async fn until_checked(
        &self,
        (kind, namespace, name): (&str, &str, &str),
        check: impl Fn(&Value) -> Result<()>,
    ) -> Result<Value> {
        let what = format!("{kind} {namespace}/{name}");
        until(Deadline::after(SOON), &what, async || {
            let object = self.get(kind, namespace, name).await?;
            check(&object)?;
            Ok(object)
        })
        .await
    }
}

/// Returns `None` if the answer is that there is no such object.
fn found(answer: kube::Result<Value>) -> kube::Result<Option<Value>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the HTTP status code of the error that a request ended in; `None` if it was none of the API server's.
pub(crate) fn refusal(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}
