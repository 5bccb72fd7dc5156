//! Prints the status document as tables.

use comfy_table::{Table, presets};
use serde_json::Value;
use std::io::{self, Write};
use std::time::Duration;

/// Prints the document of the status socket.
///
/// Ignores unknown and missing fields, because a gateway of another version may send the document.
pub(super) fn print(status: &Value, out: &mut impl Write) -> io::Result<()> {
    let gateway = &status["gateway"];
    writeln!(
        out,
        "Gateway {} of cluster {}, version {}, instance {}, UDP port {}, cipher by {}",
        text(&gateway["replica"]),
        text(&gateway["clusterId"]),
        text(&gateway["version"]),
        text(&gateway["instance"]),
        text(&gateway["listenPort"]),
        text(&gateway["cipher"]),
    )?;
    configuration(&status["config"], out)?;
    if status["answers"] == false {
        return writeln!(out, "The packet loop does not respond: restart the gateway");
    }
    if status["engine"]["leaving"] == true {
        writeln!(out, "Leaving: flows are moving to other replicas")?;
    }

    broken_paths(&status["path"]["clusters"], out)?;
    sessions(&status["engine"]["peers"], out)?;
    counters("Drops", &drops(status), out)?;
    counters("Kernel programs", &numbers(&status["kernel"], ""), out)?;
    sizes(&status["shell"], out)
}

fn configuration(config: &Value, out: &mut impl Write) -> io::Result<()> {
    let source = text(&config["source"]);
    if config["valid"] == true {
        return writeln!(
            out,
            "Configuration {source}: valid, {} peers",
            text(&config["peers"])
        );
    }
    writeln!(
        out,
        "Configuration {source}: INVALID, the last valid one stays in force ({} peers)\n{}",
        text(&config["peers"]),
        text(&config["error"])
    )
}

/// Prints a line with the cause for each broken path.
fn broken_paths(clusters: &Value, out: &mut impl Write) -> io::Result<()> {
    let clusters = clusters.as_object().into_iter().flatten();
    for (id, path) in clusters.filter(|(_, path)| path["healthy"] == false) {
        let (reason, message) = (text(&path["reason"]), text(&path["message"]));
        writeln!(out, "Path to {id} BROKEN, {reason}: {message}")?;
    }

    Ok(())
}

fn sessions(peers: &Value, out: &mut impl Write) -> io::Result<()> {
    const HEADER: [&str; 10] = [
        "PEER",
        "ROLE",
        "CONNECTION",
        "REPLICA",
        "ENDPOINT",
        "STATE",
        "HANDSHAKE",
        "RTT",
        "RX",
        "TX",
    ];
    let mut table = table();
    // Omits the column LANES if both gateways have a single lane.
    let with_lanes = list(peers).iter().any(|peer| {
        let sessions = list(&peer["sessions"]);
        let mut lanes = sessions
            .iter()
            .flat_map(|it| [&it["lane"], &it["remoteLane"]]);
        lanes.any(|lane| lane.as_u64() > Some(0))
    });
    table.set_header(HEADER.into_iter().chain(with_lanes.then_some("LANES")));
    for peer in list(peers) {
        let head = [
            text(&peer["clusterId"]),
            text(&peer["role"]),
            text(&peer["connection"]),
        ];
        let sessions = list(&peer["sessions"]);
        if sessions.is_empty() {
            table.add_row(
                head.iter()
                    .cloned()
                    .chain(std::iter::repeat_n("-".to_owned(), 7)),
            );
        }
        for session in sessions {
            let lanes = format!(
                "{} - {}",
                text(&session["lane"]),
                text(&session["remoteLane"])
            );
            let row = head.iter().cloned().chain([
                text(&session["replica"]),
                text(&session["endpoint"]),
                text(&session["state"]),
                age(&session["lastHandshakeAge"]),
                round_trip(&session["rtt"]),
                bytes(&session["rxBytes"]),
                bytes(&session["txBytes"]),
            ]);
            table.add_row(row.chain(with_lanes.then_some(lanes)));
        }
    }
    writeln!(out, "\n{table}")
}

