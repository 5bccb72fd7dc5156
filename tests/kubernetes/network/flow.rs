//! Traffic between pods. The test process sends and receives the packets in the pods' network
//! namespaces.

use crate::fixture::{Peering, SOON, Web, remapped};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::pod;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};
use tests::lab::netns::Netns;
use tests::traffic::{tcp, udp};

/// The number of TCP streams, and the maximum number of UDP flows. Each pair of pods has one UDP
/// flow.
const STREAMS: usize = 8;

/// Bytes per second of each stream.
const RATE: u64 = 256 << 10;

const TCP_PORT: u16 = 7000;
const UDP_PORT: u16 = 7001;

/// TCP streams, and UDP flows with a constant packet rate, from rome's pods to milan's.
pub(crate) struct Traffic {
    webs: [Web; 2],
    servers: Vec<tcp::Server>,
    streams: Vec<tcp::Stream>,
    _echoes: Vec<udp::Echo>,
    /// The source and the destination of each UDP flow.
    pairs: Vec<(Netns, SocketAddrV4)>,
    flows: Vec<udp::Flow>,
    /// The start of the current UDP flows.
    since: jiff::Timestamp,
    interval: Duration,
}

/// The measurements of one lap, which is the time between two calls of [`Traffic::lap`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The longest time in which a TCP stream made no progress.
    pub(crate) tcp_gap: Duration,
    /// The longest time in which all datagrams of a UDP flow were lost. A delayed datagram is not
    /// lost.
    pub(crate) udp_outage: Duration,
    /// The number of datagrams without an echo.
    pub(crate) udp_lost: u64,
}

impl Outcome {
    /// Returns the greater value of each measurement.
    pub(crate) fn worse(self, other: Self) -> Self {
        Self {
            tcp_gap: self.tcp_gap.max(other.tcp_gap),
            udp_outage: self.udp_outage.max(other.udp_outage),
            udp_lost: self.udp_lost.max(other.udp_lost),
        }
    }
}

impl Traffic {
    /// Starts traffic between new pods on all nodes, in namespaces called `name`. Each UDP flow
    /// sends a datagram every `interval`. Returns once all streams make progress.
    pub(crate) async fn start(peering: &Peering, name: &str, interval: Duration) -> Result<Self> {
        let webs = peering.web(name).await?;
        Self::between(peering, webs, interval).await
    }

    /// Starts traffic between these pods of rome and of milan.
    pub(crate) async fn between(
        peering: &Peering,
        webs: [Web; 2],
        interval: Duration,
    ) -> Result<Self> {
        let mut traffic = Self {
            servers: Vec::new(),
            streams: Vec::new(),
            _echoes: Vec::new(),
            pairs: Vec::new(),
            flows: Vec::new(),
            since: jiff::Timestamp::now(),
            interval,
            webs: webs.clone(),
        };
        let pairs = traffic.pairs(peering).await?;
        for (from, to) in pairs.iter().cycle().take(STREAMS) {
            let to = SocketAddrV4::new(*to, TCP_PORT);
            traffic.streams.push(tcp::Stream::start(from, to, RATE)?);
        }
        let datagrams = pairs.into_iter().take(STREAMS);
        traffic.pairs = datagrams
            .map(|(from, to)| (from, SocketAddrV4::new(to, UDP_PORT)))
            .collect();
        traffic.start_datagrams()?;
        traffic.flows_on()?;
        traffic.forget_gaps();

        Ok(traffic)
    }

