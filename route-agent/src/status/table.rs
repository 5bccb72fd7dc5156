//! Formats the status document as tables for `route-agent status`.

use crate::status::{Spread, Status};
use comfy_table::{Table, presets};
use std::io::{self, Write};

/// Writes `status` as human-readable text.
pub(crate) fn print(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "cluster    {}", status.cluster_id)?;
    let external_ip = or_dash(status.external_ip);
    writeln!(out, "node       {} ({external_ip})", status.node)?;
    writeln!(out, "config     {}", config(status))?;
    writeln!(out, "kernel     {}", kernel(status))?;
    writeln!(out, "spread     {}", spread(status.spread))?;
    writeln!(out, "tunnel GRO {}", tunnel_ports(&status.tunnel_ports))?;
    for card in &status.cards {
        for lack in &card.lacks {
            writeln!(out, "card       {} lacks {lack}", card.device)?;
        }
    }
    for warning in &status.warnings {
        writeln!(out, "WARNING    {warning}")?;
    }
    let drops: Vec<_> = status
        .drops
        .iter()
        .map(|(reason, packets)| format!("{reason} {packets}"))
        .collect();
    writeln!(out, "drops      {}", drops.join(", "))?;
    writeln!(out)?;
    writeln!(out, "{}", replicas(status))?;
    writeln!(out)?;
    writeln!(out, "{}", peers(status))
}

fn config(status: &Status) -> String {
    let source = &status.config.source;
    match &status.config.error {
        None => format!("{source}, valid"),
        Some(error) => format!("{source} is INVALID, the last valid version is in force: {error}"),
    }
}

fn kernel(status: &Status) -> String {
    let state = match &status.error {
        None if status.converged => "converged".to_owned(),
        None => "converging".to_owned(),
        Some(error) => format!("FAILED: {error}"),
    };

    format!("{state}, {} repairs", status.reapplies)
}

fn spread(spread: Spread) -> &'static str {
    match spread {
        Spread::PerFlow => "per flow",
        Spread::PerAddressPair => {
            "per address pair (per flow with sysctl net.ipv4.fib_multipath_hash_policy=1)"
        }
    }
}

fn tunnel_ports(ports: &[u16]) -> String {
    if ports.is_empty() {
        return "no port".to_owned();
    }
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();

    format!("UDP ports {}", ports.join(", "))
}

fn replicas(status: &Status) -> Table {
    let mut table = table([
        "GATEWAY REPLICA",
        "ADDRESS",
        "NODE",
        "STATE",
        "RTT",
        "REPLIES/PROBES",
    ]);
    for replica in &status.replicas {
        let rtt = replica
            .rtt_seconds
            .map(|rtt| format!("{:.2} ms", rtt * 1e3));
        let state = match replica.same_clusters {
            Some(false) => format!("{} (with other remote clusters)", replica.phase),
            Some(true) | None => replica.phase.clone(),
        };
        table.add_row([
            replica.name.clone(),
            or_dash(replica.address),
            replica.node.clone(),
            state,
            or_dash(rtt),
            format!("{}/{}", replica.answered, replica.sent),
        ]);
    }

    table
}

fn peers(status: &Status) -> Table {
    let mut table = table(["REMOTE CLUSTER", "REMAPPED CIDRS", "GATEWAYS", "MTU"]);
    for peer in &status.peers {
        let gateways = if peer.gateways.is_empty() {
            "UNREACHABLE".to_owned()
        } else if peer.path_up == Some(false) {
            format!("{} (PATH DOWN: no echo replies)", peer.gateways.join(", "))
        } else {
            peer.gateways.join(", ")
        };
        table.add_row([
            peer.cluster_id.clone(),
            peer.cidrs.join(", "),
            gateways,
            or_dash(peer.mtu_bytes),
        ]);
    }

    table
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests;
