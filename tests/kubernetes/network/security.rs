//! Tests of the limits that the programs set for the owner of a single namespace. The tests of the
//! chart's RBAC rules and policies need no nodes, and are in `control-plane/rights.rs`.

use crate::fixture::{LIQO, Peering, SOON, Suite, connection, parallel};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use control_api::GatewayServer;
use k8s_openapi::ByteString;
use kube::Api;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        an_owner_of_a_namespace_cannot_replace_objects_of_a_peer,
        an_ip_gives_its_creator_no_service_of_a_node,
    );
}

/// A namespace and its owner. The owner has all rights in this namespace, and no other rights.
struct Owned {
    namespace: Namespace,
    user: String,
}

impl Owned {
    async fn create(cluster: &Cluster, name: &str) -> Result<Self> {
        let namespace = Namespace::create(cluster, name).await?;
        let user = format!("owner-of-{name}");
        let bind = [
            "create",
            "rolebinding",
            "owner",
            "--clusterrole=cluster-admin",
        ];
        let bind = [bind.as_slice(), &["--user", &user]].concat();
        namespace.kubectl(&bind).await?;
        // The authorizer watches RoleBindings, so the rights take effect with a delay.
        until(Deadline::after(SOON), "the owner's rights", async || {
            let review = ["auth", "can-i", "create", "secrets", "--as", &user];
            namespace.kubectl(&review).await
        })
        .await?;

        Ok(Self { namespace, user })
    }

    fn object(&self, kind: &str, peer: &str, spec: &Value) -> Value {
        let group = if kind == "IP" {
            "ipam.liqo.io/v1alpha1"
        } else {
            "networking.liqo.io/v1beta1"
        };
        json!({
            "apiVersion": group,
            "kind": kind,
            "metadata": {
                "name": peer,
                "namespace": self.namespace.name(),
                "labels": {"liqo.io/remote-cluster-id": peer},
            },
            "spec": spec,
        })
    }

    /// Waits for an Event about an object of the namespace, with a note that contains `words`.
    async fn event(&self, kind: &str, reason: &str, words: &str) -> Result<()> {
        let what = format!("Event {reason} about a {kind}");
        let path = "jsonpath={range .items[*]}{.regarding.kind} {.reason} {.note}\n{end}";
        until(Deadline::after(SOON), &what, async || {
            let words_of = ["get", "events.events.k8s.io", "-o", path];
            let events = self.namespace.kubectl(&words_of).await?;
            let mut lines = events.lines();
            let start = format!("{kind} {reason} ");
            let found = lines.any(|line| line.starts_with(&start) && line.contains(words));
            ensure!(found, "{events}");
            Ok(())
        })
        .await
    }
}

async fn an_owner_of_a_namespace_cannot_replace_objects_of_a_peer(
    peering: &'static Peering,
) -> Result<()> {
    let owned = Owned::create(&peering.milan, "owned-peer").await?;
    let before = services(&peering.milan).await?;
    let key = ByteString(vec![7; 32]);
    let endpoint = json!({"port": 51999, "serviceType": "LoadBalancer"});
    let remote = json!({"cidr": {"pod": ["10.9.0.0/16"], "external": ["10.99.0.0/16"]}});

    for peer in [ROME, "mallory"] {
        for (kind, spec) in [
            ("PublicKey", json!({"publicKey": key})),
            ("GatewayServer", json!({"endpoint": endpoint})),
            ("Configuration", json!({"remote": remote})),
        ] {
            let object = owned.object(kind, peer, &spec).to_string();
            let create = ["create", "-f", "-", "--as", &owned.user];
            let created = owned.namespace.kubectl_with(&create, &object);
            created.await.context("the owner has the right")?;
            let words = if peer == ROME {
                "liqo-tenant-it-rome only"
            } else {
                "is not the tenant namespace of peer mallory"
            };
            owned.event(kind, "NotTenantNamespace", words).await?;
        }
    }

    let kept = format!("liqo-tenant-{ROME}");
    let servers: Api<GatewayServer> = Api::namespaced(peering.milan.client().await?, &kept);
    let server = servers.get(ROME).await?.status.context("no status")?;
    let ready = server.conditions.iter().find(|it| it.type_ == "Ready");
    ensure!(ready.is_some_and(|it| it.status == "True"), "{ready:?}");
    ensure!(
        services(&peering.milan).await? == before,
        "a Service was created"
    );
    let networks = ["get", "networks.ipam.liqo.io", "-o", "name"];
    let networks = owned.namespace.kubectl(&networks).await?;
    ensure!(networks.is_empty(), "{networks}");
    for (here, there) in [(&peering.milan, ROME), (&peering.rome, MILAN)] {
        let status = connection(here, there).await?.status.unwrap_or_default();
        ensure!(status.value.as_deref() == Some("Connected"), "{status:?}");
    }
    Ok(())
}

/// Returns the names of the Services in Liqo's namespace.
async fn services(cluster: &Cluster) -> Result<String> {
    let liqo = Namespace::existing(cluster, LIQO).await?;
    liqo.kubectl(&["get", "services", "-o", "name"]).await
}

/// The admission policy cannot read the addresses of nodes, so the manager refuses a node's address.
async fn an_ip_gives_its_creator_no_service_of_a_node(peering: &'static Peering) -> Result<()> {
    let owned = Owned::create(&peering.rome, "owned-ips").await?;
    let ports = json!([{"name": "http", "port": 80}]);
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"type": "ClusterIP", "ports": ports}});
    let node = peering.rome.node_specs()?;
    let node = node.first().context("no node")?.ip.to_string();
    let spec = json!({"ip": node, "serviceTemplate": template});
    let object = owned.object("IP", "node", &spec);
    owned
        .namespace
        .kubectl_with(&["create", "-f", "-"], &object.to_string())
        .await?;
    owned
        .event("IP", "ServiceTemplateRefused", "the address of a node")
        .await?;
    let made = ["get", "services,endpointslices", "-o", "name"];
    let made = owned.namespace.kubectl(&made).await?;
    ensure!(made.is_empty(), "{made}");
    Ok(())
}
