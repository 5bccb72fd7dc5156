//! The API requests of upstream's `liqoctl network connect` v1.2.
//!
//! As in upstream, the order of the requests is fixed, and a wait that times out is an error.

use anyhow::{Context as _, Result, bail, ensure};
use control_api::networking::configuration::NETWORK_CIDRS_CONFIGURED;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, Network, PublicKey, labels,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Pod, Secret};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt as _};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The default of upstream's flag `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(120);

const NETWORKING: &str = "networking.liqo.io/v1beta1";

/// The namespace of Liqo, from which upstream reads templates.
const LIQO: &str = "liqo";

/// A cluster, and its tenant namespace for the other cluster.
struct Side {
    client: Client,
    id: String,
    peer: String,
    namespace: String,
    deadline: Deadline,
}

/// Connects `client`, which is the local cluster, to `server`, which is the remote cluster.
pub(super) async fn play(client: &Cluster, server: &Cluster) -> Result<()> {
    let start = Instant::now();
    let deadline = Deadline::after(TIMEOUT);
    let side = async |own: &Cluster, other: &Cluster| {
        Ok::<_, anyhow::Error>(Side {
            client: own.client().await?,
            id: own.name().to_owned(),
            peer: other.name().to_owned(),
            namespace: format!("liqo-tenant-{}", other.name()),
            deadline,
        })
    };
    let (client, server) = (side(client, server).await?, side(server, client).await?);

    for side in [&client, &server] {
        side.make_tenant_namespace().await?;
    }
    let (of_client, of_server) = (client.published().await?, server.published().await?);
    client.configure(&of_server).await?;
    server.configure(&of_client).await?;
    for side in [&client, &server] {
        side.wait_until_configured().await?;
    }
    server
        .check_template("WgGatewayServerTemplate", "wireguard-server")
        .await?;
    client
        .check_template("WgGatewayClientTemplate", "wireguard-client")
        .await?;
    client.has_no::<GatewayServer>().await?;
    server.has_no::<GatewayClient>().await?;

    server.create_server().await?;
    server.wait_for_deployment().await?;
    let endpoint = server.wait_for_endpoint().await?;
    client.create_client(&endpoint).await?;
    client.wait_for_deployment().await?;
    let key = server.wait_for_key::<GatewayServer>().await?;
    client.learn_key::<GatewayClient>(key).await?;
    let key = client.wait_for_key::<GatewayClient>().await?;
    server.learn_key::<GatewayServer>(key).await?;
    for side in [&client, &server] {
        side.wait_for_connection().await?;
    }
    eprintln!(
        "upstream's sequence: connected ({:.1} s)",
        start.elapsed().as_secs_f64()
    );

    Ok(())
}

/// Asserts the conditions of upstream's end-to-end tests. The tenant namespace has one Deployment
/// of the gateway, and a single pod, which is active and ready.
pub(super) async fn tenant_passes_upstreams_tests(cluster: &Cluster, peer: &str) -> Result<()> {
    let namespace = format!("liqo-tenant-{peer}");
    let client = cluster.client().await?;
    let gateways = ListParams::default().labels("networking.liqo.io/component=gateway");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let deployments = deployments.list(&gateways).await?.items;
    ensure!(deployments.len() == 1, "{} Deployments", deployments.len());
    let name = format!("gw-{peer}");
    ensure!(
        deployments[0].name_any() == name,
        "the Deployment is not called {name}"
    );

    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let all = pods.list(&ListParams::default()).await?.items;
    let active = ListParams::default()
        .labels("networking.liqo.io/component=gateway,networking.liqo.io/active=true");
    let active = pods.list(&active).await?.items;
    ensure!(all.len() == 1 && active.len() == 1, "{} pods", all.len());
    let conditions = all[0].status.as_ref().and_then(|it| it.conditions.clone());
    let is_ready = conditions
        .iter()
        .flatten()
        .any(|it| it.type_ == "Ready" && it.status == "True");
    ensure!(is_ready, "{conditions:?}");

    Ok(())
}

