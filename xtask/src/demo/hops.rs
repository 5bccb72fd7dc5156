//! One ping from pod to pod, captured wherever it passes.

use super::capture::Capture;
use super::stage::{MILAN, REPLICAS, ROME, Stage};
use crate::console::{self, FAINT};
use anyhow::Result;

/// Sends one ping and shows it at each hop.
///
/// # Errors
///
/// Returns an error if a capture does not start.
pub(super) fn show(stage: &Stage) -> Result<()> {
    let core = stage.lab.underlay().core().name();
    let request = "icmp[icmptype] == icmp-echo";
    // A data message begins with type 4 and three zero bytes; probes are smaller than the ping.
    let encrypted = "greater 1000 and udp[8:4] == 0x04000000";
    let one = Capture::first;

    let mut hops = vec![(
        "pod in rome: to the address that rome sees",
        vec![one(stage.rome.netns.name(), "eth0", request, &[])?],
    )];
    let node = stage.lab.cluster(ROME).node(1).netns.name();
    hops.push((
        "overlay of the node: unchanged, on the way to a gateway",
        vec![one(node, "liqo-overlay", request, &[])?],
    ));
    hops.push((
        "gateway of rome, after the rewrite: the original address; the peer is in the MAC",
        taps(stage, ROME, |netns| {
            one(netns, "liqo-tap", request, &["-e"])
        })?,
    ));
    hops.push((
        "between the clusters: data of the WireGuard session, and nothing else to see",
        vec![one(core, "to-milan", encrypted, &[])?],
    ));
    hops.push((
        "gateway of milan, decrypted: before the rewrite",
        taps(stage, MILAN, |netns| {
            one(netns, "liqo-tap", request, &["-e"])
        })?,
    ));
    hops.push((
        "pod in milan: from the address that milan sees",
        vec![one(stage.milan.netns.name(), "eth0", request, &[])?],
    ));

    let destination = stage.milan_seen.to_string();
    let ping = ["-n", "-c", "1", "-s", "1000", "-W", "2", &destination];
    let answer = stage.rome.netns.exec("ping", &ping, "")?;
    for (what, captures) in hops {
        console::note(format_args!("{FAINT}{what}{FAINT:#}"));
        for capture in captures {
            for line in capture.finish()? {
                console::note(format_args!("  {line}"));
            }
        }
    }
    for line in answer.lines().filter(|line| line.contains("time=")) {
        console::note(line);
    }

    Ok(())
}

/// Captures in every replica: which of them carries a packet depends on its addresses.
fn taps(
    stage: &Stage,
    cluster: &str,
    start: impl Fn(&str) -> Result<Capture>,
) -> Result<Vec<Capture>> {
    (1..=REPLICAS)
        .map(|replica| start(&stage.inner_netns(cluster, replica)))
        .collect()
}
