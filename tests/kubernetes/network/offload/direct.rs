//! Direct connections between two providers of one consumer: the Service's annotation, and the provider's denial.

use super::reflected::{mapped, until_endpoints_are};
use super::{is_gone, until_node_is_ready};
use crate::fixture::{
    Peering, SOON, Suite, install, install_with, liqoctl, network, remapped, serial, until_pair_is,
};
use crate::peering::{connected_again, peer, unpeer};
use crate::three::{CONNECT, naples};
use crate::{MILAN, NAPLES, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::fault::{self, Uplink};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_of_two_providers_connect_directly_unless_one_denies_it,
    );
}

/// Services, a pod in naples that replies by HTTP, and its client in milan.
const MANIFEST: &str = include_str!("../manifests/direct.yaml");

/// The annotation of the Service.
const ANNOTATION: &str = "liqo.io/use-direct-connections";

/// The chart value of a provider that denies direct connections.
const DENY: &str = "networking.denyDirectConnections";

async fn pods_of_two_providers_connect_directly_unless_one_denies_it(
    peering: &'static Peering,
) -> Result<()> {
    connected_again(peering);
    // All clusters have the same CIDRs.
    let naples = naples(peering, Spec::new(NAPLES)).await?;
    let [rome, milan] = peering.clusters();
    network([&naples, milan], "connect", &CONNECT)?;
    for provider in [milan, &naples] {
        peer([rome, provider], &["--cpu=4", "--memory=4Gi"])?;
        until_node_is_ready([rome, provider]).await?;
    }
    let pods = Pods::start(rome, milan, &naples).await?;

    pods.until_reached_at(&pods.through_rome).await?;
    let annotation = format!("{ANNOTATION}=true");
    let annotate = ["annotate", "service", "web", &annotation];
    pods.home.kubectl(&annotate).await?;
    pods.until_reached_at(&pods.direct).await?;
    deny(peering, &pods).await?;
    pods.until_reached_at(&pods.direct).await?;

    let uplink = cleanup::defer("the uplink of the consumer", async || {
        fault::set_uplink(&peering.rome, &Uplink::Plain)
    });
    fault::set_uplink(&peering.rome, &Uplink::Down)?;
    pods.are_connected_without_rome().await?;
    uplink.run().await?;
    for provider in [milan, &naples] {
        until_pair_is([rome, provider], "Connected").await?;
        until_node_is_ready([rome, provider]).await?;
    }
    pods.until_reached_at(&pods.direct).await?;

    pods.end([milan, &naples]).await?;
    unpeer([rome, &naples], &[]).await?;
    unpeer([rome, milan], &[]).await?;
    network([&naples, milan], "reset", &["--wait"]).map(drop)
}

/// Checks that milan leaves the endpoint out while it denies direct connections.
async fn deny(peering: &'static Peering, pods: &Pods) -> Result<()> {
    let permitted = cleanup::defer("direct connections of milan", async || {
        install(&peering.milan)
    });
    install_with(&peering.milan, &[&format!("--set={DENY}=true")])?;
    until_endpoints_are(&pods.client, "web", &[]).await?;
    let what = format!("an Event that names {DENY}");
    until(Deadline::after(SOON), &what, async || {
        let path = "{.items[?(@.reason==\"PartsLeftOut\")].message}";
        let messages = pods.client.get("events", path).await?;
        ensure!(messages.contains(DENY), "the messages are {messages:?}");
        Ok(())
    })
    .await?;
    until(
        Deadline::after(SOON),
        "no reply of the Service",
        async || {
            let reply = pods.request("web").await;
            ensure!(reply.is_err(), "the reply is {reply:?}");
            Ok(())
        },
    )
    .await?;

    permitted.run().await
}

/// The pods of [`MANIFEST`], whose consumer is rome.
struct Pods {
    /// The namespace in rome.
    home: Namespace,
    /// The namespace of the client, in milan.
    client: Namespace,
    /// The path that the networks of rome form.
    through_rome: Path,
    /// The path that the network between milan and naples forms.
    direct: Path,
}

/// The addresses by which the two pods reach each other.
struct Path {
    /// The address of the server in milan.
    server: Ipv4Addr,
    /// The address of the client in naples.
    client: Ipv4Addr,
}