impl Side {
    async fn make_tenant_namespace(&self) -> Result<()> {
        const PRIVILEGED: &str = "privileged";
        let api: Api<Namespace> = Api::all(self.client.clone());
        if api.get_opt(&self.namespace).await?.is_some() {
            return Ok(());
        }
        let namespace = from(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.namespace,
                "labels": {
                    labels::REMOTE_CLUSTER_ID: self.peer,
                    labels::TENANT_NAMESPACE: "true",
                    "pod-security.kubernetes.io/audit": PRIVILEGED,
                    "pod-security.kubernetes.io/enforce": PRIVILEGED,
                    "pod-security.kubernetes.io/warn": PRIVILEGED,
                },
            },
        }))?;
        api.create(&PostParams::default(), &namespace).await?;

        Ok(())
    }

    /// Reads the CIDRs of this cluster, which become `spec.remote` of the Configuration in the
    /// peer.
    async fn published(&self) -> Result<Value> {
        let of = async |api: Api<Network>, type_: &str| {
            let selector = format!("{}={type_}", labels::NETWORK_TYPE);
            let found = api.list(&ListParams::default().labels(&selector)).await?;
            let cidrs: Vec<_> = found
                .items
                .into_iter()
                .map(|network| {
                    let name = network.name_any();
                    let cidr = network.status.and_then(|status| status.cidr);
                    cidr.with_context(|| format!("{name} has no status.cidr"))
                })
                .collect::<Result<_>>()?;
            Ok::<Vec<String>, anyhow::Error>(cidrs)
        };
        let pod = of(Api::all(self.client.clone()), labels::NETWORK_TYPE_POD).await?;
        let external = Api::namespaced(self.client.clone(), LIQO);
        let external = of(external, labels::NETWORK_TYPE_EXTERNAL).await?;
        ensure!(
            !pod.is_empty() && external.len() == 1,
            "{pod:?}, {external:?}"
        );

        Ok(json!({"cidr": {"pod": pod, "external": external}}))
    }

    async fn configure(&self, remote: &Value) -> Result<()> {
        self.create::<Configuration>("Configuration", json!({"remote": remote}))
            .await
    }

    async fn wait_until_configured(&self) -> Result<()> {
        let api: Api<Configuration> = self.api();
        until(self.deadline, "Configuration", async || {
            let configuration = api.get(&self.peer).await?;
            let status = configuration.status.unwrap_or_default();
            let mut conditions = status.conditions.iter();
            let condition = conditions.find(|it| it.type_ == NETWORK_CIDRS_CONFIGURED);
            let condition = condition.context("no condition")?;
            ensure!(condition.status == "True", "{condition:?}");
            ensure!(
                condition.observed_generation == configuration.metadata.generation,
                "{condition:?}"
            );
            Ok(())
        })
        .await
    }

    /// Reads a template. Upstream fails if the template is missing.
    async fn check_template(&self, kind: &str, name: &str) -> Result<()> {
        let gvk = GroupVersionKind::gvk("networking.liqo.io", "v1beta1", kind);
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), LIQO, &resource);
        let found = api.get(name).await;
        found
            .map(drop)
            .with_context(|| format!("{}: upstream's liqoctl finds no {kind} {name}", self.id))
    }

    async fn has_no<K>(&self) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let found = self.api::<K>().list(&self.about_peer()).await?.items;
        ensure!(found.is_empty(), "there is a {}", K::kind(&()));
        Ok(())
    }

    async fn create_server(&self) -> Result<()> {
        let spec = json!({
            "endpoint": {"port": 51840, "serviceType": "NodePort"},
            "mtu": 1340,
            "secretRef": {},
            "serverTemplateRef": template("WgGatewayServerTemplate", "wireguard-server"),
        });
        self.create::<GatewayServer>("GatewayServer", spec).await
    }

    async fn wait_for_deployment(&self) -> Result<()> {
        let name = format!("gw-{}", self.peer);
        let api: Api<Deployment> = self.api();
        until(self.deadline, &format!("Deployment {name}"), async || {
            let status = api.get(&name).await?.status.unwrap_or_default();
            ensure!(status.ready_replicas > Some(0), "{status:?}");
            Ok(())
        })
        .await
    }

    async fn wait_for_endpoint(&self) -> Result<Value> {
        let api: Api<GatewayServer> = self.api();
        until(self.deadline, "status.endpoint", async || {
            let status = api.get(&self.peer).await?.status.unwrap_or_default();
            let endpoint = status.endpoint.context("none")?;
            ensure!(!endpoint.addresses.is_empty(), "no address");
            Ok(json!({
                "addresses": endpoint.addresses,
                "port": endpoint.port,
                "protocol": endpoint.protocol,
            }))
        })
        .await
    }

    async fn create_client(&self, endpoint: &Value) -> Result<()> {
        let spec = json!({
            "endpoint": endpoint,
            "mtu": 1340,
            "secretRef": {},
            "clientTemplateRef": template("WgGatewayClientTemplate", "wireguard-client"),
        });
        self.create::<GatewayClient>("GatewayClient", spec).await
    }

    async fn wait_for_key<K: Gateway>(&self) -> Result<ByteString> {
        let gateways: Api<K> = self.api();
        let secret = until(self.deadline, "status.secretRef", async || {
            let reference = gateways.get(&self.peer).await?.secret();
            let reference = reference.context("none")?;
            Ok((reference.name.context("no name")?, reference.namespace))
        })
        .await?;
        let (name, namespace) = secret;
        ensure!(namespace.as_ref() == Some(&self.namespace), "{namespace:?}");
        let data = self.api::<Secret>().get(&name).await?.data;
        let key = data.unwrap_or_default().remove("publicKey");
        let key = key.with_context(|| format!("Secret {name} has no publicKey"))?;
        ensure!(key.0.len() == 32, "{} bytes", key.0.len());

        Ok(key)
    }

    async fn learn_key<K: Gateway>(&self, key: ByteString) -> Result<()> {
        let owner = self.api::<K>().get(&self.peer).await?;
        let mut public_key = object(self, "PublicKey", json!({"publicKey": key}));
        public_key["metadata"]["labels"][labels::GATEWAY_RESOURCE] = json!("true");
        public_key["metadata"]["ownerReferences"] = json!([{
            "apiVersion": NETWORKING,
            "kind": K::kind(&()),
            "name": owner.name_any(),
            "uid": owner.meta().uid,
        }]);
        let public_key: PublicKey = from(public_key)?;
        let api = self.api::<PublicKey>();
        api.create(&PostParams::default(), &public_key).await?;

        Ok(())
    }

    async fn wait_for_connection(&self) -> Result<()> {
        let api: Api<Connection> = self.api();
        let what = format!("{}: Connected", self.id);
        until(self.deadline, &what, async || {
            let found = api.list(&self.about_peer()).await?.items;
            match found.as_slice() {
                [connection] => {
                    let status = connection.status.clone().unwrap_or_default();
                    let value = status.value.unwrap_or_default();
                    ensure!(value == "Connected", "{value}");
                    Ok(())
                }
                others => bail!("{} Connections", others.len()),
            }
        })
        .await
    }

    async fn create<K>(&self, kind: &str, spec: Value) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = from(object(self, kind, spec))?;
        let api = self.api::<K>();
        let created = api.create(&PostParams::default(), &object).await;
        created
            .map(drop)
            .with_context(|| format!("{}: failed to create the {kind}", self.id))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn about_peer(&self) -> ListParams {
        let selector = format!("{}={}", labels::REMOTE_CLUSTER_ID, self.peer);
        ListParams::default().labels(&selector)
    }
}

/// A GatewayServer or a GatewayClient.
trait Gateway:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
    /// Returns `status.secretRef`.
    fn secret(self) -> Option<ObjectReference>;
}

impl Gateway for GatewayServer {
    fn secret(self) -> Option<ObjectReference> {
        self.status?.secret_ref
    }
}

impl Gateway for GatewayClient {
    fn secret(self) -> Option<ObjectReference> {
        self.status?.secret_ref
    }
}

fn object(side: &Side, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": NETWORKING,
        "kind": kind,
        "metadata": {
            "name": side.peer,
            "namespace": side.namespace,
            "labels": {labels::REMOTE_CLUSTER_ID: side.peer},
        },
        "spec": spec,
    })
}

fn template(kind: &str, name: &str) -> Value {
    json!({"apiVersion": NETWORKING, "kind": kind, "name": name, "namespace": LIQO})
}

fn from<K: DeserializeOwned>(object: Value) -> Result<K> {
    serde_json::from_value(object).context("an object of this test is invalid")
}