fn counters(title: &str, counters: &[(String, u64)], out: &mut impl Write) -> io::Result<()> {
    if counters.is_empty() {
        return writeln!(out, "\n{title}: none");
    }
    let mut table = table();
    for (name, count) in counters {
        table.add_row([name.clone(), count.to_string()]);
    }
    writeln!(out, "\n{title}\n{table}")
}

/// Prints histograms of the sizes of packets and super-packets at the TAP.
fn sizes(shell: &Value, out: &mut impl Write) -> io::Result<()> {
    const BAR: u64 = 30;
    for (field, title) in [
        ("read", "Read from the TAP"),
        ("written", "Written to the TAP"),
    ] {
        let buckets: Vec<_> = list(&shell[field]["buckets"])
            .iter()
            .map(|count| count.as_u64().unwrap_or(0))
            .collect();
        let most = buckets.iter().copied().max().unwrap_or(0);
        writeln!(
            out,
            "\n{title}: {} packets and super-packets, {}",
            text(&shell[field]["count"]),
            bytes(&shell[field]["bytes"])
        )?;
        for (place, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bar =
                "#".repeat(usize::try_from(count.saturating_mul(BAR).div_ceil(most)).unwrap_or(0));
            writeln!(out, "  <= {:>6} bytes  {count:>12}  {bar}", 1_u64 << place)?;
        }
    }
    Ok(())
}

fn drops(status: &Value) -> Vec<(String, u64)> {
    let mut drops = numbers(&status["engine"]["drops"], "");
    drops.extend(numbers(&status["shell"]["drops"], ""));
    drops
}

fn numbers(map: &Value, prefix: &str) -> Vec<(String, u64)> {
    map.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, count)| Some((format!("{prefix}{name}"), count.as_u64()?)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn age(seconds: &Value) -> String {
    seconds
        .as_f64()
        .map_or_else(|| "-".into(), |seconds| format!("{seconds:.0} s ago"))
}

fn round_trip(seconds: &Value) -> String {
    let duration = seconds
        .as_f64()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.map_or_else(|| "-".into(), |rtt| format!("{rtt:.1?}"))
}

/// Formats a number of bytes with at most four digits and the smallest possible unit.
fn bytes(value: &Value) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let Some(mut number) = value.as_f64() else {
        return "-".into();
    };
    let mut unit = 0;
    while number >= 10_000.0 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    format!("{number:.0} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn peers_sessions_and_drops_are_printed() {
        let status = json!({
            "gateway": {"replica": "gw-1", "clusterId": "rome", "version": "0.0.0",
                        "instance": "gateway", "listenPort": 51840, "cipher": "ipsec-mb"},
            "config": {"source": "fabric.yaml", "valid": false, "error": "document 3: no", "peers": 1},
            "answers": true,
            "engine": {"leaving": false, "drops": {"replayed": 4}, "peers": [{
                "clusterId": "milan", "role": "server", "connection": "Connected",
                "sessions": [{"replica": "gw-2", "endpoint": "192.0.2.1:7", "state": "up",
                              "lastHandshakeAge": 12.4, "rtt": 0.0015,
                              "rxBytes": 123_456_789, "txBytes": 5}]}]},
            "shell": {"drops": {}, "read": {"count": 3, "bytes": 9, "buckets": [0, 1, 2]},
                      "written": {"count": 0, "bytes": 0, "buckets": []}},
        });
        let mut out = Vec::new();

        print(&status, &mut out).unwrap();

        let text = String::from_utf8(out).unwrap();
        for expected in [
            "UDP port 51840, cipher by ipsec-mb",
            "INVALID",
            "document 3: no",
            "milan",
            "Connected",
            "192.0.2.1:7",
            "12 s ago",
            "1.5ms",
            "123 MB",
            "replayed",
            "<=      4 bytes",
        ] {
            assert!(
                text.contains(expected),
                "{expected:?} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn a_document_of_another_version_is_printed() {
        let mut out = Vec::new();

        print(&json!({"answers": false}), &mut out).unwrap();
        print(&json!({}), &mut out).unwrap();
    }
}
