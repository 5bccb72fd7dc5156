//! Reads the kernel's network counters of a namespace, which `nstat` prints.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;

/// Returns all counters by name, such as `TcpInCsumErrors` or `IpInReceives`.
///
/// # Errors
///
/// Returns an error if `/proc/net` cannot be read.
pub fn read(netns: &Netns) -> Result<BTreeMap<String, u64>> {
    let text = netns.run(|| -> std::io::Result<String> {
        let mut text = fs::read_to_string("/proc/thread-self/net/snmp")?;
        text += &fs::read_to_string("/proc/thread-self/net/netstat")?;
        Ok(text)
    });

    text.map(|text| parse(&text))
        .with_context(|| format!("failed to read the counters of {}", netns.name()))
}

/// Returns the counters of received packets with a wrong checksum or header, if they are not zero.
///
/// # Errors
///
/// Returns an error if `/proc/net` cannot be read.
pub fn broken(netns: &Netns) -> Result<BTreeMap<String, u64>> {
    let mut counters = read(netns)?;
    // The kernel also counts retransmitted SYNs of open connections as errors. Subtract them.
    let repeated = counters.get("TcpExtTCPSYNChallenge").copied();
    if let Some(errors) = counters.get_mut("TcpInErrs") {
        *errors = errors.saturating_sub(repeated.unwrap_or_default());
    }
    counters.retain(|name, value| *value > 0 && BROKEN.contains(&name.as_str()));

    Ok(counters)
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .chunks(2)
        .filter_map(|pair| {
            let [names, values] = pair else { return None };
            let (group, names) = names.split_once(':')?;
            let (_, values) = values.split_once(':')?;
            let pairs = names.split_whitespace().zip(values.split_whitespace());
            Some(pairs.filter_map(move |(name, value)| {
                Some((format!("{group}{name}"), value.parse().ok()?))
            }))
        })
        .flatten()
        .collect()
}

/// Names of the counters of received packets with a wrong checksum or header.
const BROKEN: [&str; 9] = [
    "IpExtInCsumErrors",
    "IpInHdrErrors",
    "IpExtInTruncatedPkts",
    "TcpInErrs",
    "TcpInCsumErrors",
    "UdpInErrors",
    "UdpInCsumErrors",
    "IcmpInCsumErrors",
    "IcmpInErrors",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_counter_begins_with_its_group() {
        let counters = parse("Tcp: ActiveOpens InErrs\nTcp: 7 3\nUdp: InErrors\nUdp: 1\n");

        assert_eq!(counters["TcpActiveOpens"], 7);
        assert_eq!(counters["TcpInErrs"], 3);
        assert_eq!(counters["UdpInErrors"], 1);
    }
}
