//! The objects of a tenant namespace, with the same content as `liqoctl` writes.

use crate::fixture::SOON;
use anyhow::{Context as _, Result, ensure};
use control_api::networking::configuration::NETWORK_CIDRS_CONFIGURED;
use control_api::{Configuration, GatewayClient, GatewayServer};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::manifest;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::net::SocketAddrV4;

const NETWORKING: &str = "networking.liqo.io/v1beta1";

/// The tenant namespace of a peer.
pub(crate) struct Tenant {
    namespace: Namespace,
    id: String,
}

impl Tenant {
    /// Creates the namespace with the labels of a tenant namespace.
    pub(crate) async fn create(cluster: &Cluster, id: &str) -> Result<Self> {
        let name = format!("liqo-tenant-{id}");
        let namespace = Namespace::create(cluster, &name).await?;
        let labels = json!({"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"});
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        });
        manifest::apply(namespace.client(), &[object], None).await?;

        Ok(Self {
            namespace,
            id: id.to_owned(),
        })
    }

    /// Returns the cluster id of the peer.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.namespace.cluster()
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Applies an object of this kind for the peer. The name of the object is the peer's cluster
    /// id.
    pub(crate) async fn write(&self, kind: &str, spec: &Value) -> Result<()> {
        self.write_as(&self.id, kind, spec).await
    }

    /// Applies an object of this kind for the peer, with the name `name`.
    pub(crate) async fn write_as(&self, name: &str, kind: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": NETWORKING,
            "kind": kind,
            "metadata": {"name": name, "labels": {"liqo.io/remote-cluster-id": self.id}},
            "spec": spec,
        });
        let client = self.namespace.client();
        manifest::apply(client, &[object], Some(self.namespace.name())).await
    }

    /// Applies a Configuration with the pod CIDRs and external CIDRs of the peer.
    pub(crate) async fn configure(&self, pod: &[&str], external: &[&str]) -> Result<()> {
        let remote = json!({"cidr": {"pod": pod, "external": external}});
        self.write("Configuration", &json!({"remote": remote}))
            .await
    }

    /// Waits until the manager has resolved the current generation of the Configuration.
    pub(crate) async fn configured(&self) -> Result<Configuration> {
        let api: Api<Configuration> = self.api();
        let what = format!("the CIDRs of {}", self.id);
        until(Deadline::after(SOON), &what, async || {
            let configuration = api.get(&self.id).await?;
            let status = configuration.status.clone().unwrap_or_default();
            let condition = status
                .conditions
                .iter()
                .find(|it| it.type_ == NETWORK_CIDRS_CONFIGURED)
                .context("no condition")?;
            ensure!(
                condition.status == "True"
                    && condition.observed_generation == configuration.metadata.generation,
                "{condition:?}"
            );
            Ok(configuration)
        })
        .await
    }

    /// Applies a GatewayServer for the peer.
    pub(crate) async fn serve(&self, spec: &Value) -> Result<()> {
        self.write("GatewayServer", spec).await
    }

    /// Applies a GatewayClient that connects to the peer at `to`.
    pub(crate) async fn connect_to(&self, to: &SocketAddrV4) -> Result<()> {
        let endpoint = json!({
            "addresses": [to.ip().to_string()],
            "port": to.port(),
            "protocol": "UDP",
        });
        let spec = json!({"endpoint": endpoint, "mtu": 1340});
        self.write("GatewayClient", &spec).await
    }

    /// Applies a PublicKey with the peer's key.
    pub(crate) async fn publish(&self, key: &[u8]) -> Result<()> {
        let key = ByteString(key.to_vec());
        self.write("PublicKey", &json!({"publicKey": key})).await
    }

    /// Waits for `status.endpoint` of the GatewayServer, and returns its addresses and port.
    pub(crate) async fn endpoint(&self) -> Result<(Vec<String>, u16)> {
        let api: Api<GatewayServer> = self.api();
        let what = format!("an endpoint for {}", self.id);
        until(Deadline::after(SOON), &what, async || {
            let status = api.get(&self.id).await?.status.unwrap_or_default();
            let conditions = status.conditions;
            let endpoint = status.endpoint.with_context(|| format!("{conditions:?}"))?;
            ensure!(!endpoint.addresses.is_empty(), "no address");
            let port = u16::try_from(endpoint.port.context("no port")?)?;
            Ok((endpoint.addresses, port))
        })
        .await
    }

    /// Waits for the public key that the cluster uses for this peer, and returns the key.
    pub(crate) async fn own_key(&self) -> Result<[u8; 32]> {
        let secrets: Api<Secret> = self.api();
        let what = format!("keys for {}", self.id);
        until(Deadline::after(SOON), &what, async || {
            let secret = secrets.get(&self.secret_name().await?).await?;
            let data = secret.data.context("an empty Secret")?;
            let key = data.get("publicKey").context("no publicKey")?;
            key.0.clone().try_into().ok().context("not 32 bytes")
        })
        .await
    }

    /// Returns a client for the objects of the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), self.namespace.name())
    }

    /// Deletes the namespace with all its objects.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.namespace.delete().await
    }

    fn client(&self) -> Client {
        self.namespace.client().clone()
    }

    async fn secret_name(&self) -> Result<String> {
        let server = self.api::<GatewayServer>().get_opt(&self.id).await?;
        let client = self.api::<GatewayClient>().get_opt(&self.id).await?;
        let server = server.and_then(|it| it.status?.secret_ref?.name);
        let client = client.and_then(|it| it.status?.secret_ref?.name);
        server.or(client).context("no status.secretRef")
    }
}
