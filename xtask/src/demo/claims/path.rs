//! Checks of the path between the clusters: encryption and path MTU.

use super::Verdict;
use crate::demo::scenario::{ADDRESS, MILAN, Scenario};
use anyhow::{Context as _, Result};
use std::net::SocketAddrV4;
use tests::fault::mtu;
use tests::lab::link::settings::Restore;
use tests::lab::link::{self, End};
use tests::traffic::capture::{Capture, Frame};
use tests::traffic::{tcp, udp};

/// The payload of the datagrams. It must not be readable between the clusters.
const TEXT: &[u8] = b"All roads lead to Rome, and this one is encrypted from end to end.";

const TEXTS: usize = 20;

const PORT: u16 = 8080;

/// The reduced path MTU in bytes. 1280 is the minimum MTU of IPv6 and common in tunnels.
const NARROW: u32 = 1280;

const BYTES: u64 = 8 << 20;

/// The device of the laboratory's core router on the link to milan.
const TO_MILAN: &str = "to-milan";

pub(super) fn encrypted(scenario: &mut Scenario) -> Result<Verdict> {
    let core = scenario.lab.underlay().core();
    let to = SocketAddrV4::new(scenario.milan_seen, PORT);
    let _echo = udp::Echo::start(&scenario.milan.netns, ADDRESS, PORT)?;
    let inside = Capture::start(&scenario.rome.netns, "eth0", |_| true)?;
    let outside = Capture::start(core, TO_MILAN, |_| true)?;

    let echoed = (0..TEXTS)
        .filter(|_| udp::is_echoed(&scenario.rome.netns, to, TEXT))
        .count();

    let inside = inside.finish()?;
    let outside = outside.finish()?;
    let in_clear = inside.iter().filter(|frame| reveals(frame)).count();
    let tapped = outside.iter().filter(|frame| reveals(frame)).count();
    let data = outside.iter().filter(|frame| is_data(frame)).count();
    Ok(Verdict::new(
        // The text must be readable at the pod. This proves that the search finds unencrypted
        // text.
        echoed == TEXTS && in_clear >= 2 * TEXTS && tapped == 0 && data >= 2 * TEXTS,
        format!(
            "the text is in {in_clear} packets at the pod, and in {tapped} of {} between the clusters, {data} of them data of the WireGuard session",
            outside.len(),
        ),
    ))
}

fn reveals(frame: &Frame) -> bool {
    frame.bytes.windows(TEXT.len()).any(|window| window == TEXT)
}

/// Returns whether a frame is a WireGuard data message, which begins with type 4 and three zero
/// bytes.
fn is_data(frame: &Frame) -> bool {
    frame
        .ipv4()
        .and_then(|packet| packet.udp())
        .is_some_and(|datagram| matches!(datagram.payload, [4, 0, 0, 0, ..]))
}

pub(super) fn narrow(scenario: &mut Scenario) -> Result<Verdict> {
    let core = scenario.lab.underlay().core();
    let edge = &scenario.lab.cluster(MILAN).edge;
    let ends = [
        End {
            netns: core,
            device: TO_MILAN,
        },
        End {
            netns: edge,
            device: "up",
        },
    ];
    let restore = Restore::of(ends)?;
    // With offloads, the capture would see super-packets that exceed the MTU, because the kernel
    // segments them after the capture.
    for end in ends {
        link::without_offloads(end)?;
    }
    mtu::set(ends, NARROW)?;
    let server = tcp::Server::start(&scenario.milan.netns, ADDRESS, PORT)?;
    let capture = Capture::packets(core, TO_MILAN, |_| true)?;

    let to = SocketAddrV4::new(scenario.milan_seen, PORT);
    let outcome = tcp::transfer(&scenario.rome.netns, to, BYTES);

    // Probes of the restored path are longer.
    let frames = capture.finish();
    restore.now()?;
    let frames = frames?;
    let outcome = outcome.context("over the narrow path")?;
    let sizes = frames
        .iter()
        .filter_map(|frame| Some(frame.ipv4()?.bytes.len()));
    let largest = sizes.max().unwrap_or_default();
    Ok(Verdict::new(
        server.received() == BYTES && largest <= NARROW as usize,
        format!(
            "{} MB intact at {:.2} Gb/s; the largest of {} packets between the clusters had {largest} bytes",
            server.received() / 1_000_000,
            outcome.bits_per_second() / 1e9,
            frames.len(),
        ),
    ))
}
