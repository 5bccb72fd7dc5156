//! Checks that kill gateways.

use super::Verdict;
use super::reach::milliseconds;
use crate::demo::scenario::{ADDRESS, MILAN, REPLICAS, ROME, Scenario};
use anyhow::{Context as _, Result, bail};
use ipnet::Ipv4Net;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use tests::lab::wait;
use tests::traffic::capture::Capture;
use tests::traffic::{tcp, udp};

const PORT: u16 = 8080;

const CONNECTIONS: usize = 8;

/// The rate of each connection, in bytes per second. The sum of all connections is far below the
/// throughput of the tunnel.
const RATE: u64 = 1 << 20;

/// The maximum permitted time without data on a connection after a gateway was killed.
const GAP_MAX: Duration = Duration::from_secs(1);

/// The minimum time without data that counts as an interruption. A busy machine can cause shorter
/// gaps.
const GAP_MIN: Duration = Duration::from_millis(100);

/// The number of packets after the first rejected packet that must be rejected, too.
const REJECTIONS: usize = 3;

/// Time limit for the rejection of one packet. The kernel rate-limits ICMP errors to one per
/// second.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit for all connections to make progress.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn replica_killed(scenario: &mut Scenario) -> Result<Verdict> {
    let _server = tcp::Server::start(&scenario.milan.netns, ADDRESS, PORT)?;
    let to = SocketAddrV4::new(scenario.milan_seen, PORT);
    let streams = (0..CONNECTIONS)
        .map(|_| tcp::Stream::start(&scenario.rome.netns, to, RATE))
        .collect::<Result<Vec<_>>>()?;
    progress(&streams)?;

    for cluster in [MILAN, ROME] {
        scenario.lab.gateway(cluster, 1).kill()?;
        progress(&streams)?;
    }

    let mut longest = Duration::ZERO;
    let mut interrupted = 0;
    let mut bytes = 0;
    for stream in streams {
        let outcome = stream.finish().context("a connection broke")?;
        longest = longest.max(outcome.longest_gap);
        interrupted += usize::from(outcome.longest_gap >= GAP_MIN);
        bytes += outcome.bytes;
    }
    Ok(Verdict::new(
        longest <= GAP_MAX,
        format!(
            "{CONNECTIONS} of {CONNECTIONS} connections survived, {} MB intact; {interrupted} were interrupted, for at most {}",
            bytes / 1_000_000,
            milliseconds(longest),
        ),
    ))
}

/// Waits until every connection has transferred as much data as in 1.5 seconds at [`RATE`], which
/// is longer than [`GAP_MAX`].
fn progress(streams: &[tcp::Stream]) -> Result<()> {
    let enough = RATE * 3 / 2;
    let goals: Vec<u64> = streams
        .iter()
        .map(|stream| stream.progress() + enough)
        .collect();

    wait::until(PROGRESS_TIMEOUT, "progress of all connections", || {
        let mut pairs = streams.iter().zip(&goals);
        Ok(pairs.all(|(stream, goal)| stream.progress() >= *goal))
    })
}

pub(super) fn no_leak(scenario: &mut Scenario) -> Result<Verdict> {
    let milan: Ipv4Net = scenario
        .pods_seen(ROME, MILAN)?
        .parse()
        .context("not a network")?;
    // A packet on a node's `eth0` with a destination in milan's remapped CIDR has left the node
    // without encapsulation.
    let captures = scenario
        .lab
        .cluster(ROME)
        .nodes
        .iter()
        .map(|node| {
            Capture::packets(&node.netns, "eth0", move |packet| {
                milan.contains(&packet.destination())
            })
        })
        .collect::<Result<Vec<_>>>()?;

    for replica in 1..=REPLICAS {
        scenario.lab.gateway(ROME, replica).kill()?;
    }
    let start = Instant::now();
    let mut tries = 0;
    let rejection = wait::value(PROGRESS_TIMEOUT, "packets to be rejected", || {
        tries += 1;
        Ok(rejected(scenario).ok())
    })?;
    let after = milliseconds(start.elapsed());
    for _ in 0..REJECTIONS {
        // The kernel sends five ICMP errors to a source without delay, and then one per second
        // (`ip_error` in the kernel's `net/ipv4/route.c`).
        wait::value(REJECTION_TIMEOUT, "a further packet to be rejected", || {
            tries += 1;
            Ok(rejected(scenario).ok())
        })?;
    }

    let mut leaked = 0;
    for capture in captures {
        leaked += capture.finish()?.len();
    }
    Ok(Verdict::new(
        leaked == 0,
        format!(
            "rejected after {after} (\"{rejection}\"); {leaked} of {tries} packets left a node on another route"
        ),
    ))
}

/// Sends a datagram to milan. If an ICMP error rejected the datagram, returns the text of the
/// socket's error. Otherwise returns an error that describes the outcome.
///
/// The check uses UDP instead of TCP. During `connect`, the kernel ignores an ICMP error that
/// arrives while the socket is locked, and sends the next ICMP error a second later.
fn rejected(scenario: &Scenario) -> Result<String> {
    let to = SocketAddrV4::new(scenario.milan_seen, PORT);
    let Err(error) = udp::exchange(&scenario.rome.netns, to, b"?", Duration::from_millis(200))
    else {
        bail!("milan replied");
    };

    if matches!(
        error.kind(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    ) {
        return Ok(error.to_string());
    }
    Err(error).context("a datagram to milan was not rejected")
}