    /// Starts servers in milan's pods. Returns each pair of a pod of rome and an address of a pod
    /// of milan.
    async fn pairs(&mut self, peering: &Peering) -> Result<Vec<(Netns, Ipv4Addr)>> {
        let [rome, milan] = self.webs.clone();
        let mut targets = Vec::new();
        for to in &milan.pods {
            let netns = pod::netns(&milan.namespace, &to.name).await?;
            let server = tcp::Server::start(&netns, to.address, TCP_PORT)?;
            self.servers.push(server);
            let echo = udp::Echo::start(&netns, to.address, UDP_PORT)?;
            self._echoes.push(echo);
            targets.push(remapped(&peering.rome, MILAN, to.address).await?);
        }
        let mut pairs = Vec::new();
        for from in &rome.pods {
            let netns = pod::netns(&rome.namespace, &from.name).await?;
            pairs.extend(targets.iter().map(|to| (netns.clone(), *to)));
        }

        Ok(pairs)
    }

    fn start_datagrams(&mut self) -> Result<()> {
        self.since = jiff::Timestamp::now();
        for (from, to) in &self.pairs {
            self.flows.push(udp::Flow::start(from, *to, self.interval)?);
        }

        Ok(())
    }

    /// Waits until every stream makes progress.
    pub(crate) fn flows_on(&self) -> Result<()> {
        self.streams
            .iter()
            .try_for_each(|stream| stream.wait_for_progress(SOON))
            .context("a stream stalled")
    }

    /// Waits for `time`. Fails if a stream makes no progress.
    pub(crate) fn flows_for(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flows_on()?;
        }

        Ok(())
    }

    /// Returns the measurements since the last lap, and begins the next lap with the same
    /// connections.
    pub(crate) fn lap(&mut self) -> Result<Outcome> {
        self.flows_on()?;
        let gaps = self.streams.iter().map(tcp::Stream::take_longest_gap);
        let mut outcome = Outcome {
            tcp_gap: gaps.max().unwrap_or_default(),
            ..self.end_datagrams()?
        };
        self.start_datagrams()?;
        self.flows_on()?;
        // The streams continued during the wait for the last echoes, which is part of this lap.
        let gaps = self.streams.iter().map(tcp::Stream::take_longest_gap);
        outcome.tcp_gap = outcome.tcp_gap.max(gaps.max().unwrap_or_default());

        Ok(outcome)
    }

    fn forget_gaps(&self) {
        for stream in &self.streams {
            stream.take_longest_gap();
        }
    }

    /// Ends the UDP flows in parallel, since each flow waits for its last echoes.
    fn end_datagrams(&mut self) -> Result<Outcome> {
        let ends: Vec<_> = self
            .flows
            .drain(..)
            .map(|flow| thread::spawn(move || flow.finish()))
            .collect();
        let mut outcome = Outcome::default();
        for end in ends {
            let flow = end.join().ok().context("a flow has panicked")?;
            for missing in &flow.missing {
                // The timestamp helps to find the loss in the logs.
                let start = self.since + self.interval * u32::try_from(missing.start)?;
                let count = missing.end - missing.start;
                eprintln!("{count} datagrams of a flow were lost from {start:.3} on");
            }
            let longest = flow.missing.iter().map(|it| it.end - it.start).max();
            let longest = u32::try_from(longest.unwrap_or_default())?;
            outcome.udp_outage = outcome.udp_outage.max(self.interval * longest);
            outcome.udp_lost += flow.lost();
        }

        Ok(outcome)
    }

    /// Ends the traffic, and returns the measurements since the last lap. Asserts that every byte
    /// arrived unchanged and that no stream reconnected.
    pub(crate) async fn finish(mut self) -> Result<Outcome> {
        self.flows_on()?;
        let gaps = self.streams.iter().map(tcp::Stream::take_longest_gap);
        let outcome = Outcome {
            tcp_gap: gaps.max().unwrap_or_default(),
            ..self.end_datagrams()?
        };
        for stream in self.streams {
            stream.finish()?;
        }
        let clients: usize = self.servers.iter().map(|it| it.clients().len()).sum();
        ensure!(
            clients == STREAMS,
            "{clients} connections instead of {STREAMS}"
        );
        eprintln!("{ROME} to {MILAN}: {outcome:?}");

        Ok(outcome)
    }
}
