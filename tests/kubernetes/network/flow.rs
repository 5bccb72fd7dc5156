//! Traffic between pods, sent and received by the test itself in their namespaces.

use crate::fixture::{Peering, Web, seen};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::pod;
use std::net::SocketAddrV4;
use std::time::Duration;
use tests::lab::netns::Netns;
use tests::traffic::{tcp, udp};

/// Streams at once.
const STREAMS: usize = 8;

/// Bytes per second of each of them.
const RATE: u64 = 256 << 10;

const TCP_PORT: u16 = 7000;
const UDP_PORT: u16 = 7001;

/// How long a stream may take to make progress again.
const PATIENCE: Duration = Duration::from_secs(20);

/// TCP streams and a steady flow of datagrams from rome's pods to milan's.
pub(crate) struct Traffic {
    webs: [Web; 2],
    servers: Vec<tcp::Server>,
    streams: Vec<tcp::Stream>,
    _echoes: Vec<udp::Echo>,
    flows: Vec<udp::Flow>,
    interval: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The longest time in which a stream made no progress.
    pub(crate) tcp_gap: Duration,
    /// The longest time in which all datagrams of a flow were lost; those that a busy
    /// machine delays are not.
    pub(crate) udp_outage: Duration,
    /// Datagrams without an answer.
    pub(crate) udp_lost: u64,
}

impl Traffic {
    /// Starts it between new pods on all nodes, in namespaces of this name, a datagram
    /// every `interval`; returns once all of it flows.
    pub(crate) async fn start(peering: &Peering, name: &str, interval: Duration) -> Result<Self> {
        let webs = peering.web(name).await?;
        let [rome, milan] = &webs;
        let mut traffic = Self {
            servers: Vec::new(),
            streams: Vec::new(),
            _echoes: Vec::new(),
            flows: Vec::new(),
            interval,
            webs: webs.clone(),
        };
        let mut targets = Vec::new();
        for to in &milan.pods {
            let netns = pod::netns(&milan.namespace, &to.name).await?;
            traffic
                .servers
                .push(tcp::Server::start(&netns, to.address, TCP_PORT)?);
            traffic
                ._echoes
                .push(udp::Echo::start(&netns, to.address, UDP_PORT)?);
            targets.push(seen(&peering.rome, MILAN, to.address).await?);
        }
        let mut sources: Vec<Netns> = Vec::new();
        for from in &rome.pods {
            sources.push(pod::netns(&rome.namespace, &from.name).await?);
        }

        let pairs = (sources.iter()).flat_map(|from| targets.iter().map(move |to| (from, *to)));
        for (from, to) in pairs.cycle().take(STREAMS) {
            let to = SocketAddrV4::new(to, TCP_PORT);
            traffic.streams.push(tcp::Stream::start(from, to, RATE)?);
        }
        for (from, to) in sources.iter().zip(&targets) {
            let to = SocketAddrV4::new(*to, UDP_PORT);
            traffic.flows.push(udp::Flow::start(from, to, interval)?);
        }
        traffic.flows_on()?;
        for stream in &traffic.streams {
            stream.take_longest_gap();
        }

        Ok(traffic)
    }

    /// Waits until every stream makes progress.
    pub(crate) fn flows_on(&self) -> Result<()> {
        self.streams
            .iter()
            .try_for_each(|stream| stream.wait_for_progress(PATIENCE))
            .context("a stream does not go on")
    }

    /// Ends it: every byte has arrived unchanged, over the connections it began with.
    pub(crate) async fn finish(self) -> Result<Outcome> {
        self.flows_on()?;
        let mut tcp_gap = Duration::ZERO;
        for stream in self.streams {
            tcp_gap = tcp_gap.max(stream.finish()?.longest_gap);
        }
        let clients: usize = self.servers.iter().map(|it| it.clients().len()).sum();
        ensure!(clients == STREAMS, "{clients} connections: some are new");
        let mut outcome = Outcome {
            tcp_gap,
            udp_outage: Duration::ZERO,
            udp_lost: 0,
        };
        for flow in self.flows {
            let flow = flow.finish();
            let longest = flow.missing.iter().map(|it| it.end - it.start).max();
            let longest = u32::try_from(longest.unwrap_or_default())?;
            outcome.udp_outage = outcome.udp_outage.max(self.interval * longest);
            outcome.udp_lost += flow.lost();
        }
        for web in &self.webs {
            web.namespace.delete().await?;
        }
        eprintln!("{ROME} to {MILAN}: {outcome:?}");

        Ok(outcome)
    }
}
