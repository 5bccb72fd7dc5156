//! The promises, and the judge of each.
//!
//! A judge does what a user would do, and decides by what the kernel, a capture
//! or the server reports.

mod failure;
mod path;
mod reach;

use super::report::Throughput;
use super::stage::Stage;
use anyhow::Result;

/// A promise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// Its name, which never changes.
    pub(super) name: &'static str,
    /// What is done, and why it matters.
    pub(super) why: &'static str,
    /// Finds out whether it holds.
    pub(super) judge: fn(&mut Stage) -> Result<Verdict>,
}

/// What a judge found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Whether the promise holds.
    pub(super) pass: bool,
    /// The value that decided.
    pub(super) measured: String,
    /// The throughput, where the judge measured it.
    pub(super) throughput: Option<Throughput>,
}

impl Verdict {
    /// A verdict without throughput.
    pub(super) fn new(pass: bool, measured: impl Into<String>) -> Self {
        Self {
            pass,
            measured: measured.into(),
            throughput: None,
        }
    }
}

/// All promises but the last, `clean-up`; the destructive ones at the end.
pub(super) const PROMISES: &[Promise] = &[
    Promise {
        name: "pod-to-pod",
        why: "a pod in rome opens a TCP connection to a pod in milan",
        judge: reach::pod_to_pod,
    },
    Promise {
        name: "pod-to-pod-back",
        why: "and one in the other direction, from milan to rome",
        judge: reach::pod_to_pod_back,
    },
    Promise {
        name: "same-address",
        why: "both ends have the same address, and neither knows",
        judge: reach::same_address,
    },
    Promise {
        name: "source-seen",
        why: "the server sees the client under its own cluster's prefix for rome, so it can answer",
        judge: reach::source_seen,
    },
    Promise {
        name: "host-to-pod",
        why: "a node itself is the client; it has an address of rome's external CIDR there",
        judge: reach::host_to_pod,
    },
    Promise {
        name: "tcp-intact",
        why: "much data, each byte compared, no broken checksum at either end",
        judge: reach::tcp_intact,
    },
    Promise {
        name: "udp",
        why: "datagrams come back unchanged",
        judge: reach::udp,
    },
    Promise {
        name: "large-udp",
        why: "datagrams of 60,000 bytes cross in fragments and are joined again",
        judge: reach::large_udp,
    },
    Promise {
        name: "icmp",
        why: "ping",
        judge: reach::icmp,
    },
    Promise {
        name: "icmp-error",
        why: "\"port unreachable\" finds its way back to the very socket, quoted header and all",
        judge: reach::icmp_error,
    },
    Promise {
        name: "encrypted-on-the-wire",
        why: "a text is sent; a wiretap between the clusters looks for it",
        judge: path::encrypted,
    },
    Promise {
        name: "mtu-1280",
        why: "the path between the clusters shrinks from 1500 to 1280 bytes",
        judge: path::narrow,
    },
    Promise {
        name: "replica-killed",
        why: "a gateway of each cluster is killed (SIGKILL) under eight running connections",
        judge: failure::replica_killed,
    },
    Promise {
        name: "no-leak",
        why: "rome's last gateway is killed too: packets must be refused, not sent another way",
        judge: failure::no_leak,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_promise_is_made_once() {
        let names: BTreeSet<_> = PROMISES.iter().map(|promise| promise.name).collect();

        assert_eq!(names.len(), PROMISES.len());
    }
}
