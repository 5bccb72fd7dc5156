//! Traffic between pods, sent and received by the test itself in their namespaces.

use crate::fixture::{Peering, SOON, Web, seen};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::pod;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};
use tests::lab::netns::Netns;
use tests::traffic::{tcp, udp};

/// Streams at once; as many flows of datagrams at most, one for each pair of pods.
const STREAMS: usize = 8;

/// Bytes per second of each of them.
const RATE: u64 = 256 << 10;

const TCP_PORT: u16 = 7000;
const UDP_PORT: u16 = 7001;

/// TCP streams and a steady flow of datagrams from rome's pods to milan's.
pub(crate) struct Traffic {
    webs: [Web; 2],
    servers: Vec<tcp::Server>,
    streams: Vec<tcp::Stream>,
    _echoes: Vec<udp::Echo>,
    /// Between which pods datagrams flow.
    pairs: Vec<(Netns, SocketAddrV4)>,
    flows: Vec<udp::Flow>,
    /// When these flows began.
    since: jiff::Timestamp,
    interval: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The longest time in which a stream made no progress.
    pub(crate) tcp_gap: Duration,
    /// The longest time in which all datagrams of a flow were lost; those that a busy
    /// machine delays are not.
    pub(crate) udp_outage: Duration,
    /// Datagrams without an answer.
    pub(crate) udp_lost: u64,
}

impl Outcome {
    /// The worse of both, figure by figure.
    pub(crate) fn worse(self, other: Self) -> Self {
        Self {
            tcp_gap: self.tcp_gap.max(other.tcp_gap),
            udp_outage: self.udp_outage.max(other.udp_outage),
            udp_lost: self.udp_lost.max(other.udp_lost),
        }
    }
}

impl Traffic {
    /// Starts it between new pods on all nodes, in namespaces of this name, a datagram
    /// every `interval`; returns once all of it flows.
    pub(crate) async fn start(peering: &Peering, name: &str, interval: Duration) -> Result<Self> {
        let webs = peering.web(name).await?;
        Self::between(peering, webs, interval).await
    }

    /// Starts it between these pods of rome and of milan.
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

    /// Starts servers in milan's pods, and returns each of rome's with each of these, as
    /// rome sees them.
    async fn pairs(&mut self, peering: &Peering) -> Result<Vec<(Netns, Ipv4Addr)>> {
        let [rome, milan] = self.webs.clone();
        let mut targets = Vec::new();
        for to in &milan.pods {
            let netns = pod::netns(&milan.namespace, &to.name).await?;
            let server = tcp::Server::start(&netns, to.address, TCP_PORT)?;
            self.servers.push(server);
            let echo = udp::Echo::start(&netns, to.address, UDP_PORT)?;
            self._echoes.push(echo);
            targets.push(seen(&peering.rome, MILAN, to.address).await?);
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
            .context("a stream does not go on")
    }

    /// Lets it flow for a while, in which every stream makes progress again and again.
    pub(crate) fn flows_for(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flows_on()?;
        }

        Ok(())
    }

    /// Returns what came of it since the last lap, and begins another; the connections
    /// stay.
    pub(crate) fn lap(&mut self) -> Result<Outcome> {
        self.flows_on()?;
        let gaps = self.streams.iter().map(tcp::Stream::take_longest_gap);
        let mut outcome = Outcome {
            tcp_gap: gaps.max().unwrap_or_default(),
            ..self.end_datagrams()?
        };
        self.start_datagrams()?;
        self.flows_on()?;
        // What happened while the last answers were waited for belongs to this lap, too.
        let gaps = self.streams.iter().map(tcp::Stream::take_longest_gap);
        outcome.tcp_gap = outcome.tcp_gap.max(gaps.max().unwrap_or_default());

        Ok(outcome)
    }

    fn forget_gaps(&self) {
        for stream in &self.streams {
            stream.take_longest_gap();
        }
    }

    /// Ends the flows of datagrams, all at once: each waits for its last answers.
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
                // To be found in the logs of what was happening then.
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

    /// Ends it: every byte has arrived unchanged, over the connections it began with.
    /// Returns what came of it since the last lap.
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
        ensure!(clients == STREAMS, "{clients} connections: some are new");
        eprintln!("{ROME} to {MILAN}: {outcome:?}");

        Ok(outcome)
    }
}
