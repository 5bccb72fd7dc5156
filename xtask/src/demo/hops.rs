//! Captures one ping from pod to pod at each hop.

use super::capture::Capture;
use super::scenario::{MILAN, REPLICAS, ROME, Scenario};
use crate::console::{self, FAINT};
use anyhow::Result;

/// Sends one ping, and prints the captured packet of each hop.
///
/// # Errors
///
/// Returns an error if a capture does not start.
pub(super) fn show(scenario: &Scenario) -> Result<()> {
    let core = scenario.lab.underlay().core().name();
    let request = "icmp[icmptype] == icmp-echo";
    // A WireGuard data message begins with type 4 and three zero bytes. The size excludes probes,
    // which are smaller than the ping.
    let encrypted = "greater 1000 and udp[8:4] == 0x04000000";
    let one = Capture::first;

    let mut hops = vec![(
        "pod in rome: to the remapped address",
        vec![one(scenario.rome.netns.name(), "eth0", request, &[])?],
    )];
    let node = scenario.lab.cluster(ROME).node(1).netns.name();
    hops.push((
        "overlay device of the node: unchanged, sent to a gateway",
        vec![one(node, "liqo-overlay", request, &[])?],
    ));
    hops.push((
        "gateway of rome, after the rewrite: the original address; the peer's index is in the MAC",
        taps(scenario, ROME, |netns| {
            one(netns, "liqo-tap", request, &["-e"])
        })?,
    ));
    hops.push((
        "between the clusters: a data message of WireGuard",
        vec![one(core, "to-milan", encrypted, &[])?],
    ));
    hops.push((
        "gateway of milan, decrypted: before the rewrite",
        taps(scenario, MILAN, |netns| {
            one(netns, "liqo-tap", request, &["-e"])
        })?,
    ));
    hops.push((
        "pod in milan: from the remapped address",
        vec![one(scenario.milan.netns.name(), "eth0", request, &[])?],
    ));

    let destination = scenario.milan_seen.to_string();
    let ping = ["-n", "-c", "1", "-s", "1000", "-W", "2", &destination];
    let output = scenario.rome.netns.exec("ping", &ping, "")?;
    for (hop, captures) in hops {
        console::note(format_args!("{FAINT}{hop}{FAINT:#}"));
        for capture in captures {
            for line in capture.finish()? {
                console::note(format_args!("  {line}"));
            }
        }
    }
    for line in output.lines().filter(|line| line.contains("time=")) {
        console::note(line);
    }

    Ok(())
}

/// Starts a capture in every gateway replica, because the hash of a packet's addresses selects the
/// replica, which is not known in advance.
fn taps(
    scenario: &Scenario,
    cluster: &str,
    start: impl Fn(&str) -> Result<Capture>,
) -> Result<Vec<Capture>> {
    (1..=REPLICAS)
        .map(|replica| start(&scenario.inner_netns(cluster, replica)))
        .collect()
}
