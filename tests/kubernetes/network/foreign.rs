//! Foreign peers, which run a gateway like upstream Liqo's. Each peer consists of a gateway with a
//! pod, in a network namespace on the Ethernet segment of the nodes.

mod http;
mod segment;
mod tenant;

pub(crate) use http::HttpServer;
pub(crate) use segment::Segment;
pub(crate) use tenant::Tenant;

use crate::fixture::{SOON, Web, connection, remapped};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::pod;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use tests::lab::netns::Netns;
use tests::lab::underlay::Host;
use tests::traffic::ping::Ping;
use tests::traffic::tcp;
use tests::upstream::{Setting, Upstream};
use tests::wireguard::WireguardGo;

/// The pod CIDR of all foreign peers. The clusters have the same pod CIDR.
pub(crate) const POD_CIDR: &str = "10.244.0.0/16";

/// The address of each foreign peer's pod.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 9, 9);

/// The external CIDR of each foreign peer.
pub(crate) const EXTERNAL_CIDR: &str = "10.70.0.0/16";

/// The WireGuard port of a foreign peer that is a server.
const PORT: u16 = 51840;

/// The number of bytes that each TCP transfer sends.
const TRANSFER: u64 = 256 << 10;

/// A peer of a cluster, with a gateway like upstream's.
pub(crate) struct Foreign {
    // This field is dropped before `_segment`, because dropping the segment kills the gateway's
    // process.
    pub(crate) upstream: Upstream,
    /// The objects for this peer in the cluster.
    pub(crate) tenant: Tenant,
    _segment: Segment,
}

/// A host with a WireGuard device that has no peer yet.
pub(crate) struct Unconfigured {
    wireguard: WireguardGo,
    host: Host,
    segment: Segment,
}

impl Unconfigured {
    pub(crate) fn start() -> Result<Self> {
        let segment = Segment::claim()?;
        let host = segment.host()?;
        let number = host.address.octets()[3];
        let wireguard = WireguardGo::start(segment.identity(), &host.netns, number, PORT)?;

        Ok(Self {
            wireguard,
            host,
            segment,
        })
    }

    /// Returns the public key of the WireGuard device.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.wireguard.key().public()
    }

    /// Returns the endpoint of the WireGuard device.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host.address, PORT)
    }

    /// Makes the host the gateway of `tenant`. The gateway is a client of `endpoint`, or a server
    /// if `endpoint` is `None`.
    pub(crate) async fn become_peer(
        self,
        tenant: Tenant,
        endpoint: Option<SocketAddrV4>,
    ) -> Result<Foreign> {
        let setting = Setting {
            remote_id: tenant.cluster().name().to_owned(),
            remote_key: tenant.own_key().await?,
            endpoint,
            pod: POD,
            remote_prefixes: vec![POD_CIDR.parse()?],
        };
        let upstream = Upstream::start(self.wireguard, &self.host, &setting)?;

        Ok(Foreign {
            upstream,
            tenant,
            _segment: self.segment,
        })
    }
}

impl Foreign {
    /// Starts a foreign client with the cluster id `id`. `endpoint` is `spec.endpoint` of the
    /// cluster's GatewayServer for this client.
    pub(crate) async fn client(cluster: &Cluster, id: &str, endpoint: &Value) -> Result<Self> {
        let unconfigured = Unconfigured::start()?;
        let tenant = Tenant::create(cluster, id).await?;
        tenant.configure(&[POD_CIDR], &[EXTERNAL_CIDR]).await?;
        tenant
            .serve(&json!({"endpoint": endpoint, "mtu": 1340}))
            .await?;
        tenant.publish(&unconfigured.key()).await?;
        let (addresses, port) = tenant.endpoint().await?;
        let address = addresses[0]
            .parse()
            .context("the first address of the endpoint")?;

        unconfigured
            .become_peer(tenant, Some(SocketAddrV4::new(address, port)))
            .await
    }

    /// Starts a foreign server with the cluster id `id`. The cluster is the client of this server.
    pub(crate) async fn server(cluster: &Cluster, id: &str) -> Result<Self> {
        let unconfigured = Unconfigured::start()?;
        let tenant = Tenant::create(cluster, id).await?;
        tenant.configure(&[POD_CIDR], &[EXTERNAL_CIDR]).await?;
        tenant.connect_to(&unconfigured.address()).await?;
        tenant.publish(&unconfigured.key()).await?;

        unconfigured.become_peer(tenant, None).await
    }

    /// Returns the network namespace of the gateway and its pod.
    pub(crate) fn netns(&self) -> &Netns {
        &self.upstream.netns
    }

    /// Returns the address at which the cluster reaches the pod of this peer.
    pub(crate) async fn remapped(&self) -> Result<Ipv4Addr> {
        remapped(self.tenant.cluster(), self.tenant.id(), POD).await
    }

    /// Changes the endpoint of the cluster's gateway in this peer's WireGuard device.
    pub(crate) async fn set_endpoint(&self, endpoint: SocketAddrV4) -> Result<()> {
        let key = self.tenant.own_key().await?;
        self.upstream.wireguard.set_peer(key, Some(endpoint))
    }

    /// Waits until the cluster's Connection is `Connected`, and both sides reply to probes.
    pub(crate) async fn connected(&self) -> Result<()> {
        let (cluster, id) = (self.tenant.cluster(), self.tenant.id());
        let what = format!("{id} to be connected");
        until(Deadline::after(SOON), &what, async || {
            let status = connection(cluster, id).await?.status.unwrap_or_default();
            let value = status.value.unwrap_or_default();
            ensure!(value == "Connected", "the Connection is {value:?}");
            ensure!(self.upstream.pongs() > 0, "the cluster sent no PONG");
            ensure!(self.upstream.pings() > 0, "the cluster sent no PING");
            Ok(())
        })
        .await
    }

    /// Asserts traffic in both directions between this peer and every pod of `web`. This peer does
    /// not remap, so it uses the cluster's original addresses.
    pub(crate) async fn exchanges_traffic(&self, web: &Web) -> Result<()> {
        let remapped = self.remapped().await?;
        for pod in &web.pods {
            let netns = pod::netns(&web.namespace, &pod.name).await?;
            // The gateway is connected before every node has routes. A node without routes
            // masquerades the SYN of a connection, and connection tracking then masquerades all
            // packets of the connection. Pings show that the routes exist.
            for (netns, to) in [(&netns, remapped), (self.netns(), pod.address)] {
                let what = format!("a path from {} to {to}", netns.name());
                until(Deadline::after(SOON), &what, async || {
                    let report = Ping::default().run(netns, to)?;
                    ensure!(report.is_complete(), "{}: {}", pod.name, report.text);
                    Ok(())
                })
                .await?;
            }
            let inside = tcp::Server::start(&netns, pod.address, 0)?;
            let outside = tcp::Server::start(self.netns(), POD, 0)?;
            let to_outside = SocketAddrV4::new(remapped, outside.address().port());

            tcp::transfer(self.netns(), inside.address(), TRANSFER)?;
            tcp::transfer(&netns, to_outside, TRANSFER)?;

            let clients = inside.client_addresses();
            ensure!(
                clients == [IpAddr::from(remapped)],
                "clients are {clients:?}"
            );
            let clients = outside.client_addresses();
            ensure!(clients == [IpAddr::from(pod.address)], "{clients:?}");
        }

        Ok(())
    }
}
