//! What happens when gateways die.

use super::Verdict;
use super::reach::milliseconds;
use crate::demo::stage::{ADDRESS, MILAN, REPLICAS, ROME, Stage};
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

/// Bytes per second of each connection: all together a small part of what fits.
const RATE: u64 = 1 << 20;

/// The longest silence that a lost gateway may cause.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// A silence shorter than this may be the machine's.
const SILENCE_SEEN: Duration = Duration::from_millis(100);

/// Further packets that must be refused, too.
const REFUSALS: usize = 3;

/// Within this the kernel tells of one refusal at least.
const TOLD: Duration = Duration::from_secs(3);

/// How long connections may take to go on before the demo gives up on them.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn replica_killed(stage: &mut Stage) -> Result<Verdict> {
    let _server = tcp::Server::start(&stage.milan.netns, ADDRESS, PORT)?;
    let to = SocketAddrV4::new(stage.milan_seen, PORT);
    let streams = (0..CONNECTIONS)
        .map(|_| tcp::Stream::start(&stage.rome.netns, to, RATE))
        .collect::<Result<Vec<_>>>()?;
    progress(&streams)?;

    for cluster in [MILAN, ROME] {
        stage.lab.gateway(cluster, 1).kill()?;
        progress(&streams)?;
    }

    let mut longest = Duration::ZERO;
    let mut struck = 0;
    let mut bytes = 0;
    for stream in streams {
        let outcome = stream.finish().context("a connection broke")?;
        longest = longest.max(outcome.longest_gap);
        struck += usize::from(outcome.longest_gap >= SILENCE_SEEN);
        bytes += outcome.bytes;
    }
    Ok(Verdict::new(
        longest <= SILENCE_MAX,
        format!(
            "{CONNECTIONS} of {CONNECTIONS} connections went on, {} MB intact; {struck} were struck, the longest silence was {}",
            bytes / 1_000_000,
            milliseconds(longest),
        ),
    ))
}

/// Waits until every connection has gone on for longer than a lost gateway may
/// silence it.
fn progress(streams: &[tcp::Stream]) -> Result<()> {
    let enough = RATE * 3 / 2;
    let goals: Vec<u64> = streams
        .iter()
        .map(|stream| stream.progress() + enough)
        .collect();

    wait::until(PATIENCE, "all connections to go on", || {
        let mut pairs = streams.iter().zip(&goals);
        Ok(pairs.all(|(stream, goal)| stream.progress() >= *goal))
    })
}

pub(super) fn no_leak(stage: &mut Stage) -> Result<Verdict> {
    let milan: Ipv4Net = stage
        .pods_seen(ROME, MILAN)?
        .parse()
        .context("not a network")?;
    // Packets for milan that leave a node as they are, not inside the overlay.
    let captures = stage
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
        stage.lab.gateway(ROME, replica).kill()?;
    }
    let start = Instant::now();
    let mut tries = 0;
    let refusal = wait::value(PATIENCE, "packets to be refused", || {
        tries += 1;
        Ok(refused(stage).ok())
    })?;
    let after = milliseconds(start.elapsed());
    for _ in 0..REFUSALS {
        // Only five refusals at once are told to the same sender, then one per second.
        wait::value(TOLD, "a packet to be refused again", || {
            tries += 1;
            Ok(refused(stage).ok())
        })?;
    }

    let mut leaked = 0;
    for capture in captures {
        leaked += capture.finish()?.len();
    }
    Ok(Verdict::new(
        leaked == 0,
        format!(
            "refused after {after} (\"{refusal}\"); {leaked} of {tries} packets left a node another way"
        ),
    ))
}

/// Sends milan a datagram and returns what the socket says if it is refused, else what
/// became of it as an error.
///
/// Not TCP: an ICMP error that comes while `connect` still holds the socket only counts
/// with the next one, a second later.
fn refused(stage: &Stage) -> Result<String> {
    let to = SocketAddrV4::new(stage.milan_seen, PORT);
    let Err(error) = udp::exchange(&stage.rome.netns, to, b"?", Duration::from_millis(200)) else {
        bail!("milan answered");
    };

    if matches!(
        error.kind(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    ) {
        return Ok(error.to_string());
    }
    Err(error).context("milan was sent a datagram")
}