impl Pods {
    async fn start(rome: &Cluster, milan: &Cluster, naples: &Cluster) -> Result<Self> {
        let home = Namespace::create(rome, "direct").await?;
        let strategy = "--pod-offloading-strategy=Remote";
        liqoctl(rome, &["offload", "namespace", "direct", strategy])?;
        let manifest = MANIFEST.replace("SERVER", NAPLES).replace("CLIENT", MILAN);
        home.apply(&manifest).await?;
        for pod in ["pod/server", "pod/client"] {
            home.wait(pod, "Ready").await?;
        }
        let remote = format!("direct-{ROME}");
        let client = Namespace::existing(milan, &remote).await?;
        let server = Namespace::existing(naples, &remote).await?;
        let [server, of_server] = [
            address(&server, "server").await?,
            address(&home, "server").await?,
        ];
        let server_ip = mapped(&home, of_server).await?;
        let client_ip = mapped(&home, address(&home, "client").await?).await?;

        Ok(Self {
            through_rome: Path {
                server: remapped(milan, ROME, server_ip).await?,
                client: remapped(naples, ROME, client_ip).await?,
            },
            direct: Path {
                server: remapped(milan, NAPLES, server).await?,
                client: remapped(naples, MILAN, address(&client, "client").await?).await?,
            },
            home,
            client,
        })
    }

    /// Waits until the Service has the server's address of this path in milan, and the server gets requests by this path.
    async fn until_reached_at(&self, path: &Path) -> Result<()> {
        until_endpoints_are(&self.client, "web", &[path.server]).await?;
        let what = format!("a reply of the server to {}", path.client);
        until(Deadline::after(SOON), &what, async || {
            let reply = self.request("web").await?;
            is_reply_to(&reply, path.client)
        })
        .await
    }

    /// Checks that requests to the server pass although rome is disconnected. The address through rome shows that it is.
    async fn are_connected_without_rome(&self) -> Result<()> {
        let through_rome = format!("{}:8080", self.through_rome.server);
        until(Deadline::after(SOON), "no reply through rome", async || {
            let reply = self.request(&through_rome).await;
            ensure!(reply.is_err(), "the reply is {reply:?}");
            Ok(())
        })
        .await?;
        let tenant =
            Namespace::existing(self.client.cluster(), &format!("liqo-tenant-{ROME}")).await?;
        until(Deadline::after(SOON), "the lost connection", async || {
            let state = tenant
                .get("connections", "{.items[*].status.value}")
                .await?;
            ensure!(state == "Error", "the state is {state:?}");
            Ok(())
        })
        .await?;
        until_endpoints_are(&self.client, "web", &[self.direct.server]).await?;
        let reply = self.request("web").await;
        let reply = reply.context("the direct connection depends on rome")?;

        is_reply_to(&reply, self.direct.client)
    }

    /// Returns the reply to a request of the client.
    async fn request(&self, host: &str) -> Result<String> {
        let command = format!("curl -sSf -m 3 http://{host}/");

        self.client.sh("client", &command).await
    }

    /// Ends the offloading.
    async fn end(&self, providers: [&Cluster; 2]) -> Result<()> {
        let name = self.home.name();
        let unoffload = ["unoffload", "namespace", name, "--skip-confirm"];
        liqoctl(self.home.cluster(), &unoffload)?;
        for provider in providers {
            is_gone(provider, self.client.name())?;
        }
        let delete = ["delete", "pods", "--all", "--wait"];
        self.home.kubectl(&delete).await.map(drop)
    }
}

/// Checks that the server has replied to a client with this address.
fn is_reply_to(reply: &str, client: Ipv4Addr) -> Result<()> {
    let expected = format!("client={client}:");
    ensure!(
        reply.contains(&expected) && reply.contains(" pod=server "),
        "{reply:?} is no reply of the server to {client}"
    );

    Ok(())
}

/// Returns the address of a pod in a namespace of the consumer or of a provider.
async fn address(namespace: &Namespace, pod: &str) -> Result<Ipv4Addr> {
    let address = namespace
        .get(&format!("pod/{pod}"), "{.status.podIP}")
        .await?;

    address
        .parse()
        .with_context(|| format!("{pod} has no address in {namespace:?}"))
}
