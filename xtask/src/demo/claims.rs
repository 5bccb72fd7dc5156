//! The claims of the demo on network namespaces, each with a check.
//!
//! A check sends traffic between the clusters as a user would. A value that the kernel, a packet
//! capture or the server reports decides whether the claim holds.

mod failure;
mod path;
mod reach;

use super::report::Throughput;
use super::scenario::Scenario;
use anyhow::Result;

#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// The identifier of the claim in the JSON output, which must not change.
    pub(super) name: &'static str,
    /// A description of the check for the console.
    pub(super) why: &'static str,
    pub(super) judge: fn(&mut Scenario) -> Result<Verdict>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) pass: bool,
    /// The measured value as a sentence.
    pub(super) measured: String,
    /// The throughput, if the check measures throughput.
    pub(super) throughput: Option<Throughput>,
}

impl Verdict {
    /// Returns a verdict without throughput.
    pub(super) fn new(pass: bool, measured: impl Into<String>) -> Self {
        Self {
            pass,
            measured: measured.into(),
            throughput: None,
        }
    }
}

/// All claims except `clean-up`, which is checked when the clusters are removed. Claims that kill
/// gateways come last.
pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "pod-to-pod",
        why: "a pod in rome opens a TCP connection to a pod in milan",
        judge: reach::pod_to_pod,
    },
    Check {
        name: "pod-to-pod-back",
        why: "a pod in milan opens a TCP connection to a pod in rome",
        judge: reach::pod_to_pod_back,
    },
    Check {
        name: "same-address",
        why: "client and server have the same address in their own clusters",
        judge: reach::same_address,
    },
    Check {
        name: "source-seen",
        why: "the server sees the client's address remapped to its own cluster's prefix for rome",
        judge: reach::source_seen,
    },
    Check {
        name: "host-to-pod",
        why: "a node is the client; milan sees an address of rome's external CIDR",
        judge: reach::host_to_pod,
    },
    Check {
        name: "tcp-intact",
        why: "256 MiB over TCP, each byte compared, and no wrong checksum at either end",
        judge: reach::tcp_intact,
    },
    Check {
        name: "udp",
        why: "an echo server returns datagrams unchanged",
        judge: reach::udp,
    },
    Check {
        name: "large-udp",
        why: "datagrams of 60,000 bytes are fragmented and reassembled",
        judge: reach::large_udp,
    },
    Check {
        name: "icmp",
        why: "ping",
        judge: reach::icmp,
    },
    Check {
        name: "icmp-error",
        why: "the sending socket gets \"port unreachable\", whose quoted header was remapped",
        judge: reach::icmp_error,
    },
    Check {
        name: "encrypted-on-the-wire",
        why: "a text is sent, and a capture between the clusters is searched for it",
        judge: path::encrypted,
    },
    Check {
        name: "mtu-1280",
        why: "the path between the clusters shrinks from 1500 to 1280 bytes",
        judge: path::narrow,
    },
    Check {
        name: "replica-killed",
        why: "a gateway of each cluster is killed (SIGKILL) under eight running connections",
        judge: failure::replica_killed,
    },
    Check {
        name: "no-leak",
        why: "rome's last gateway is killed: packets are rejected, and none leaves on another route",
        judge: failure::no_leak,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_check_has_its_own_name() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();

        assert_eq!(names.len(), CHECKS.len());
    }
}
