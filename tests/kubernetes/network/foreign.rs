//! Clusters of another make, of which there is only a gateway with a pod: upstream's side
//! of the wire, on the segment that the nodes hang on.

mod segment;
mod tenant;

pub(crate) use segment::Segment;
pub(crate) use tenant::Tenant;

use crate::fixture::{SOON, Web, connection, seen};
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

/// The pod CIDR of all of them, and of the clusters, too.
pub(crate) const POD_CIDR: &str = "10.244.0.0/16";

/// The pod of each of them, as it knows itself.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 9, 9);

/// What each of them calls its external CIDR.
pub(crate) const EXTERNAL_CIDR: &str = "10.70.0.0/16";

/// The port that it serves at, if it is called.
const PORT: u16 = 51840;

/// Bytes that are sent each way.
const TRANSFER: u64 = 256 << 10;

/// A gateway of upstream's kind that peers with a cluster.
pub(crate) struct Foreign {
    // Before the segment, so that its process ends by itself.
    pub(crate) upstream: Upstream,
    /// What the cluster knows about it.
    pub(crate) tenant: Tenant,
    _segment: Segment,
}

/// A machine with WireGuard that is told nothing yet.
pub(crate) struct Blank {
    wireguard: WireguardGo,
    host: Host,
    segment: Segment,
}

impl Blank {
    /// Makes it.
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

    /// Its public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.wireguard.key().public()
    }

    /// Where it is called.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host.address, PORT)
    }

    /// Makes it the gateway that `tenant` is about; it calls `endpoint`, or waits for calls.
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
    /// Makes one that `cluster` knows as `id`, and that calls it; `endpoint` is that of the
    /// GatewayServer.
    pub(crate) async fn client(cluster: &Cluster, id: &str, endpoint: &Value) -> Result<Self> {
        let blank = Blank::start()?;
        let tenant = Tenant::create(cluster, id).await?;
        tenant.configure(&[POD_CIDR], &[EXTERNAL_CIDR]).await?;
        tenant
            .serve(&json!({"endpoint": endpoint, "mtu": 1340}))
            .await?;
        tenant.publish(&blank.key()).await?;
        let (addresses, port) = tenant.endpoint().await?;
        let address = addresses[0].parse().context("the first address")?;

        blank
            .become_peer(tenant, Some(SocketAddrV4::new(address, port)))
            .await
    }

    /// Makes one that `cluster` knows as `id`, and calls.
    pub(crate) async fn server(cluster: &Cluster, id: &str) -> Result<Self> {
        let blank = Blank::start()?;
        let tenant = Tenant::create(cluster, id).await?;
        tenant.configure(&[POD_CIDR], &[EXTERNAL_CIDR]).await?;
        tenant.call(&blank.address()).await?;
        tenant.publish(&blank.key()).await?;

        blank.become_peer(tenant, None).await
    }

    /// Where it lives, with its pod.
    pub(crate) fn netns(&self) -> &Netns {
        &self.upstream.netns
    }

    /// How its cluster sees its pod.
    pub(crate) async fn seen(&self) -> Result<Ipv4Addr> {
        seen(self.tenant.cluster(), self.tenant.id(), POD).await
    }

    /// Calls another endpoint from now on.
    pub(crate) async fn call(&self, endpoint: SocketAddrV4) -> Result<()> {
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

    /// Asserts traffic in both directions with every pod of `web`; the foreign side remaps
    /// nothing, so it uses the cluster's original addresses.
    pub(crate) async fn talks(&self, web: &Web) -> Result<()> {
        let seen = self.seen().await?;
        for pod in &web.pods {
            let netns = pod::netns(&web.namespace, &pod.name).await?;
            // The gateway is connected before every node has routes. A SYN that a node sends
            // without them is masqueraded, and connection tracking keeps its connection so.
            for (netns, to) in [(&netns, seen), (self.netns(), pod.address)] {
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
            let to_outside = SocketAddrV4::new(seen, outside.address().port());

            tcp::transfer(self.netns(), inside.address(), TRANSFER)?;
            tcp::transfer(&netns, to_outside, TRANSFER)?;

            let clients = inside.client_addresses();
            ensure!(clients == [IpAddr::from(seen)], "{clients:?} are not it");
            let clients = outside.client_addresses();
            ensure!(clients == [IpAddr::from(pod.address)], "{clients:?}");
        }

        Ok(())
    }
}
